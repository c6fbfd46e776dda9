"""Even assignments that move as little as possible: the heart of both sticky assignors. A rule.

Where all members read the same topics, everyone gets the floor or the ceiling of the average and
keeps what it had within that (below). Where they do not, partitions are given to whoever has
least and may read them, and then moved until no move makes the result more even
(`sticky_balance`). The steps, and with them the results, are those of Kafka's
AbstractStickyAssignor without racks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from moldau.client.rules.java_order import in_hash_order
from moldau.client.rules.sticky_balance import Balance, PreviousOwner
from moldau.errors import InvariantViolation
from moldau.model import TopicPartition

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
