"""Starts the queries of a pipeline: one for each sink, one for each dead-letter topic. A shell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.frames import build_dead_letters, build_frames, columns_of
from moldau.spark.pipeline.lake_loader import LakeLoader, open_lake, system_now
from moldau.spark.pipeline.model import LakeSink, Pipeline, TopicSink
from moldau.spark.pipeline.rules.query_groups import with_groups_of
from moldau.spark.pipeline.rules.sink_columns import folder_columns, topic_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A query that can be started."""

    name: str
    start: Callable[[], StreamingQuery]
    loader: LakeLoader | None = None


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
        self._bootstrap = bootstrap
        self._once = once
        self._checkpoint = Checkpoint(Path(pipeline.checkpoint))

    def plan_sinks(self) -> Iterator[PlannedQuery]:
        for sink in self._pipeline.sinks:
            pipeline = with_groups_of(self._pipeline, sink.name)
            frames = build_frames(self._new_session(), pipeline, self._bootstrap)
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
            frame = build_dead_letters(self._new_session(), own, self._pipeline, self._bootstrap)
            if frame is not None:
                writer = self._to_topic(frame, source.dead_letter, name, None)
                yield PlannedQuery(name=name, start=writer.start)

    def _plan_topic(self, sink: TopicSink, frame: DataFrame) -> PlannedQuery:
        records = frame.selectExpr(*topic_columns(sink, frame.columns))
        if sink.output_mode == "update":
            writer = records.writeStream.foreachBatch(self._append_to(sink))
            writer = self._configured(writer, sink.name, sink.trigger)
        else:
            writer = self._to_topic(records, sink.topic, sink.name, sink.trigger)
            writer = writer.options(**dict(sink.options))
        return PlannedQuery(name=sink.name, start=writer.outputMode(sink.output_mode).start)

    def _append_to(self, sink: TopicSink) -> Callable[[DataFrame, int], None]:
        """Writes batch by batch: Spark has no output mode "update" for sources in Python."""
        options = {
            **dict(sink.options),
            "kafka.bootstrap.servers": self._bootstrap,
            "topic": sink.topic,
        }

        def append(records: DataFrame, batch_id: int) -> None:
            records.write.format("moldau").options(**options).mode("append").save()

        return append

    def _plan_lake(self, sink: LakeSink, frame: DataFrame) -> PlannedQuery:
        folders = folder_columns(sink, frame.columns)
        # The lake is taken when the query starts: until then nothing is made or changed.
        loader = LakeLoader(sink, folders, system_now)
        columns = columns_of(frame.schema)
        writer = frame.writeStream.foreachBatch(loader.load)
        writer = self._configured(writer, sink.name, sink.trigger)

        def start() -> StreamingQuery:
            lake = open_lake(sink, self._checkpoint.query_id(sink.name))
            lake.begin(has_progress=self._checkpoint.has_progress(sink.name))
            lake.state.grow(columns)
            loader.take(lake)
            return writer.start()

        return PlannedQuery(name=sink.name, start=start, loader=loader)

    def _to_topic(
        self, records: DataFrame, topic: str, name: str, trigger: str | None
    ) -> DataStreamWriter:
        writer = (
            records.writeStream.format("moldau")
            .option("kafka.bootstrap.servers", self._bootstrap)
            .option("topic", topic)
        )
        return self._configured(writer, name, trigger)

    def _configured(
        self, writer: DataStreamWriter, name: str, trigger: str | None
    ) -> DataStreamWriter:
        writer = writer.queryName(f"{self._pipeline.name}.{name}").option(
            "checkpointLocation", str(self._checkpoint.query_folder(name))
        )
        if self._once:
            return writer.trigger(availableNow=True)
        return writer if trigger is None else writer.trigger(processingTime=trigger)
