"""A program that reads in a group, for tests on a `ConsumerStage`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from client.consumer_stage import ConsumerStage, values
from moldau.model import TopicPartition

BY_CONSUMER_PROTOCOL = {"group_protocol": "consumer"}
COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}


class Worker:
    """A task that polls a consumer and keeps what it got, until it is told to stop."""

    def __init__(self, stage: ConsumerStage, **options: Any) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self.seen: list[int] = []
        self.most_owned = 0
        self.consumer = stage.consumer(
            topics="t",
            group="g",
            on_assigned=self._note("+"),
            on_revoked=self._note("-"),
            on_lost=self._note("!"),
            **options,
        )
        self._stage = stage
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def _note(self, sign: str) -> Callable[[frozenset[TopicPartition]], None]:
        def note(partitions: frozenset[TopicPartition]) -> None:
            self.events.append((sign, sorted(one.partition for one in partitions)))

        return note

    @property
    def owned(self) -> list[int]:
        return sorted(one.partition for one in self.consumer.assignment)

    def start(self) -> Worker:
        self._task = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        while not self._stopping:
            self.seen += values(await self.consumer.poll(0.5))

    async def stop(self) -> None:
        await self.freeze()
        await self.consumer.close()

    async def freeze(self) -> None:
        """Poll no more, as a program that is busy with something."""
        self._stopping = True
        if self._task is not None:
            await self._task

    async def crash(self, host: str) -> None:
        """Nobody hears of it any more."""
        self._stage.network.isolate(host)
        await self.freeze()


async def settle(stage: ConsumerStage, seconds: float = 20.0) -> None:
    await stage.clock.sleep(seconds)
