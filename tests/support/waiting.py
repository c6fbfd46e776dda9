"""Bounded waiting: tests ask again until a thing is so, and say what they waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_SECONDS = 60.0
"""Far longer than anything takes: only a broken broker reaches it, however busy the machine."""

_PAUSE_SECONDS = 0.005


def eventually(
    ask: Callable[[], T], what: str | Callable[[], str], seconds: float = PATIENCE_SECONDS
) -> T:
    """The first true answer of `ask`; fails with `what` when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            description = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {seconds:.0f} s: {description}")
        time.sleep(_PAUSE_SECONDS)
