"""Hands out producer ids that no other producer of the cluster ever gets. A shell.

Ids are taken from the cluster a block of 1,000 at a time, by a versioned write to
`/latest_producer_id_block`, and given out from memory. What is left of a block when the broker
stops is never used: ids are plenty, and a reused one would let two producers pass for one.

The store may have gone back, or may be new where the logs are not (a folder of Kafka's). So no
block begins at or below an id that the logs here know: the second producer of an id would have its
first batches taken for repetitions of the other's, acknowledged and not written (META-3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from moldau.cluster import znodes
from moldau.cluster.znodes import ProducerIdBlock
from moldau.coordination.port import (
    BadVersionError,
    Coordination,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    StoreLostError,
)
from moldau.errors import MalformedNodeError, RequestTimedOutError
from moldau.model import BrokerId, ProducerId

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1
_MOST_LIKELY_ID = 2**62
"""Any client can write any id into a batch; one above this was given out by nobody."""


class ProducerIdBlocks:
    """Safe to call from many tasks of one loop at once."""

    def __init__(
        self,
        coordination: Coordination,
        broker_id: BrokerId,
        known_ids: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        """`known_ids` are the producer ids in the logs of this broker."""
        self._coordination = coordination
        self._known_ids = known_ids
        self._broker_id = broker_id
        self._next = 0
        self._end = 0  # exclusive; equal to _next when the block is used up
        self._claiming = asyncio.Lock()

    async def next_producer_id(self) -> ProducerId:
        """Raises `RequestTimedOutError`, which clients try again, when no block can be had."""
        while self._next == self._end:
            async with self._claiming:
                if self._next == self._end:  # not claimed by another task meanwhile
                    await self._claim_block()
        producer_id = self._next
        self._next += 1
        return ProducerId(producer_id)

    async def _claim_block(self) -> None:
        try:
            block = None
            while block is None:
                block = await self._try_block()
        except (StoreLostError, SessionExpiredError) as error:
            raise RequestTimedOutError(f"no producer ids could be had: {error}") from error
        self._next, self._end = block.first, block.last + 1

    async def _try_block(self) -> ProducerIdBlock | None:
        """None when another broker claimed one at the same time: no id is given twice (META-3)."""
        node = await self._coordination.get(znodes.PRODUCER_ID_BLOCK)
        first = 0 if node is None or not node.data else _end_of_block(node.data)
        first = max(
            first, 1 + max((i for i in self._known_ids() if i < _MOST_LIKELY_ID), default=-1)
        )
        block = ProducerIdBlock(broker_id=self._broker_id, first=first, last=first + BLOCK_SIZE - 1)
        data = znodes.encode_producer_id_block(block)
        try:
            if node is None:
                await self._coordination.create(znodes.PRODUCER_ID_BLOCK, data)
            else:
                await self._coordination.set(znodes.PRODUCER_ID_BLOCK, data, node.version)
        except (BadVersionError, NodeExistsError, NoNodeError):
            return None
        return block


def _end_of_block(data: bytes) -> int:
    last = znodes.decode_producer_id_block(data).last
    if not 0 <= last <= MAX_PRODUCER_ID - BLOCK_SIZE:
        raise MalformedNodeError(
            f"{znodes.PRODUCER_ID_BLOCK}: no producer ids are left after {last}"
        )
    return last + 1
