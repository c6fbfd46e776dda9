"""CPU time of all who take part in a query: the broker, Spark's JVM, and its Python processes.

Spark starts its Python processes below the JVM, some of them for a single query. What a process
that has ended used is in the count that its parent keeps of its children, so nothing is lost.
"""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from bench.processes import ServerProcess


class CpuSeconds(NamedTuple):
    """Since each of them began, or between two such moments."""

    broker: float
    python: float
    jvm: float

    def since(self, earlier: CpuSeconds) -> CpuSeconds:
        return CpuSeconds(*(now - then for now, then in zip(self, earlier, strict=True)))

    @property
    def total(self) -> float:
        return self.broker + self.python + self.jvm


class _Process(NamedTuple):
    parent: int
    own_seconds: float
    ended_children_seconds: float


def read_cpu(broker: ServerProcess, jvm: int) -> CpuSeconds | None:
    """None where there is no /proc to look into."""
    if platform.system() != "Linux":
        return None
    found = _processes()
    below = [found[process] for process in _descendants(found, jvm)]
    python = sum(one.own_seconds + one.ended_children_seconds for one in below)
    return CpuSeconds(
        broker=broker.cpu_seconds(),
        python=python + found[jvm].ended_children_seconds,
        jvm=found[jvm].own_seconds,
    )


def _processes() -> dict[int, _Process]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found[int(folder.name)] = _parse((folder / "stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
    return found


def _parse(stat: str) -> _Process:
    """See proc(5). The name, in brackets, may have anything in it, so what follows it counts."""
    fields = stat.rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    user, system, user_of_children, system_of_children = (int(text) for text in fields[11:15])
    return _Process(
        int(fields[1]), (user + system) / ticks, (user_of_children + system_of_children) / ticks
    )


def _descendants(processes: dict[int, _Process], root: int) -> list[int]:
    children = defaultdict(list)
    for process, one in processes.items():
        children[one.parent].append(process)
    found = list(children[root])
    for process in found:  # grows while it is walked
        found += children[process]
    return found
