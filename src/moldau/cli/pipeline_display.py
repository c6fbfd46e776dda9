"""Shows a running pipeline: a line for each query on a terminal, one for each batch in a log."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from moldau.cli.output import note
from moldau.cli.reporting import warnings_shown
from moldau.processes import stop_signals

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from moldau.spark.pipeline.model import Pipeline
    from moldau.spark.pipeline.progress_files import RunReport
    from moldau.spark.pipeline.rules.progress import BatchReport, QueryProgress, SetAside
    from moldau.spark.pipeline.run import RunOptions, Watcher


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
    from moldau.spark.pipeline.status import read_status

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
