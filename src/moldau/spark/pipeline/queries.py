"""Starts the queries of a pipeline: one for each sink, one for each dead-letter topic. A shell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.errors import ConfigurationError
from moldau.spark.exactly_once import can_prepare
from moldau.spark.options import read_write_options
from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.dropped_records import DropCounter, QueryTally, may_drop
from moldau.spark.pipeline.frames import (
    append_to_topic,
    build_dead_letters,
    build_frames,
    columns_of,
    write_dead_letters,
)
from moldau.spark.pipeline.lake import LakeLoader, open_lake, system_now
from moldau.spark.pipeline.model import (
    Delivery,
    LakeSink,
    OutputMode,
    Pipeline,
    Sink,
    TopicSink,
    find_exactly_once,
    keeps_state,
    with_groups_of,
)
from moldau.spark.pipeline.rules.declaration import (
    folder_columns,
    refuse_exactly_once,
    topic_columns,
)
from moldau.spark.pipeline.rules.queries import SetAside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


# Derived feeds are written exactly once where the file says nothing about it and the brokers can.
# It takes two-phase commit, which brokers do not allow by default. Whether they do is found out as
# a task would: not every client may read their configuration, and access lists have a say in it as
# well.


def choose_delivery(pipeline: Pipeline, bootstrap: str) -> Pipeline:
    """The pipeline with the topics marked that are written exactly once by default. Whether they
    are is known when the queries are planned."""
    kafka = pipeline.kafka_options(bootstrap)
    return replace(
        pipeline, sinks=tuple(_choose_sink_delivery(pipeline, one, kafka) for one in pipeline.sinks)
    )


def report_delivery(
    pipeline: Pipeline, deliveries: Mapping[str, Delivery], say: Callable[[str], None]
) -> None:
    """Say how often rows of the marked topics are there; `deliveries` are those of the queries."""
    marked = [s.name for s in pipeline.sinks if isinstance(s, TopicSink) and s.prefers_exactly_once]
    exactly = [name for name in marked if deliveries[name] == "exactly once"]
    if exactly:
        say(
            f"exactly once for readers of committed records: {', '.join(exactly)} "
            "(options = { exactlyOnce = false } in the file for at least once)"
        )
    others = [name for name in marked if name not in exactly]
    if others:
        say(f"at least once: {', '.join(others)} (the query may drop late rows)")


def _choose_sink_delivery(pipeline: Pipeline, sink: Sink, kafka: Mapping[str, str]) -> Sink:
    if isinstance(sink, LakeSink) or sink.output_mode == "update":
        return sink  # Spark's sink has no such mode: what is written batch by batch has no decision
    if find_exactly_once(sink) is not None or keeps_state(pipeline, sink.input):
        return sink
    options = {**kafka, **dict(sink.options)}
    return replace(sink, prefers_exactly_once=can_prepare(read_write_options(options)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A query that can be started."""

    name: str
    start: Callable[[], StreamingQuery]
    tally: QueryTally
    loader: LakeLoader | None = None
    delivery: Delivery = "at least once"


NewSession = Callable[[], "SparkSession"]
"""Makes a session for one query. Two queries over one plan disturb each other: Spark notes things
in the nodes of a plan while another thread sends them to a task."""


def plan_queries(
    pipeline: Pipeline, new_session: NewSession, bootstrap: str, *, once: bool
) -> list[PlannedQuery]:
    """All queries, checked as far as that is possible before they run; nothing is written yet."""
    planner = _Planner(pipeline, new_session, bootstrap, once)
    return [*planner.plan_sinks(), *planner.plan_dead_letters()]


class _Planner:
    def __init__(
        self, pipeline: Pipeline, new_session: NewSession, bootstrap: str, once: bool
    ) -> None:
        self._pipeline = pipeline
        self._new_session = new_session
        self._kafka = pipeline.kafka_options(bootstrap)
        self._once = once
        self._checkpoint = Checkpoint(Path(pipeline.checkpoint))

    def plan_sinks(self) -> Iterator[PlannedQuery]:
        for sink in self._pipeline.sinks:
            pipeline = with_groups_of(self._pipeline, sink.name)
            frames = build_frames(self._new_session(), pipeline, self._kafka)
            if isinstance(sink, TopicSink):
                yield self._plan_topic(sink, frames[sink.input])
            else:
                yield self._plan_lake(sink, frames[sink.input])

    def plan_dead_letters(self) -> Iterator[PlannedQuery]:
        for place, source in enumerate(self._pipeline.sources):
            if source.dead_letter is None:
                continue
            name = self._checkpoint.dead_letter_query(source.name)
            own = with_groups_of(self._pipeline, name).sources[place]
            frame = build_dead_letters(self._new_session(), own, self._pipeline, self._kafka)
            if frame is not None:
                yield self._plan_letters(name, frame, source.dead_letter)

    def _plan_letters(self, name: str, frame: DataFrame, topic: str) -> PlannedQuery:
        tally = QueryTally(self._checkpoint, name)

        def write(letters: DataFrame, batch_id: int) -> None:
            if not tally.kept.counts(batch_id):
                count = write_dead_letters(letters, self._kafka, topic)
                tally.add(batch_id, SetAside(dead_letters=count))

        writer = self._configured(frame.writeStream.foreachBatch(write), name, None)
        return PlannedQuery(name=name, start=writer.start, tally=tally)

    def _plan_topic(self, sink: TopicSink, frame: DataFrame) -> PlannedQuery:
        records = frame.selectExpr(*topic_columns(sink, frame.columns))
        tally = QueryTally(self._checkpoint, sink.name)
        counter = self._find_counter(sink.name, records, sink.output_mode, tally)
        if counter is None and sink.output_mode != "update":
            writer = self._to_topic(records, sink).outputMode(sink.output_mode)
            is_exact = sink.prefers_exactly_once or bool(find_exactly_once(sink))
            return PlannedQuery(
                name=sink.name,
                start=writer.start,
                tally=tally,
                delivery="exactly once" if is_exact else "at least once",
            )
        if find_exactly_once(sink):
            raise ConfigurationError(
                f"sinks.{sink.name}.options.exactlyOnce: {refuse_exactly_once(sink)}"
            )
        # Batch by batch, so that drops are counted before a batch is done; and Spark has no output
        # mode "update" for sources in Python.
        options = self._topic_options(sink)

        def append(batch: DataFrame, batch_id: int) -> None:
            append_to_topic(batch, options)
            if counter is not None:
                counter.count_drops(batch.sparkSession, batch_id, has_run=True)

        writer = self._configured(records.writeStream.foreachBatch(append), sink.name, sink.trigger)
        start = _start_followed(writer.outputMode(sink.output_mode).start, counter)
        return PlannedQuery(name=sink.name, start=start, tally=tally)

    def _plan_lake(self, sink: LakeSink, frame: DataFrame) -> PlannedQuery:
        folders = folder_columns(sink, frame.columns)
        # The lake is taken when the query starts: until then nothing is made or changed.
        loader = LakeLoader(sink, folders, system_now)
        columns = columns_of(frame.schema)
        tally = QueryTally(self._checkpoint, sink.name)
        counter = self._find_counter(sink.name, frame, "append", tally)

        def load(batch: DataFrame, batch_id: int) -> None:
            has_run = loader.load_batch(batch, batch_id)
            if counter is not None:
                counter.count_drops(batch.sparkSession, batch_id, has_run=has_run)

        writer = self._configured(frame.writeStream.foreachBatch(load), sink.name, sink.trigger)

        def start() -> StreamingQuery:
            lake = open_lake(sink, self._checkpoint.query_id(sink.name))
            lake.claim(has_progress=self._checkpoint.has_progress(sink.name))
            lake.add_columns(columns)
            loader.use_lake(lake)
            return writer.start()

        return PlannedQuery(
            name=sink.name,
            start=_start_followed(start, counter),
            tally=tally,
            loader=loader,
            delivery="exactly once",
        )

    def _find_counter(
        self, query: str, frame: DataFrame, output_mode: OutputMode, tally: QueryTally
    ) -> DropCounter | None:
        """Who counts what a query drops; None where it drops nothing."""
        plan = frame._jdf.queryExecution().analyzed()
        if not may_drop(plan):
            return None
        counter = DropCounter(
            self._pipeline,
            query=query,
            output_mode=output_mode,
            kafka=self._kafka,
            tally=tally,
        )
        counter.require_traceable(frame.sparkSession, plan)
        return counter

    def _to_topic(self, records: DataFrame, sink: TopicSink) -> DataStreamWriter:
        options = self._topic_options(sink)
        if sink.prefers_exactly_once:
            options["exactlyOnce"] = "true"
        writer = records.writeStream.format("moldau").options(**options)
        return self._configured(writer, sink.name, sink.trigger)

    def _topic_options(self, sink: TopicSink) -> dict[str, str]:
        return {**self._kafka, **dict(sink.options), "topic": sink.topic}

    def _configured(
        self, writer: DataStreamWriter, name: str, trigger: str | None
    ) -> DataStreamWriter:
        writer = writer.queryName(f"{self._pipeline.name}.{name}").option(
            "checkpointLocation", str(self._checkpoint.query_folder(name))
        )
        if self._once:
            return writer.trigger(availableNow=True)
        return writer if trigger is None else writer.trigger(processingTime=trigger)


def _start_followed(
    start: Callable[[], StreamingQuery], counter: DropCounter | None
) -> Callable[[], StreamingQuery]:
    """Tell the counter of a query which one it is, each time that it is started."""
    if counter is None:
        return start

    def start_followed() -> StreamingQuery:
        counter.forget_query()
        return counter.follow_query(start())

    return start_followed
