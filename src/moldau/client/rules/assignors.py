"""Who of a group reads what: the assignors of Kafka's consumers, with the same results. A rule.

The leader of a group runs one of these, and any client may be the leader. So for the same members
and topics the result is that of Java's classes: RangeAssignor, RoundRobinAssignor, StickyAssignor
and CooperativeStickyAssignor. Racks are not looked at (Java's look at them when both the consumers
and the replicas have some).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol

from moldau.client.rules.arguments import wrong_type
from moldau.client.rules.sticky_assignment import Claim, assign_sticky
from moldau.errors import ConfigurationError, MalformedFrameError
from moldau.model import NO_GENERATION, TopicPartition
from moldau.wire.consumer_protocol import FieldReader, Subscription, encode_partitions

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
