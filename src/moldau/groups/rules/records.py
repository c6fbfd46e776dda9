"""What the offsets log says about groups: the values in its records.

This is the hard state: what survives the coordinator. How it looks in bytes is the codec's
business (`groups.offsets_log`). A rule: values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from moldau.groups.rules.consumer_group_records import ConsumerGroupRecord
from moldau.groups.rules.share_group_records import ShareGroupRecord
from moldau.groups.rules.streams_group_records import StreamsGroupRecord
from moldau.model import NO_TIMESTAMP, TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    """A member of a generation, with what it got."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # what it said to the protocol that was chosen
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A generation. Without members, the group is empty since `state_timestamp_ms`."""

    protocol_type: str  # empty: nobody has ever joined, offsets are all there is
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int  # NO_TIMESTAMP in records of Kafka before 2.1
    members: tuple[StoredMember, ...]


class CommittedOffset(NamedTuple):
    """Where a group goes on in one partition. A named tuple: one is made for each commit."""

    offset: int
    leader_epoch: int  # of the last record that was read, or NO_LEADER_EPOCH
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP  # asked for by old clients only
    topic_id: TopicId | None = None
    """The topic of the name when the commit was handled (GRP-10). None: the record has no id."""
    names_topic_id: bool = False
    """The client named the id itself, by OffsetCommit 10. The log does not keep this."""


class OffsetRecord(NamedTuple):
    """A commit, or the removal of one (None)."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


class GroupRecord(NamedTuple):
    """A new generation, or the end of the group (None)."""

    group_id: str
    metadata: GroupMetadata | None


class PendingOffsetRecord(NamedTuple):
    """A commit in a transaction that its producer has not ended yet."""

    producer_id: int
    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


class TransactionEnd(NamedTuple):
    """The end marker of a producer's transaction: of all groups in this log."""

    producer_id: int
    is_commit: bool


StoredRecord: TypeAlias = (
    OffsetRecord
    | GroupRecord
    | ConsumerGroupRecord
    | ShareGroupRecord
    | StreamsGroupRecord
    | PendingOffsetRecord
)
"""What has a key and a value; the end of a transaction is a control batch."""

CoordinatorRecord: TypeAlias = StoredRecord | TransactionEnd
