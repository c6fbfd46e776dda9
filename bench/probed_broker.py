"""`python -m bench.probed_broker FILE start ...`: `moldau`, with its event loop watched.

A turn of the loop is what happens between two looks at the sockets: nobody is served meanwhile who
was not ready before. On SIGUSR1 the longest turn since the last one is written to the file, by the
clock on the wall and in CPU time of the loop's thread (on a shared machine, the honest one).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from moldau.cli.entry import main
from moldau.net import event_loop

_MS = 1000.0


class _Longest:
    """Of the turns since it was last asked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.perf_counter()
        self._cpu_began = time.thread_time()
        self.forget()

    def forget(self) -> None:
        self._turns = 0
        self._wall_ms = 0.0
        self._cpu_ms = 0.0

    def end_turn(self) -> None:
        self._turns += 1
        self._wall_ms = max(self._wall_ms, (time.perf_counter() - self._began) * _MS)
        self._cpu_ms = max(self._cpu_ms, (time.thread_time() - self._cpu_began) * _MS)

    def begin_turn(self) -> None:
        self._began = time.perf_counter()
        self._cpu_began = time.thread_time()

    def write(self, number: int, frame: FrameType | None) -> None:
        found = {"turns": self._turns, "wall_ms": self._wall_ms, "cpu_ms": self._cpu_ms}
        self.forget()
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(found), encoding="ascii")
        temporary.replace(self._path)
        self.begin_turn()  # the writing counts for nothing


def watch(path: Path) -> None:
    """Have every loop of a broker that is made from now on watched (where there is epoll)."""
    longest = _Longest(path)

    class WatchedSelector(event_loop.ReadySelector):
        def poll(self, timeout: float | None) -> Sequence[tuple[int, int]]:
            longest.end_turn()
            try:
                return super().poll(timeout)
            finally:
                longest.begin_turn()

    event_loop.ReadySelector = WatchedSelector  # type: ignore[misc]
    signal.signal(signal.SIGUSR1, longest.write)


if __name__ == "__main__":
    watch(Path(sys.argv.pop(1)))
    sys.argv[0] = os.fspath("moldau")
    main()
