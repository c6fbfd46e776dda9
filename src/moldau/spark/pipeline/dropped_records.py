"""Counts the records that a query drops, and writes them to dead letters where the file says so.

A shell, called in the driver after each batch is written and before Spark counts it as done: a
batch whose drops are not in the tally is repeated. Reading it again costs something, so that is
done only for a batch in which Spark has dropped something, or cannot say.

A plan that cannot be followed does not end a pipeline whose results are right: such a batch is
counted as one that was not searched. It does where records would miss in dead letters.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JNetworkError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from moldau.errors import ConfigurationError, InvariantViolation
from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.frames import REASON, to_dead_letters, write_dead_letters
from moldau.spark.pipeline.model import OutputMode, Pipeline, Source
from moldau.spark.pipeline.rules.queries import SetAside, add_batch, explain_failure, is_outage

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql.streaming.query import StreamingQuery


# The records of a batch, followed through Spark's plan to where the plan drops some. Spark counts
# what a watermark drops after it has put rows of one key together, and does not count what `window`
# drops for want of a time. Here the plan of a batch is asked for the rows that come to such a
# place, with the records that they were made of: the part of the plan below that place, which reads
# the very offsets of the batch again, with the columns of its source carried along.


TIME: Final = "_moldau_time"
RECORD_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
_PREFIX: Final = "_moldau_record_"

_SOURCES: Final = ("StreamingDataSourceV2ScanRelation", "StreamingRelationV2")
_TRANSPARENT: Final = ("SubqueryAlias", "View")
_KEYED: Final = ("Aggregate", "Distinct")
_STATEFUL: Final = (
    *_KEYED,
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "FlatMapGroupsInPandasWithState",
    "TransformWithStateInPySpark",
)
_DELAY: Final = "spark.watermarkDelayMs"
_TIME_WINDOW: Final = "spark.timeWindow"
_SESSION_WINDOW: Final = "spark.sessionWindow"
_DROPPED: Final = "numRowsDroppedByWatermark"
_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions"
_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical"
_INLINE: Final = "org.apache.spark.sql.catalyst.optimizer.InlineCTE"


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPlace:
    """A place in a plan where rows may be dropped."""

    below: JavaObject
    """The plan of the rows that come there."""
    time: JavaObject
    """The expression that decides."""
    is_late: bool
    """Whether rows are dropped by the watermark; otherwise for want of a time."""

    @property
    def follows_watermark(self) -> bool:
        return _is_attribute(self.time) and _has_mark(self.time, _DELAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """What Spark knows about a batch that has run."""

    watermark_ms: int | None
    """That by which rows of this batch are late: the one in force when the batch before began."""
    dropped_rows: int
    """Rows that the first stateful operators dropped."""
    dropped_further_up: int
    """Rows that operators above these dropped; none, as far as Spark keeps its word."""
    has_null_time: bool
    """Whether some row may have had no value in the column of its watermark."""


# Places


def inline_names(spark: SparkSession, plan: JavaObject) -> JavaObject:
    """An analyzed plan with what `WITH` has named put where the names are used, as Spark's
    optimizer does: a part of the plan below such a name could not be read by itself."""
    if not any(_kind(node) == "WithCTE" for node in _walk(plan)):
        return plan
    jvm = spark.sparkContext._jvm
    (constructor,) = _find_java(jvm, "java.lang.Class").forName(_INLINE).getConstructors()
    others = constructor.getParameterCount() - 1  # versions of Spark have added some
    return _find_java(jvm, _INLINE)(True, *[False] * others).apply(plan)


def find_late_places(plan: JavaObject, output_mode: str) -> list[DropPlace]:
    """Where an optimized plan drops rows that come after the watermark."""
    found: list[DropPlace] = []
    for node in _walk(plan):
        if not _is_stateful(node) or (_kind(node) in _KEYED and output_mode == "complete"):
            continue
        for child in _stream_inputs(node):
            if any(map(_is_stateful, _walk(child))):
                continue
            columns = node.groupingExpressions() if _kind(node) == "Aggregate" else child.output()
            times = [one for one in _items(columns) if _is_attribute(one)]
            times = [one for one in times if _has_mark(one, _DELAY)]
            if not times or not _heeds_event_time(node):
                continue
            found.append(DropPlace(below=child, time=times[0], is_late=True))
            if _kind(node) in _KEYED and output_mode == "append" and not _is_window(times[0]):
                # Such a row waits for ever: no watermark passes a time that is not there.
                found.append(DropPlace(below=child, time=times[0], is_late=False))
    return found


def find_timeless_places(plan: JavaObject) -> list[DropPlace]:
    """Where an analyzed plan drops rows without a time: below each window of records."""
    found: list[DropPlace] = []
    for node in _walk(plan):
        below = _find_windowed(node)
        if below is None or not below.isStreaming() or any(map(_is_stateful, _walk(below))):
            continue
        condition = (node if _kind(node) == "Filter" else _child(node)).condition()
        given = {_identity(one) for one in _items(below.output())}
        if _kind(condition) == "IsNotNull":
            times = [condition.child()]
        else:
            used = _items(condition.references().toSeq())
            times = [one for one in used if _identity(one) in given]
        found.extend(DropPlace(below=below, time=one, is_late=False) for one in times)
    return found


def _find_windowed(node: JavaObject) -> JavaObject | None:
    """What is below a window, which Spark puts above or below a filter for rows that have a time;
    None where the node is not the upper one of such a pair."""
    children = _items(node.children())
    if len(children) != 1:
        return None
    match _kind(node), _kind(children[0]):
        case "Project", "Filter":
            maker = node if _makes_window(node, _TIME_WINDOW) else None
        case "Filter", "Project":
            maker = children[0] if _makes_window(children[0], _SESSION_WINDOW) else None
        case "Filter", "Expand":
            maker = children[0] if _makes_window(children[0], _TIME_WINDOW) else None
        case _:
            maker = None
    return None if maker is None else _child(children[0])


def _makes_window(node: JavaObject, mark: str) -> bool:
    """Whether a column of a node is a window; one that is merely renamed was there before."""
    return any(_has_mark(one, mark) for one in _items(node.output())) and not any(
        _is_window(one) for one in _items(_child(node).output())
    )


def _is_stateful(node: JavaObject) -> bool:
    if not node.isStreaming():
        return False
    if _kind(node) == "Join":
        return all(side.isStreaming() for side in _items(node.children()))
    return _kind(node) in _STATEFUL


def _stream_inputs(node: JavaObject) -> list[JavaObject]:
    return [child for child in _items(node.children()) if child.isStreaming()]


def _heeds_event_time(node: JavaObject) -> bool:
    """Functions with a state drop late rows only where their timers go by event time."""
    match _kind(node):
        case "FlatMapGroupsInPandasWithState":
            return "EventTime" in str(node.timeout().toString())
        case "TransformWithStateInPySpark":
            return "EventTime" in str(node.timeMode().toString())
    return True


def may_drop(plan: JavaObject) -> bool:
    """Whether an analyzed plan has a place where it may drop rows of a stream."""
    return any(_is_stateful(node) or _find_windowed(node) is not None for node in _walk(plan))


# What has happened


def read_facts(executed: JavaObject) -> BatchFacts:
    """Read the figures of a physical plan that has run."""
    watermarks: list[int] = []
    first, above, has_null_time = 0, 0, False
    for node in _walk(executed):
        if _kind(node) == "EventTimeWatermarkExec":
            # Spark takes a null for the beginning of 1970.
            has_null_time = has_null_time or int(node.eventTimeStats().value().min()) <= 0
        if not node.metrics().contains(_DROPPED) or "Limit" in _kind(node):
            continue  # a limit keeps a state, and knows no watermark
        late = node.eventTimeWatermarkForLateEvents()
        if late.isDefined():
            watermarks.append(int(late.get()))
        dropped = int(node.metrics().apply(_DROPPED).value())
        if any(_keeps_state(one) for child in _items(node.children()) for one in _walk(child)):
            above += dropped
        else:
            first += dropped
    return BatchFacts(
        watermark_ms=max(watermarks, default=None),
        dropped_rows=first,
        dropped_further_up=above,
        has_null_time=has_null_time,
    )


def _keeps_state(node: JavaObject) -> bool:
    """Whether it writes a state: what merely reads one belongs to the operator above it."""
    return bool(node.metrics().contains("numUpdatedStateRows"))


# Records


class RecordTracer:
    """Makes frames of the rows that come to a place, with the records that they were made of."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = spark.sparkContext._jvm
        # The plan is that of a stream, read here like a table.
        session = spark._jsparkSession.cloneSession()
        session.conf().set("spark.sql.streaming.unsupportedOperationCheck", "false")
        self._session = session
        self._spark = SparkSession(spark.sparkContext, session)

    def rows_at(self, place: DropPlace) -> DataFrame:
        """The column TIME, and the columns of records where they can be traced."""
        traced = self._carry_record(place.below)
        columns = [self._alias(place.time, TIME), *(traced.record or ())]
        plan = self._logical("Project")(self._seq(columns), traced.plan)
        rows = self._package("org.apache.spark.sql.classic").Dataset.ofRows(self._session, plan)
        # As Spark does for `foreachBatch`: from here on it is a frame like others.
        static = self._session.internalCreateDataFrame(
            rows.queryExecution().toRdd(), rows.schema(), False
        )
        frame = DataFrame(static, self._spark)
        names = {name: name.removeprefix(_PREFIX) for name in frame.columns}
        return frame.withColumnsRenamed(names)

    def can_trace(self, place: DropPlace) -> bool:
        """Whether rows that come to a place are known by their records."""
        return self._carry_record(place.below).record is not None

    def _carry_record(self, node: JavaObject) -> _Traced:
        kind = _kind(node)
        if kind in _SOURCES:
            return self._carry_from_source(node)
        if kind in _TRANSPARENT:
            return self._carry_record(_child(node))
        below = [self._carry_record(child) for child in _items(node.children())]
        if kind == "Union":
            below = [
                self._widened(*pair) for pair in zip(_items(node.children()), below, strict=True)
            ]
        plan = node.withNewChildren(self._seq([one.plan for one in below]))
        streams = [one for one in below if one.is_stream]
        records = [one.record for one in streams if one.record is not None]
        if not streams:
            return _Traced(plan=plan, record=None, is_stream=False)
        if len(records) < len(streams):
            return _Traced(plan=plan, record=None)
        record = records[0]
        match kind:
            case "Project":
                columns = [*_items(node.projectList()), *record]
                plan = self._logical("Project")(self._seq(columns), below[0].plan)
            case "Expand":
                rows = [self._seq([*_items(one), *record]) for one in _items(node.projections())]
                output = self._seq([*_items(node.output()), *record])
                plan = self._logical("Expand")(self._seq(rows), output, below[0].plan)
        given = {_identity(one) for one in _items(plan.output())}
        is_there = all(_identity(one) in given for one in record)
        return _Traced(plan=plan, record=record if is_there else None)

    def _widened(self, before: JavaObject, traced: _Traced) -> _Traced:
        """The columns of records last, where every part of a union has to have them."""
        if traced.record is None:
            return traced
        columns = self._seq([*_items(before.output()), *traced.record])
        plan = self._logical("Project")(columns, traced.plan)
        return _Traced(plan=plan, record=traced.record)

    def _carry_from_source(self, leaf: JavaObject) -> _Traced:
        columns = _items(leaf.output())
        by_name = {str(one.name()): one for one in columns}
        aliases = [
            self._alias(by_name[name], _PREFIX + name) for name in RECORD_COLUMNS if name in by_name
        ]
        plan = self._logical("Project")(self._seq([*columns, *aliases]), leaf)
        return _Traced(plan=plan, record=tuple(one.toAttribute() for one in aliases))

    def _alias(self, expression: JavaObject, name: str) -> JavaObject:
        expressions = self._package(_EXPRESSIONS)
        number = expressions.NamedExpression.newExprId()
        nothing = self._package("scala").Option.empty()
        return expressions.Alias(expression, name, number, self._seq([]), nothing, self._seq([]))

    def _logical(self, name: str) -> JavaObject:
        return getattr(self._package(_PLANS), name)

    def _package(self, path: str) -> JavaObject:
        return _find_java(self._jvm, path)

    def _seq(self, items: Sequence[JavaObject]) -> JavaObject:
        listed = self._package("java.util").ArrayList()
        for one in items:
            listed.add(one)
        return self._package("org.apache.spark.api.python").PythonUtils.toSeq(listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traced:
    """A plan that carries the columns of records; None where it cannot, or reads no stream."""

    plan: JavaObject
    record: tuple[JavaObject, ...] | None
    is_stream: bool = True


# Java's objects


def _find_java(jvm: JavaObject, path: str) -> JavaObject:
    """A package or class by its name."""
    return reduce(getattr, path.split("."), jvm)


def _walk(node: JavaObject) -> Iterator[JavaObject]:
    yield node
    for child in _items(node.children()):
        yield from _walk(child)


def _items(sequence: JavaObject) -> list[JavaObject]:
    return [sequence.apply(place) for place in range(sequence.size())]


def _child(node: JavaObject) -> JavaObject:
    return node.children().apply(0)


def _kind(node: JavaObject) -> str:
    return str(node.getClass().getSimpleName())


def _identity(attribute: JavaObject) -> int:
    return int(attribute.exprId().id())


def _is_attribute(expression: JavaObject) -> bool:
    return _kind(expression) == "AttributeReference"


def _has_mark(attribute: JavaObject, mark: str) -> bool:
    return bool(attribute.metadata().contains(mark))


def _is_window(attribute: JavaObject) -> bool:
    return _has_mark(attribute, _TIME_WINDOW) or _has_mark(attribute, _SESSION_WINDOW)


# Counting


_log = logging.getLogger("moldau.spark.pipeline")

_LATE = "the record came after the watermark had closed its window"
_TIMELESS = "the record has no time, so that it belongs to no window"


class QueryTally:
    """The tally of one query, on disk. Changed by the thread of its batches, read by others."""

    def __init__(self, checkpoint: Checkpoint, query: str) -> None:
        self._checkpoint = checkpoint
        self._query = query
        self.kept = checkpoint.find_tally(query)

    def add(self, batch_id: int, found: SetAside) -> None:
        """Keep what a batch has set aside; returns when the disk has it."""
        if not found or self.kept.counts(batch_id):
            return
        tally = add_batch(self.kept, batch_id, found)
        self._checkpoint.write_tally(self._query, tally)
        self.kept = tally


class DropCounter:
    """Looks at each batch of one query."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        query: str,
        output_mode: OutputMode,
        kafka: Mapping[str, str],
        tally: QueryTally,
    ) -> None:
        self._pipeline = pipeline
        self._query = query
        self._output_mode = output_mode
        self._kafka = kafka  # the options that lead to the brokers
        self._tally = tally
        self._dead = [one for one in pipeline.sources if one.late == "dead_letter"]
        self._started = threading.Event()
        self._running: StreamingQuery | None = None

    def require_traceable(self, spark: SparkSession, analyzed: JavaObject) -> None:
        """Raise ConfigurationError where what is dropped should be written to dead letters, and
        cannot be traced to records."""
        if not self._dead:
            return
        plan = inline_names(spark, analyzed)
        if not all(map(RecordTracer(spark).can_trace, self._find_places(plan, plan))):
            raise ConfigurationError(
                f"sources.{self._dead[0].name}.late: sink {self._query!r} makes rows in a way that "
                "cannot be traced back to records, such as mapInPandas, so late records cannot be "
                'written to dead letters; set late = "drop" to have such rows counted instead'
            )

    def forget_query(self) -> None:
        """A query is about to start: the one that was followed, if any, has ended."""
        self._started.clear()

    def follow_query(self, query: StreamingQuery) -> StreamingQuery:
        """Look at this query, whose first batch may be under way."""
        self._running = query
        self._started.set()
        return query

    def count_drops(self, spark: SparkSession, batch_id: int, *, has_run: bool) -> None:
        """Count what a batch dropped. `has_run` tells whether Spark has worked on it just now; if
        not, it was written by a run that ended before it could count."""
        if self._tally.kept.counts(batch_id):
            return
        execution = self._require_query()._jsq.streamingQuery().lastExecution()
        facts: BatchFacts | None = None
        try:
            facts = read_facts(execution.executedPlan())
            dropped = self._trace(spark, execution, facts, has_run=has_run)
        except Py4JNetworkError:  # Spark is gone; the batch is repeated
            raise
        except Exception as fault:  # the plan has no public face: whatever Spark's next one does
            if self._dead or is_outage(str(fault)):
                raise
            _log.warning(
                "batch %d was not searched for late records: %s",
                batch_id,
                explain_failure(self._query, str(fault)),
            )
            rows = 0 if facts is None else facts.dropped_rows + facts.dropped_further_up
            self._tally.add(batch_id, SetAside(untraced_rows=rows, unsearched_batches=1))
            return
        found = SetAside(untraced_rows=facts.dropped_further_up)
        for is_late in (True, False):
            found += self._set_aside(
                [rows for place, rows in dropped if place.is_late is is_late], is_late
            )
        if facts.dropped_rows and not (found.late_records or found.untraced_rows):
            found += SetAside(untraced_rows=facts.dropped_rows)
        self._tally.add(batch_id, found)

    def _require_query(self) -> StreamingQuery:
        self._started.wait()
        if self._running is None:
            raise InvariantViolation(f"{self._query} counts for no query")
        return self._running

    def _find_places(self, analyzed: JavaObject, optimized: JavaObject) -> list[DropPlace]:
        late = find_late_places(optimized, self._output_mode)
        return [*late, *find_timeless_places(analyzed)]

    def _trace(
        self, spark: SparkSession, execution: JavaObject, facts: BatchFacts, *, has_run: bool
    ) -> list[tuple[DropPlace, DataFrame]]:
        """What is dropped in each place, as frames that read the batch again as far as there."""
        analyzed = inline_names(spark, execution.analyzed())
        places = self._find_places(analyzed, execution.optimizedPlan())
        hit = _choose_hit(places, facts, has_run=has_run)
        if not hit:
            return []
        tracer = RecordTracer(spark)
        traced: list[tuple[DropPlace, DataFrame]] = []
        for place in hit:
            rows = tracer.rows_at(place)
            traced.append((place, rows.filter(_is_dropped(rows, place, facts)).drop(TIME)))
        return traced

    def _set_aside(self, dropped: Sequence[DataFrame], is_late: bool) -> SetAside:
        """See to rows that are dropped for one reason, in one or more places."""
        traced = [rows for rows in dropped if "offset" in rows.columns]
        untraced = [rows for rows in dropped if "offset" not in rows.columns]
        found = SetAside(untraced_rows=sum(rows.count() for rows in untraced))
        if not traced:
            return found
        together = reduce(lambda one, other: one.unionByName(other), traced)
        # A record may be dropped in several places, and from several windows in one of them.
        records = together.dropDuplicates(["topic", "partition", "offset"])
        letters, count = self._write_dead_letters(records, _LATE if is_late else _TIMELESS)
        if is_late:
            return found + SetAside(late_records=count, dead_letters=letters)
        return found + SetAside(records_without_time=count, dead_letters=letters)

    def _write_dead_letters(self, records: DataFrame, reason: str) -> tuple[int, int]:
        """Write records to dead letters, or let them go; how many were written, and how many there
        were."""
        letters = 0
        for source in self._dead:
            own = records.filter(_is_of(source)).withColumn(REASON, F.lit(reason))
            frame = to_dead_letters(own, self._pipeline.name, sink=self._query)
            letters += write_dead_letters(frame, self._kafka, source.dead_letter or "")
        if len(self._dead) == len(self._pipeline.sources):
            return letters, letters
        rest = reduce(lambda one, source: one & ~_is_of(source), self._dead, F.lit(True))
        return letters, letters + records.filter(rest).count()


def _choose_hit(
    places: Iterable[DropPlace], facts: BatchFacts, *, has_run: bool
) -> list[DropPlace]:
    """The places where something may have been dropped, by what Spark knows of the batch."""
    hit: list[DropPlace] = []
    for place in places:
        if place.is_late:
            is_hit = bool(facts.watermark_ms) and (facts.dropped_rows > 0 or not has_run)
        else:
            is_hit = facts.has_null_time or not place.follows_watermark or not has_run
        if is_hit:
            hit.append(place)
    return hit


def _is_dropped(rows: DataFrame, place: DropPlace, facts: BatchFacts) -> Column:
    if not place.is_late:
        return F.col(TIME).isNull()
    is_window = isinstance(rows.schema[TIME].dataType, StructType)
    time = F.col(TIME)["end"] if is_window else F.col(TIME)
    return time <= F.timestamp_millis(F.lit(facts.watermark_ms))


def _is_of(source: Source) -> Column:
    if source.topic_pattern is not None:
        return F.col("topic").rlike(f"^(?:{source.topic_pattern})$")
    return F.col("topic").isin(*source.topics)
