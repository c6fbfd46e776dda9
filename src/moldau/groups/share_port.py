"""What the coordinator of a share group needs of share coordinators: they keep, for the leaders of
partitions, how far the group has come in each of them. A port."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from moldau.groups.rules.assigned_partitions import AssignedPartitions
from moldau.groups.rules.events import NewState

PartitionIds = frozenset[tuple[UUID, int]]


class ShareStateKeeper(Protocol):
    """Asks the share coordinators, wherever they are; raises nothing."""

    async def initialize(
        self, group_id: str, state_epoch: int, states: Sequence[NewState]
    ) -> PartitionIds:
        """Have states begun; those that were."""
        ...

    async def delete(self, group_id: str, partitions: AssignedPartitions) -> PartitionIds:
        """Have states forgotten; those that were."""
        ...
