"""What the broker's own counting costs: each request with it, and with it taken out.

The same requests go to `moldau` and to `bench.uncounted_broker`, and what they cost is counted as
`bench.quick` does it: in instructions of the program, where they can be had. A part of a request
is the kernel's, in which nothing is counted; how much that is is measured, too, so that the share
of counting in all CPU time can be told.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.counters import choose_counter
from bench.processes import running_broker
from bench.quick import broker_paths, count_broker
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import TINY, Scale

_MOST_SHARE: Final = 0.02
_LOAD_SECONDS: Final = 3.0
_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def run(scale: Scale) -> Outcome:
    counter = choose_counter()
    with_it = count_broker(counter)
    without = count_broker(counter, "bench.uncounted_broker")
    of_program = _measure_shares(0.3 if scale is TINY else _LOAD_SECONDS)
    table = Table(
        title=f"Requests with and without counting, by {counter.name}",
        columns=(
            "request",
            "with",
            "without",
            "counting, % of the program",
            "program, % of CPU",
            "counting, % of CPU",
        ),
        note="The program: what of a request is not the kernel's.",
    )
    shares = {}
    for name, one in with_it.items():
        share = 1 - without[name].cost / one.cost
        shares[name] = share * of_program[name]
        table.add(
            name.removeprefix("broker: "),
            one.cost,
            without[name].cost,
            share * 100,
            of_program[name] * 100,
            shares[name] * 100,
        )
    dearest = max(shares, key=lambda name: shares[name])
    goal = Goal(
        figure=f"CPU time of counting / CPU time of a request, the dearest ({dearest})",
        to_reach=_MOST_SHARE,
        measured=shares[dearest],
    )
    return Outcome(tables=[table], goals=[goal])


def _measure_shares(seconds: float) -> dict[str, float]:
    """How much of a broker's CPU time is the program's, for each request."""
    shares = {}
    with running_broker() as broker, RawClient(broker) as client:
        for name, work, _ in broker_paths(client):
            work()
            user_before, kernel_before = _ticks(broker.pid)
            _repeat(work, seconds)
            user, kernel = _ticks(broker.pid)
            user, kernel = user - user_before, kernel - kernel_before
            shares[name] = user / max(user + kernel, 1)
    return shares


def _repeat(work: Callable[[], None], seconds: float) -> None:
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline:
        work()


def _ticks(pid: int) -> tuple[int, int]:
    """Of all threads, in the program and in the kernel; `/proc/PID/stat`, behind the name."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return int(fields[11]), int(fields[12])
