"""Sticky assignment where members read different topics. A rule.

Members keep what they had and may still read; what is left goes to the member that has least and
may read it; then single partitions move until no move makes the result more even. A move prefers
to undo an earlier one of the same topic, so that partitions do not go around in circles. If all
the moving gained nothing, it is undone. The steps are those of Kafka's AbstractStickyAssignor.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from moldau.model import TopicPartition


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
