"""What happens to each batch of an offline load: staged by Spark, published by the driver. A shell.

Called by Spark in the driver, one batch after the other. Compaction happens here as well, between
two batches, so that nothing else moves files meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F

from moldau.errors import InvariantViolation
from moldau.spark.pipeline.lake_state import LakeState, Staging
from moldau.spark.pipeline.model import LakeSink
from moldau.spark.pipeline.parquet_lake import Loaded, ParquetLake
from moldau.spark.pipeline.rules.lake import count_late, plan_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Now = Callable[[], datetime]


class Lake(Protocol):
    """Where batches go: a folder of Parquet files, or a Delta table."""

    state: LakeState

    def begin(self, *, has_progress: bool) -> None: ...
    def is_loaded(self, batch_id: int) -> bool: ...
    def load(self, batch_id: int, staging: Staging) -> Loaded: ...
    def compact(self, folders: Iterable[str], *, is_closed: bool) -> int: ...
    def all_folders(self) -> list[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTotals:
    """What a run has loaded so far."""

    rows: int = 0
    size_bytes: int = 0
    late_rows: int = 0
    merged_files: int = 0


def open_lake(sink: LakeSink, query_id: str) -> Lake:
    """The lake of a sink, in the hands of one query."""
    state = LakeState(Path(sink.folder), query_id)
    if sink.format == "delta":
        from moldau.spark.pipeline.delta_lake import DeltaLake

        return DeltaLake(state, target_bytes=sink.target_file_bytes)
    return ParquetLake(state, target_bytes=sink.target_file_bytes, min_files=sink.compact_min_files)


class LakeLoader:
    """Loads the batches of one query."""

    def __init__(self, sink: LakeSink, folders: dict[str, str], now: Now) -> None:
        self._taken: Lake | None = None
        self._sink = sink
        self._folders = folders
        self._now = now
        self._lock = threading.Lock()
        self._totals = LoadTotals()

    def take(self, lake: Lake) -> None:
        """Load into this lake; called before the first batch."""
        self._taken = lake

    @property
    def _lake(self) -> Lake:
        if self._taken is None:
            raise InvariantViolation(f"sink {self._sink.name} loads before it has its lake")
        return self._taken

    @property
    def totals(self) -> LoadTotals:
        with self._lock:
            return self._totals

    def load(self, frame: DataFrame, batch_id: int) -> bool:
        """Load one batch, unless it has been loaded: Spark may not know that. Whether it did."""
        if self._lake.is_loaded(batch_id):
            return False
        staging = self._lake.state.new_staging(f"{batch_id:010d}")
        self._stage(frame, staging)
        loaded = self._lake.load(batch_id, staging)
        self._count(loaded)
        if self._sink.compact and loaded.row_count:
            self._add_merged(self._compact(loaded.rows_by_folder))
        return True

    def finish(self) -> None:
        """Merge what is left of small files; called when a run that has an end is over."""
        if self._sink.compact:
            self._add_merged(self._lake.compact(self._lake.all_folders(), is_closed=True))

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
            one for one in folders if (end := plan_end(one)) is not None and end + late_after < now
        ]
        fewer = self._lake.compact(closed, is_closed=True) if closed else 0
        still_open = set(folders) - set(closed)
        return fewer + (self._lake.compact(still_open, is_closed=False) if still_open else 0)

    def _count(self, loaded: Loaded) -> None:
        late = count_late(
            loaded.rows_by_folder,
            now=self._now(),
            late_after=timedelta(milliseconds=self._sink.late_after_ms),
        )
        with self._lock:
            self._totals = replace(
                self._totals,
                rows=self._totals.rows + loaded.row_count,
                size_bytes=self._totals.size_bytes + loaded.size_bytes,
                late_rows=self._totals.late_rows + late,
            )

    def _add_merged(self, fewer: int) -> None:
        with self._lock:
            self._totals = replace(self._totals, merged_files=self._totals.merged_files + fewer)


def system_now() -> datetime:
    return datetime.now(UTC)
