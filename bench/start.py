"""From nothing to the first acknowledged record, and the memory of an idle broker.

The clock starts before the process does. A first start makes its data folder and a topic; a second
one finds both. The import times come from one more start under `-X importtime`.

Nothing is installed for this: `moldau` keeps the one test dependency that would be noticed
(hypothesis, which kio imports where it finds it) out of its process, so the start is the same
with and without the tests' packages. The benchmark checks that.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.frames import make_batch, produce
from bench.measure import MB
from bench.processes import (
    ServerProcess,
    broker_command,
    serving,
    temporary_folder,
    usual_environment,
)
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import Scale

GOAL_SECONDS = 0.2
GOAL_MB = 35.0
_TOPIC = "produced"
_RECORD_BYTES = 100
_SHOWN_PACKAGES = 14
_IMPORT_LINE = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


class _Start(NamedTuple):
    """Seconds since the process was spawned, and memory in bytes."""

    ready: float
    acknowledged: float
    idle_bytes: int
    used_bytes: int


def run(scale: Scale) -> Outcome:
    table = Table(
        title="Start to first acknowledged record: median and best",
        columns=("what", "ready s", "first ack s", "best ack s", "idle MB", "after 1 record MB"),
        note="ready: `listening on` was printed. The interpreter alone is started the same way.",
    )
    firsts, seconds, interpreters = [], [], []
    for _ in range(scale.starts):
        with temporary_folder() as folder:
            firsts.append(_start(folder, creates_topic=True))
            seconds.append(_start(folder, creates_topic=False))
        interpreters.append(_time_interpreter())
    for name, starts in (("first start", firsts), ("second start", seconds)):
        table.add(
            name,
            median(one.ready for one in starts),
            median(one.acknowledged for one in starts),
            min(one.acknowledged for one in starts),
            median(one.idle_bytes for one in starts) / MB,
            median(one.used_bytes for one in starts) / MB,
        )
    table.add("interpreter alone", median(interpreters), None, None, None, None)
    goals = [
        Goal(
            figure="start to first acknowledged record, s",
            to_reach=GOAL_SECONDS,
            measured=median(one.acknowledged for one in firsts),
        ),
        Goal(
            figure="memory of an idle broker, MB",
            to_reach=GOAL_MB,
            measured=median(one.idle_bytes for one in firsts) / MB,
        ),
    ]
    return Outcome(tables=[table, _import_table()], goals=goals)


def _start(folder: Path, *, creates_topic: bool) -> _Start:
    prepared = produce(_TOPIC, make_batch(1, _RECORD_BYTES))
    with serving(broker_command(folder)) as broker:
        ready = _since_spawn(broker)
        idle_bytes = broker.resident_bytes()
        with RawClient(broker) as client:
            if creates_topic:
                client.create_topic(_TOPIC)
            client.exchange(prepared)
            acknowledged = _since_spawn(broker)
        return _Start(ready, acknowledged, idle_bytes, broker.resident_bytes())


def _since_spawn(broker: ServerProcess) -> float:
    return time.perf_counter() - broker.spawned_at


def _time_interpreter() -> float:
    before = time.perf_counter()
    subprocess.run((sys.executable, "-c", "pass"), check=True)
    return time.perf_counter() - before


def _import_table() -> Table:
    """Where the start's time goes: the modules' own times, summed by package."""
    with temporary_folder() as folder:
        command = broker_command(folder)
        command.insert(1, "-Ximporttime")
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=usual_environment(),
        )
        try:
            if process.stdout is not None:
                process.stdout.readline()
        finally:
            process.terminate()
            _, errors = process.communicate()
    own_us: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    for own, module in _IMPORT_LINE.findall(errors):
        if module == "hypothesis":
            raise RuntimeError("the broker imported hypothesis: its start is not a user's start")
        package = _package_of(module)
        own_us[package] += int(own)
        modules[package] += 1
    table = Table(
        title="Imports of a start",
        columns=("package", "modules", "ms"),
        note="Measured under -X importtime, which itself costs something for each module.",
    )
    table.add("all", modules.total(), own_us.total() / 1000)
    for package, own in own_us.most_common(_SHOWN_PACKAGES):
        table.add(package, modules[package], own / 1000)
    return table


def _package_of(module: str) -> str:
    """Our own rooms are told apart, and so are kio's schemas."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in ("moldau", "kio") else parts[0]
