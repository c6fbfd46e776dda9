"""One share group (KIP-932): what the log says of it, and what follows from that.

Its members take records of the same partitions beside each other; which partitions each of them
takes from is decided here, in the epochs of `epoch_group`. Partitions are given to members only
when a share coordinator keeps their state for the group (SHG-1). What a request leads to is for
`share_membership` and `share_states`.

The model is Kafka's `ShareGroup`. A rule.
"""

from __future__ import annotations

from uuid import UUID

from moldau.groups.rules.epoch_group import EpochGroup
from moldau.groups.rules.share_group_records import (
    ShareEpochRecord,
    ShareGroupRecord,
    ShareTargetEpochRecord,
    StateTopics,
    StateTopicsRecord,
)
from moldau.groups.rules.share_group_states import ShareGroupState


class ShareGroup(EpochGroup):
    """A group. Invariants SHG-1 to SHG-3 hold between two events."""

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        # Hard
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

    def end_records(self) -> list[ShareGroupRecord]:
        """What is logged when the group, in which nobody is any more, ends."""
        return [
            StateTopicsRecord(self.group_id, None),
            ShareTargetEpochRecord(self.group_id, None),
            ShareEpochRecord(self.group_id, None),
        ]
