"""Members of a group in a simulated cluster: the shipped `AsyncConsumer`, each in its own process.

They share the partitions, read, commit, and go on from what was committed. Now and then one
crashes, is frozen and comes back to what others have meanwhile, or leaves and another one joins;
and commits of a former generation arrive late. `GroupHistory` knows what must not be.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from moldau.client.cluster import ClusterClient
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.consumer.rules.instructions import Identity
from moldau.errors import ClientError, KafkaError
from moldau.model import NO_GENERATION, TopicPartition
from moldau.simulation.clients import (
    ClientSetup,
    OffsetBook,
    RestartedClient,
    call_coordinator,
    commit_values,
    draw_random,
)
from moldau.simulation.virtual_loop import SimulatedProcess
from moldau.wire.apis import OFFSET_COMMIT

if TYPE_CHECKING:
    from kio.schema.offset_commit.v8.response import OffsetCommitResponse


SESSION_MS: Final = 1_000
_POLL_SECONDS: Final = 0.4
_CLOSE_SECONDS: Final = 5.0
_LATE_SHARE: Final = 0.3  # of the naps
_LATE_OFFSET: Final = 0
_COMMIT_VERSION: Final = 8


class _Program:
    """What runs in a member's process: a consumer, and a loop around `poll`."""

    def __init__(
        self,
        member: SimulatedMember,
        process: SimulatedProcess,
        consumer: AsyncConsumer,
        *,
        commits: bool,
    ) -> None:
        self.process = process
        self.is_ending = False
        self._member = member
        self._consumer = consumer
        self._commits = commits  # by hand, else the consumer does
        self.task = process.spawn(self._run())

    async def _run(self) -> None:
        consumer, member = self._consumer, self._member
        while not self.is_ending:
            try:
                for record in await consumer.poll(_POLL_SECONDS):
                    member.see(record)
                if self._commits:
                    await member.commit(consumer)
            except (KafkaError, ClientError):
                continue  # an unreachable cluster at the beginning, a commit in a rebalance
            if not _is_outside(consumer):
                member.progress += 1
                member.see_owned(consumer)
        try:
            await consumer.close(_CLOSE_SECONDS)
        except (KafkaError, ClientError):
            return


class SimulatedMember(RestartedClient[_Program]):
    """One place in a group, and the consumers that have it one after the other."""

    def __init__(
        self,
        setup: ClientSetup,
        *,
        client: ClusterClient,
        group: GroupHistory,
        topic: str,
        assignor: str | None,
        offsets: OffsetBook,
    ) -> None:
        super().__init__(setup)
        self._client = client  # for late requests
        self._group = group
        self._topic = topic
        self._assignor = assignor
        self._book = offsets
        self._next: dict[TopicPartition, int | None] = {}  # None: not known yet
        self._at_least: dict[TopicPartition, int] = {}  # committed as it was assigned
        # As whom it owned what: now, and in the generation before that.
        self._last: tuple[Identity, TopicPartition] | None = None
        self._former: tuple[Identity, TopicPartition] | None = None

    async def _follow_nap(self) -> None:
        if self._former is not None and self._random.random() < _LATE_SHARE:
            await self._commit_late(*self._former)

    def _open_program(self, name: str) -> _Program:
        self._next.clear()
        opened = self._open_process(name)
        by_hand = self._random.random() < 0.5
        identity: list[AsyncConsumer] = []

        def see_assigned(partitions: frozenset[TopicPartition]) -> None:
            self._see_assigned(identity[0], partitions)

        consumer = opened.open_consumer(
            draw_random(self._random),
            group=self._group.name,
            topics=[self._topic],
            commit="manual" if by_hand else "after",
            on_assigned=see_assigned,
            auto_offset_reset="earliest",
            max_poll_interval_ms=2 * SESSION_MS,
            auto_commit_interval_ms=300,
            **self._protocol(),
        )
        identity.append(consumer)
        return _Program(self, opened.process, consumer, commits=by_hand)

    def _protocol(self) -> dict[str, Any]:
        """With the consumer protocol (KIP-848) the brokers have an assignor and time-outs."""
        if self._assignor is None:
            return {"group_protocol": "consumer"}
        return {
            "assignors": [self._assignor],
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": SESSION_MS // 4,
        }

    # What it is told

    def _see_assigned(self, consumer: AsyncConsumer, partitions: frozenset[TopicPartition]) -> None:
        identity = _identity_of(consumer)
        self._group.see_assignment(
            identity.generation_id, identity.member_id, sorted(consumer.assignment)
        )
        if self._last is not None and self._is_outdated(self._last[0], identity):
            self._former = self._last
        if partitions:
            self._last = identity, min(partitions)
        for partition in partitions:
            self._next[partition] = None
            self._at_least[partition] = self._group.position(partition)

    def _is_outdated(self, former: Identity, identity: Identity) -> bool:
        """Whether nobody must take a commit by the former identity. Members of the consumer
        protocol have epochs of their own: one that crashed has its last until its session ends."""
        is_same = former.member_id == identity.member_id
        is_older = former.generation_id < identity.generation_id
        return is_older and (is_same or self._assignor is not None)

    def see(self, record: ConsumerRecord) -> None:
        partition = TopicPartition(record.topic, record.partition)
        self._history.see(partition, record.offset, bytes(record.value or b""))
        expected = self._next.get(partition)
        if expected is None:
            # It begins at what is committed now, be that more than it was when it was assigned.
            self._group.see_position(partition, record.offset, self._at_least[partition])
        self._group.see_record(partition, record.offset, expected)
        self._next[partition] = record.offset + 1

    def see_owned(self, consumer: AsyncConsumer) -> None:
        identity = _identity_of(consumer)
        self._group.see_owned(
            identity.generation_id, identity.member_id, sorted(consumer.assignment)
        )

    async def commit(self, consumer: AsyncConsumer) -> None:
        given = {
            one: next_offset
            for one in sorted(consumer.assignment)
            if (next_offset := self._next.get(one)) is not None
        }
        if not given:
            return
        member_id, before = _identity_of(consumer).member_id, _identity_of(consumer).generation_id
        newest = {one: self._group.newest_of(member_id, one) for one in given}
        await consumer.commit(given)
        generation = max(before, _identity_of(consumer).generation_id)
        for partition, position in given.items():
            self._group.accept_commit(generation, newest[partition], partition, position)
            self._book.require(self._group.name, partition, position, "committed")

    async def _commit_late(self, identity: Identity, partition: TopicPartition) -> None:
        """As a request would that was long under way: nobody must take it."""
        name, newest = self._group.name, self._group.newest_of(identity.member_id, partition)
        if newest <= identity.generation_id:
            return  # a member of the consumer protocol that may have the partition still
        values = commit_values(
            name, identity.member_id, identity.generation_id, partition, _LATE_OFFSET
        )
        try:
            answer = await call_coordinator(
                self._client, name, OFFSET_COMMIT, values, _COMMIT_VERSION
            )
        except (KafkaError, ClientError):
            return
        code = cast("OffsetCommitResponse", answer).topics[0].partitions[0].error_code
        if code.value == 0:
            self._group.accept_commit(identity.generation_id, newest, partition, _LATE_OFFSET)


def _is_outside(consumer: AsyncConsumer) -> bool:
    return _identity_of(consumer).generation_id == NO_GENERATION


def _identity_of(consumer: AsyncConsumer) -> Identity:
    """As whom it commits; users have no need to know."""
    return consumer._delegate.machine.require_membership().identity


# What the members of a simulated group were told, and what must never be told. A rule.
#
# - No two members own a partition in the same generation, and none is told another assignment in a
#   generation than it was told before (GRP-6).
# - A commit of a generation is refused as soon as somebody owns something in a later one (GRP-6).
# - No two members of the consumer protocol own a partition in the same epoch (CGR-1).
# - A commit of a member of the consumer protocol is refused as soon as another member has owned the
#   partition in a later epoch (CGR-5).
# - The same holds for members of a streams group and their tasks (STG-1, STG-2, STG-4).
# - A committed position does not go back: whoever owns a partition goes on from what the last owner
#   has committed, gets every record in its order, and leaves none out (GRP-8).


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
