"""Groups, their members and their lag as rows. Rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.admin_values import ListedOffset
from moldau.client.group_values import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffset,
)
from moldau.console.rules.paging import PageRequest, matches, natural_key, sort_rows
from moldau.errors import KafkaError
from moldau.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRow:
    """A partition that a group has read or is to read. What is not known is None."""

    partition: TopicPartition
    committed: int | None
    end_offset: int | None
    lag: int | None
    member: GroupMember | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group in the list; members and lag are asked for the page that is shown."""

    name: str
    kind: str
    state: str
    members: int | None = None
    lag: int | None = None


_SORT_KEYS = {
    "name": lambda row: natural_key(row.name),
    "kind": lambda row: row.kind,
    "state": lambda row: row.state,
}


def group_kind(listing: GroupListing) -> str:
    """The type where the broker tells it, else what the members call themselves."""
    if listing.type:
        return listing.type.lower()
    return listing.protocol_type or "offsets only"


def choose_groups(listings: Collection[GroupListing], request: PageRequest) -> Sequence[GroupRow]:
    rows = [
        GroupRow(name=one.group_id, kind=group_kind(one), state=one.state.value)
        for one in listings
        if matches(one.group_id, request.search)
    ]
    rows.sort(key=lambda row: natural_key(row.name))
    return sort_rows(rows, _SORT_KEYS, request)


Ends = Mapping[TopicPartition, ListedOffset | KafkaError]


def lag_rows(
    description: GroupDescription | None,
    committed: Mapping[TopicPartition, GroupOffset | KafkaError],
    ends: Ends,
) -> list[LagRow]:
    """Partitions with a committed offset, and those that a member has without one yet."""
    members = {
        partition: member
        for member in (description.members if description is not None else ())
        for partition in member.assignment
    }
    rows = []
    for partition in sorted({*committed, *members}):
        offset = committed.get(partition)
        at = offset.offset if isinstance(offset, GroupOffset) else None
        end = ends.get(partition)
        end_offset = end.offset if isinstance(end, ListedOffset) else None
        rows.append(
            LagRow(
                partition=partition,
                committed=at,
                end_offset=end_offset,
                lag=None if at is None or end_offset is None else max(0, end_offset - at),
                member=members.get(partition),
            )
        )
    return rows


def total_lag(rows: Collection[LagRow]) -> int | None:
    """None when nothing of it is known."""
    known = [row.lag for row in rows if row.lag is not None]
    return sum(known) if known else None


def choose_lag_rows(rows: Sequence[LagRow], request: PageRequest) -> Sequence[LagRow]:
    found = [row for row in rows if matches(str(row.partition), request.search)]
    keys = {
        "partition": lambda row: (natural_key(row.partition.topic), row.partition.partition),
        "lag": lambda row: row.lag,
        "committed": lambda row: row.committed,
        "end": lambda row: row.end_offset,
    }
    return sort_rows(found, keys, request)


def assignment_text(partitions: Collection[TopicPartition], longest: int = 6) -> str:
    """`clicks 0, 1, 2; orders 0`: short for people, whatever the number of partitions."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    texts = []
    for topic, numbers in by_topic.items():
        shown = ", ".join(map(str, numbers[:longest]))
        more = f" and {len(numbers) - longest:,} more" if len(numbers) > longest else ""
        texts.append(f"{topic} {shown}{more}")
    return "; ".join(texts[:longest]) + (" …" if len(texts) > longest else "")


def state_counts(listings: Collection[GroupListing]) -> Sequence[tuple[str, int]]:
    return sorted(Counter(one.state.value for one in listings).items())
