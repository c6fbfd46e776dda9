"""What the offsets log says about share groups (KIP-932): the values in its records.

Epochs, members and assignments are as those of consumer groups, under keys of their own. Beside
them stands in which partitions the share coordinators keep a state for the group. How they look in
bytes is `groups.share_group_log`'s business. A rule: values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from moldau.groups.rules.assigned_partitions import AssignedPartitions
from moldau.groups.rules.consumer_group_records import (
    GroupEpochRecord,
    MemberAssignmentRecord,
    MemberSubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)


class ShareEpochRecord(GroupEpochRecord):
    """A new epoch of a share group, or its end (None)."""

    __slots__ = ()


class ShareSubscriptionRecord(MemberSubscriptionRecord):
    """A member of a share group comes or wants something else, or has gone (None)."""

    __slots__ = ()


class ShareTargetEpochRecord(TargetEpochRecord):
    """The targets of all members are those of this epoch of the share group."""

    __slots__ = ()


class ShareTargetRecord(TargetAssignmentRecord):
    """What a member of a share group is to get."""

    __slots__ = ()


class ShareAssignmentRecord(MemberAssignmentRecord):
    """What a member of a share group has."""

    __slots__ = ()


_NO_STARTS: Final[Mapping[int, int]] = MappingProxyType({})


class KeptTopic(NamedTuple):
    """Partitions of a topic, for which a state is kept or about to be."""

    name: str
    partitions: frozenset[int]
    # Of partitions that are initializing: the offsets at which they begin, however often share
    # coordinators have to be asked. The others begin by `share.auto.offset.reset`.
    starts: Mapping[int, int] = _NO_STARTS


_NO_TOPICS: Final[Mapping[UUID, KeptTopic]] = MappingProxyType({})
_NO_NAMES: Final[Mapping[UUID, str]] = MappingProxyType({})


class StateTopics(NamedTuple):
    """Where share coordinators keep a state for the group, by the ids of topics.

    Invariants: no partition is both initializing and initialized (SHG-2); only one that is
    initializing has an offset at which it begins.
    """

    initializing: Mapping[UUID, KeptTopic] = _NO_TOPICS
    initialized: Mapping[UUID, KeptTopic] = _NO_TOPICS
    deleting: Mapping[UUID, str] = _NO_NAMES  # their names

    def has_initialized(self, topic_id: UUID, partition: int) -> bool:
        topic = self.initialized.get(topic_id)
        return topic is not None and partition in topic.partitions

    @property
    def everything(self) -> AssignedPartitions:
        """Wherever there may be a state."""
        found: dict[UUID, frozenset[int]] = {}
        for topics in (self.initializing, self.initialized):
            for topic_id, topic in topics.items():
                found[topic_id] = found.get(topic_id, frozenset()) | topic.partitions
        return found


class StateTopicsRecord(NamedTuple):
    """Where a state is kept for the group, or nowhere any more (None)."""

    group_id: str
    value: StateTopics | None


ShareGroupRecord: TypeAlias = (
    ShareEpochRecord
    | ShareSubscriptionRecord
    | ShareTargetEpochRecord
    | ShareTargetRecord
    | ShareAssignmentRecord
    | StateTopicsRecord
)

SHARE_RECORDS: Final = (
    ShareEpochRecord,
    ShareSubscriptionRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    ShareAssignmentRecord,
    StateTopicsRecord,
)


def removal_of_taker(group_id: str, member_id: str) -> tuple[ShareGroupRecord, ...]:
    """Together, so that nothing of a member outlives its membership."""
    return (
        ShareAssignmentRecord(group_id, member_id, None),
        ShareTargetRecord(group_id, member_id, None),
        ShareSubscriptionRecord(group_id, member_id, None),
    )
