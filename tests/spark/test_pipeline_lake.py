"""Lakes that are loaded exactly once: whatever moment the driver dies at, and whoever reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from moldau.errors import ConfigurationError, StartupError
from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.lake import Lake, ParquetLake
from moldau.spark.pipeline.rules.lake import COMMON_METADATA, batch_entry, decode_entry

QUERY = "11111111-0000-4000-8000-000000000000"
OTHER = "22222222-0000-4000-8000-000000000000"
HOURS = ("date=2026-11-15/hour=04", "date=2026-11-15/hour=05")


class Killed(BaseException):
    """The driver is no more."""


def open_parquet(folder: Path, query: str = QUERY, *, has_progress: bool = True) -> ParquetLake:
    lake = ParquetLake(folder, query, target_bytes=1_000_000, min_files=3)
    lake.claim(has_progress=has_progress)
    return lake


def load(lake: Lake, batch_id: int, columns: tuple[str, ...] = ("n",), *, parts: int = 1) -> None:
    """A batch of two rows in each of two hours, as Spark stages it, in one file or in two."""
    if lake.is_loaded(batch_id):
        return
    staging = lake.new_staging(f"{batch_id}")
    for number, hour in enumerate(HOURS):
        (staging.folder / hour).mkdir(parents=True)
        first = batch_id * 4 + number * 2
        table = pa.table({name: [first, first + 1] for name in columns})
        for part in range(parts):
            piece = table.slice(part * 2 // parts, 2 // parts)
            pq.write_table(piece, staging.folder / hour / f"part-{part}.parquet")
    (staging.folder / "_SUCCESS").touch()
    lake.load_batch(batch_id, staging)


def rows(folder: Path) -> list[int]:
    """What somebody sees who knows nothing of pipelines."""
    return sorted(pq.read_table(folder)["n"].to_pylist())


def count_files(folder: Path) -> int:
    return sum(1 for hour in HOURS for _ in (folder / hour).glob("*.parquet"))


def test_a_batch_is_seen_once_it_is_loaded_and_loading_it_again_changes_nothing(
    tmp_path: Path,
) -> None:
    lake = open_parquet(tmp_path)
    for batch_id in (0, 1, 1, 0):
        load(lake, batch_id)
    assert rows(tmp_path) == list(range(8))
    assert not list((tmp_path / "_moldau").rglob("*.parquet"))


def test_what_is_staged_is_not_seen_and_is_gone_after_the_next_start(tmp_path: Path) -> None:
    lake = open_parquet(tmp_path)
    load(lake, 0)
    staging = lake.new_staging("1")
    staging.folder.mkdir(parents=True)
    pq.write_table(pa.table({"n": [99]}), staging.folder / "part-0.parquet")
    assert rows(tmp_path) == list(range(4))
    open_parquet(tmp_path)
    assert not staging.folder.exists()


def test_what_cannot_be_looked_at_does_not_count_as_published_or_absent(tmp_path: Path) -> None:
    lake = open_parquet(tmp_path)
    load(lake, 0)
    columns = tmp_path / COMMON_METADATA
    columns.unlink()
    columns.symlink_to(columns)
    with pytest.raises(OSError, match="symbolic links"):
        load(lake, 1)
    assert columns.is_symlink()
    columns.unlink()
    (journal,) = tmp_path.rglob(batch_entry(0))
    staged = tmp_path / decode_entry(journal.read_text(), journal.name).moves[0].staged
    staged.parent.mkdir(parents=True)
    staged.symlink_to(staged)
    with pytest.raises(OSError, match="symbolic links"):
        open_parquet(tmp_path)
    assert staged.is_symlink()


def die_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> Callable[[], None]:
    """Have the driver die before its next rename, link or removal, once so many were done."""
    left = steps
    real = {name: getattr(os, name) for name in ("replace", "link", "unlink")}

    def counted(name: str) -> Callable[..., None]:
        def step(*arguments: object, **more: object) -> None:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            real[name](*arguments, **more)

        return step

    for name in real:
        monkeypatch.setattr(os, name, counted(name))
    return monkeypatch.undo


@pytest.mark.parametrize("steps", range(14))
def test_a_driver_that_dies_at_any_step_leaves_each_row_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    load(open_parquet(tmp_path), 0)
    lake = open_parquet(tmp_path)
    revive = die_after(monkeypatch, steps)
    try:
        load(lake, 1, parts=2)  # Spark may cut a batch otherwise when it runs it again
    except Killed:
        pass
    finally:
        revive()
    seen = rows(tmp_path)
    assert len(seen) == len(set(seen)), "a reader sees rows twice"
    again = open_parquet(tmp_path)
    load(again, 1)  # Spark runs the batch again that it has not noted as done
    assert rows(tmp_path) == list(range(8))


@pytest.mark.parametrize("steps", range(14))
def test_a_driver_that_dies_while_it_merges_files_leaves_each_row_exactly_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    lake = open_parquet(tmp_path)
    for batch_id in range(3):
        load(lake, batch_id)
    revive = die_after(monkeypatch, steps)
    try:
        lake.compact(HOURS, is_closed=False)
    except Killed:
        pass
    finally:
        revive()
    seen = rows(tmp_path)
    assert len(seen) == len(set(seen)), "a reader sees rows twice"
    open_parquet(tmp_path).compact(HOURS, is_closed=False)
    assert rows(tmp_path) == list(range(12))
    assert count_files(tmp_path) == 2


def test_small_files_are_merged_and_others_peoples_files_are_not_touched(tmp_path: Path) -> None:
    lake = open_parquet(tmp_path)
    for batch_id in range(4):
        load(lake, batch_id)
    foreign = tmp_path / HOURS[0] / "foreign.parquet"
    pq.write_table(pa.table({"n": [1000]}), foreign)
    assert lake.find_folders() == list(HOURS)
    assert lake.compact(lake.find_folders(), is_closed=False) == 6
    assert foreign.exists()
    assert rows(tmp_path) == [*range(16), 1000]
    assert count_files(tmp_path) == 3


def test_a_column_that_is_added_is_null_in_what_was_there_before(tmp_path: Path) -> None:
    lake = open_parquet(tmp_path)
    load(lake, 0)
    load(lake, 1, ("n", "m"))
    columns = pq.read_schema(tmp_path / "_common_metadata")
    assert sorted(columns.names) == ["date", "hour", "m", "n"]
    table = pq.read_table(tmp_path, schema=columns)
    assert sorted(table["m"].to_pylist(), key=str) == [4, 5, 6, 7, None, None, None, None]
    lake.compact(HOURS, is_closed=True)
    assert sorted(pq.read_table(tmp_path)["m"].to_pylist(), key=str)[-1] is None


def test_columns_may_not_vanish(tmp_path: Path) -> None:
    lake = open_parquet(tmp_path)
    lake.add_columns({"n": "bigint"})
    lake.add_columns({"n": "bigint", "m": "string"})
    with pytest.raises(ConfigurationError, match="has the column 'm', which is no longer written"):
        lake.add_columns({"n": "bigint"})


def test_another_checkpoint_is_refused_before_it_loads_everything_again(tmp_path: Path) -> None:
    load(open_parquet(tmp_path), 0)
    with pytest.raises(ConfigurationError, match="was loaded with another checkpoint"):
        open_parquet(tmp_path, OTHER)
    with pytest.raises(ConfigurationError, match="checkpoint is empty"):
        open_parquet(tmp_path, has_progress=False)


def test_old_entries_of_the_journal_are_forgotten(tmp_path: Path) -> None:
    lake = open_parquet(tmp_path)
    for batch_id in (0, 1, 101, 102):
        load(lake, batch_id)
    assert not lake.is_loaded(0)
    assert lake.is_loaded(102)
    assert rows(tmp_path) == sorted([*range(8), *range(404, 412)])


# Delta


def test_a_delta_table_takes_each_batch_once(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    from moldau.spark.pipeline.delta_lake import DeltaLake

    def open_delta() -> DeltaLake:
        lake = DeltaLake(tmp_path, QUERY, target_bytes=1_000_000)
        lake.claim(has_progress=True)
        return lake

    lake = open_delta()
    for batch_id in (0, 1, 1, 0):
        load(lake, batch_id)
    # Files of an attempt that never committed are in the table's folder, and no part of it.
    orphan = tmp_path / HOURS[0] / "load-11111111-0000000002-0000.parquet"
    pq.write_table(pa.table({"n": [99]}), orphan)
    again = open_delta()
    load(again, 1)
    load(again, 2, ("n", "m"))
    table = deltalake.DeltaTable(tmp_path)
    assert table.transaction_version(QUERY) == 2
    found = pa.table(table.to_pyarrow_table())
    assert sorted(found["n"].to_pylist()) == list(range(12))
    assert sorted(found.column_names) == ["date", "hour", "m", "n"]
    assert again.compact((), is_closed=True) == 4
    assert deltalake.DeltaTable(tmp_path).to_pyarrow_table().num_rows == 12
    with pytest.raises(ConfigurationError, match=r"batches up to 2 .* checkpoint is empty"):
        again.claim(has_progress=False)


# The checkpoint


def test_one_process_runs_a_pipeline_at_a_time(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint")
    assert checkpoint.find_runner() is None
    with checkpoint.locked():
        assert checkpoint.find_runner() == os.getpid()
        with (
            pytest.raises(StartupError, match=f"running already, in process {os.getpid()}"),
            Checkpoint(checkpoint.folder).locked(),
        ):
            pass
    assert checkpoint.find_runner() is None


def test_a_query_keeps_its_identity_and_its_place(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.query_id("lake") == checkpoint.query_id("lake") != checkpoint.query_id("x")
    assert not checkpoint.has_progress("lake")
    assert checkpoint.find_positions("lake") == {}
    for name, text in (("offsets/0", '{"t":{"0":5}}'), ("offsets/1", '{"t":{"0":9}}')):
        path = tmp_path / "lake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"v1\n{{}}\n{text}")
    (tmp_path / "lake" / "commits").mkdir()
    (tmp_path / "lake" / "commits" / "0").write_text("v1\n{}")
    assert checkpoint.has_progress("lake")
    assert checkpoint.find_positions("lake") == {"t": {0: 5}}
