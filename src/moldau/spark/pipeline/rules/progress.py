"""How far a pipeline is: what its queries reported, added up, and how far behind it is. A rule.

Spark reports each batch once it is over, and reports idle times with the number of the last batch;
so a batch counts once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from moldau.spark.pipeline.rules.tally import SetAside

Positions = Mapping[str, Mapping[int, int]]
"""Topic, partition, and the offset that is read next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What Spark says about one batch of one query."""

    batch_id: int
    input_rows: int
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgress:
    """One query since its run began."""

    name: str
    last_batch_id: int = -1
    batches: int = 0
    input_rows: int = 0
    busy_ms: int = 0
    set_aside: SetAside = field(default_factory=SetAside)
    """Records that are in no result, in all runs."""
    extra: Mapping[str, int] = field(default_factory=dict)
    """What only one kind of sink counts, such as loaded rows and bytes."""

    @property
    def rows_per_second(self) -> float:
        return self.input_rows * 1000 / self.busy_ms if self.busy_ms else 0.0


def find_new(progress: QueryProgress, reports: Iterable[BatchReport]) -> list[BatchReport]:
    """The reports of batches that are not counted yet, in order."""
    found = {
        one.batch_id: one
        for one in reports
        if one.batch_id > progress.last_batch_id and one.duration_ms
    }
    return [found[batch_id] for batch_id in sorted(found)]


def add_reports(progress: QueryProgress, reports: Iterable[BatchReport]) -> QueryProgress:
    """The progress after some reports; those of batches that are counted change nothing."""
    for report in find_new(progress, reports):
        progress = replace(
            progress,
            last_batch_id=report.batch_id,
            batches=progress.batches + 1,
            input_rows=progress.input_rows + report.input_rows,
            busy_ms=progress.busy_ms + report.duration_ms,
        )
    return progress


def parse_offset_log(text: str) -> list[Positions]:
    """The positions of each source in a file of Spark's offset log, in the order of the sources.

    The file has a version, one line about the batch, and a line for each source; `-` stands for a
    source that has not been read yet.
    """
    _, _, *lines = text.strip().splitlines()
    return [_parse_positions(line) for line in lines]


def _parse_positions(line: str) -> Positions:
    if not line.startswith("{"):
        return {}
    return {
        topic: {int(partition): int(offset) for partition, offset in partitions.items()}
        for topic, partitions in json.loads(line).items()
        if isinstance(partitions, dict)
    }


def merge_positions(sources: Iterable[Positions]) -> dict[str, dict[int, int]]:
    """The positions of several sources of one query; where two read a partition, the lesser."""
    merged: dict[str, dict[int, int]] = {}
    for positions in sources:
        for topic, partitions in positions.items():
            kept = merged.setdefault(topic, {})
            for partition, offset in partitions.items():
                kept[partition] = min(offset, kept.get(partition, offset))
    return merged
