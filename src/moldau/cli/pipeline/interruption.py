"""Ctrl-C and SIGTERM in commands that use Spark.

A Spark context that is made in the main thread takes Ctrl-C for itself, and raises in the middle of
what is being said to Java. So all that is said to Spark is said in a thread of its own; the main
thread waits for it, and hears signals at any moment.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from moldau.processes import stop_signals

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
    from moldau.spark.java_process import is_java_starting

    deadline = time.monotonic() + _STOP_SECONDS
    while not _is_done(done, 0.0 if is_java_starting() else _LOOK_SECONDS):
        if is_java_starting() or time.monotonic() > deadline:
            return False
    return True


def _give_up(seconds: float) -> None:
    """End Java under whoever talks to it: what PySpark has to say of that helps nobody."""
    from moldau.spark.java_process import end_java

    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_nothing)  # Py4J also logs by no logger: nobody else does here
    warnings.simplefilter("ignore")
    end_java(seconds)


def _nothing(record: logging.LogRecord) -> bool:
    return False
