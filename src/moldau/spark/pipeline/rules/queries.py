"""What is known of the queries of a pipeline: how far they are, what they dropped, why they failed.

Spark reports each batch, perhaps more than once, and forgets old ones; a report has the number
of its batch, so that a batch counts once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import NamedTuple

from moldau.errors import InvariantViolation
from moldau.model import TopicPartition, records_behind
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
        return records_behind(max(begin, self.start_offset), self.end_offset)


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
    return "\n".join(_metric_lines(pipeline, list(queries), updated_ms, is_running)) + "\n"


def _metric_lines(
    pipeline: str, queries: list[QueryProgress], updated_ms: int, is_running: bool
) -> Iterator[str]:
    for attribute, name, help_text in _COUNTERS:
        yield from _metric_head(name, help_text, "counter")
        for query in queries:
            yield f"{name}{_metric_labels(pipeline, query.name)} {getattr(query, attribute)}"
    for attribute, help_text in _SET_ASIDE.items():
        name = f"moldau_pipeline_{attribute}_total"
        yield from _metric_head(name, help_text, "counter")
        for query in queries:
            count = getattr(query.set_aside, attribute)
            yield f"{name}{_metric_labels(pipeline, query.name)} {count}"
    for extra in sorted({key for query in queries for key in query.extra}):
        name = f"moldau_pipeline_{extra}_total"
        yield from _metric_head(
            name, f"{extra.replace('_', ' ').capitalize()} since the run began.", "counter"
        )
        for query in queries:
            if extra in query.extra:
                yield f"{name}{_metric_labels(pipeline, query.name)} {query.extra[extra]}"
    yield from _metric_head("moldau_pipeline_running", "Whether the pipeline runs.", "gauge")
    yield f'moldau_pipeline_running{{pipeline="{_escape_label(pipeline)}"}} {int(is_running)}'
    name = "moldau_pipeline_updated_timestamp_seconds"
    yield from _metric_head(name, "When these figures were written.", "gauge")
    yield f'{name}{{pipeline="{_escape_label(pipeline)}"}} {updated_ms / 1000:.3f}'


def _metric_head(name: str, help_text: str, kind: str) -> tuple[str, str]:
    return f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"


def _metric_labels(pipeline: str, query: str) -> str:
    return f'{{pipeline="{_escape_label(pipeline)}",query="{_escape_label(query)}"}}'


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# What Spark says of a failure, in a message. Spark's messages carry stack traces of two languages.
# The reason is the text given to `raise_error`, the end of a traceback, or else the first line.


_RAISED = re.compile(r"^(?P<kind>[\w.]+(?:Error|Exception)): (?P<said>[^\n]+)", re.MULTILINE)
_OWN_KIND = "moldau."
_USER_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (?P<said>[^\n]+?)(?: SQLSTATE: \w+)?(?:\n|$)")
_SQLSTATE = re.compile(r" SQLSTATE: \w+")
_STREAM_HEAD = re.compile(r"\[STREAM_FAILED\] [^\n]*? terminated with exception: ")
_LONGEST = 600
_NO_SPACE = re.compile(r"No space left on device|not enough space on the disk", re.IGNORECASE)
_OUTAGE = re.compile(
    r"moldau\.errors\.(?:BrokerUnreachable|ClusterUnreachable|ConnectionLost|NoAnswer"
    r"|DeliveryTimeout|OperationTimeout|LeaderNotAvailable|NotLeader|Storage)Error: "
)


def is_outage(text: str) -> bool:
    """Whether a query ended because its cluster did not answer for too long; that may pass."""
    return _OUTAGE.search(text) is not None


class Loss(NamedTuple):
    """A query that has lost its cluster, perhaps not for the first time, after some batch."""

    batch_id: int
    since_seconds: float

    def repeat(self, batch_id: int, now_seconds: float) -> Loss:
        """It is lost once more: for as long as before unless it has done something in between."""
        return self if batch_id == self.batch_id else Loss(batch_id, now_seconds)


def has_lost_disk(offline_replicas: Collection[int], brokers: Collection[int]) -> bool:
    """Whether a broker that is there has a replica offline: then it has lost the disk for it."""
    return not set(brokers).isdisjoint(offline_replicas)


def explain_failure(name: str, text: str) -> str:
    """One message about a query or pipeline that failed."""
    if _NO_SPACE.search(text):
        return (
            f"{name} failed: the disk is full: that of the checkpoint, of a lake, or of Spark's "
            "temporary files; make room and start it again: it goes on where it was"
        )
    told = _USER_RAISED.search(text)
    if told is not None:
        return f"{name} failed: {_shorten_message(told['said'])}"
    raised = list(_RAISED.finditer(text)) if "Traceback (most recent call last)" in text else []
    if raised:
        own = [one for one in raised if _is_own(one)]
        return f"{name} failed: {_describe_raised((own or raised)[-1])}"
    body = _STREAM_HEAD.sub("", text.strip())
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    first = next((line for line in lines if not line.startswith(("at ", "==", "File "))), "")
    return f"{name} failed: {_shorten_message(first) or 'Spark does not say why'}"


def _describe_raised(found: re.Match[str]) -> str:
    """What Moldau raises is a message; of others, the kind of the error is a part of it."""
    return _shorten_message(
        found["said"] if _is_own(found) else f"{found['kind']}: {found['said']}"
    )


def _is_own(found: re.Match[str]) -> bool:
    return found["kind"].startswith(_OWN_KIND)


def _shorten_message(text: str) -> str:
    clean = _SQLSTATE.sub("", text).strip()
    return clean if len(clean) <= _LONGEST else clean[:_LONGEST] + " ..."
