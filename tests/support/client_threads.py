"""Which of Moldau's clients were left open by the tests of a module.

A client that nobody closes lives on in its thread. Once its broker is gone it looks for that for as
long as the process lives, and says so in the log of tests that have nothing to do with it.
"""

from __future__ import annotations

import threading
import time

_OF_CLIENTS = ("admin", "client", "consumer", "producer", "queue", "reader", "simpleconsumer")
"""As their threads are named. Those that read for Spark are kept for the session; they ask nothing
by themselves."""
_END_SECONDS = 30.0
"""For those that other threads are just closing; whoever was left open never ends."""


class ClientThreads:
    """Those of this process, each with the test that it was seen after for the first time."""

    def __init__(self) -> None:
        self._seen: dict[threading.Thread, str] = {}
        self._told: set[threading.Thread] = set()

    def note_after(self, test: str) -> None:
        for thread in threading.enumerate():
            kind = thread.name.removeprefix("moldau-")
            if kind != thread.name and kind in _OF_CLIENTS and thread not in self._told:
                self._seen.setdefault(thread, test)

    def take_left(self, end_seconds: float = _END_SECONDS) -> list[str]:
        """Those that do not end, in words; each of them once."""
        seen, self._seen = self._seen, {}
        deadline = time.monotonic() + end_seconds
        for thread in seen:
            thread.join(max(0.0, deadline - time.monotonic()))
        left = {thread: test for thread, test in seen.items() if thread.is_alive()}
        self._told.update(left)
        return [f"{thread.name} of {test}" for thread, test in left.items()]
