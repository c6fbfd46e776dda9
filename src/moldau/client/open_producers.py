"""The blocking producers of this process: told when it forks, and closed when it ends.

A program that ends without `close` would lose what it sent last, without a word. So it is kept for
some seconds until that has been sent.
"""

from __future__ import annotations

import atexit
import os
from typing import Protocol
from weakref import WeakSet

_EXIT_SECONDS = 10.0


class Watched(Protocol):
    """A producer, as far as the process is concerned."""

    def on_fork(self) -> None: ...

    def close(self, timeout_seconds: float | None = None) -> None: ...


_watched: WeakSet[Watched] = WeakSet()


def watch(producer: Watched) -> None:
    _watched.add(producer)


def _on_fork() -> None:
    for producer in tuple(_watched):
        producer.on_fork()


def _on_exit() -> None:
    for producer in tuple(_watched):
        producer.close(_EXIT_SECONDS)


atexit.register(_on_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_fork)
