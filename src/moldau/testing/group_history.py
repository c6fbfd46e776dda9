"""What the members of a simulated group were told, and what must never be told. A rule.

- No two members own a partition in the same generation, and none is told another assignment in a
  generation than it was told before (GRP-6).
- A commit of a generation is refused as soon as somebody owns something in a later one (GRP-6).
- No two members of the consumer protocol own a partition in the same epoch (CGR-1).
- A commit of a member of the consumer protocol is refused as soon as another member has owned the
  partition in a later epoch (CGR-5).
- The same holds for members of a streams group and their tasks (STG-1, STG-2, STG-4).
- A committed position does not go back: whoever owns a partition goes on from what the last owner
  has committed, gets every record in its order, and leaves none out (GRP-8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from moldau.model import TopicPartition


@dataclass(slots=True)
class _Generation:
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    told: dict[str, tuple[TopicPartition, ...]] = field(default_factory=dict)  # by member


class GroupHistory:
    """Of one group. `report(rule, text)` hears of what must not be."""

    _late_commits = "GRP-6"  # the rule that a late commit breaks

    def __init__(self, name: str, report: Callable[[str, str], None]) -> None:
        self.name = name
        self.newest_generation = -1  # in which somebody owns something
        self.generations_seen = 0
        self._report = report
        self._generations: dict[int, _Generation] = {}
        self._positions: dict[TopicPartition, int] = {}  # the highest that was told of
        self._seen_ends: dict[TopicPartition, int] = {}  # behind what any member was given

    def see_assignment(
        self, generation: int, member_id: str, partitions: Sequence[TopicPartition]
    ) -> None:
        """A member was told what it owns: from now on the generation is there to stay.

        One that members have joined may be lost with its coordinator, as long as nobody owns
        anything in it.
        """
        self.newest_generation = max(self.newest_generation, generation)
        if generation not in self._generations:
            self._generations[generation] = _Generation()
            self.generations_seen += 1
        known = self._generations[generation]
        told = tuple(sorted(partitions))
        if known.told.setdefault(member_id, told) != told:
            self._report(
                "GRP-6",
                f"{member_id} of {self.name} owned {known.told[member_id]} in generation "
                f"{generation}, and owns {told} now",
            )
        for partition in told:
            owner = known.owners.setdefault(partition, member_id)
            if owner != member_id:
                self._report(
                    "GRP-6",
                    f"both {owner} and {member_id} own {partition} in generation {generation} of "
                    f"{self.name}",
                )

    def see_owned(
        self, generation: int, member_id: str, partitions: Sequence[TopicPartition]
    ) -> None:
        """What a member owns, from time to time. In a generation that does not change."""

    def newest_of(self, member_id: str, partition: TopicPartition) -> int:
        """The generation before which no commit of the member may be taken from now on."""
        return self.newest_generation

    def accept_commit(
        self, generation: int, newest_when_sent: int, partition: TopicPartition, position: int
    ) -> None:
        """A commit was answered with a success; which generation was known when it was sent?"""
        if newest_when_sent > generation:
            self._report(
                self._late_commits,
                f"{self.name} took position {position} in {partition} from generation {generation} "
                f"after generation {newest_when_sent} had begun",
            )
        # An answer may be late: a later owner may have committed more meanwhile.
        self._positions[partition] = max(self._positions.get(partition, -1), position)

    def see_position(self, partition: TopicPartition, position: int, at_least: int) -> None:
        """A position was read; `at_least` was known before it was asked for."""
        if position < at_least:
            self._report(
                "GRP-8",
                f"the position of {self.name} in {partition} was {at_least}, and {position} is "
                "shown",
            )
        self._positions[partition] = max(self._positions.get(partition, -1), position)

    def see_record(self, partition: TopicPartition, offset: int, expected: int | None) -> None:
        """A member was given a record; `expected` is None for its first of a partition."""
        end = self._seen_ends.get(partition, 0)
        if expected is not None and offset != expected:
            self._report(
                "GRP-8",
                f"a member of {self.name} was given {offset} of {partition} where {expected} is "
                "next",
            )
        elif offset > end:
            self._report(
                "GRP-8",
                f"a member of {self.name} begins at {offset} of {partition}, and nobody was given "
                f"{end}",
            )
        self._seen_ends[partition] = max(end, offset + 1)

    def position(self, partition: TopicPartition) -> int:
        """The highest that any member was told of."""
        return self._positions.get(partition, -1)


class ConsumerGroupHistory(GroupHistory):
    """Of a group of the consumer protocol (KIP-848). Its members have epochs of their own, in which
    they may be given more. They commit in an older one in partitions that they still have, so a
    commit is measured by what others have owned (CGR-5)."""

    _late_commits = "CGR-5"
    _two_owners = "CGR-1"
    _epoch_back = "CGR-2"

    def __init__(self, name: str, report: Callable[[str, str], None]) -> None:
        super().__init__(name, report)
        self._epochs: dict[str, int] = {}  # of members
        self._owners: dict[tuple[TopicPartition, int], str] = {}  # by partition and member's epoch
        self._last_epochs: dict[TopicPartition, dict[str, int]] = {}  # of owners

    def see_assignment(
        self, generation: int, member_id: str, partitions: Sequence[TopicPartition]
    ) -> None:
        if generation > self.newest_generation:
            self.newest_generation = generation
            self.generations_seen += 1
        before = self._epochs.get(member_id, generation)
        if generation < before:
            self._report(
                self._epoch_back,
                f"{member_id} of {self.name} was in epoch {before}, and is in {generation}",
            )
        self._epochs[member_id] = max(before, generation)
        self.see_owned(generation, member_id, partitions)

    def see_owned(
        self, generation: int, member_id: str, partitions: Sequence[TopicPartition]
    ) -> None:
        """Who has come to an epoch has given up what is another's in it; so no two own a partition
        in the same one (CGR-1)."""
        for partition in partitions:
            last = self._last_epochs.setdefault(partition, {})
            last[member_id] = max(last.get(member_id, -1), generation)
            owner = self._owners.setdefault((partition, generation), member_id)
            if owner != member_id:
                self._report(
                    self._two_owners,
                    f"both {owner} and {member_id} of {self.name} own {partition} in epoch "
                    f"{generation}",
                )

    def newest_of(self, member_id: str, partition: TopicPartition) -> int:
        owners = self._last_epochs.get(partition, {})
        return max((epoch for owner, epoch in owners.items() if owner != member_id), default=-1)


class StreamsGroupHistory(ConsumerGroupHistory):
    """Of a streams group (KIP-1071): a task takes the place of a partition. Members tell of every
    answer, so that more can be said: nobody is given what a member has that is one still (STG-1).
    """

    _late_commits = "STG-4"
    _two_owners = "STG-1"
    _epoch_back = "STG-2"

    def __init__(self, name: str, report: Callable[[str, str], None]) -> None:
        super().__init__(name, report)
        # When a member has asked, and was told that it has a task: the last time of each.
        self._given: dict[TopicPartition, dict[str, tuple[float, float]]] = {}

    def give(
        self, member_id: str, tasks: Collection[TopicPartition], asked_at: float, now: float
    ) -> None:
        """The member did not have these before."""
        for task in tasks:
            self._given.setdefault(task, {})[member_id] = asked_at, now

    def see_member(
        self, member_id: str, tasks: Collection[TopicPartition], asked_at: float
    ) -> None:
        """It had these as it asked, and heard that it is a member."""
        for task in tasks:
            given = self._given[task]
            _, since = given[member_id]
            for other, (other_asked_at, other_since) in given.items():
                if since < other_asked_at and other_since <= asked_at:
                    self._report(
                        "STG-1",
                        f"{member_id} of {self.name} has {task} since {since:.3f} and is a member "
                        f"at {asked_at:.3f}, and {other} was given it at {other_since:.3f}",
                    )
