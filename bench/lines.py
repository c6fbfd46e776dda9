"""`moldau produce` of a file and `moldau consume` of a topic, beside kcat: CPU and clock of a whole
command, from its start to its end.

Commands run in turns against one broker, and the best round of each counts. A hundred lines show
what the start of a command costs, a million what its records do. kcat is Debian's, if it is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.processes import running_broker, temporary_folder, usual_environment
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import Scale

GOAL_RATIO = 1.5
_FEW = 100
_LINE = b"%08d the quick brown fox jumps over the lazy dog and runs along the river Moldau\n"
_MILLION_BYTES = 64 << 20
"""A scale whose clients move so much is one for a million lines."""


class _Cost(NamedTuple):
    cpu_seconds: float
    wall_seconds: float


def run(scale: Scale) -> Outcome:
    many = 1_000_000 if scale.client_bytes >= _MILLION_BYTES else 10_000
    table = Table(
        title="Lines to a topic and back: best of interleaved rounds",
        columns=("command", "lines", "CPU s", "of kcat's", "clock s", "of kcat's "),
        note="Whole commands, of which a hundred lines show the start. stdout goes to /dev/null.",
    )
    goals: list[Goal] = []
    for count in (_FEW, many):
        costs = _measure(count, scale.rounds)
        for command, cost in costs.items():
            peer = costs.get(command.replace("moldau", "kcat"))
            ratios = _ratios(cost, peer)
            table.add(command, count, cost.cpu_seconds, ratios[0], cost.wall_seconds, ratios[1])
            if count == many and peer is not None and peer is not cost:
                goals += [
                    Goal(
                        figure=f"{command} of {count:,} lines, {unit} against kcat's",
                        to_reach=GOAL_RATIO,
                        measured=ratio,
                    )
                    for unit, ratio in zip(("CPU", "clock"), ratios, strict=True)
                    if ratio is not None
                ]
    return Outcome(tables=[table], goals=goals)


def _ratios(cost: _Cost, peer: _Cost | None) -> tuple[float | None, float | None]:
    if peer is None or peer is cost:
        return None, None
    return cost.cpu_seconds / peer.cpu_seconds, cost.wall_seconds / peer.wall_seconds


def _measure(count: int, rounds: int) -> Mapping[str, _Cost]:
    with temporary_folder() as folder, running_broker() as broker:
        file = folder / "lines"
        file.write_bytes(b"".join(_LINE % number for number in range(count)))
        with RawClient(broker) as client:
            for topic in ("read", "by-moldau", "by-kcat"):
                client.create_topic(topic)
        address = f"{broker.host}:{broker.port}"
        commands = _commands(address, file)
        subprocess.run(
            _moldau(address, "produce", "read", "--file", str(file)),
            check=True,
            env=usual_environment(),
            stderr=subprocess.DEVNULL,
        )
        found: dict[str, list[_Cost]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                found[name].append(_run(command))
    return {name: _best(costs) for name, costs in found.items()}


def _commands(address: str, file: Path) -> Mapping[str, Sequence[str]]:
    commands = {
        "moldau produce": _moldau(address, "produce", "by-moldau", "--file", str(file)),
        "moldau consume": _moldau(address, "consume", "read", "--from-beginning", "--until-end"),
    }
    kcat = shutil.which("kcat")
    if kcat is not None:
        begin = [kcat, "-b", address]
        commands["kcat produce"] = [*begin, "-P", "-t", "by-kcat", "-l", str(file)]
        commands["kcat consume"] = [*begin, "-C", "-t", "read", "-o", "beginning", "-e", "-q"]
    return commands


def _moldau(address: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "moldau", *arguments, "--bootstrap", address]


def _run(command: Sequence[str]) -> _Cost:
    before = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=usual_environment()
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return _Cost(usage.ru_utime + usage.ru_stime, time.perf_counter() - before)


def _best(costs: Iterable[_Cost]) -> _Cost:
    """Each figure's own: what else runs on a machine only adds to both."""
    found = list(costs)
    return _Cost(min(one.cpu_seconds for one in found), min(one.wall_seconds for one in found))
