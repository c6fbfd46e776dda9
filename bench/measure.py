"""Measures work that a process does for us: wall clock, the process's CPU time, bytes, requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeVar

from bench.processes import ServerProcess

MB = 1e6
GB = 1e9

Key = TypeVar("Key")
Round = TypeVar("Round")


class Measured(NamedTuple):
    """One round."""

    seconds: float
    cpu_seconds: float
    """Of the process that served, all its threads."""
    requests: int
    payload_bytes: int

    @property
    def mb_per_second(self) -> float:
        return self.payload_bytes / self.seconds / MB

    @property
    def cpu_seconds_per_gb(self) -> float:
        return self.cpu_seconds / self.payload_bytes * GB

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_us_per_request(self) -> float:
        return self.cpu_seconds / self.requests * 1e6


CPU_PER_GB = attrgetter("cpu_seconds_per_gb")
CPU_US_PER_REQUEST = attrgetter("cpu_us_per_request")
MB_PER_SECOND = attrgetter("mb_per_second")
REQUESTS_PER_SECOND = attrgetter("requests_per_second")


def measure(
    server: ServerProcess, work: Callable[[], None], *, requests: int, payload_bytes: int = 0
) -> Measured:
    cpu_before, before = server.cpu_seconds(), time.perf_counter()
    work()
    after, cpu_after = time.perf_counter(), server.cpu_seconds()
    return Measured(after - before, cpu_after - cpu_before, requests, payload_bytes)


def take_turns(
    rounds: int, subjects: Mapping[Key, Callable[[], Round]]
) -> dict[Key, Sequence[Round]]:
    """Measure each subject in each round, so that what disturbs the machine disturbs all alike.

    Every subject runs once before, to be warm; the order turns around from round to round.
    """
    for run in subjects.values():
        run()
    found: dict[Key, list[Round]] = {key: [] for key in subjects}
    order = list(subjects)
    for _ in range(rounds):
        for key in order:
            found[key].append(subjects[key]())
        order.reverse()
    return dict(found)


def least(rounds: Sequence[Measured], cost: Callable[[Measured], float]) -> float:
    """The cost in the best round: whatever else ran on the machine can only have added to it."""
    return min(map(cost, rounds))


def most(rounds: Sequence[Measured], rate: Callable[[Measured], float]) -> float:
    """The rate in the best round."""
    return max(map(rate, rounds))


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
