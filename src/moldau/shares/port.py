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

A port.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from moldau.replication.partition import Partition
from moldau.shares.rules.dead_letters import DeadLetterSettings
from moldau.shares.rules.delivery_state import (
    SharePartitionKey,
    ShareStateWrite,
    StoredShareState,
)
from moldau.shares.rules.in_flight import DeadRange


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
