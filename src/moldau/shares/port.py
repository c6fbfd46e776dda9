"""What the leader of a partition needs for a share group: its state, kept for a failover by the
share coordinator, and a place for dead letters.

The shapes are those of ReadShareGroupState and WriteShareGroupState (KIP-932). Whoever implements
the port finds the share coordinator of a key, which may be this broker, asks it, and tries again
while it moves or loads, within `request.timeout.ms`. What remains is raised:

- FencedStateEpochError   the group's state was made anew, or deleted, since it was read
- FencedLeaderEpochError  somebody with a higher leader epoch has read or written the state
- UnknownTopicError       the topic, or its state in the group, does not exist (any more)
- GroupNotFoundError      there is no such group
- CoordinatorNotAvailableError  nobody could be asked, or the answer did not come in time

A port: values and a protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from moldau.replication.partition import Partition
from moldau.shares.rules.dead_letters import DeadLetterSettings
from moldau.shares.rules.delivery_state import StateBatch
from moldau.shares.rules.in_flight import DeadRange

NO_START_OFFSET: Final = -1
"""In the place of a start offset: none was stored yet, or this write does not change it."""

NO_COUNT: Final = -1
"""In the place of the number of offsets that are done: not known."""


class SharePartitionKey(NamedTuple):
    """One partition in one share group. Its coordinator is that of `group:topic id:partition`."""

    group_id: str
    topic_id: UUID
    partition: int


class StoredShareState(NamedTuple):
    """What the coordinator knows of a share partition.

    Invariant: the batches are in order and do not overlap; gaps between them are Available
    records that were delivered never, or only to those who did not say what became of them.
    """

    state_epoch: int
    start_offset: int  # NO_START_OFFSET before the first write
    state_batches: tuple[StateBatch, ...] = ()


class ShareStateWrite(NamedTuple):
    """What has changed since the last write. Later batches replace earlier ones where they
    overlap; what is before the start offset is forgotten."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int  # offsets from the start offset on whose delivery is complete
    state_batches: tuple[StateBatch, ...]


class ShareStateStore(Protocol):
    """The state of share partitions, behind their share coordinators."""

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> StoredShareState:
        """The state as it is stored. From now on, writes of lower leader epochs are refused."""
        ...

    async def write(self, key: SharePartitionKey, change: ShareStateWrite) -> None:
        """Return when the change is committed; an error other than a fencing may have left it
        written."""
        ...


class DeadLetters(Protocol):
    """Where records go that come to their end without having been accepted (KIP-1191)."""

    async def send(
        self,
        group_id: str,
        source: Partition,
        dead: Sequence[DeadRange],
        settings: DeadLetterSettings,
    ) -> None:
        """Return when there is a letter for each record, or there cannot be one; raises a
        KafkaError when it may be tried again."""
        ...
