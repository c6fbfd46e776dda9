"""SIGINT, whatever the test run was started with.

What a script, `nohup` or a CI server starts in the background ignores SIGINT, and so do its
children. A test that sends one says here that it shall arrive, in this process and in those that it
starts; or that it shall not.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def ctrl_c_heard() -> Iterator[None]:
    """As at a terminal."""
    with _sigint(signal.default_int_handler):
        yield


@contextlib.contextmanager
def ctrl_c_ignored() -> Iterator[None]:
    """As in the background of a script."""
    with _sigint(signal.SIG_IGN):
        yield


@contextlib.contextmanager
def _sigint(handler: signal._HANDLER) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
