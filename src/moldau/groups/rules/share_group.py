"""One share group (KIP-932): what the log says of it, and what follows from that.

Its members take records of the same partitions beside each other; which partitions each of them
takes from is decided here, in the epochs of `epoch_group`. Partitions are given to members only
when a share coordinator keeps their state for the group (SHG-1). What a request leads to is for
`share_membership` and `share_states`.

The model is Kafka's `ShareGroup`. A rule.
"""

from __future__ import annotations

from enum import Enum
from typing import Final
from uuid import UUID

from moldau.groups.rules.answers import GroupType, ListedGroup
from moldau.groups.rules.epoch_group import DescribedConsumerGroup, EpochGroup
from moldau.groups.rules.limits import GroupLimits
from moldau.groups.rules.share_group_records import (
    ShareEpochRecord,
    ShareGroupRecord,
    ShareTargetEpochRecord,
    StateTopics,
    StateTopicsRecord,
)

_PROTOCOL_TYPE: Final = "share"
_MOST_ENDED: Final = 10_000
"""Groups that have ended and whose epochs are remembered."""


class ShareGroupState(Enum):
    """Of a share group (KIP-932). Follows from its members; nobody sets it. The values are Kafka's
    names."""

    EMPTY = "Empty"
    """Nobody is in it. Moves: to STABLE with the first member; to DEAD when it is deleted."""

    STABLE = "Stable"
    """It has members. Moves: to EMPTY with the last one."""

    DEAD = "Dead"
    """Deleted: nothing of it is left."""


class ShareGroup(EpochGroup):
    """A group. Invariants SHG-1 to SHG-3 hold between two events."""

    def __init__(self, group_id: str, former_epoch: int = 0) -> None:
        """One that is not there yet; its first epoch will be that after the former one."""
        super().__init__(group_id)
        # Hard
        self.epoch = former_epoch
        self.state_topics = StateTopics()
        # Soft: what share coordinators are being asked for by this coordinator
        self.initializing_now: set[tuple[UUID, int]] = set()
        self.deleting_now: set[UUID] = set()
        self.complete_for: object = None  # topics in which every state is known to be there

    def __repr__(self) -> str:
        return f"ShareGroup({self.group_id!r}, {self.state.value}, epoch {self.epoch})"

    def apply(self, record: ShareGroupRecord) -> None:
        """Take a record of this group that is in the log. The end of the group is for `Groups`."""
        if isinstance(record, StateTopicsRecord):
            self.state_topics = record.value or StateTopics()
            self.complete_for = None
        else:
            self.apply_epochs(record)

    @property
    def state(self) -> ShareGroupState:
        if self.is_dead:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.subscriptions else ShareGroupState.EMPTY

    def describe(self, limits: GroupLimits) -> DescribedConsumerGroup:
        return self.describe_as(self.state, limits.share_assignors[0])

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, _PROTOCOL_TYPE, self.state, GroupType.SHARE)

    def end_records(self) -> list[ShareGroupRecord]:
        """What is logged when the group, in which nobody is any more, ends."""
        return [
            StateTopicsRecord(self.group_id, None),
            ShareTargetEpochRecord(self.group_id, None),
            ShareEpochRecord(self.group_id, None),
        ]


class EndedShareGroups:
    """The last epochs of groups that have ended, as far as the log tells them; the latest ones.

    The epoch of a group is that of the states that are begun for it. One of the same name goes on
    with the next epoch (SHG-6), so that what a leader still had to write for the former one is
    fenced (SHS-2) and does not pass for its own. Kafka begins with the first epoch again.
    """

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}  # the oldest end first

    def add(self, group: ShareGroup) -> None:
        self._epochs.pop(group.group_id, None)
        self._epochs[group.group_id] = group.epoch
        if len(self._epochs) > _MOST_ENDED:
            del self._epochs[next(iter(self._epochs))]

    def last_epoch(self, group_id: str) -> int:
        return self._epochs.get(group_id, 0)
