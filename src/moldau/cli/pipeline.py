"""`moldau pipeline`: runs pipelines from topics to topics and lakes, on Spark."""

from __future__ import annotations

import logging
import shutil
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, argument, flag, option, security_options
from moldau.cli.output import note, print_document, print_table
from moldau.cli.reporting import warnings_shown
from moldau.processes import stop_signals
from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.model import describe_delivery, describe_flow
from moldau.spark.pipeline.status import PipelineStatus, QueryStatus, read_status

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from moldau.spark.pipeline.model import Pipeline
    from moldau.spark.pipeline.rules.queries import BatchReport, QueryProgress, SetAside
    from moldau.spark.pipeline.run import RunOptions, Watcher
    from moldau.spark.pipeline.status import RunReport


PipelineFile = Annotated[Path, argument("FILE", "The pipeline file, TOML or YAML.")]

PipelineBootstrap = Annotated[
    str | None,
    option(
        "HOST:PORT,...",
        "Brokers to ask first; goes before what the file says.",
        "--bootstrap",
        default=f"the file's, or {DEFAULT_BOOTSTRAP}",
        envvar="MOLDAU_BOOTSTRAP",
    ),
]

Master = Annotated[
    str,
    option(
        "MASTER",
        "Where Spark runs: local[*], local-cluster[2,1,1024], spark://..., yarn, k8s://...",
        "--master",
    ),
]

DEFAULT_MASTER = "local[*]"


def load_with_security(file: Path) -> Pipeline:
    """What the file declares, with the security of --command-config or the profile."""
    return replace(load_pipeline(file), security=security_options())


def choose_bootstrap(given: str | None, of_file: str | None) -> str:
    return given or of_file or DEFAULT_BOOTSTRAP


def run(
    file: PipelineFile,
    master: Master = DEFAULT_MASTER,
    once: Annotated[bool, flag("--once", "Read what is there now, then end.")] = False,
    verbose: Annotated[
        bool, flag("--verbose", "Show what Spark says, rather than keep it in the checkpoint.")
    ] = False,
    bootstrap: PipelineBootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline, until Ctrl-C or until all is read (--once).

    Needs moldau[spark] and Java 17. Started again, it goes on where it was.
    """
    from moldau.spark.session_factory import require_spark

    pipeline = load_with_security(file)
    with stopping() as stop:
        require_spark()
        from moldau.spark.pipeline.run import RunOptions, report_given_up, run_pipeline

        options = RunOptions(
            bootstrap=choose_bootstrap(bootstrap, pipeline.bootstrap),
            master=master,
            once=once or pipeline.mode == "once",
            log_file=None if verbose else Checkpoint(Path(pipeline.checkpoint)).log_file,
        )
        started_ms = time.time_ns() // 1_000_000
        with watching(pipeline, options, stop) as display:
            ended = run_beside(
                lambda: run_pipeline(pipeline, options, stop=stop, watcher=display), stop
            )
        report = ended or report_given_up(pipeline, options, started_ms)
    if as_json:
        print_document(report.to_document())
    else:
        _print_run(report)


def _print_run(report: RunReport) -> None:
    typer.echo(f"{report.pipeline}: {report.state}")
    names = [format_name(query.name) for query in report.queries]
    width = max(map(len, names), default=0)
    for name, query in zip(names, report.queries, strict=True):
        typer.echo(f"  {name:<{width}}  {format_query(query)}")


def check(
    file: PipelineFile,
    plan: Annotated[
        bool,
        flag("--plan", "Also have Spark plan it: SQL, functions and columns. Reads no record."),
    ] = False,
    bootstrap: PipelineBootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Say what a pipeline file does, or what is wrong with it. Runs nothing."""
    pipeline = load_with_security(file)
    if plan:
        _plan(pipeline, choose_bootstrap(bootstrap, pipeline.bootstrap))
    if as_json:
        print_document(_to_document(pipeline, is_planned=plan))
    else:
        _print_check(pipeline, is_planned=plan)


def _print_check(pipeline: Pipeline, *, is_planned: bool) -> None:
    rows: list[tuple[str, str]] = []
    for sink in pipeline.sinks:
        rows += [
            (sink.name, describe_flow(pipeline, sink)),
            ("", describe_delivery(pipeline, sink)),
        ]
    for source in pipeline.sources:
        if source.dead_letter is not None and source.may_be_faulty:
            rows.append(("dead letters", f"{source.name} -> {source.dead_letter}"))
        if source.watermark is not None:
            goes = f"-> {source.dead_letter}" if source.late == "dead_letter" else "are dropped"
            rows.append(("late records", f"{source.name} {goes}, and counted"))
    rows.append(("checkpoint", pipeline.checkpoint))
    typer.secho(pipeline.name, bold=True)
    for name, what in rows:
        typer.echo(f"  {name:<16}{what}")
    if not is_planned:
        typer.echo("SQL, functions and columns were not checked: --plan has Spark check them.")


def _plan(pipeline: Pipeline, bootstrap: str) -> None:
    from moldau.spark.session_factory import require_spark

    require_spark()

    from moldau.spark.pipeline.run import RunOptions, open_session
    from moldau.spark.pipeline.run import plan_pipeline as plan
    from moldau.spark.session_factory import stop_quietly

    log_folder = Path(tempfile.mkdtemp(prefix="moldau-check-"))
    options = RunOptions(
        bootstrap=bootstrap,
        master=DEFAULT_MASTER,
        once=True,
        log_file=log_folder / "spark.log",
    )

    def plan_it() -> None:
        spark = open_session(pipeline, options)
        try:
            plan(spark, pipeline, options)
        finally:
            stop_quietly(spark)
            shutil.rmtree(log_folder)  # where Spark did not start, it is kept: it says why

    try:
        run_beside(plan_it, threading.Event())
    except KeyboardInterrupt:
        shutil.rmtree(log_folder, ignore_errors=True)
        raise


def _to_document(pipeline: Pipeline, *, is_planned: bool) -> dict[str, object]:
    flows = {sink.name: describe_flow(pipeline, sink) for sink in pipeline.sinks}
    delivery = {sink.name: describe_delivery(pipeline, sink) for sink in pipeline.sinks}
    document = asdict(pipeline)
    del document["security"]  # it is not the file's, and has passwords
    return {**document, "flows": flows, "delivery": delivery, "planned": is_planned}


def status(
    file: PipelineFile, bootstrap: PipelineBootstrap = None, as_json: AsJson = False
) -> None:
    """Show whether a pipeline runs, and how far it is behind.

    Reads its checkpoint and asks the brokers; needs no Spark.
    """
    pipeline = load_with_security(file)
    found = read_status(pipeline, choose_bootstrap(bootstrap, pipeline.bootstrap))
    if as_json:
        print_document(found.to_document())
    else:
        _print_status(found)


def _print_status(found: PipelineStatus) -> None:
    typer.secho(found.pipeline, bold=True)
    running = f"running in process {found.runner}" if found.runner is not None else "not running"
    typer.echo(f"  {'state':<11}{running}")
    if found.report is not None:
        typer.echo(f"  {'last run':<11}{_format_report(found)}")
    for query in found.queries:
        typer.echo()
        _print_query(query, _find_delivery(found, query.name))


def _format_report(found: PipelineStatus) -> str:
    report = found.report
    if report is None:
        return "none"
    at = datetime.fromtimestamp(report.updated_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    # A run that was killed could not say so: whoever holds the lock tells the truth.
    is_gone = report.state == "running" and found.runner is None
    state = "killed" if is_gone else report.state
    return f"{state}, {at}" + (f": {report.error}" if report.error else "")


def _find_delivery(found: PipelineStatus, name: str) -> str:
    """How the last run wrote the rows of a query."""
    queries = () if found.report is None else found.report.queries
    delivery = next((one.delivery for one in queries if one.name == name), None)
    return "" if delivery is None else f", written {delivery}"


def _print_query(query: QueryStatus, delivery: str) -> None:
    typer.echo(f"  {query.name}, {query.lag:,} records behind{delivery}")
    if query.set_aside:
        typer.echo(f"    {format_set_aside(query.set_aside)}")
    columns = ("topic", ">partition", ">position", ">end", ">lag")
    rows = [
        (
            one.topic,
            str(one.partition),
            "-" if one.position is None else str(one.position),
            str(one.end_offset),
            str(one.lag),
        )
        for one in query.partitions
    ]
    print_table(columns, rows, indent=4)


_DEAD_LETTERS = "dead-letters-"


@contextmanager
def watching(pipeline: Pipeline, options: RunOptions, stop: threading.Event) -> Iterator[Watcher]:
    """Who is told of a run while it goes on."""
    if not sys.stderr.isatty():
        with warnings_shown():
            yield Lines()
        return
    with warnings_shown():
        waiting = run_beside(lambda: _count_waiting(pipeline, options), stop) or {}
    # Entered first: what is said on standard error from then on stands above the bars.
    with _Bars(waiting, has_end=options.once) as bars, warnings_shown():
        yield bars


class Lines:
    """A line for each batch, on standard error: for logs."""

    def on_report(self, report: RunReport) -> None:
        """The figures of batches are enough."""

    def on_batch(self, query: str, batch: BatchReport) -> None:
        note(f"{format_name(query)}: {format_batch(batch)}")

    def say(self, text: str) -> None:
        note(f"moldau: {text}")


class _Bars:
    """A line for each query, on a terminal."""

    def __init__(self, waiting: Mapping[str, int | None], *, has_end: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._lines = Progress(
            *_columns(has_end=has_end), console=Console(stderr=True), transient=True
        )
        self._tasks = {
            name: self._lines.add_task(format_name(name), total=count, figures="Spark is starting")
            for name, count in waiting.items()
        }

    def __enter__(self) -> _Bars:
        self._lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.stop()

    def on_report(self, report: RunReport) -> None:
        for query in report.queries:
            figures = _format_pace(query)
            self._lines.update(self._tasks[query.name], completed=query.input_rows, figures=figures)

    def on_batch(self, query: str, batch: BatchReport) -> None:
        """The bars show it."""

    def say(self, text: str) -> None:
        self._lines.console.print(f"moldau: {text}", highlight=False, markup=False)


def _columns(*, has_end: bool) -> list[ProgressColumn]:
    """A bar tells how much is left, so there is none where there is always more to come."""
    from rich.progress import BarColumn, SpinnerColumn, TextColumn

    bars: list[ProgressColumn] = [BarColumn()] if has_end else []
    figures = TextColumn("{task.fields[figures]}")
    return [SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), *bars, figures]


def _count_waiting(pipeline: Pipeline, options: RunOptions) -> dict[str, int | None]:
    """All queries, and how many records each has before it, where that has an end."""
    queries = read_status(pipeline, options.bootstrap).queries
    return {query.name: query.lag if options.once else None for query in queries}


def _format_pace(query: QueryProgress) -> str:
    if not query.batches:
        return "no batch is done yet"
    return f"{query.input_rows:,} records, {query.rows_per_second:,.0f}/s"


def format_batch(batch: BatchReport) -> str:
    """What a batch was, in a line."""
    records = "1 record" if batch.input_rows == 1 else f"{batch.input_rows:,} records"
    return f"batch {batch.batch_id}, {records} in {batch.duration_ms / 1000:.1f} s"


def format_name(query: str) -> str:
    """The name of a query for people."""
    source = query.removeprefix(_DEAD_LETTERS)
    return query if source == query else f"dead letters of {source}"


def format_query(query: QueryProgress) -> str:
    """What a query has done, in a line."""
    word = "looked at" if query.name.startswith(_DEAD_LETTERS) else "read"
    batches = "1 batch" if query.batches == 1 else f"{query.batches:,} batches"
    records = "1 record" if query.input_rows == 1 else f"{query.input_rows:,} records"
    parts = [f"{records} {word} in {batches}"]
    rows, late = query.extra.get("loaded_rows", 0), query.extra.get("late_rows", 0)
    if rows:
        megabytes = query.extra.get("loaded_bytes", 0) / 1e6
        told_late = f", {late:,} of them late" if late else ""
        parts.append(
            f"{rows:,} {'row' if rows == 1 else 'rows'} loaded ({megabytes:,.1f} MB){told_late}"
        )
    if fewer := query.extra.get("merged_files", 0):
        parts.append(f"{fewer:,} files fewer after merging")
    if query.set_aside:
        parts.append(format_set_aside(query.set_aside))
    return "; ".join(parts)


def format_set_aside(set_aside: SetAside) -> str:
    """The records that are in no result, in all runs of the pipeline."""
    told = (
        (set_aside.late_records, "came after their window was closed"),
        (set_aside.records_without_time, "had no time"),
        (set_aside.untraced_rows, "rows were dropped as late"),
        (set_aside.unsearched_batches, "batches were not searched, so that there may be more"),
        (set_aside.dead_letters, "went to dead letters"),
    )
    return "in all runs, " + ", ".join(f"{count:,} {what}" for count, what in told if count)


# Ctrl-C and SIGTERM in commands that use Spark.
#
# A Spark context that is made in the main thread takes Ctrl-C for itself, and raises in the middle
# of what is being said to Java. So all that is said to Spark is said in a thread of its own; the
# main thread waits for it, and hears signals at any moment.


_LOOK_SECONDS = 0.1
_STOP_SECONDS = 8.0
"""How long a run may take to end in order. It may be killed at any moment: nothing is lost."""
_JAVA_SECONDS = 3.0

_Result = TypeVar("_Result")


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set: batches under way are given up, which loses nothing.
    The second of them interrupts, as it would without this."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
            return
        restore()
        signal.raise_signal(number)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, on_signal) for number in stop_signals()}
    try:
        yield stop
    finally:
        restore()


def run_beside(work: Callable[[], _Result], stop: threading.Event) -> _Result | None:
    """Have work done in a thread of its own, until it ends or is given up: then it is None.

    Work should end soon after `stop` is set. It is given up at once while it starts Spark.
    """
    done: Future[_Result] = Future()
    threading.Thread(target=_do, args=(work, done), name="spark", daemon=True).start()
    try:
        while not _is_done(done, _LOOK_SECONDS) and not stop.is_set():
            pass
        if not _ends_in_time(done):
            _give_up(_JAVA_SECONDS)
            if not _is_done(done, _JAVA_SECONDS):
                _give_up(_JAVA_SECONDS)  # it may have been about to start it
            return None
    except KeyboardInterrupt:
        _give_up(0.0 if stop.is_set() else _JAVA_SECONDS)
        raise
    return done.result()


def _do(work: Callable[[], _Result], done: Future[_Result]) -> None:
    try:
        done.set_result(work())
    except BaseException as fault:  # noqa: BLE001 it is raised again where the result is asked for
        done.set_exception(fault)


def _is_done(done: Future[_Result], seconds: float) -> bool:
    return bool(wait([done], seconds).done)


def _ends_in_time(done: Future[_Result]) -> bool:
    from moldau.spark.session_factory import is_java_starting

    deadline = time.monotonic() + _STOP_SECONDS
    while not _is_done(done, 0.0 if is_java_starting() else _LOOK_SECONDS):
        if is_java_starting() or time.monotonic() > deadline:
            return False
    return True


def _give_up(seconds: float) -> None:
    """End Java under whoever talks to it: what PySpark has to say of that helps nobody."""
    from moldau.spark.session_factory import end_java

    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_nothing)  # Py4J also logs by no logger: nobody else does here
    warnings.simplefilter("ignore")
    end_java(seconds)


def _nothing(record: logging.LogRecord) -> bool:
    return False
