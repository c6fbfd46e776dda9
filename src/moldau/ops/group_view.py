"""Groups with members, committed offsets and lag, as `moldau groups describe` shows them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    GroupDescription,
    GroupMember,
    GroupOffset,
    PartitionLag,
    ShareGroupOffset,
)
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.ops.formatting import format_duration

_UNKNOWN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartition:
    """A partition that a group has read, or that a member is to read.

    What is not known is None: no commit yet, a topic that is gone, a partition without leader.
    """

    partition: TopicPartition
    committed: int | None
    log_end_offset: int | None
    lag_records: int | None
    lag_seconds: float | None
    member: GroupMember | None
    taker_count: int = 0  # members of a share group that take from it

    def to_row(self) -> tuple[str, ...]:
        member, seconds = self.member, self.lag_seconds
        return (
            self.partition.topic,
            str(self.partition.partition),
            _or_unknown(self.committed),
            _or_unknown(self.log_end_offset),
            _or_unknown(self.lag_records),
            _UNKNOWN if seconds is None else format_duration(seconds),
            _UNKNOWN if member is None else member.member_id,
            _UNKNOWN if member is None else member.host,
        )

    def to_share_row(self) -> tuple[str, ...]:
        """Of a share group: its members take from a partition beside each other."""
        return (*self.to_row()[:6], str(self.taker_count))

    def to_document(self, *, is_shared: bool = False) -> dict[str, object]:
        member = self.member
        if is_shared:
            return {
                "topic": self.partition.topic,
                "partition": self.partition.partition,
                "start_offset": self.committed,
                "log_end_offset": self.log_end_offset,
                "lag": self.lag_records,
                "oldest_unacknowledged_seconds": self.lag_seconds,
                "takers": self.taker_count,
            }
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "committed_offset": self.committed,
            "log_end_offset": self.log_end_offset,
            "lag": self.lag_records,
            "lag_seconds": self.lag_seconds,
            "member_id": None if member is None else member.member_id,
            "client_id": None if member is None else member.client_id,
            "host": None if member is None else member.host,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group; its partitions are None when nobody asked for them."""

    description: GroupDescription
    partitions: tuple[DescribedPartition, ...] | None

    @property
    def name(self) -> str:
        return self.description.group_id

    @property
    def is_shared(self) -> bool:
        return self.description.type == "share"

    @property
    def members(self) -> tuple[GroupMember, ...]:
        return self.description.members

    def summary(self) -> Iterable[tuple[str, str]]:
        group = self.description
        count = str(len(group.members))
        if group.epoch is not None:
            yield "protocol", f"{group.type}, epoch {group.epoch}"
        yield "state", group.state.value
        yield "members", f"{count}, assigned by {group.protocol}" if group.protocol else count
        yield "coordinator", f"broker {group.coordinator.id} at {group.coordinator.address}"

    def totals(self) -> str:
        records, seconds = self._total_records(), self._most_seconds()
        counted = "1 record" if records == 1 else f"{records:,} records"
        late = f", at most {format_duration(seconds)} behind" if seconds else ""
        return f"total lag {counted}{late}"

    def _total_records(self) -> int:
        return sum(row.lag_records or 0 for row in self.partitions or ())

    def _most_seconds(self) -> float | None:
        known = [row.lag_seconds for row in self.partitions or () if row.lag_seconds is not None]
        return max(known, default=None)

    def member_rows(self) -> Sequence[tuple[str, ...]]:
        return [
            (
                member.member_id,
                member.instance_id or _UNKNOWN,
                member.client_id,
                member.host,
                format_partitions(member.assignment) or _UNKNOWN,
            )
            for member in self.members
        ]

    def to_document(self, *, with_members: bool) -> dict[str, object]:
        group = self.description
        address = group.coordinator.address
        document: dict[str, object] = {
            "group": group.group_id,
            "type": group.type,
            "state": group.state.value,
            "protocol_type": group.protocol_type,
            "protocol": group.protocol,
            "coordinator": {
                "id": group.coordinator.id,
                "host": address.host,
                "port": address.port,
            },
        }
        if group.epoch is not None:
            document["epoch"] = group.epoch
        if with_members:
            document["members"] = [_member_to_document(member) for member in group.members]
        if self.partitions is not None:
            document["offsets"] = [
                row.to_document(is_shared=self.is_shared) for row in self.partitions
            ]
            document["total_lag"] = self._total_records()
            document["max_lag_seconds"] = self._most_seconds()
        return document


def _member_to_document(member: GroupMember) -> dict[str, object]:
    document: dict[str, object] = {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "assignment": [
            {"topic": one.topic, "partition": one.partition} for one in member.assignment
        ],
    }
    if member.epoch is not None:
        document["epoch"] = member.epoch
        document["target"] = [
            {"topic": one.topic, "partition": one.partition} for one in member.target
        ]
    return document


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """`clicks:0,1,2 orders:5`."""
    topics: defaultdict[str, list[str]] = defaultdict(list)
    for topic, index in sorted(partitions):
        topics[topic].append(str(index))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in topics.items())


def _or_unknown(number: int | None) -> str:
    return _UNKNOWN if number is None else str(number)


async def describe_groups(
    admin: AsyncAdmin, names: Sequence[str] | None, *, with_offsets: bool
) -> Sequence[GroupView | KafkaError]:
    """These groups, or all; the errors of those that cannot be described."""
    if names is None:
        names = sorted(await admin.list_groups())
    answers = await admin.describe_groups(dict.fromkeys(names))
    return [
        answer
        if isinstance(answer, KafkaError)
        else await _describe(admin, answer, with_offsets=with_offsets)
        for answer in (answers[name] for name in dict.fromkeys(names))
    ]


async def _describe(
    admin: AsyncAdmin, description: GroupDescription, *, with_offsets: bool
) -> GroupView | KafkaError:
    if not with_offsets:
        return GroupView(description=description, partitions=None)
    try:
        if description.type == "share":
            shared = await admin.list_share_group_offsets(description.group_id)
            partitions = await _describe_shared(admin, description, shared)
            return GroupView(description=description, partitions=partitions)
        found = await admin.list_group_offsets(description.group_id)
    except KafkaError as error:
        return error
    return GroupView(
        description=description,
        partitions=await _describe_partitions(admin, description, found),
    )


async def _describe_shared(
    admin: AsyncAdmin,
    description: GroupDescription,
    found: Mapping[TopicPartition, ShareGroupOffset | KafkaError],
) -> tuple[DescribedPartition, ...]:
    """The record at the start offset is the oldest that nobody has acknowledged."""
    known = {one: row for one, row in found.items() if isinstance(row, ShareGroupOffset)}
    takers = Counter(one for member in description.members for one in member.assignment)
    partitions = sorted(known.keys() | takers.keys())
    starts = {one: known[one].start_offset if one in known else None for one in partitions}
    lags = await admin.measure_lag(starts)
    return tuple(
        replace(
            _describe_partition(one, starts[one], lags[one], None),
            lag_records=known[one].lag if one in known else None,
            taker_count=takers[one],
        )
        for one in partitions
    )


async def _describe_partitions(
    admin: AsyncAdmin,
    description: GroupDescription,
    found: Mapping[TopicPartition, GroupOffset | KafkaError],
) -> tuple[DescribedPartition, ...]:
    committed = {one: row.offset for one, row in found.items() if isinstance(row, GroupOffset)}
    owners = {one: member for member in description.members for one in member.assignment}
    partitions = sorted(committed.keys() | owners.keys())
    lags = await admin.measure_lag({one: committed.get(one) for one in partitions})
    return tuple(
        _describe_partition(one, committed.get(one), lags[one], owners.get(one))
        for one in partitions
    )


def _describe_partition(
    partition: TopicPartition,
    committed: int | None,
    lag: PartitionLag | KafkaError,
    member: GroupMember | None,
) -> DescribedPartition:
    found = None if isinstance(lag, KafkaError) else lag
    return DescribedPartition(
        partition=partition,
        committed=committed,
        log_end_offset=None if found is None else found.log_end_offset,
        lag_records=None if found is None else found.records,
        lag_seconds=None if found is None else found.seconds,
        member=member,
    )
