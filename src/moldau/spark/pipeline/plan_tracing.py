"""Follows the records of a batch through Spark's plan, to where the plan drops some. A shell.

Spark counts what a watermark drops after it has put rows of one key together, and does not count
what `window` drops for want of a time. Here the plan of a batch is asked for the rows that come to
such a place, with the records that they were made of: the part of the plan below that place, which
reads the very offsets of the batch again, with the columns of its source carried along.

Only the first stateful operator above a source drops records; what those further up receive is made
by Spark, which holds their watermarks back accordingly. The plan, of which there is no public face,
is looked at through py4j; `tests/spark/test_pipeline_late.py` says when Spark changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import DataFrame, SparkSession

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
        from pyspark.sql import SparkSession

        self._jvm = spark.sparkContext._jvm
        # The plan is that of a stream, read here like a table.
        session = spark._jsparkSession.cloneSession()
        session.conf().set("spark.sql.streaming.unsupportedOperationCheck", "false")
        self._session = session
        self._spark = SparkSession(spark.sparkContext, session)

    def rows_at(self, place: DropPlace) -> DataFrame:
        """The column TIME, and the columns of records where they can be traced."""
        from pyspark.sql import DataFrame

        traced = self._carry(place.below)
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
        return self._carry(place.below).record is not None

    def _carry(self, node: JavaObject) -> _Traced:
        kind = _kind(node)
        if kind in _SOURCES:
            return self._carry_from(node)
        if kind in _TRANSPARENT:
            return self._carry(_child(node))
        below = [self._carry(child) for child in _items(node.children())]
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

    def _carry_from(self, leaf: JavaObject) -> _Traced:
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
