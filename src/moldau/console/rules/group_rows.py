"""Groups, their members and their lag as rows, and where a reset leads. Rules."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.admin_values import (
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffset,
    ListedOffset,
    ShareGroupOffset,
)
from moldau.client.rules.offset_targets import (
    AtBeginning,
    AtOffset,
    AtTime,
    BeforeEnd,
    ShiftBy,
    Target,
)
from moldau.console.rules.browsing import parse_time
from moldau.console.rules.paging import PageRequest, matches, natural_key, sort_rows
from moldau.errors import ConfigurationError, KafkaError
from moldau.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRow:
    """A partition that a group has read or is to read. What is not known is None.

    `committed` is, of a share group, its start offset: what is before it is done with. Several of
    its members may have the same partition.
    """

    partition: TopicPartition
    committed: int | None
    end_offset: int | None
    lag: int | None
    members: tuple[GroupMember, ...] = ()


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


SHARE = "share"


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


Positions = Mapping[TopicPartition, GroupOffset | ShareGroupOffset | KafkaError]


def lag_rows(description: GroupDescription | None, offsets: Positions, ends: Ends) -> list[LagRow]:
    """Partitions in which the group has a position, and those that a member has without one yet."""
    members: defaultdict[TopicPartition, list[GroupMember]] = defaultdict(list)
    for member in description.members if description is not None else ():
        for partition in member.assignment:
            members[partition].append(member)
    rows = []
    for partition in sorted({*offsets, *members}):
        end = ends.get(partition)
        end_offset = end.offset if isinstance(end, ListedOffset) else None
        at, lag = _position(offsets.get(partition), end_offset)
        rows.append(
            LagRow(
                partition=partition,
                committed=at,
                end_offset=end_offset,
                lag=lag,
                members=tuple(members[partition]),
            )
        )
    return rows


def _position(
    offset: GroupOffset | ShareGroupOffset | KafkaError | None, end_offset: int | None
) -> tuple[int | None, int | None]:
    """Where a group is, and what is left; a share group's coordinator counts what is not done with,
    which may be less than what is after the start offset."""
    if isinstance(offset, ShareGroupOffset):
        at, told = offset.start_offset, offset.lag
    elif isinstance(offset, GroupOffset):
        at, told = offset.offset, None
    else:
        return None, None
    if told is None and at is not None and end_offset is not None:
        told = max(0, end_offset - at)
    return at, told


def members_text(members: Sequence[GroupMember], longest: int = 3) -> str:
    """The clients' names, few of them."""
    names = ", ".join(one.client_id for one in members[:longest])
    more = len(members) - longest
    return f"{names} and {more:,} more" if more > 0 else names


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


def group_severity(state: str) -> int:
    """Empty is nothing bad; what is between two states is worth a look."""
    return {"Stable": 0, "Empty": 3, "Dead": 2}.get(state, 1)


BEGINNING, END, OFFSET, TIME, SHIFT = PLACES = (
    "the beginning",
    "the end",
    "an offset",
    "a time",
    "forward or back by",
)

_END_OF_NUMBERS = 1 << 63  # of those that the protocol has room for


def parse_target(place: str, text: str, now_ms: int) -> Target:
    """The text means something for the last three places only."""
    text = text.strip()
    if place == BEGINNING:
        return AtBeginning()
    if place == END:
        return BeforeEnd(0)
    if place == TIME:
        return AtTime(parse_time(text, now_ms))
    try:
        number = int(text.replace(",", ""))
    except ValueError:
        raise ConfigurationError(f"{text!r:.60} is no number") from None
    if abs(number) >= _END_OF_NUMBERS:
        raise ConfigurationError(f"{text:.60} is beyond all offsets")
    if place == SHIFT:
        return ShiftBy(number)
    if number < 0:
        raise ConfigurationError(f"{number} is no offset")
    return AtOffset(number)
