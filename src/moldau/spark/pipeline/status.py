"""How far a pipeline is: by its checkpoint, the figures of its last run, and its brokers. A shell.

Needs neither Spark nor Java: Spark's checkpoint is a folder of small texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from moldau.client.admin.values import ListedOffset, OffsetSpec
from moldau.client.blocking import Admin
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.model import Pipeline, Source
from moldau.spark.pipeline.progress_files import RunReport, find_report
from moldau.spark.pipeline.rules.progress import QueryLag, SetAside, partition_lags, total_lag
from moldau.spark.pipeline.source_topics import find_partitions, open_admin
from moldau.spark.rules.offsets import TopicIds


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopics:
    """What the brokers know about topics that are read: where each partition begins and ends."""

    bounds: Mapping[TopicPartition, tuple[int, int]]
    topic_ids: TopicIds


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """One query: the name of its sink, or of its source's dead letters."""

    name: str
    partitions: tuple[QueryLag, ...]
    set_aside: SetAside
    """Records that are in no result, in all runs."""

    @property
    def lag(self) -> int:
        return total_lag(self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """A pipeline at one moment."""

    pipeline: str
    runner: int | None
    """The process that runs it, if one does."""
    report: RunReport | None
    queries: tuple[QueryStatus, ...]

    def to_document(self) -> dict[str, object]:
        return {
            "pipeline": self.pipeline,
            "running": self.runner is not None,
            "process": self.runner,
            "last_run": None if self.report is None else self.report.to_document(),
            "queries": [
                {
                    "name": query.name,
                    "lag": query.lag,
                    "set_aside": asdict(query.set_aside),
                    "partitions": [{**asdict(one), "lag": one.lag} for one in query.partitions],
                }
                for query in self.queries
            ],
        }


def read_status(pipeline: Pipeline, bootstrap: str) -> PipelineStatus:
    """Look at the checkpoint, and ask the brokers where topics begin and end."""
    checkpoint = Checkpoint(Path(pipeline.checkpoint))
    with open_admin(pipeline, bootstrap) as admin:
        by_source = {one.name: _read_topics(admin, one) for one in pipeline.sources}
    queries = [_read_sink(checkpoint, sink.name, by_source) for sink in pipeline.sinks]
    for source in pipeline.sources:
        if source.dead_letter is not None and source.may_be_faulty:
            name = checkpoint.dead_letter_query(source.name)
            queries.append(_read_query(checkpoint, name, by_source[source.name]))
    return PipelineStatus(
        pipeline=pipeline.name,
        runner=checkpoint.find_runner(),
        report=find_report(checkpoint.folder),
        queries=tuple(queries),
    )


def _read_sink(
    checkpoint: Checkpoint, name: str, by_source: Mapping[str, SourceTopics]
) -> QueryStatus:
    """A sink need not read every source; which ones it does is known once it has begun."""
    positions = checkpoint.find_positions(name)
    read = [
        one
        for one in by_source.values()
        if not positions or any(partition.topic in positions for partition in one.bounds)
    ]
    merged = SourceTopics(
        bounds={partition: place for one in read for partition, place in one.bounds.items()},
        topic_ids={topic: topic_id for one in read for topic, topic_id in one.topic_ids.items()},
    )
    return _read_query(checkpoint, name, merged)


def _read_query(checkpoint: Checkpoint, name: str, read: SourceTopics) -> QueryStatus:
    lags = partition_lags(checkpoint.find_positions(name, read.topic_ids), read.bounds)
    set_aside = checkpoint.find_tally(name).total
    return QueryStatus(name=name, partitions=lags, set_aside=set_aside)


def _read_topics(admin: Admin, source: Source) -> SourceTopics:
    partitions, topic_ids = find_partitions(admin, source)
    starts = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    bounds = {one: (_offset(starts[one]), _offset(ends[one])) for one in partitions}
    return SourceTopics(bounds=bounds, topic_ids=topic_ids)


def _offset(answer: ListedOffset | KafkaError) -> int:
    if isinstance(answer, KafkaError):
        raise answer
    return answer.offset
