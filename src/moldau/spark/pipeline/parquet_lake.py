"""A folder of Parquet files, loaded exactly once for whoever reads it, with whatever reader.

Spark's own file sink is exactly once for Spark alone: what failed attempts left lies beside the
rest, and only its metadata log tells them apart. Here Spark writes where no reader looks; the
driver then notes what the batch is made of, and renames the files to where they belong. A batch
that is noted is never written again, one that is not noted was never seen. A shell.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from moldau.spark.pipeline.durable_files import is_there
from moldau.spark.pipeline.lake_state import LakeState, Staging
from moldau.spark.pipeline.parquet_files import (
    count_rows,
    merge_files,
    read_columns,
    write_columns,
)
from moldau.spark.pipeline.rules.lake import (
    COMMON_METADATA,
    FileSize,
    JournalEntry,
    Move,
    is_published_part,
    partition_values,
    plan_compaction,
    plan_moves,
    short_query,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What became of a batch."""

    row_count: int
    size_bytes: int
    rows_by_folder: dict[str, int]


def inspect_staged(state: LakeState, staging: Staging, batch_id: int) -> tuple[list[Move], Loaded]:
    """What was staged, and where it will go."""
    staged = [str(path.relative_to(staging.folder)) for path in staging.folder.rglob("*.parquet")]
    moves = plan_moves(state.query_id, batch_id, staging.name, staged)
    rows: dict[str, int] = defaultdict(int)
    size_bytes = 0
    for move in moves:
        path = state.folder / move.staged
        rows[move.published.rpartition("/")[0]] += count_rows(path)
        size_bytes += path.stat().st_size
    loaded = Loaded(row_count=sum(rows.values()), size_bytes=size_bytes, rows_by_folder=dict(rows))
    return moves, loaded


class ParquetLake:
    """Publishes batches into one folder, and merges its small files."""

    def __init__(self, state: LakeState, *, target_bytes: int, min_files: int) -> None:
        self.state = state
        self._target_bytes = target_bytes
        self._min_files = min_files

    def begin(self, *, has_progress: bool) -> None:
        """Take the folder, and finish what an earlier run left; raises ConfigurationError."""
        self.state.begin(has_progress=has_progress)

    def is_loaded(self, batch_id: int) -> bool:
        return self.state.is_loaded(batch_id)

    def load(self, batch_id: int, staging: Staging) -> Loaded:
        """Publish what was staged for a batch."""
        moves, loaded = inspect_staged(self.state, staging, batch_id)
        if moves:
            self._note_columns(moves[0])
            entry = JournalEntry(remove=(), moves=tuple(moves), row_count=loaded.row_count)
            self.state.publish(batch_id, entry)
        self.state.drop(staging)
        return loaded

    def compact(self, folders: Iterable[str], *, is_closed: bool) -> int:
        """Merge small files in these folders; how many files there are fewer."""
        fewer = 0
        for folder in sorted(folders):
            for group in self._plan(folder, is_closed):
                self._merge(folder, group)
                fewer += len(group) - 1
        return fewer

    def all_folders(self) -> list[str]:
        """The folders that have files of pipelines, relative to the lake."""
        found = {
            str(path.parent.relative_to(self.state.folder))
            for path in self.state.folder.rglob("*.parquet")
            if is_published_part(path.name) and not _is_hidden(path, self.state.folder)
        }
        return sorted("" if folder == "." else folder for folder in found)

    def _plan(self, folder: str, is_closed: bool) -> list[tuple[str, ...]]:
        files = [
            FileSize(path=str(path.relative_to(self.state.folder)), size_bytes=path.stat().st_size)
            for path in (self.state.folder / folder).glob("*.parquet")
            if is_published_part(path.name)
        ]
        return plan_compaction(
            files,
            target_bytes=self._target_bytes,
            min_files=self._min_files,
            is_closed=is_closed,
        )

    def _merge(self, folder: str, group: tuple[str, ...]) -> None:
        staging = self.state.new_staging("compact")
        # By chance: a name that came again could take the place of rows that nobody merged.
        name = f"merged-{short_query(self.state.query_id)}-{uuid.uuid4().hex}.parquet"
        rows = merge_files([self.state.folder / path for path in group], staging.folder / name)
        published = f"{folder}/{name}" if folder else name
        move = Move(staged=f"{staging.name}/{name}", published=published)
        self.state.replace(JournalEntry(remove=group, moves=(move,), row_count=rows))
        self.state.drop(staging)

    def _note_columns(self, move: Move) -> None:
        """Keep `_common_metadata` complete: a reader that takes its columns misses none."""
        path = self.state.folder / COMMON_METADATA
        new = read_columns(self.state.folder / move.staged)
        for name in partition_values(move.published):
            new = new.append(pa.field(name, pa.string()))
        kept = read_columns(path) if is_there(path) else pa.schema([])
        grown = pa.unify_schemas([kept, new])
        if grown != kept:
            write_columns(grown, path)


def _is_hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
