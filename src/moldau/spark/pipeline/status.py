"""How far a pipeline is: by its checkpoint, the figures of its last run, and its brokers. A shell.

Needs neither Spark nor Java: Spark's checkpoint is a folder of small texts. The figures of a run
are kept beside the checkpoint, for `moldau pipeline status` and for Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

from moldau.client.admin.values import ListedOffset, OffsetSpec
from moldau.client.blocking import Admin
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.spark.pipeline.checkpoint import Checkpoint, find_text
from moldau.spark.pipeline.cluster import find_partitions, open_admin
from moldau.spark.pipeline.model import Pipeline, Source
from moldau.spark.pipeline.rules.queries import (
    QueryLag,
    QueryProgress,
    SetAside,
    partition_lags,
    render_metrics,
    total_lag,
)
from moldau.spark.rules.offsets import TopicIds

RunState = Literal["running", "finished", "stopped", "failed"]

_PROGRESS = "progress.json"
_METRICS = "progress.prom"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run at one moment."""

    pipeline: str
    state: RunState
    master: str
    started_ms: int
    updated_ms: int
    queries: tuple[QueryProgress, ...]
    error: str | None = None

    def to_document(self) -> dict[str, object]:
        document = asdict(self)
        document["queries"] = [
            {**asdict(one), "rows_per_second": round(one.rows_per_second, 1)}
            for one in self.queries
        ]
        return document


def write_report(folder: Path, report: RunReport) -> None:
    """Keep the figures; a crash of the machine may cost them, nothing else."""
    _write_figures(folder / _PROGRESS, json.dumps(report.to_document(), indent=1))
    text = render_metrics(
        report.pipeline,
        report.queries,
        updated_ms=report.updated_ms,
        is_running=report.state == "running",
    )
    _write_figures(folder / _METRICS, text)


def find_report(folder: Path) -> RunReport | None:
    """What the last run kept, or None."""
    text = find_text(folder / _PROGRESS)
    if text is None:
        return None
    document = json.loads(text)
    queries: Sequence[dict[str, object]] = document.pop("queries")
    return RunReport(queries=tuple(_decode_query(one) for one in queries), **document)


def _decode_query(document: dict[str, object]) -> QueryProgress:
    """What another version wrote may lack figures, or have others."""
    known = {one.name for one in fields(QueryProgress)} - {"set_aside"}
    kept = {key: value for key, value in document.items() if key in known}
    found = document.get("set_aside")
    set_aside = SetAside(**found) if isinstance(found, dict) else SetAside()
    return QueryProgress(set_aside=set_aside, **kept)  # type: ignore[arg-type]  # written by `to_document`


def _write_figures(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    temporary.replace(path)


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
    bounds = {one: (_require_offset(starts[one]), _require_offset(ends[one])) for one in partitions}
    return SourceTopics(bounds=bounds, topic_ids=topic_ids)


def _require_offset(answer: ListedOffset | KafkaError) -> int:
    if isinstance(answer, KafkaError):
        raise answer
    return answer.offset
