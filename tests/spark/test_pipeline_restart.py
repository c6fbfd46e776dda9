"""Queries that begin again: who is counted for, and when a run gives up. Without Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from moldau.spark.pipeline import run as run_module
from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.cluster import ClusterWatch
from moldau.spark.pipeline.dropped_records import DropCounter, QueryTally
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.model import Pipeline
from moldau.spark.pipeline.queries import PlannedQuery, _start_followed
from moldau.spark.pipeline.rules.queries import Loss
from moldau.spark.pipeline.run import PipelineFailedError, RunOptions, _Run
from support.pipelines import Watching

NO_LEADER = "moldau.errors.LeaderNotAvailableError: copied-0 has no leader"


class LostQuery:
    """What a run sees of a query that has lost its cluster."""

    isActive = False
    recentProgress = ()

    def exception(self) -> str:
        return NO_LEADER

    def stop(self) -> None:
        """It has ended."""


class AnsweringCluster:
    """Some broker answers at once."""

    def wait_until_answered(self, stop: threading.Event, seconds: float | None) -> None:
        assert not stop.is_set()


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    path = tmp_path / "copy.toml"
    path.write_text(
        """
        name = "copy"
        [sources.words]
        topic = "words"
        format = "text"
        [sinks.copy]
        topic = "copied"
        """
    )
    pipeline = load_pipeline(path)
    Path(pipeline.checkpoint).mkdir(parents=True)
    return pipeline


def plan_lost(pipeline: Pipeline, on_start: Callable[[], None]) -> PlannedQuery:
    def start() -> StreamingQuery:
        on_start()
        return cast("StreamingQuery", LostQuery())

    tally = QueryTally(Checkpoint(Path(pipeline.checkpoint)), "copy")
    return PlannedQuery(name="copy", start=start, tally=tally)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("once", [True, False])
def test_a_run_that_is_to_end_does_not_begin_again_for_ever_where_a_broker_answers(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    monkeypatch.setattr(run_module, "CLUSTER_SECONDS", 0.0)
    monkeypatch.setattr(run_module, "_CHECK_SECONDS", 0.01)
    watcher = Watching()
    starts: list[int] = []

    def on_start() -> None:
        starts.append(len(starts))
        if len(starts) == 5:
            watcher.stop.set()

    options = RunOptions(bootstrap="127.0.0.1:1", master="local[1]", once=once)
    run = _Run(pipeline, options, watcher, cast("ClusterWatch", AnsweringCluster()))
    if once:
        with pytest.raises(PipelineFailedError, match="no leader"):
            run.run([plan_lost(pipeline, on_start)], watcher.stop)
        assert len(starts) == 2
    else:
        run.run([plan_lost(pipeline, on_start)], watcher.stop)
        assert len(starts) == 5


def test_a_query_that_has_done_a_batch_is_lost_anew() -> None:
    loss = Loss(3, 10.0)
    assert loss.repeat(3, 50.0) == loss
    assert loss.repeat(4, 50.0) == Loss(4, 50.0)


def test_the_first_batch_of_a_query_that_begins_again_is_not_taken_for_the_last_of_the_other(
    pipeline: Pipeline,
) -> None:
    tally = QueryTally(Checkpoint(Path(pipeline.checkpoint)), "copy")
    counter = DropCounter(
        pipeline,
        query="copy",
        output_mode="append",
        kafka={"kafka.bootstrap.servers": "127.0.0.1:1"},
        tally=tally,
    )
    seen: list[StreamingQuery] = []
    batches: list[threading.Thread] = []

    def start() -> StreamingQuery:
        batch = threading.Thread(target=lambda: seen.append(counter._require_query()))
        batch.start()
        batch.join(0.1)  # the wrong query would be there at once
        batches.append(batch)
        return cast("StreamingQuery", LostQuery())

    begin = _start_followed(start, counter)
    queries = []
    for _ in range(2):
        queries.append(begin())
        batches[-1].join()
    assert seen == queries
