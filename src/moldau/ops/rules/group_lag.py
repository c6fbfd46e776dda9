"""How far a group is behind in each partition: the figures that every part of Moldau shows. Rules.

They are those of Kafka's consumer-groups and share-groups tools. The lag of a consumer group is
counted from its committed offset to the end of the partition (`model.records_behind`). The lag of a
share group is the one that its coordinator counts, because records behind the start offset may be
finished already. A lag is unknown (None) without a commit, without a leader, of a topic that is
gone, and where the coordinator of a share group does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from moldau.client.admin.values import (
    SHARE_TYPE,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupState,
    ShareGroupOffset,
)
from moldau.errors import KafkaError
from moldau.model import TopicPartition, records_behind

Positions = Mapping[TopicPartition, GroupOffset | ShareGroupOffset | KafkaError]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """A partition that a group has read, or that a member is to read. What is not known is None.

    `committed` is, of a share group, its start offset. Several members of a share group may read
    the same partition.
    """

    partition: TopicPartition
    committed: int | None
    log_end_offset: int | None
    lag: int | None
    lag_seconds: float | None = None  # age of the oldest record that is still to be read
    members: tuple[GroupMember, ...] = ()


def group_partitions(
    members: Iterable[GroupMember],
    positions: Positions,
    ends: Mapping[TopicPartition, int],
    ages: Mapping[TopicPartition, float | None] | None = None,
) -> tuple[GroupPartition, ...]:
    """Partitions in which the group has a position, and those that a member has without one yet."""
    readers: defaultdict[TopicPartition, list[GroupMember]] = defaultdict(list)
    for member in members:
        for partition in member.assignment:
            readers[partition].append(member)
    known = {one: at for one, at in positions.items() if not isinstance(at, KafkaError)}
    return tuple(
        _group_partition(
            one,
            known.get(one),
            ends.get(one),
            None if ages is None else ages.get(one),
            tuple(readers.get(one, ())),
        )
        for one in sorted(known.keys() | readers.keys())
    )


def _group_partition(
    partition: TopicPartition,
    position: GroupOffset | ShareGroupOffset | None,
    end: int | None,
    age: float | None,
    members: tuple[GroupMember, ...],
) -> GroupPartition:
    if isinstance(position, ShareGroupOffset):
        committed, lag = position.start_offset, position.lag
    else:
        committed = None if position is None else position.offset
        lag = records_behind(committed, end)
    return GroupPartition(
        partition=partition,
        committed=committed,
        log_end_offset=end,
        lag=lag,
        lag_seconds=age,
        members=members,
    )


def committed_offsets(positions: Positions) -> dict[TopicPartition, int]:
    """Of a share group its start offsets: what is before them is done with."""
    return {
        one: offset
        for one, at in positions.items()
        if not isinstance(at, KafkaError)
        and (offset := at.start_offset if isinstance(at, ShareGroupOffset) else at.offset)
        is not None
    }


def total_lag(partitions: Collection[GroupPartition]) -> int | None:
    """None when nothing of it is known."""
    known = [one.lag for one in partitions if one.lag is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group at one moment; `partitions` is None when they were not asked for."""

    description: GroupDescription
    partitions: tuple[GroupPartition, ...] | None

    @property
    def name(self) -> str:
        return self.description.group_id

    @property
    def is_shared(self) -> bool:
        return self.description.type == SHARE_TYPE

    @property
    def state(self) -> GroupState:
        return self.description.state

    @property
    def members(self) -> tuple[GroupMember, ...]:
        return self.description.members

    @property
    def idle_members(self) -> int:
        """Members without partitions."""
        return sum(not member.assignment for member in self.members)

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        return {
            one.partition: one.committed
            for one in self.partitions or ()
            if one.committed is not None
        }

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """Of the partitions in which the group has a position."""
        return {
            one.partition: one.log_end_offset
            for one in self.partitions or ()
            if one.committed is not None and one.log_end_offset is not None
        }

    @property
    def lags(self) -> Mapping[TopicPartition, int]:
        return {one.partition: one.lag for one in self.partitions or () if one.lag is not None}

    @property
    def lag(self) -> int:
        return total_lag(self.partitions or ()) or 0

    @property
    def lag_seconds(self) -> float | None:
        """The age of the oldest record that is still to be read."""
        known = [one.lag_seconds for one in self.partitions or () if one.lag_seconds is not None]
        return max(known, default=None)
