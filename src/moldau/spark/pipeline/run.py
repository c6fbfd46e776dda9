"""Runs a pipeline until it is done, is told to stop, or fails. A shell.

One process runs a pipeline at a time: the checkpoint's lock sees to that. Figures are written
beside the checkpoint while it runs, for `moldau pipeline status`.
"""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Protocol

from pyspark.errors import PySparkException

from moldau.errors import MoldauError
from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.cluster import ClusterWatch, fix_starts
from moldau.spark.pipeline.model import Pipeline
from moldau.spark.pipeline.queries import (
    PlannedQuery,
    choose_delivery,
    plan_queries,
    report_delivery,
)
from moldau.spark.pipeline.rules.queries import (
    BatchReport,
    Loss,
    QueryProgress,
    add_reports,
    explain_failure,
    find_new,
    is_outage,
)
from moldau.spark.pipeline.status import RunReport, RunState, find_report, write_report
from moldau.spark.session_factory import hush_accumulators, session, stop_quietly
from moldau.spark.source import MoldauDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_CHECK_SECONDS = 0.5
CLUSTER_SECONDS = 60.0
"""How long a cluster may be away where a run is to have an end, or has not begun; and how long a
query of such a run may get nowhere though some broker answers."""
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Where PySpark dumps a stack before it raises what is wrong with a query, which is told here."""

LOCAL_SETTINGS: Mapping[str, str] = {"spark.sql.shuffle.partitions": "4"}
"""On one machine Spark's 200 partitions for every aggregation cost more than they bring."""
SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # The default, INT96, is known to few readers beside Spark.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


class PipelineFailedError(MoldauError):
    """A query of a pipeline ended with an error; the message says which, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a pipeline is run, as opposed to what it does."""

    bootstrap: str
    master: str
    once: bool
    log_file: Path | None = None
    """Where Spark's own words go, if not to the terminal."""


class Watcher(Protocol):
    """Who looks at a run: called in the thread that runs it."""

    def on_report(self, report: RunReport) -> None:
        """The figures, twice a second."""

    def on_batch(self, query: str, batch: BatchReport) -> None:
        """A batch is done."""

    def say(self, text: str) -> None:
        """Something that a person should know; called in any thread."""


def open_session(pipeline: Pipeline, options: RunOptions) -> SparkSession:
    """A Spark session with the settings of the pipeline."""
    # Said once for every session, about things that no pipeline uses.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    for name in _QUERY_LOGGERS:
        logging.getLogger(name).disabled = True
    conf: dict[str, object] = {"spark.log.level": "WARN", **_settings(pipeline, options)}
    name = f"moldau pipeline {pipeline.name}"
    made = session(options.master, app_name=name, log_file=options.log_file, **conf)
    hush_accumulators(made)
    return made


def _settings(pipeline: Pipeline, options: RunOptions) -> dict[str, str]:
    """What the file says goes before what fits."""
    local = LOCAL_SETTINGS if options.master.startswith("local") else {}
    return {**SETTINGS, **local, **_size_settings(pipeline), **dict(pipeline.spark)}


def plan_pipeline(
    spark: SparkSession, pipeline: Pipeline, options: RunOptions
) -> list[PlannedQuery]:
    """Plan all queries; what is wrong with SQL, functions and columns is raised here."""

    def new_session() -> SparkSession:
        return _make_child_session(spark, _settings(pipeline, options))

    try:
        return plan_queries(pipeline, new_session, options.bootstrap, once=options.once)
    except PySparkException as fault:
        raise PipelineFailedError(explain_failure(pipeline.name, str(fault))) from fault


def _make_child_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session beside another one, with settings and names of its own."""
    child = spark.newSession()
    child.dataSource.register(MoldauDataSource)
    # Whoever starts a query looks for its sink in the session that is active in the thread, and in
    # a thread of one's own there is none; making a frame is how a session becomes active.
    child.createDataFrame([], "nothing INT")
    for name, value in settings.items():
        if child.conf.isModifiable(name):
            child.conf.set(name, value)
    return child


def run_pipeline(
    pipeline: Pipeline,
    options: RunOptions,
    *,
    stop: Event,
    watcher: Watcher,
    spark: SparkSession | None = None,
) -> RunReport:
    """Run it; the last report. Raises PipelineFailedError, ConfigurationError, StartupError.

    With a session it runs beside whatever else that session does, and leaves it running.
    """
    checkpoint = Checkpoint(Path(pipeline.checkpoint))
    started_ms = _now_ms()
    with checkpoint.locked(), ClusterWatch(pipeline, options.bootstrap) as cluster:
        if stop.is_set():
            return _report_nothing(pipeline, options, started_ms)
        with _use_session(pipeline, options, spark) as own:
            cluster.wait_until_answered(stop, CLUSTER_SECONDS)
            if stop.is_set():
                return _report_nothing(pipeline, options, started_ms)
            run = _Run(pipeline, options, watcher, cluster)
            begun = fix_starts(pipeline, options.bootstrap)
            begun = choose_delivery(begun, options.bootstrap)
            if stop.is_set():
                return _report_nothing(pipeline, options, started_ms)
            planned = plan_pipeline(own, begun, options)
            report_delivery(begun, {one.name: one.delivery for one in planned}, watcher.say)
            return run.run(planned, stop)


def report_given_up(pipeline: Pipeline, options: RunOptions, started_ms: int) -> RunReport:
    """The report of a run that was not waited for: what it had told until then."""
    last = find_report(Path(pipeline.checkpoint))
    if last is None or last.started_ms < started_ms:
        return _report_nothing(pipeline, options, started_ms)
    report = replace(last, state="stopped")
    write_report(Path(pipeline.checkpoint), report)
    return report


def _report_nothing(pipeline: Pipeline, options: RunOptions, started_ms: int) -> RunReport:
    """Of a run that was stopped before it began: the figures of the one before it are kept."""
    return RunReport(
        pipeline=pipeline.name,
        state="stopped",
        master=options.master,
        started_ms=started_ms,
        updated_ms=_now_ms(),
        queries=(),
    )


@contextlib.contextmanager
def _use_session(
    pipeline: Pipeline, options: RunOptions, given: SparkSession | None
) -> Iterator[SparkSession]:
    if given is not None:
        yield given
        return
    made = open_session(pipeline, options)
    try:
        yield made
    finally:
        stop_quietly(made)


class _Run:
    """One run, in the thread that called."""

    def __init__(
        self, pipeline: Pipeline, options: RunOptions, watcher: Watcher, cluster: ClusterWatch
    ) -> None:
        self._pipeline = pipeline
        self._options = options
        self._watcher = watcher
        self._cluster = cluster
        self._started_ms = _now_ms()
        self._queries: dict[str, StreamingQuery] = {}
        self._progress: dict[str, QueryProgress] = {}
        self._planned: Sequence[PlannedQuery] = ()
        self._losses: dict[str, Loss] = {}

    def run(self, planned: Sequence[PlannedQuery], stop: Event) -> RunReport:
        self._planned = planned
        try:
            self._start(stop)
            self._watch(stop)
            self._finish(stop)
        except OSError as fault:
            self._stop_all()
            raise PipelineFailedError(explain_failure(self._pipeline.name, str(fault))) from fault
        except Exception as fault:
            self._stop_all()
            self._report("failed", str(fault))
            raise
        return self._report("stopped" if stop.is_set() else "finished")

    def _start(self, stop: Event) -> None:
        for one in self._planned:
            self._progress[one.name] = QueryProgress(name=one.name, delivery=one.delivery)
        for one in self._planned:
            if not stop.is_set():
                self._start_one(one)

    def _start_one(self, one: PlannedQuery) -> None:
        try:
            self._queries[one.name] = one.start()
        except PySparkException as fault:
            raise PipelineFailedError(explain_failure(one.name, str(fault))) from fault

    def _watch(self, stop: Event) -> None:
        """Until all queries have ended, one of them has failed, or somebody says stop."""
        while not stop.is_set():
            is_over = not any(query.isActive for query in self._queries.values())
            has_restarted = self._restart_lost(stop)
            self._report("running")
            if is_over and not has_restarted:
                return
            stop.wait(_CHECK_SECONDS)

    def _restart_lost(self, stop: Event) -> bool:
        """Begin those queries again that have lost their cluster; any other fault ends the run.
        Whether there were any."""
        faults: dict[str, str] = {}
        for name, query in self._queries.items():
            fault = None if query.isActive else query.exception()
            if fault is not None:
                faults[name] = explain_failure(name, str(fault))
                if not is_outage(str(fault)):
                    raise PipelineFailedError(faults[name])
        if not faults:
            return False
        self._report("running")  # what they have done counts, before others take their place
        for name, explained in faults.items():
            self._require_hope(name, explained)
            self._watcher.say(f"{explained}; it begins again, where it was, when a broker answers")
        seconds = CLUSTER_SECONDS if self._options.once else None
        self._cluster.wait_until_answered(stop, seconds)
        for one in self._planned:
            if one.name in faults and not stop.is_set():
                self._start_one(one)
        return True

    def _require_hope(self, name: str, explained: str) -> None:
        """A run that is to have an end does not begin for ever again, without doing a batch."""
        now = time.monotonic()
        batch_id = self._progress[name].last_batch_id
        loss = self._losses.get(name, Loss(batch_id, now)).repeat(batch_id, now)
        self._losses[name] = loss
        if self._options.once and now > loss.since_seconds + CLUSTER_SECONDS:
            raise PipelineFailedError(explained)

    def _finish(self, stop: Event) -> None:
        self._stop_all()
        if not stop.is_set():
            for one in self._planned:
                if one.loader is not None:
                    one.loader.finish()

    def _stop_all(self) -> None:
        for query in self._queries.values():
            with contextlib.suppress(Exception):  # it may have ended, and Spark with it
                query.stop()

    def _report(self, state: RunState, error: str | None = None) -> RunReport:
        for one in self._planned:
            if one.name in self._queries:
                self._progress[one.name] = self._collect(one)
        report = RunReport(
            pipeline=self._pipeline.name,
            state=state,
            master=self._options.master,
            started_ms=self._started_ms,
            updated_ms=_now_ms(),
            queries=tuple(self._progress.values()),
            error=error,
        )
        write_report(Path(self._pipeline.checkpoint), report)
        self._watcher.on_report(report)
        return report

    def _collect(self, one: PlannedQuery) -> QueryProgress:
        progress = self._progress[one.name]
        with contextlib.suppress(Exception):  # Spark may be gone: what is known already counts
            recent = [_to_report(one) for one in self._queries[one.name].recentProgress]
            new = find_new(progress, recent)
            progress = add_reports(progress, new)
            for batch in new:
                self._watcher.on_batch(one.name, batch)
        progress = replace(progress, set_aside=one.tally.kept.total)
        if one.loader is None:
            return progress
        totals = one.loader.totals
        extra = {
            "loaded_rows": totals.rows,
            "loaded_bytes": totals.size_bytes,
            "late_rows": totals.late_rows,
            "merged_files": totals.merged_files,
        }
        return replace(progress, extra=extra)


def _to_report(progress: StreamingQueryProgress) -> BatchReport:
    return BatchReport(
        batch_id=progress.batchId,
        input_rows=progress.numInputRows,
        duration_ms=int(progress.durationMs.get("addBatch", 0)),
    )


def _size_settings(pipeline: Pipeline) -> dict[str, str]:
    """Spark cuts what it rebalances into parts of this size, each of which becomes a file."""
    sizes = [sink.target_file_bytes for sink in pipeline.lake_sinks]
    name = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
    return {name: str(min(sizes))} if sizes else {}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
