"""A large group settles: the consumer protocol (KIP-848) against the classic one.

A hundred members of one group come at once, in one process, to a topic of a thousand partitions.
Measured until each partition has one owner and nothing moves any more; then one more member comes,
and one leaves. The broker's CPU is the coordinator's: the topic is empty, and members wait for its
records for longer than the group takes.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.report import Outcome, Table
from bench.scale import Scale
from bench.systems import SYSTEMS, Running
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import NewTopic
from moldau.client.consumer.consumer import AsyncConsumer

_SYSTEMS = ("moldau", "kafka-256m")
_PROTOCOLS = ("classic", "consumer")
_LONGEST_SECONDS = 180.0
_LOOK_SECONDS = 0.02
_QUIET_SECONDS = 1.0
"""An assignment that has stood for so long stands."""


class _Step(NamedTuple):
    seconds: float
    server_seconds: float


def run(scale: Scale) -> Outcome:
    # A hundred members on one loop take their time, and are told so.
    logging.getLogger("moldau").setLevel(logging.ERROR)
    partitions = min(scale.partitions, 1_000)
    members = max(partitions // 10, 2)
    table = Table(
        title=f"A group settles: {members} members, {partitions:,} partitions",
        columns=(
            "system",
            "protocol",
            "step",
            "seconds",
            "of classic",
            "server CPU s",
            "of classic ",
        ),
        note="The quiet second at the end of each step is not counted.",
    )
    for name in _SYSTEMS:
        if SYSTEMS[name].find_obstacle() is not None:
            continue
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            running = SYSTEMS[name].start(Path(folder))
            try:
                found = {
                    protocol: asyncio.run(_measure(running, protocol, members, partitions))
                    for protocol in _PROTOCOLS
                }
            finally:
                running.close()
        for protocol, steps in found.items():
            for step, figures in steps.items():
                classic = found["classic"][step]
                table.add(
                    running.system.title,
                    protocol,
                    step,
                    figures.seconds,
                    figures.seconds / classic.seconds,
                    figures.server_seconds,
                    figures.server_seconds / max(classic.server_seconds, 1e-9),
                )
    return Outcome(tables=[table])


async def _measure(
    running: Running, protocol: str, members: int, partitions: int
) -> dict[str, _Step]:
    topic = uuid.uuid4().hex
    async with AsyncAdmin(running.bootstrap) as admin:
        for error in (
            await admin.create_topics([NewTopic(name=topic, partitions=partitions)])
        ).values():
            if isinstance(error, Exception):
                raise error
    group = _Group(running, topic, protocol, partitions)
    try:
        return {
            "all come": await group.settle(lambda: group.come(members)),
            "one more comes": await group.settle(lambda: group.come(1)),
            "one leaves": await group.settle(group.leave),
        }
    finally:
        await group.close()


class _Group:
    """Members that poll, each in a task."""

    def __init__(self, running: Running, topic: str, protocol: str, partitions: int) -> None:
        self._running = running
        self._topic = topic
        self._protocol = protocol
        self._partitions = partitions
        self._members: dict[AsyncConsumer, asyncio.Task[None]] = {}
        self._leaving: list[asyncio.Task[None]] = []

    def come(self, count: int) -> None:
        for _ in range(count):
            consumer = AsyncConsumer(
                self._running.bootstrap,
                group=self._topic,
                topics=self._topic,
                group_protocol=self._protocol,
                fetch_max_wait_ms=20_000,
                enable_auto_commit=False,
            )
            self._members[consumer] = asyncio.create_task(_poll(consumer))

    def leave(self) -> None:
        consumer, polling = self._members.popitem()
        self._leaving.append(asyncio.create_task(_end(consumer, polling)))

    async def settle(self, change: Callable[[], None]) -> _Step:
        """Until every partition has one owner, every member something, and that stands."""
        cpu, begun = self._running.cpu_seconds(), time.perf_counter()
        change()
        before: object = None
        since, cpu_then = begun, cpu
        while time.perf_counter() - begun < _LONGEST_SECONDS:
            now = [frozenset(one.assignment) for one in self._members]
            if now != before:
                before, since = now, time.perf_counter()
                cpu_then = self._running.cpu_seconds()
            elif self._is_whole(now) and time.perf_counter() - since > _QUIET_SECONDS:
                return _Step(since - begun, cpu_then - cpu)
            await asyncio.sleep(_LOOK_SECONDS)
        raise RuntimeError(f"the group has not settled within {_LONGEST_SECONDS:.0f} s")

    def _is_whole(self, owned: list[frozenset[object]]) -> bool:
        owners = Counter(one for some in owned for one in some)
        return all(owned) and len(owners) == self._partitions and set(owners.values()) == {1}

    async def close(self) -> None:
        ends = [_end(consumer, polling) for consumer, polling in self._members.items()]
        await asyncio.gather(*ends, *self._leaving)


async def _poll(consumer: AsyncConsumer) -> None:
    while True:
        await consumer.poll(1.0)


async def _end(consumer: AsyncConsumer, polling: asyncio.Task[None]) -> None:
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    await consumer.close()
