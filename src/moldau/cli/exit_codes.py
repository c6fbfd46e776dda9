"""What becomes of a command: its exit code, however it ends. Needs no Typer where nothing fails.

0 success, 1 failure, 2 wrong usage, 130 Ctrl-C, 141 closed pipe, 143 SIGTERM. SIGTERM ends a
command as Ctrl-C does: what was read is sent, groups are left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

FAILURE = 1
WRONG_USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
TERMINATED = 143


def run_to_the_end(command: Callable[[], object]) -> int:
    """The exit code. What is a bug, or Typer's to tell, is raised."""
    try:
        with _interrupted_by_sigterm() as signals:
            command()
            sys.stdout.flush()
    except KeyboardInterrupt:
        return TERMINATED if signals else INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 whatever it is, `report` knows what to do with it
        from moldau.cli.main import report

        return report(error)
    return 0


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[list[int]]:
    """Let SIGTERM do what Ctrl-C does; the list tells whether it came.

    Commands that serve until they are told to stop put handlers of their own in its place.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)  # asyncio cancels the command's task then

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, former)


def _forget_stdout() -> None:
    """Nobody reads any more: keep the interpreter from complaining when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
