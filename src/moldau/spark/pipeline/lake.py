"""Offline loads: Spark stages batches, and the driver publishes each exactly once. A shell.

Spark's own file sink is exactly once for Spark alone: what failed attempts left lies beside the
rest, and only its metadata log tells them apart. Here Spark writes where no reader looks; the
driver then writes down which files the batch has, and renames them to where they belong. A batch
that is written down is never written again, and one that is not was never seen.
"""

from __future__ import annotations

import json
import shutil
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from moldau.errors import ConfigurationError, InvariantViolation
from moldau.spark.pipeline.checkpoint import FILES, create_whole, find_text, write_whole
from moldau.spark.pipeline.model import LakeSink
from moldau.spark.pipeline.rules import lake as layout
from moldau.spark.pipeline.rules.lake import JournalEntry, Move

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


# What a lake remembers of the query that loads it: its journal, its staging, its columns. Used by
# the driver alone, one batch at a time.


_OWNER = "owner.json"
_COLUMNS = "columns.json"
_KEPT_ENTRIES = 100
"""Spark runs no batch again but the last; the others are kept for people who look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Where one attempt at a batch is written. A dead driver's tasks have another one."""

    name: str
    """Relative to the lake."""
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What became of a batch."""

    row_count: int
    size_bytes: int
    rows_by_folder: dict[str, int]


class Lake(ABC):
    """Where batches of one query go: a folder of Parquet files, or a Delta table."""

    def __init__(self, folder: Path, query_id: str, *, target_bytes: int) -> None:
        self.folder = folder
        self.query_id = query_id
        self._target_bytes = target_bytes
        self._own = layout.query_folder(query_id)
        self._journal = folder / self._own / layout.JOURNAL_FOLDER

    @abstractmethod
    def load_batch(self, batch_id: int, staging: Staging) -> Loaded:
        """Publish what was staged for a batch."""

    @abstractmethod
    def compact(self, folders: Iterable[str], *, is_closed: bool) -> int:
        """Merge small files in these folders; how many files there are fewer."""

    @abstractmethod
    def find_folders(self) -> list[str]:
        """The folders that have files of pipelines, relative to the lake."""

    # Beginning

    def claim(self, *, has_progress: bool) -> None:
        """Take the lake, and finish what an earlier run left; raises ConfigurationError.

        `has_progress` tells whether Spark's checkpoint knows of any batch.
        """
        self._journal.mkdir(parents=True, exist_ok=True)
        self._require_own()
        entries = self._batch_entries()
        if entries and not has_progress:
            self.refuse_empty_checkpoint(max(entries))
        self._finish_compaction()
        for batch_id in entries:
            self._apply(self._read(layout.batch_entry(batch_id)))
        self._clear_staging()

    def _require_own(self) -> None:
        owner = self.folder / layout.STATE_FOLDER / _OWNER
        if create_whole(owner, json.dumps({"query": self.query_id})):
            return
        found = json.loads(owner.read_text()).get("query")
        if found != self.query_id:
            raise ConfigurationError(
                f"{self.folder} was loaded with another checkpoint (query {found}): with this one "
                "its records would be loaded a second time; put that checkpoint back, or load into "
                f"another folder. To add to what is there all the same, remove {owner}"
            )

    def refuse_empty_checkpoint(self, last_batch_id: int) -> NoReturn:
        """Batches are numbered anew from an empty checkpoint: they would count twice, or not."""
        raise ConfigurationError(
            f"{self.folder} has batches up to {last_batch_id} of this pipeline, and the pipeline's "
            "checkpoint is empty: what is loaded and what is not could not be told apart; put the "
            "checkpoint back, or load into another folder"
        )

    def add_columns(self, columns: Mapping[str, str]) -> None:
        """Note the columns of what will be written; raises ConfigurationError."""
        path = self.folder / layout.STATE_FOLDER / _COLUMNS
        text = find_text(path)
        kept: dict[str, str] = {} if text is None else json.loads(text)
        grown = layout.grow_columns(kept, columns, str(self.folder))
        if grown != kept:
            write_whole(path, json.dumps(grown, indent=1))

    # Batches

    def is_loaded(self, batch_id: int) -> bool:
        """Whether the batch counts as loaded; what was left of its moves is done."""
        text = find_text(self._journal / layout.batch_entry(batch_id))
        if text is None:
            return False
        self._apply(layout.decode_entry(text, layout.batch_entry(batch_id)))
        return True

    def new_staging(self, label: str) -> Staging:
        """A folder of its own for one attempt; not made yet."""
        name = f"{self._own}/{layout.STAGING_FOLDER}/{label}-{uuid.uuid4().hex}"
        return Staging(name=name, folder=self.folder / name)

    def inspect_staged(self, staging: Staging, batch_id: int) -> tuple[list[Move], Loaded]:
        """What was staged, and where it will go."""
        staged = [
            str(path.relative_to(staging.folder)) for path in staging.folder.rglob("*.parquet")
        ]
        moves = layout.plan_moves(self.query_id, batch_id, staging.name, staged)
        rows: dict[str, int] = defaultdict(int)
        size_bytes = 0
        for move in moves:
            path = self.folder / move.staged
            rows[move.published.rpartition("/")[0]] += count_rows(path)
            size_bytes += path.stat().st_size
        return moves, Loaded(
            row_count=sum(rows.values()), size_bytes=size_bytes, rows_by_folder=dict(rows)
        )

    def sync_staged(self, moves: Iterable[Move]) -> None:
        """Have the disk take what Spark wrote."""
        for move in moves:
            FILES.sync_folder(self.folder / move.staged)

    def publish_batch(self, batch_id: int, entry: JournalEntry) -> bool:
        """Make the batch count, then show its files; False when it counts already."""
        self.sync_staged(entry.moves)
        is_first = create_whole(
            self._journal / layout.batch_entry(batch_id), layout.encode_entry(entry)
        )
        if is_first:
            self._apply(entry)
            self._forget_before(batch_id - _KEPT_ENTRIES)
        return is_first

    def replace_files(self, entry: JournalEntry) -> None:
        """Put merged files in the place of others."""
        self.sync_staged(entry.moves)
        write_whole(self._journal / layout.COMPACTION_ENTRY, layout.encode_entry(entry))
        self._finish_compaction()

    def remove_staging(self, staging: Staging) -> None:
        shutil.rmtree(staging.folder, ignore_errors=True)

    # The journal

    def _finish_compaction(self) -> None:
        path = self._journal / layout.COMPACTION_ENTRY
        text = find_text(path)
        if text is not None:
            self._apply(layout.decode_entry(text, layout.COMPACTION_ENTRY))
            path.unlink()

    def _apply(self, entry: JournalEntry) -> None:
        """Do what the entry says, as far as it is not done."""
        folders: set[Path] = set()
        for name in entry.remove:
            (self.folder / name).unlink(missing_ok=True)
        for move in entry.moves:
            staged, published = self.folder / move.staged, self.folder / move.published
            if FILES.exists(staged):
                published.parent.mkdir(parents=True, exist_ok=True)
                staged.replace(published)
                folders.add(published.parent)
        for folder in folders:
            FILES.sync_folder(folder)

    def _read(self, name: str) -> JournalEntry:
        return layout.decode_entry((self._journal / name).read_text(), name)

    def _batch_entries(self) -> list[int]:
        found = (layout.find_batch_id(path.name) for path in self._journal.iterdir())
        return sorted(batch_id for batch_id in found if batch_id is not None)

    def _forget_before(self, batch_id: int) -> None:
        for old in self._batch_entries():
            if old >= batch_id:
                return
            (self._journal / layout.batch_entry(old)).unlink(missing_ok=True)

    def _clear_staging(self) -> None:
        """What was staged and is in no entry was never published, and is loaded anew."""
        shutil.rmtree(self.folder / self._own / layout.STAGING_FOLDER, ignore_errors=True)


# Parquet files, read and merged by pyarrow in the driver


_ROW_GROUP_BYTES = 64 * 1024 * 1024
_READ_ROWS = 64 * 1024


def count_rows(path: Path) -> int:
    """How many rows a file has, by its footer."""
    return int(pq.read_metadata(path).num_rows)


def read_columns(path: Path) -> pa.Schema:
    """The columns of a file, without what Spark notes about them: it would outlive its truth."""
    return pq.read_schema(path).remove_metadata()


def write_columns(schema: pa.Schema, path: Path) -> None:
    """Note the columns of many files in one that has no rows."""
    temporary = path.with_name(f"{path.name}.new")
    pq.write_metadata(schema, temporary)
    temporary.replace(path)


def merge_files(paths: Sequence[Path], target: Path) -> int:
    """Write the rows of several files into one, in their order; how many rows there are.

    The columns are those of all of them; where a file lacks one, its rows have null.
    """
    schema = pa.unify_schemas([read_columns(path) for path in paths])
    target.parent.mkdir(parents=True, exist_ok=True)
    row_count = 0
    with pq.ParquetWriter(target, schema, compression=_find_compression(paths[0])) as writer:
        for table in _gather_tables(_read_batches(paths, schema), schema):
            writer.write_table(table)
            row_count += table.num_rows
    return row_count


def _read_batches(paths: Iterable[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_READ_ROWS):
                yield _conform(batch, schema)


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _gather_tables(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Tables large enough to be row groups."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held, schema)
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held, schema)


def _find_compression(path: Path) -> str:
    """The codec of the first column chunk, as pyarrow names it when it writes."""
    metadata = pq.read_metadata(path)
    if not metadata.num_row_groups or not metadata.num_columns:
        return "snappy"
    codec = str(metadata.row_group(0).column(0).compression).lower()
    return "none" if codec == "uncompressed" else codec


# A folder of Parquet files, loaded exactly once for every reader


class ParquetLake(Lake):
    """Publishes batches into one folder, and merges its small files."""

    def __init__(self, folder: Path, query_id: str, *, target_bytes: int, min_files: int) -> None:
        super().__init__(folder, query_id, target_bytes=target_bytes)
        self._min_files = min_files

    def load_batch(self, batch_id: int, staging: Staging) -> Loaded:
        moves, loaded = self.inspect_staged(staging, batch_id)
        if moves:
            self._note_columns(moves[0])
            entry = JournalEntry(remove=(), moves=tuple(moves), row_count=loaded.row_count)
            self.publish_batch(batch_id, entry)
        self.remove_staging(staging)
        return loaded

    def compact(self, folders: Iterable[str], *, is_closed: bool) -> int:
        fewer = 0
        for folder in sorted(folders):
            for group in self._plan(folder, is_closed):
                self._merge(folder, group)
                fewer += len(group) - 1
        return fewer

    def find_folders(self) -> list[str]:
        found = {
            str(path.parent.relative_to(self.folder))
            for path in self.folder.rglob("*.parquet")
            if layout.is_published_part(path.name) and not _is_hidden(path, self.folder)
        }
        return sorted("" if folder == "." else folder for folder in found)

    def _plan(self, folder: str, is_closed: bool) -> list[tuple[str, ...]]:
        files = [
            layout.FileSize(path=str(path.relative_to(self.folder)), size_bytes=path.stat().st_size)
            for path in (self.folder / folder).glob("*.parquet")
            if layout.is_published_part(path.name)
        ]
        return layout.plan_compaction(
            files,
            target_bytes=self._target_bytes,
            min_files=self._min_files,
            is_closed=is_closed,
        )

    def _merge(self, folder: str, group: tuple[str, ...]) -> None:
        staging = self.new_staging("compact")
        # By chance: a name that came again could take the place of rows that nobody merged.
        name = f"merged-{layout.short_query(self.query_id)}-{uuid.uuid4().hex}.parquet"
        rows = merge_files([self.folder / path for path in group], staging.folder / name)
        published = f"{folder}/{name}" if folder else name
        move = Move(staged=f"{staging.name}/{name}", published=published)
        self.replace_files(JournalEntry(remove=group, moves=(move,), row_count=rows))
        self.remove_staging(staging)

    def _note_columns(self, move: Move) -> None:
        """Keep `_common_metadata` complete: a reader that takes its columns misses none."""
        path = self.folder / layout.COMMON_METADATA
        new = read_columns(self.folder / move.staged)
        for name in layout.partition_values(move.published):
            new = new.append(pa.field(name, pa.string()))
        kept = read_columns(path) if FILES.exists(path) else pa.schema([])
        grown = pa.unify_schemas([kept, new])
        if grown != kept:
            write_columns(grown, path)


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)


# What happens to each batch. Called by Spark in the driver, one batch after the other. Compaction
# happens here as well, between two batches, so that nothing else moves files meanwhile.


Now = Callable[[], datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTotals:
    """What a run has loaded so far."""

    rows: int = 0
    size_bytes: int = 0
    late_rows: int = 0
    merged_files: int = 0


def open_lake(sink: LakeSink, query_id: str) -> Lake:
    """The lake of a sink, in the hands of one query."""
    folder = Path(sink.folder)
    if sink.format == "delta":
        from moldau.spark.pipeline.delta_lake import DeltaLake

        return DeltaLake(folder, query_id, target_bytes=sink.target_file_bytes)
    return ParquetLake(
        folder,
        query_id,
        target_bytes=sink.target_file_bytes,
        min_files=sink.compact_min_files,
    )


class LakeLoader:
    """Loads the batches of one query."""

    def __init__(self, sink: LakeSink, folders: dict[str, str], now: Now) -> None:
        self._opened: Lake | None = None
        self._sink = sink
        self._folders = folders
        self._now = now
        self.totals = LoadTotals()  # replaced, never changed: others read it

    def use_lake(self, lake: Lake) -> None:
        """Load into this lake; called before the first batch."""
        self._opened = lake

    @property
    def _lake(self) -> Lake:
        if self._opened is None:
            raise InvariantViolation(f"sink {self._sink.name} loads before it has its lake")
        return self._opened

    def load_batch(self, frame: DataFrame, batch_id: int) -> bool:
        """Load one batch, unless it has been loaded: Spark may not know that. Whether it did."""
        if self._lake.is_loaded(batch_id):
            return False
        staging = self._lake.new_staging(f"{batch_id:010d}")
        self._stage(frame, staging)
        loaded = self._lake.load_batch(batch_id, staging)
        self._count(loaded)
        if self._sink.compact and loaded.row_count:
            self._add_merged(self._compact(loaded.rows_by_folder))
        return True

    def finish(self) -> None:
        """Merge what is left of small files; called when a run that has an end is over."""
        if self._sink.compact:
            self._add_merged(self._lake.compact(self._lake.find_folders(), is_closed=True))

    def _stage(self, frame: DataFrame, staging: Staging) -> None:
        staged = frame.withColumns({name: F.expr(sql) for name, sql in self._folders.items()})
        if self._folders:
            # Rows of one folder come together, in partitions of about the target size.
            staged = staged.hint("rebalance", *self._folders)
        staged.write.partitionBy(*self._folders).mode("overwrite").parquet(str(staging.folder))

    def _compact(self, folders: Iterable[str]) -> int:
        now = self._now()
        late_after = timedelta(milliseconds=self._sink.late_after_ms)
        closed = [
            one
            for one in folders
            if (end := layout.plan_end(one)) is not None and end + late_after < now
        ]
        fewer = self._lake.compact(closed, is_closed=True) if closed else 0
        still_open = set(folders) - set(closed)
        return fewer + (self._lake.compact(still_open, is_closed=False) if still_open else 0)

    def _count(self, loaded: Loaded) -> None:
        late = layout.count_late(
            loaded.rows_by_folder,
            now=self._now(),
            late_after=timedelta(milliseconds=self._sink.late_after_ms),
        )
        totals = self.totals
        self.totals = replace(
            totals,
            rows=totals.rows + loaded.row_count,
            size_bytes=totals.size_bytes + loaded.size_bytes,
            late_rows=totals.late_rows + late,
        )

    def _add_merged(self, fewer: int) -> None:
        self.totals = replace(self.totals, merged_files=self.totals.merged_files + fewer)


def system_now() -> datetime:
    return datetime.now(UTC)
