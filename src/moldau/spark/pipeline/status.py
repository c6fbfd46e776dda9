"""How far a pipeline is: by its checkpoint, the figures of its last run, and its brokers. A shell.

Needs neither Spark nor Java: Spark's checkpoint is a folder of small texts.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from moldau.client.admin_values import ListedOffset, OffsetSpec
from moldau.client.blocking import Admin
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.model import Pipeline
from moldau.spark.pipeline.progress_files import RunReport, find_report
from moldau.spark.pipeline.rules.lag import PartitionLag, partition_lags, total_lag

Bounds = Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """One query: the name of its sink, or of its source's dead letters."""

    name: str
    partitions: tuple[PartitionLag, ...]

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
                    "partitions": [{**asdict(one), "lag": one.lag} for one in query.partitions],
                }
                for query in self.queries
            ],
        }


def read_status(pipeline: Pipeline, bootstrap: str) -> PipelineStatus:
    """Look at the checkpoint, and ask the brokers where topics begin and end."""
    checkpoint = Checkpoint(Path(pipeline.checkpoint))
    with Admin(bootstrap) as admin:
        bounds = _read_bounds(admin, _read_topics(admin, pipeline))
    names = [sink.name for sink in pipeline.sinks]
    queries = [_read_query(checkpoint, name, bounds) for name in names]
    for source in pipeline.sources:
        if source.dead_letter is not None:
            name = checkpoint.dead_letter_query(source.name)
            own = {one: place for one, place in bounds.items() if _reads(source.topics, one.topic)}
            queries.append(_read_query(checkpoint, name, own))
    return PipelineStatus(
        pipeline=pipeline.name,
        runner=checkpoint.find_runner(),
        report=find_report(checkpoint.folder),
        queries=tuple(queries),
    )


def _read_query(checkpoint: Checkpoint, name: str, bounds: Bounds) -> QueryStatus:
    lags = partition_lags(checkpoint.find_positions(name), bounds)
    return QueryStatus(name=name, partitions=lags)


def _reads(topics: Collection[str], topic: str) -> bool:
    return not topics or topic in topics


def _read_topics(admin: Admin, pipeline: Pipeline) -> dict[str, int]:
    """The topics of the sources, as far as they are there, and their numbers of partitions."""
    there = admin.list_topics()
    wanted = {topic for source in pipeline.sources for topic in source.topics}
    for source in pipeline.sources:
        if source.topic_pattern is not None:
            pattern = re.compile(source.topic_pattern)
            wanted |= {name for name in there if pattern.fullmatch(name)}
    return {name: len(there[name].partitions) for name in sorted(wanted) if name in there}


def _read_bounds(admin: Admin, topics: Mapping[str, int]) -> Bounds:
    partitions = [
        TopicPartition(topic, index) for topic, count in topics.items() for index in range(count)
    ]
    starts = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return {one: (_offset(starts[one]), _offset(ends[one])) for one in partitions}


def _offset(answer: ListedOffset | KafkaError) -> int:
    if isinstance(answer, KafkaError):
        raise answer
    return answer.offset
