"""Who reads what in a consumer group: the assignors that the coordinator offers (KIP-848). A rule.

uniform    everybody gets as much as the others, within what they want; whoever has something keeps
           it as far as that allows
range      the partitions of each topic in contiguous ranges by the order of members, so that the
           same partitions of several topics come together at one member

Both prefer, among choices that are as good otherwise, a member in a rack that has a replica of the
partition. They are deterministic: the same members, topics and former targets give the same answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from moldau.groups.rules.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    partitions_of,
)

NO_RACKS: Final[frozenset[str]] = frozenset()


class AssignableTopic(NamedTuple):
    """A topic that somebody wants."""

    topic_id: UUID
    partition_count: int
    racks: Sequence[frozenset[str]] = ()  # that have a replica, by partition; empty: not known

    def racks_of(self, partition: int) -> frozenset[str]:
        return self.racks[partition] if self.racks else NO_RACKS


class AssignableMember(NamedTuple):
    """A member, with what it wants and what it was to get before."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    topics: Collection[UUID]
    former: AssignedPartitions = NO_PARTITIONS

    @property
    def place(self) -> tuple[bool, str]:
        """In the order of members: a static one keeps its place when it comes back."""
        if self.instance_id is not None:
            return False, self.instance_id
        return True, self.member_id


Targets = dict[str, AssignedPartitions]
"""By member id."""

ServerAssignor = Callable[[Sequence[AssignableMember], Mapping[UUID, AssignableTopic]], Targets]

_Partition = tuple[UUID, int]


def assign_uniformly(
    members: Sequence[AssignableMember], topics: Mapping[UUID, AssignableTopic]
) -> Targets:
    return _Uniform(members, topics).assign()


class _Uniform:
    """One assignment in the making. Loads differ by at most one between members that want the
    same topics; where they want different ones, no single move would make them more alike."""

    def __init__(
        self, members: Sequence[AssignableMember], topics: Mapping[UUID, AssignableTopic]
    ) -> None:
        self._members = sorted(members, key=lambda member: member.place)
        self._topics = topics
        self._wanting: dict[UUID, list[int]] = {}  # places of members, by topic
        self._given: list[dict[UUID, set[int]]] = [{} for _ in self._members]
        self._loads = [0] * len(self._members)
        self._find_wanting()

    def _find_wanting(self) -> None:
        """One list for all topics that the same members want: most groups need only one."""
        alike: dict[frozenset[UUID], list[int]] = {}
        for place, member in enumerate(self._members):
            alike.setdefault(frozenset(member.topics), []).append(place)
        wishes: dict[UUID, list[int]] = {}  # numbers of the wishes that a topic is in
        for number, wish in enumerate(alike):
            for topic_id in wish:
                if topic_id in self._topics:
                    wishes.setdefault(topic_id, []).append(number)
        places = list(alike.values())
        joined: dict[tuple[int, ...], list[int]] = {}
        for topic_id, numbers in wishes.items():
            key = tuple(numbers)
            if key not in joined:
                joined[key] = sorted(place for number in key for place in places[number])
            self._wanting[topic_id] = joined[key]

    def assign(self) -> Targets:
        self._keep(self._most_each())
        self._spread(self._left_over())
        self._even_out()
        return {
            member.member_id: {
                topic_id: frozenset(some) for topic_id, some in given.items() if some
            }
            for member, given in zip(self._members, self._given, strict=True)
        }

    def _most_each(self) -> int:
        """More than this nobody needs to keep, if all want the same; else it is no limit."""
        total = sum(self._topics[topic_id].partition_count for topic_id in self._wanting)
        is_alike = all(len(wanting) == len(self._members) for wanting in self._wanting.values())
        return -(-total // len(self._members)) if is_alike and self._members else total

    def _keep(self, most: int) -> None:
        taken: set[_Partition] = set()
        for place, member in enumerate(self._members):
            for topic_id in sorted(member.former, key=lambda one: one.int):
                topic = self._topics.get(topic_id)
                if topic is None or topic_id not in member.topics:
                    continue
                for partition in sorted(member.former[topic_id]):
                    is_there = partition < topic.partition_count
                    if (
                        self._loads[place] < most
                        and is_there
                        and (topic_id, partition) not in taken
                    ):
                        taken.add((topic_id, partition))
                        self._give(place, topic_id, partition)

    def _left_over(self) -> list[_Partition]:
        """What nobody has; first the topics that few want."""
        held: dict[UUID, set[int]] = {}
        for given in self._given:
            for topic_id, some in given.items():
                held.setdefault(topic_id, set()).update(some)
        order = sorted(self._wanting, key=lambda one: (len(self._wanting[one]), one.int))
        return [
            (topic_id, partition)
            for topic_id in order
            for partition in range(self._topics[topic_id].partition_count)
            if partition not in held.get(topic_id, ())
        ]

    def _spread(self, partitions: Sequence[_Partition]) -> None:
        """Each to the one with the least; with racks, to the one with the least in the rack, if
        that has not more than another."""
        heaps: dict[int, list[tuple[int, int]]] = {}  # by the identity of the list of members
        for topic_id, partition in partitions:
            wanting = self._wanting[topic_id]
            heap = heaps.get(id(wanting))
            if heap is None:
                heap = heaps[id(wanting)] = [(self._loads[place], place) for place in wanting]
                heapq.heapify(heap)
            load, place = heapq.heappop(heap)
            while load != self._loads[place]:  # it got something of another topic since
                load, place = heapq.heappushpop(heap, (self._loads[place], place))
            near = self._find_near(topic_id, partition, load)
            chosen = place if near is None else near
            self._give(chosen, topic_id, partition)
            heapq.heappush(heap, (self._loads[place], place))

    def _find_near(self, topic_id: UUID, partition: int, load: int) -> int | None:
        """A member with this load in a rack of the partition."""
        racks = self._topics[topic_id].racks_of(partition)
        if not racks:
            return None
        for place in self._wanting[topic_id]:
            if self._loads[place] == load and self._members[place].rack_id in racks:
                return place
        return None

    def _even_out(self) -> None:
        """Take from those who have two more than another who wants it, until there is nobody."""
        while self._move_some():
            pass

    def _move_some(self) -> bool:
        by_load = sorted(range(len(self._members)), key=lambda place: (self._loads[place], place))
        for receiver in by_load:
            wanted = self._members[receiver].topics
            for giver in reversed(by_load):
                if self._loads[giver] < self._loads[receiver] + 2:
                    break
                for topic_id, some in self._given[giver].items():
                    if topic_id in wanted and some:
                        self._move(giver, receiver, topic_id)
                        return True
        return False

    def _move(self, giver: int, receiver: int, topic_id: UUID) -> None:
        """As many as make the two alike."""
        some = self._given[giver][topic_id]
        rack = self._members[receiver].rack_id
        topic = self._topics[topic_id]
        count = (self._loads[giver] - self._loads[receiver]) // 2
        order = sorted(some, key=lambda one: (rack in topic.racks_of(one), one))
        for partition in order[-count:]:
            some.discard(partition)
            self._loads[giver] -= 1
            self._give(receiver, topic_id, partition)

    def _give(self, place: int, topic_id: UUID, partition: int) -> None:
        self._given[place].setdefault(topic_id, set()).add(partition)
        self._loads[place] += 1


def assign_ranges(
    members: Sequence[AssignableMember], topics: Mapping[UUID, AssignableTopic]
) -> Targets:
    ordered = sorted(members, key=lambda member: member.place)
    given: dict[str, list[_Partition]] = {member.member_id: [] for member in members}
    for topic in topics.values():
        wanting = [member for member in ordered if topic.topic_id in member.topics]
        if wanting:
            for member_id, partitions in _ranges(wanting, topic):
                given[member_id] += ((topic.topic_id, partition) for partition in partitions)
    return {member_id: partitions_of(pairs) for member_id, pairs in given.items()}


def _ranges(
    members: Sequence[AssignableMember], topic: AssignableTopic
) -> list[tuple[str, list[int]]]:
    """The first members get one more, where it does not come out even."""
    least, more = divmod(topic.partition_count, len(members))
    rooms = [least + (place < more) for place in range(len(members))]
    taken: list[list[int]] = [[] for _ in members]
    left = list(range(topic.partition_count))
    if any(topic.racks) and any(member.rack_id for member in members):
        left = _take_near(members, topic, rooms, taken)
    rest = iter(left)
    for some, room in zip(taken, rooms, strict=True):
        some += [next(rest) for _ in range(room - len(some))]
    return [(member.member_id, some) for member, some in zip(members, taken, strict=True)]


def _take_near(
    members: Sequence[AssignableMember],
    topic: AssignableTopic,
    rooms: Sequence[int],
    taken: Sequence[list[int]],
) -> list[int]:
    """Gives partitions to members in their racks, in order; returns what is left."""
    left = []
    for partition in range(topic.partition_count):
        racks = topic.racks_of(partition)
        for place, member in enumerate(members):
            if member.rack_id in racks and len(taken[place]) < rooms[place]:
                taken[place].append(partition)
                break
        else:
            left.append(partition)
    return left


ASSIGNORS: Final[Mapping[str, ServerAssignor]] = {
    "uniform": assign_uniformly,
    "range": assign_ranges,
}
