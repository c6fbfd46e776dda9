"""Keeps the in-sync sets of the partitions that this broker leads (ISR-3).

A follower that has caught up is proposed at once, one that has fallen behind when half of
`replica.lag.time.max.ms` has passed since the last look. Proposals that come together are written
together. `rules.isr` decides; a proposal is in force when the state that holds it comes back
through the metadata.

A shell: one task runs `run`, and one write is under way at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from moldau.clock import Clock
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import CoordinationError, SessionExpiredError, StoreLostError
from moldau.model import BrokerId
from moldau.replication.partition import Partition
from moldau.replication.rules.isr import is_surely_void, joining_brokers, takes_in_restarted

_log = logging.getLogger("moldau.replication")

_PARTITIONS_PER_TURN = 250
"""Looked at before others have the loop: some two milliseconds."""

_PAUSE_SECONDS = 0.1
"""After a proposal that came to nothing, so that a lasting conflict does not keep the loop busy."""


class StateWrites(Protocol):
    """Writes states by compare-and-set (`cluster.state_writer.StateWriter`)."""

    async def find_overtaken(self, plan: Sequence[PlannedState]) -> list[PlannedState]:
        """Write; returns those that somebody else was faster with, or wrote over at once.

        The image shows what the store holds of them then.
        """
        ...


BrokerEpochs = Callable[[Collection[BrokerId]], Awaitable[Mapping[BrokerId, int]]]
"""Reads the epochs of living brokers from the store itself."""


class _Proposal(NamedTuple):
    partition: Partition
    planned: PlannedState


class IsrKeeper:
    """See the module."""

    def __init__(
        self,
        *,
        partitions: Iterable[Partition],
        image: Callable[[], MetadataImage],
        writes: StateWrites,
        read_broker_epochs: BrokerEpochs,
        clock: Clock,
        options: Callable[[], BrokerOptions],
    ) -> None:
        self._partitions = partitions
        self._image = image
        self._writes = writes
        self._read_broker_epochs = read_broker_epochs
        self._clock = clock
        self._options = options
        self._candidates: dict[Partition, None] = {}  # to be looked at before the next round
        self._woken = asyncio.Event()

    def on_catch_up(self, partition: Partition) -> None:
        """A follower may have caught up."""
        self._candidates[partition] = None
        self._woken.set()

    async def run(self) -> None:
        """Until cancelled."""
        next_round = self._clock.monotonic()
        while True:
            await self._wait_until(next_round)
            candidates: Iterable[Partition] = tuple(self._candidates)
            self._candidates.clear()
            if self._clock.monotonic() >= next_round:
                candidates = tuple(self._partitions)
                next_round = self._clock.monotonic() + self._max_lag_seconds / 2
            if not await self._update_isrs(candidates):
                await self._clock.sleep(_PAUSE_SECONDS)

    @property
    def _max_lag_seconds(self) -> float:
        return self._options().replica_lag_time_max_ms / 1000

    async def _wait_until(self, at: float) -> None:
        seconds = at - self._clock.monotonic()
        if seconds > 0 and not self._candidates:
            self._woken.clear()
            timer = self._clock.call_later(seconds, self._woken.set)
            try:
                await self._woken.wait()
            finally:
                timer.cancel()

    async def _update_isrs(self, candidates: Iterable[Partition]) -> bool:
        """Propose what should change; False when something did not come about."""
        proposals = await self._propose(candidates)
        if not proposals:
            return True
        try:
            sound = await self._without_restarted(proposals)
            return await self._write(sound) and len(sound) == len(proposals)
        except SessionExpiredError:
            return False  # what became of them is seen when the states are read again
        except StoreLostError as error:  # before anything was written
            _log.warning("cannot change in-sync sets: %s", error)
            self._withdraw(proposals)
            return False
        except CoordinationError as error:  # nobody knows; until a newer state, both sets count
            _log.error("in-sync sets that were proposed are left open: %s", error)
            return False

    async def _propose(self, candidates: Iterable[Partition]) -> list[_Proposal]:
        proposals = []
        for place, partition in enumerate(candidates, 1):
            if place % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            name, number = partition.topic_partition
            topic = self._image().topics.get(name)
            if topic is None or topic.topic_id != partition.topic_id:
                continue
            proposed = partition.propose_isr(self._max_lag_seconds)
            if proposed is not None:
                former, state = proposed
                planned = PlannedState(topic, number, former, state)
                proposals.append(_Proposal(partition, planned))
        return proposals

    async def _without_restarted(self, proposals: list[_Proposal]) -> list[_Proposal]:
        """Withdraw those that would take in a broker which was restarted since it fetched."""
        brokers = {broker for one in proposals for broker in joining_brokers(one.planned)}
        if not brokers:
            return proposals
        epochs = await self._read_broker_epochs(brokers)
        restarted = [
            one
            for one in proposals
            if takes_in_restarted(one.planned, epochs, one.partition.state.broker_epoch_at_fetch)
        ]
        self._withdraw(restarted)
        return [one for one in proposals if one not in restarted]

    async def _write(self, proposals: list[_Proposal]) -> bool:
        if not proposals:
            return True
        for one in proposals:
            _log.info(
                "%s: in-sync set %s to %s",
                one.partition.topic_partition,
                list(one.planned.former.isr),
                list(one.planned.state.isr),
            )
        overtaken = await self._writes.find_overtaken([one.planned for one in proposals])
        image = self._image()
        lost = {id(planned) for planned in overtaken if is_surely_void(planned, image)}
        self._withdraw([one for one in proposals if id(one.planned) in lost])
        return not overtaken

    def _withdraw(self, proposals: Iterable[_Proposal]) -> None:
        for one in proposals:
            one.partition.withdraw_isr(one.planned.former)
