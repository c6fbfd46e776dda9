"""How far a pipeline is: batches, lag, and what it has set aside. A rule.

Spark reports each batch once it is over, and reports idle times with the number of the last batch;
so a batch counts once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace

from moldau.errors import InvariantViolation
from moldau.model import TopicPartition
from moldau.spark.pipeline.model import Delivery
from moldau.spark.rules.offsets import TopicIds, find_recreated, find_topic_ids

# What is set aside


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Records that a query did not make part of its result."""

    late_records: int = 0
    """Input records that came after the watermark had closed a window of theirs."""
    records_without_time: int = 0
    """Input records whose time is null, so that they belong to no window."""
    untraced_rows: int = 0
    """Rows that Spark dropped as late and that cannot be traced to their records."""
    unsearched_batches: int = 0
    """Batches whose plan could not be followed: the figures above may lack records of theirs."""
    dead_letters: int = 0
    """Records written to a dead-letter topic: some of the above, and those that do not parse."""

    def __add__(self, other: SetAside) -> SetAside:
        return SetAside(**{key: value + getattr(other, key) for key, value in asdict(self).items()})

    def __bool__(self) -> bool:
        return any(asdict(self).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """All that was set aside since the checkpoint began, up to and including `batch_id`.

    A batch that Spark repeats after a crash reads the same records under the same watermark, so it
    changes nothing when it is counted already.
    """

    batch_id: int = -1
    total: SetAside = field(default_factory=SetAside)

    def counts(self, batch_id: int) -> bool:
        """Whether a batch is in the total."""
        return batch_id <= self.batch_id


def add_batch(tally: Tally, batch_id: int, found: SetAside) -> Tally:
    """The tally with one more batch; unchanged where it counts the batch already."""
    if tally.counts(batch_id):
        return tally
    return replace(tally, batch_id=batch_id, total=tally.total + found)


def encode_tally(tally: Tally) -> str:
    """As it is written to a file."""
    return json.dumps({"batch": tally.batch_id, **asdict(tally.total)}, indent=1)


def decode_tally(text: str, name: str) -> Tally:
    """Raises InvariantViolation: a tally is written whole, or it is not there."""
    try:
        document = json.loads(text)
        total = SetAside(**{one.name: int(document.get(one.name, 0)) for one in fields(SetAside)})
        return Tally(batch_id=int(document["batch"]), total=total)
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise InvariantViolation(f"{name} is no tally of a query: {fault!r}") from fault


# Batches

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
    delivery: Delivery | None = None
    """None in reports of versions that did not keep it."""

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


def parse_offset_log(text: str, topic_ids: TopicIds) -> list[Positions]:
    """The positions of each source in a file of Spark's offset log, in the order of the sources.

    The file has a version, one line about the batch, and a line for each source; `-` stands for a
    source that has not been read yet. A topic that has another id by now has not been read either.
    """
    _, _, *lines = text.strip().splitlines()
    return [_parse_positions(line, topic_ids) for line in lines]


def _parse_positions(line: str, topic_ids: TopicIds) -> Positions:
    if not line.startswith("{"):
        return {}
    document = json.loads(line)
    recreated = find_recreated(find_topic_ids(document), topic_ids)
    return {
        topic: {int(partition): int(offset) for partition, offset in partitions.items()}
        for topic, partitions in document.items()
        if isinstance(partitions, dict) and partitions and topic not in recreated
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


# Lag


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLag:
    """One partition of one query. `position` is None while nothing of it has been read."""

    topic: str
    partition: int
    position: int | None
    start_offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        """Records that are still to be read, of those that are still there."""
        begin = self.start_offset if self.position is None else self.position
        return max(self.end_offset - max(begin, self.start_offset), 0)


def partition_lags(
    positions: Mapping[str, Mapping[int, int]],
    bounds: Mapping[TopicPartition, tuple[int, int]],
) -> tuple[QueryLag, ...]:
    """Every partition that there is, in order; `bounds` are where each begins and ends."""
    return tuple(
        QueryLag(
            topic=partition.topic,
            partition=partition.partition,
            position=positions.get(partition.topic, {}).get(partition.partition),
            start_offset=start,
            end_offset=end,
        )
        for partition, (start, end) in sorted(bounds.items())
    )


def total_lag(partitions: Iterable[QueryLag]) -> int:
    return sum(one.lag for one in partitions)


# For Prometheus, by the textfile collector of its node exporter

_COUNTERS = (
    ("batches", "moldau_pipeline_batches_total", "Batches since the run began."),
    ("input_rows", "moldau_pipeline_input_rows_total", "Records read since the run began."),
)
_SET_ASIDE = {
    "late_records": "Input records that came after their window was closed, in all runs.",
    "records_without_time": "Input records without a time, which are in no window, in all runs.",
    "untraced_rows": "Rows dropped as late that cannot be traced to records, in all runs.",
    "unsearched_batches": "Batches that could not be searched for dropped records, in all runs.",
    "dead_letters": "Records written to dead-letter topics, in all runs.",
}


def render_metrics(
    pipeline: str, queries: Iterable[QueryProgress], *, updated_ms: int, is_running: bool
) -> str:
    """The whole text."""
    return "\n".join(_lines(pipeline, list(queries), updated_ms, is_running)) + "\n"


def _lines(
    pipeline: str, queries: list[QueryProgress], updated_ms: int, is_running: bool
) -> Iterator[str]:
    for attribute, name, help_text in _COUNTERS:
        yield from _head(name, help_text, "counter")
        for query in queries:
            yield f"{name}{_labels(pipeline, query.name)} {getattr(query, attribute)}"
    for attribute, help_text in _SET_ASIDE.items():
        name = f"moldau_pipeline_{attribute}_total"
        yield from _head(name, help_text, "counter")
        for query in queries:
            count = getattr(query.set_aside, attribute)
            yield f"{name}{_labels(pipeline, query.name)} {count}"
    for extra in sorted({key for query in queries for key in query.extra}):
        name = f"moldau_pipeline_{extra}_total"
        yield from _head(
            name, f"{extra.replace('_', ' ').capitalize()} since the run began.", "counter"
        )
        for query in queries:
            if extra in query.extra:
                yield f"{name}{_labels(pipeline, query.name)} {query.extra[extra]}"
    yield from _head("moldau_pipeline_running", "Whether the pipeline runs.", "gauge")
    yield f'moldau_pipeline_running{{pipeline="{_escape(pipeline)}"}} {int(is_running)}'
    name = "moldau_pipeline_updated_timestamp_seconds"
    yield from _head(name, "When these figures were written.", "gauge")
    yield f'{name}{{pipeline="{_escape(pipeline)}"}} {updated_ms / 1000:.3f}'


def _head(name: str, help_text: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"


def _labels(pipeline: str, query: str) -> str:
    return f'{{pipeline="{_escape(pipeline)}",query="{_escape(query)}"}}'


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
