"""When offsets are committed by themselves, and what was committed last. A shell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from enum import Enum

from moldau.client.group_offsets import GroupOffsets, Identity
from moldau.client.group_values import GroupOffset
from moldau.client.rules.delivery import Position
from moldau.clock import Clock
from moldau.errors import ClientError, ConfigurationError, KafkaError
from moldau.model import TopicPartition
from moldau.tasks import TaskSupervisor

_log = logging.getLogger(__name__)


class CommitMode(Enum):
    """Whether a record that fails half-way is seen again."""

    AFTER = "after"
    """Committed after the program has dealt with it: at least once."""
    BEFORE = "before"
    """Committed before the program gets it: at most once."""
    MANUAL = "manual"
    """Committed when the program says so."""

    @classmethod
    def parse(cls, word: str) -> CommitMode:
        try:
            return cls(word)
        except ValueError:
            raise ConfigurationError(
                f"commit={word!r} is not one of after (at least once), before (at most once), "
                "manual"
            ) from None


Positions = Mapping[TopicPartition, Position]


class Commits:
    """The commits of one member. Used by the tasks of one loop."""

    def __init__(
        self,
        offsets: GroupOffsets,
        identity: Callable[[], Identity | None],
        owned: Callable[[], frozenset[TopicPartition]],
        clock: Clock,
        tasks: TaskSupervisor,
        *,
        mode: CommitMode,
        interval_seconds: float,
        timeout_seconds: float,
    ) -> None:
        self.mode = mode
        self._offsets = offsets
        self._identity = identity
        self._owned = owned
        self._clock = clock
        self._tasks = tasks
        self._interval_seconds = interval_seconds
        self._timeout_seconds = timeout_seconds
        self._due_at = clock.monotonic() + interval_seconds
        self._last: dict[TopicPartition, int] = {}
        self._running: asyncio.Task[None] | None = None

    @property
    def is_automatic(self) -> bool:
        return self.mode is not CommitMode.MANUAL

    @property
    def is_due(self) -> bool:
        return self.mode is CommitMode.AFTER and self._clock.monotonic() >= self._due_at

    @property
    def interval_seconds(self) -> float:
        return self._interval_seconds

    async def commit(
        self, offsets: Mapping[TopicPartition, GroupOffset], timeout_seconds: float | None = None
    ) -> None:
        """What the program asks for; raises."""
        timeout = self._timeout_seconds if timeout_seconds is None else timeout_seconds
        await self._offsets.commit(
            offsets, self._identity, lambda: offsets.keys() <= self._owned(), timeout
        )
        self._last.update({partition: one.offset for partition, one in offsets.items()})

    async def commit_positions(
        self, positions: Positions, timeout_seconds: float | None = None
    ) -> None:
        """Those that are not committed yet; raises."""
        moved = self._find_moved(positions)
        if moved:
            await self.commit(moved, timeout_seconds)

    def commit_soon(self, positions: Positions) -> None:
        """In the background; a failure is logged, and made good by the next commit."""
        self._due_at = self._clock.monotonic() + self._interval_seconds
        is_busy = self._running is not None and not self._running.done()
        moved = self._find_moved(positions)
        if moved and not is_busy:
            self._running = self._tasks.spawn("commit", self.try_commit(positions))

    async def try_commit(self, positions: Positions, timeout_seconds: float | None = None) -> None:
        """As `commit_positions`, but a failure is only logged."""
        try:
            await self.commit_positions(positions, timeout_seconds)
        except (KafkaError, ClientError) as error:
            _log.warning("offsets were not committed: %s", error)

    def forget(self, partitions: frozenset[TopicPartition]) -> None:
        """Others may commit these from now on."""
        for partition in partitions:
            self._last.pop(partition, None)

    def _find_moved(self, positions: Positions) -> dict[TopicPartition, GroupOffset]:
        return {
            partition: GroupOffset(offset=position.offset, leader_epoch=position.leader_epoch)
            for partition, position in positions.items()
            if self._last.get(partition) != position.offset
        }
