"""Who of a group reads what: the assignors of Kafka's consumers, with the same results. A rule.

The leader of a group runs one of these, and any client may be the leader. So for the same members
and topics the result is that of Java's classes: RangeAssignor, RoundRobinAssignor, StickyAssignor
and CooperativeStickyAssignor. Racks are not looked at (Java's look at them when both the consumers
and the replicas have some).
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

from moldau.client.rules.arguments import wrong_type
from moldau.errors import ConfigurationError, InvariantViolation, MalformedFrameError
from moldau.model import NO_GENERATION, TopicPartition
from moldau.wire.consumer_protocol import FieldReader, Subscription, encode_partitions

# Where all members read the same topics, everyone gets the floor or the ceiling of the average and
# keeps what it had within that (below). Where they do not, partitions are given to whoever has
# least and may read them, and then moved until no move makes the result more even
# (`Balance`, below). The steps, and with them the results, are those of Kafka's
# AbstractStickyAssignor without racks.


_OLDEST_GENERATION = -1


class Claim(NamedTuple):
    """What a member wants to read and what it had; `generation_id` says when, if it is known."""

    member_id: str
    topics: Sequence[str]
    had: Sequence[TopicPartition]
    generation_id: int | None

    @property
    def generation(self) -> int:
        return _OLDEST_GENERATION if self.generation_id is None else self.generation_id


class StickyResult(NamedTuple):
    """By member id; and, of these, the partitions that another member has to give up first."""

    partitions: dict[str, list[TopicPartition]]
    changing_hands: dict[TopicPartition, str]


class _Owned(NamedTuple):
    """What members keep a right to; a partition that two claim for one generation is nobody's."""

    by_member: dict[str, list[TopicPartition]]
    disputed: set[TopicPartition]


def assign_sticky(counts: Mapping[str, int], claims: Sequence[Claim]) -> StickyResult:
    read = {topic for claim in claims for topic in claim.topics}
    counts = {topic: count for topic, count in counts.items() if topic in read}
    by_id = {claim.member_id: claim for claim in claims}
    ordered = [by_id[member_id] for member_id in in_hash_order(by_id)]
    owned = _resolve_claims(counts, ordered)
    if all(set(claim.topics) == set(ordered[0].topics) for claim in ordered):
        return _EvenShares(counts, owned).assign()
    return _assign_by_balance(counts, ordered, owned)


def _resolve_claims(counts: Mapping[str, int], claims: Sequence[Claim]) -> _Owned:
    """Where two members claim a partition, the one of the newer generation has it."""
    owned = _Owned({}, set())
    owners: dict[TopicPartition, Claim] = {}
    for claim in claims:
        mine = owned.by_member[claim.member_id] = []
        for partition in claim.had:
            if not 0 <= partition.partition < counts.get(partition.topic, 0):
                continue
            other = owners.get(partition)
            if other is not None and other.generation > claim.generation:
                continue
            owners[partition] = claim
            if other is not None and partition in owned.by_member[other.member_id]:
                owned.by_member[other.member_id].remove(partition)
            if other is not None and other.generation == claim.generation:
                owned.disputed.add(partition)
            else:
                mine.append(partition)
    return owned


class _EvenShares:
    """All read the same topics: `extra_count` members get the ceiling, the others the floor."""

    def __init__(self, counts: Mapping[str, int], owned: _Owned) -> None:
        self._all = [
            TopicPartition(topic, index)
            for topic in sorted(counts)
            for index in range(counts[topic])
        ]
        self._owned = owned
        self._floor, self._extra_count = divmod(len(self._all), len(owned.by_member))
        self._ceiling = self._floor + (self._extra_count > 0)
        self._assigned: dict[str, list[TopicPartition]] = {name: [] for name in owned.by_member}
        self._given_up: set[TopicPartition] = set()
        self._below_floor: list[str] = []
        self._at_floor: list[str] = []  # those that may still get one more
        self._with_extra = 0

    def assign(self) -> StickyResult:
        for member_id, partitions in self._owned.by_member.items():
            mine = [one for one in partitions if one not in self._owned.disputed]
            self._keep(member_id, sorted(mine, key=_by_index))
        changing_hands = self._deal_out_the_rest()
        return StickyResult(self._assigned, changing_hands)

    def _keep(self, member_id: str, mine: list[TopicPartition]) -> None:
        if len(mine) < self._floor:
            kept = len(mine)
            self._below_floor.append(member_id)
        elif len(mine) >= self._ceiling and self._with_extra < self._extra_count:
            kept = self._ceiling
            self._with_extra += 1
            if self._with_extra == self._extra_count:
                self._at_floor.clear()
        else:
            kept = self._floor
            if self._with_extra < self._extra_count:
                self._at_floor.append(member_id)
        self._assigned[member_id] += mine[:kept]
        self._given_up.update(mine[kept:])

    def _deal_out_the_rest(self) -> dict[TopicPartition, str]:
        changing_hands: dict[TopicPartition, str] = {}
        below, at_floor = sorted(self._below_floor), deque(sorted(self._at_floor))
        turn = 0
        for partition in self._unassigned():
            turn = 0 if turn >= len(below) else turn
            if below:
                member_id = below[turn]
            elif at_floor:
                member_id = at_floor.popleft()
            else:
                raise InvariantViolation(f"nobody is left to take {partition}")
            mine = self._assigned[member_id]
            mine.append(partition)
            if partition in self._given_up or partition in self._owned.disputed:
                changing_hands[partition] = member_id
            if len(mine) == self._floor:
                at_floor.append(below.pop(turn))
            else:
                turn += 1
        return changing_hands

    def _unassigned(self) -> list[TopicPartition]:
        kept = {partition for mine in self._assigned.values() for partition in mine}
        return [partition for partition in self._all if partition not in kept]


def _assign_by_balance(
    counts: Mapping[str, int], claims: Sequence[Claim], owned: _Owned
) -> StickyResult:
    topics_of = {
        claim.member_id: [topic for topic in claim.topics if topic in counts] for claim in claims
    }
    balance = Balance(counts, topics_of, owned.by_member, _previous_owners(claims))
    assigned = balance.assign()
    return StickyResult(assigned, _changing_hands(claims, assigned))


def _previous_owners(claims: Sequence[Claim]) -> dict[TopicPartition, PreviousOwner]:
    """Of each partition the last owner before the newest generation."""
    newest = max(claim.generation for claim in claims)
    found: dict[TopicPartition, PreviousOwner] = {}
    for claim in claims:
        if claim.generation >= newest:
            continue
        for partition in claim.had:
            known = found.get(partition)
            if known is None or claim.generation > known.generation:
                found[partition] = PreviousOwner(claim.member_id, claim.generation)
    return found


def _changing_hands(
    claims: Sequence[Claim], assigned: Mapping[str, Sequence[TopicPartition]]
) -> dict[TopicPartition, str]:
    added: dict[TopicPartition, str] = {}
    given_up: set[TopicPartition] = set()
    for claim in claims:
        had, has = set(claim.had), set(assigned[claim.member_id])
        added |= dict.fromkeys(has - had, claim.member_id)
        given_up |= had - has
    return {partition: member for partition, member in added.items() if partition in given_up}


def _by_index(partition: TopicPartition) -> tuple[int, str]:
    return partition.partition, partition.topic


PartitionCounts = Mapping[str, int]
"""By topic: how many partitions it has. Topics that do not exist are left out."""

Assigned = dict[str, list[TopicPartition]]
"""By member id. Every member is in it."""

_INT32: Final = struct.Struct(">i")


class MemberSubscription(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    subscription: Subscription

    @property
    def rank(self) -> tuple[bool, str]:
        """Static members first, by their names; then the others by their ids."""
        return self.instance_id is None, self.instance_id or self.member_id


class Assignor(Protocol):
    """What a group can agree on. Your own may be given to a consumer beside the names."""

    @property
    def name(self) -> str:
        """The protocol's name; all members must have one in common."""

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep what they have while the group rebalances."""

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        """What a member tells the leader beside its subscription; owned: at the last assignment."""

    def assign(self, counts: PartitionCounts, members: Sequence[MemberSubscription]) -> Assigned:
        """The partitions of each member."""


class RangeAssignor:
    """Topic by topic, each member gets a run of neighbouring partitions; the first ones more."""

    name: ClassVar[str] = "range"
    is_cooperative: ClassVar[bool] = False

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        return None

    def assign(self, counts: PartitionCounts, members: Sequence[MemberSubscription]) -> Assigned:
        assigned: Assigned = {member.member_id: [] for member in members}
        for topic, count in sorted(counts.items()):
            readers = _readers_of(topic, members)
            if not readers:
                continue
            share, extra = divmod(count, len(readers))
            start = 0
            for place, member in enumerate(readers):
                end = start + share + (place < extra)
                assigned[member.member_id] += _partitions(topic, range(start, end))
                start = end
        return assigned


class RoundRobinAssignor:
    """All partitions of all topics in order, dealt out in turns to those who read the topic."""

    name: ClassVar[str] = "roundrobin"
    is_cooperative: ClassVar[bool] = False

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        return None

    def assign(self, counts: PartitionCounts, members: Sequence[MemberSubscription]) -> Assigned:
        assigned: Assigned = {member.member_id: [] for member in members}
        ring = sorted(members, key=_rank)
        turn = 0
        for topic, count in sorted(counts.items()):
            if not _readers_of(topic, members):
                continue
            for partition in _partitions(topic, range(count)):
                while topic not in ring[turn % len(ring)].subscription.topics:
                    turn += 1
                assigned[ring[turn % len(ring)].member_id].append(partition)
                turn += 1
        return assigned


class StickyAssignor:
    """Even, and as little moved as possible; members give up everything before they join.

    What a member had is in its user data: partitions and generation.
    """

    name: ClassVar[str] = "sticky"
    is_cooperative: ClassVar[bool] = False

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        if generation_id == NO_GENERATION:
            return None
        return b"".join((*encode_partitions(owned), _INT32.pack(generation_id)))

    def assign(self, counts: PartitionCounts, members: Sequence[MemberSubscription]) -> Assigned:
        claims = [
            Claim(member.member_id, member.subscription.topics, *_had(member.subscription))
            for member in members
        ]
        return assign_sticky(counts, claims).partitions


class CooperativeStickyAssignor:
    """As sticky, but members keep reading what they keep.

    A partition that changes hands is left out at first. Its owner gives it up and joins again, and
    only then somebody else gets it: so no partition ever has two readers (KIP-429).
    """

    name: ClassVar[str] = "cooperative-sticky"
    is_cooperative: ClassVar[bool] = True

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        return _INT32.pack(generation_id)

    def assign(self, counts: PartitionCounts, members: Sequence[MemberSubscription]) -> Assigned:
        claims = [_cooperative_claim(member) for member in members]
        made = assign_sticky(counts, claims)
        for partition, member_id in made.changing_hands.items():
            made.partitions[member_id].remove(partition)
        return made.partitions


def _had(subscription: Subscription) -> tuple[tuple[TopicPartition, ...], int | None]:
    """Partitions and generation in the user data of the sticky assignor; none if unreadable."""
    if not subscription.user_data:
        return (), None
    reader = FieldReader(subscription.user_data)
    try:
        partitions = reader.partitions()
        # The first version of the schema ends here.
        return partitions, reader.int32() if reader.left_bytes else None
    except MalformedFrameError:
        return (), None


def _cooperative_claim(member: MemberSubscription) -> Claim:
    subscription = member.subscription
    generation_id: int | None = subscription.generation_id
    if generation_id == NO_GENERATION:
        # Before version 2 of the subscription, the generation was in the user data.
        data = subscription.user_data or b""
        generation_id = _INT32.unpack_from(data)[0] if len(data) >= _INT32.size else None
    return Claim(
        member.member_id, subscription.topics, subscription.owned_partitions, generation_id
    )


def _rank(member: MemberSubscription) -> tuple[bool, str]:
    return member.rank


def _readers_of(topic: str, members: Sequence[MemberSubscription]) -> list[MemberSubscription]:
    readers = [member for member in members if topic in member.subscription.topics]
    return sorted(readers, key=_rank)


def _partitions(topic: str, indexes: range) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


BY_NAME: Final[Mapping[str, Assignor]] = {
    assignor.name: assignor
    for assignor in (
        RangeAssignor(),
        RoundRobinAssignor(),
        StickyAssignor(),
        CooperativeStickyAssignor(),
    )
}

_JAVA_PREFIX: Final = "org.apache.kafka.clients.consumer."
_JAVA_NAMES: Final = {f"{_JAVA_PREFIX}{type(one).__name__}": one for one in BY_NAME.values()}


def require_assignor(given: str | Assignor) -> Assignor:
    """By its protocol name, or by the name of Java's class; one of the program's own as it is."""
    if not isinstance(given, str):
        if not hasattr(given, "assign"):
            raise wrong_type("assignors", "names, like 'range', or objects of your own", given)
        return given
    found = BY_NAME.get(given) or _JAVA_NAMES.get(given)
    if found is None:
        raise ConfigurationError(
            f"partition.assignment.strategy={given} is not one of {', '.join(BY_NAME)}"
        )
    return found


# Members keep what they had and may still read; what is left goes to the member that has least and
# may read it; then single partitions move until no move makes the result more even. A move prefers
# to undo an earlier one of the same topic, so that partitions do not go around in circles. If all
# the moving gained nothing, it is undone. The steps are those of Kafka's AbstractStickyAssignor.


class PreviousOwner(NamedTuple):
    """Who had a partition in an older generation."""

    member_id: str
    generation: int


class _ByLoad:
    """Members, those with the fewest partitions first, then by id."""

    def __init__(self, loads: Mapping[str, Sequence[TopicPartition]]) -> None:
        self._loads = loads
        self._order = sorted((len(mine), name) for name, mine in loads.items())

    def __iter__(self) -> Iterator[str]:
        return iter([name for _, name in self._order])

    def least(self) -> int:
        return self._order[0][0]

    def most(self) -> int:
        return self._order[-1][0]

    def discard(self, name: str) -> None:
        entry = (len(self._loads[name]), name)
        place = bisect_left(self._order, entry)
        if place < len(self._order) and self._order[place] == entry:
            del self._order[place]

    def add(self, name: str) -> None:
        insort(self._order, (len(self._loads[name]), name))


class _Movements:
    """Which partitions moved from whom to whom, by topic."""

    def __init__(self) -> None:
        self._moved: dict[TopicPartition, tuple[str, str]] = {}

    def add(self, partition: TopicPartition, source: str, target: str) -> None:
        earlier = self._moved.pop(partition, None)
        first_source = source if earlier is None else earlier[0]
        if first_source != target:  # else it is back where it was
            self._moved[partition] = (first_source, target)

    def better_choice(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """A partition of the topic that moved the other way, whose return does as well."""
        if partition in self._moved:
            source = self._moved[partition][0]
        for other, pair in self._moved.items():
            if other.topic == partition.topic and pair == (target, source):
                return other
        return partition


class Balance:
    """One assignment. `owned` is taken over and changed."""

    def __init__(
        self,
        counts: Mapping[str, int],
        topics_of: Mapping[str, Sequence[str]],
        owned: Mapping[str, Sequence[TopicPartition]],
        previous_owners: Mapping[TopicPartition, PreviousOwner],
    ) -> None:
        self._counts = counts
        self._topics_of = {name: frozenset(topics) for name, topics in topics_of.items()}
        self._previous_owners = previous_owners
        self._readers_of: dict[str, list[str]] = {topic: [] for topic in counts}
        for name, topics in topics_of.items():
            for topic in topics:
                self._readers_of[topic].append(name)
        self._assigned = {
            name: [one for one in mine if one.topic in self._topics_of[name]]
            for name, mine in owned.items()
        }
        self._must_revoke = any(len(self._assigned[n]) < len(mine) for n, mine in owned.items())
        self._owner = {one: name for name, mine in self._assigned.items() for one in mine}
        self._movements = _Movements()
        self._by_load = _ByLoad(self._assigned)

    def assign(self) -> dict[str, list[TopicPartition]]:
        nothing_before = not self._by_load.most()
        new = [one for one in self._all_partitions() if one not in self._owner]
        for partition in new:
            self._give_to_least(partition)
        fixed = self._set_fixed_members_aside()
        before = {name: list(mine) for name, mine in self._assigned.items()}
        moved = self._move_until_even(new)
        # Less even than before all this moving is no reason to move.
        if moved and not nothing_before and _unevenness(self._assigned) >= _unevenness(before):
            self._assigned = before
        return {**self._assigned, **fixed}

    def _all_partitions(self) -> list[TopicPartition]:
        """Those with the fewest possible readers first."""
        topics = sorted(self._counts, key=lambda topic: (len(self._readers_of[topic]), topic))
        return [TopicPartition(topic, i) for topic in topics for i in range(self._counts[topic])]

    def _give_to_least(self, partition: TopicPartition) -> None:
        reader = self._find_least_loaded_reader(partition.topic)
        if reader is not None:
            self._by_load.discard(reader)
            self._assigned[reader].append(partition)
            self._owner[partition] = reader
            self._by_load.add(reader)

    def _find_least_loaded_reader(self, topic: str) -> str | None:
        return next((name for name in self._by_load if topic in self._topics_of[name]), None)

    def _set_fixed_members_aside(self) -> dict[str, list[TopicPartition]]:
        """Members that have all they can get, none of which anybody else may read."""
        fixed: dict[str, list[TopicPartition]] = {}
        for name, topics in self._topics_of.items():
            most = sum(self._counts[topic] for topic in topics)
            shared = any(self._is_shared(one) for one in self._assigned[name])
            if len(self._assigned[name]) >= most and not shared:
                self._by_load.discard(name)
                fixed[name] = self._assigned.pop(name)
        return fixed

    def _is_shared(self, partition: TopicPartition) -> bool:
        return len(self._readers_of[partition.topic]) > 1

    def _move_until_even(self, new: Sequence[TopicPartition]) -> bool:
        if not self._assigned:
            return False
        if not self._must_revoke:
            # What was not assigned before can move without anybody having to give it up.
            self._move([one for one in new if self._is_shared(one)])
        return self._move([one for one in self._all_partitions() if self._is_shared(one)])

    def _move(self, partitions: Sequence[TopicPartition]) -> bool:
        moved_any = False
        while True:
            moved = False
            for partition in partitions:
                if self._is_even():
                    break
                moved |= self._maybe_move(partition)
            if not moved:
                return moved_any
            moved_any = True

    def _maybe_move(self, partition: TopicPartition) -> bool:
        load = len(self._assigned[self._owner[partition]])
        previous = self._previous_owners.get(partition)
        if previous is not None and self._would_gain(previous.member_id, partition, load):
            self._move_to(previous.member_id, partition)
            return True
        readers = self._readers_of[partition.topic]
        if not any(self._would_gain(reader, partition, load) for reader in readers):
            return False
        target = self._find_least_loaded_reader(partition.topic)
        if target is not None:
            self._move_to(target, partition)
        return target is not None

    def _would_gain(self, member_id: str, partition: TopicPartition, owner_load: int) -> bool:
        mine = self._assigned.get(member_id)
        may_read = partition.topic in self._topics_of[member_id]
        return mine is not None and may_read and owner_load > len(mine) + 1

    def _move_to(self, target: str, wanted: TopicPartition) -> None:
        partition = self._movements.better_choice(wanted, self._owner[wanted], target)
        source = self._owner[partition]
        self._by_load.discard(source)
        self._by_load.discard(target)
        self._movements.add(partition, source, target)
        self._assigned[source].remove(partition)
        self._assigned[target].append(partition)
        self._owner[partition] = target
        self._by_load.add(target)
        if source != target:
            self._by_load.add(source)

    def _is_even(self) -> bool:
        """No member could take a partition from one that has at least two more."""
        if self._by_load.least() >= self._by_load.most() - 1:
            return True
        heaviest = dict.fromkeys(self._counts, 0)  # of the owners of each topic
        for mine in self._assigned.values():
            for topic in {one.topic for one in mine}:
                heaviest[topic] = max(heaviest[topic], len(mine))
        return not any(
            heaviest[topic] > len(mine) + 1
            for name, mine in self._assigned.items()
            for topic in self._topics_of[name]
        )


def _unevenness(assigned: Mapping[str, Sequence[TopicPartition]]) -> int:
    """The differences of all pairs, added up."""
    loads = sorted(map(len, assigned.values()))
    last = len(loads) - 1
    return sum(load * (2 * place - last) for place, load in enumerate(loads))


# Kafka's sticky assignor goes through its members in that order when it decides who keeps one
# partition more. To come to the same result from the same input, whichever client leads the group,
# the order is computed here: by bucket, and within a bucket as the entries were put.


_FIRST_CAPACITY = 16
_UINT32_MASK = 0xFFFFFFFF


def hash_of(text: str) -> int:
    """`String.hashCode`, unsigned: over UTF-16 units."""
    found = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(raw), 2):
        found = (found * 31 + (raw[position] << 8 | raw[position + 1])) & _UINT32_MASK
    return found


def in_hash_order(names: Iterable[str]) -> list[str]:
    """Names as the keys of a `java.util.HashMap` that was filled in the given order."""
    given = list(dict.fromkeys(names))
    capacity = _FIRST_CAPACITY
    while len(given) > capacity * 3 // 4:
        capacity *= 2

    def bucket_of(name: str) -> int:
        found = hash_of(name)
        return (found ^ found >> 16) & (capacity - 1)

    return sorted(given, key=bucket_of)
