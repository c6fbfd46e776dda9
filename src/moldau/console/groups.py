"""Groups: a list of them, one of them with its lag, and where a reset would put it."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from moldau.client.admin.offsets import plan_group_reset as make_plan
from moldau.client.admin.values import (
    SHARE_TYPE,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupState,
    PartitionLag,
)
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.client.rules.offsets import (
    AtBeginning,
    AtOffset,
    AtTime,
    BeforeEnd,
    PlannedReset,
    ShiftBy,
    Target,
    TopicChoice,
)
from moldau.clock import Clock
from moldau.console.cluster import Cluster
from moldau.console.paging import PageRequest, matches, natural_key, sort_rows
from moldau.console.records import parse_time
from moldau.console.watch import TimeSeries
from moldau.errors import (
    ConfigurationError,
    GroupNotFoundError,
    KafkaError,
    UnsupportedByBrokerError,
)
from moldau.model import TopicPartition
from moldau.ops.group_view import read_ends, read_positions
from moldau.ops.rules.group_lag import GroupPartition, Positions, group_partitions, total_lag

_READERS = 200
_READERS_OFFSETS = 100_000
_READERS_AT_ONCE = 10
_HISTORIES = 50
_HISTORY_POINTS = 600
_GAP_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroup:
    """A group at one moment. Of a kind that cannot be described here, only the listing is there;
    of one that is forgotten but for its offsets, neither."""

    description: GroupDescription | None
    listing: GroupListing | None = None
    rows: Sequence[GroupPartition]

    @property
    def is_shared(self) -> bool:
        return self.description is not None and self.description.type == SHARE_TYPE

    @property
    def member_count(self) -> int:
        return 0 if self.description is None else len(self.description.members)

    @property
    def lag(self) -> int | None:
        return total_lag(self.rows)


async def list_groups(cluster: Cluster) -> Collection[GroupListing]:
    return (await cluster.admin.list_groups()).values()


async def complete_rows(cluster: Cluster, rows: Collection[GroupRow]) -> list[GroupRow]:
    """The rows of a page with members and lag; the groups are asked at the same time."""
    names = [row.name for row in rows]
    if not names:
        return []
    described = await cluster.admin.describe_groups(names)
    offsets = await asyncio.gather(
        *[_find_positions(cluster, row.name, is_shared=row.kind == SHARE_TYPE) for row in rows]
    )
    ends = await read_ends(cluster.admin, {one for some in offsets for one in some})
    completed = []
    for row, committed in zip(rows, offsets, strict=True):
        group = described[row.name]
        description = None if isinstance(group, KafkaError) else group
        lag = total_lag(group_partitions(_members_of(description), committed, ends))
        members = None if description is None else len(description.members)
        completed.append(replace(row, members=members, lag=lag))
    return completed


async def read_group(cluster: Cluster, group_id: str) -> SeenGroup:
    found = (await cluster.admin.describe_groups((group_id,)))[group_id]
    if isinstance(found, KafkaError) and not isinstance(found, GroupNotFoundError):
        raise found
    description = None if isinstance(found, KafkaError) else found
    listing = None
    if description is None:
        listing = (await cluster.admin.list_groups()).get(group_id)
    is_shared = description is not None and description.type == SHARE_TYPE
    committed = await _find_positions(cluster, group_id, is_shared=is_shared)
    if description is None and listing is None and not committed:
        raise GroupNotFoundError(f"there is no group {group_id!r}")
    members = _members_of(description)
    assigned = {one for member in members for one in member.assignment}
    ends = await read_ends(cluster.admin, {*committed, *assigned})
    rows = group_partitions(members, committed, ends)
    return SeenGroup(description=description, listing=listing, rows=rows)


def _members_of(description: GroupDescription | None) -> tuple[GroupMember, ...]:
    return () if description is None else description.members


async def find_readers(cluster: Cluster, topic: TopicMetadata) -> TopicReaders:
    """Groups with a position in a topic. Of many groups, or many partitions, not all are asked."""
    listings = list(await list_groups(cluster))
    most = max(1, min(_READERS, _READERS_OFFSETS // max(1, len(topic.partitions))))
    asked = sorted(listings, key=lambda one: (one.state is GroupState.EMPTY, one.group_id))[:most]
    partitions = [TopicPartition(topic.name, one.index) for one in topic.partitions]
    ends = await read_ends(cluster.admin, partitions)
    few_at_once = asyncio.Semaphore(_READERS_AT_ONCE)

    async def ask(listing: GroupListing) -> GroupRow | None:
        kind = group_kind(listing)
        async with few_at_once:
            found = await _find_positions(cluster, listing.group_id, is_shared=kind == SHARE_TYPE)
        mine = {one: offset for one, offset in found.items() if one.topic == topic.name}
        if not mine:
            return None
        lag = total_lag(group_partitions((), mine, ends))
        return GroupRow(name=listing.group_id, kind=kind, state=listing.state.value, lag=lag)

    rows = await asyncio.gather(*map(ask, asked))
    return TopicReaders([row for row in rows if row is not None], len(listings) - len(asked))


@dataclass(frozen=True, slots=True)
class TopicReaders:
    """Groups that read a topic, and how many groups were not asked."""

    rows: Sequence[GroupRow]
    not_asked: int


async def find_ages(
    cluster: Cluster, rows: Collection[GroupPartition]
) -> Mapping[TopicPartition, float | None]:
    """The age of the oldest unread record, of the partitions that a page shows."""
    wanted = {row.partition: row.committed for row in rows if row.lag}
    found = await cluster.admin.measure_lag(wanted)
    return {one: lag.seconds for one, lag in found.items() if isinstance(lag, PartitionLag)}


async def plan_group_reset(
    cluster: Cluster, group_id: str, topic: str | None, target: Target, *, is_shared: bool
) -> Sequence[PlannedReset]:
    """What a reset would do, for one topic or for all that the group has read."""
    choices = None if topic is None else (TopicChoice(topic),)
    return await make_plan(cluster.admin, group_id, choices, target, is_shared=is_shared)


async def perform_reset(
    cluster: Cluster, group_id: str, planned: Collection[PlannedReset], *, is_shared: bool
) -> Mapping[TopicPartition, KafkaError]:
    """Commit what was planned; gives back what was refused."""
    cluster.require_writable()
    offsets = {row.partition: row.after for row in planned}
    if is_shared:
        answers = await cluster.admin.alter_share_group_offsets(group_id, offsets)
    else:
        answers = await cluster.admin.alter_group_offsets(group_id, offsets)
    return {one: error for one, error in answers.items() if error is not None}


async def delete_group(cluster: Cluster, group_id: str) -> None:
    cluster.require_writable()
    error = (await cluster.admin.delete_groups((group_id,)))[group_id]
    if error is not None:
        raise error


async def _find_positions(cluster: Cluster, group_id: str, *, is_shared: bool) -> Positions:
    """Nothing where the broker cannot tell them, or the group is gone meanwhile."""
    try:
        return await read_positions(cluster.admin, group_id, is_shared=is_shared)
    except (GroupNotFoundError, UnsupportedByBrokerError):
        return {}


class LagHistories:
    """How the lag of groups went, of those that somebody looked at last. For all sessions."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._histories: OrderedDict[str, TimeSeries] = OrderedDict()

    def add(self, group_id: str, lag: int) -> TimeSeries:
        history = self._histories.pop(group_id, None) or TimeSeries(_HISTORY_POINTS, _GAP_SECONDS)
        self._histories[group_id] = history
        while len(self._histories) > _HISTORIES:
            self._histories.popitem(last=False)
        history.add(self._clock.now_ms() / 1000, float(lag))
        return history


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


def members_text(members: Sequence[GroupMember], longest: int = 3) -> str:
    """The clients' names, few of them."""
    names = ", ".join(one.client_id for one in members[:longest])
    more = len(members) - longest
    return f"{names} and {more:,} more" if more > 0 else names


def choose_lag_rows(
    rows: Sequence[GroupPartition], request: PageRequest
) -> Sequence[GroupPartition]:
    found = [row for row in rows if matches(str(row.partition), request.search)]
    keys = {
        "partition": lambda row: (natural_key(row.partition.topic), row.partition.partition),
        "lag": lambda row: row.lag,
        "committed": lambda row: row.committed,
        "end": lambda row: row.log_end_offset,
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
