"""A partition's state and its replicas are shown as they were at one moment (META-4).

They are in two nodes. Here a partition is moved, and its in-sync set changed, between any two reads
of a broker: whatever it publishes must have been so in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from moldau.cluster import znodes
from moldau.cluster.metadata_reader import MetadataReader
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.reassignment import is_moving, plan_redirection
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.cluster.state_writer import RETRY_SECONDS
from moldau.coordination.port import Node, Operation, StoreLostError
from moldau.errors import InvariantViolation
from moldau.model import BrokerId, LeaderEpoch, TopicPartition
from moldau.simulation.manual_clock import wait_until_idle

from .stage import Member, Stage, play

CLICKS_0 = TopicPartition("clicks", 0)
Pair = tuple[int, tuple[BrokerId, ...]]


class Mover:
    """Changes the partition by the controller, and remembers what the store has held."""

    def __init__(self, controller: Member, seed: int) -> None:
        self.pairs: set[Pair] = set()
        self.left = 40
        self._controller = controller
        self._random = Random(seed)
        self._is_busy = False
        self.remember()

    def remember(self) -> None:
        self.pairs.add(pair_of(self._controller))

    async def maybe_change(self) -> None:
        """Now and then, and not from within a change of its own."""
        if self._is_busy or not self.left or self._random.random() < 0.5:
            return
        self.left -= 1
        self._is_busy = True
        change = self._random.choice((self._move, self._move, self._shrink))
        await change()
        self.remember()
        self._is_busy = False

    async def _move(self) -> None:
        target = self._random.sample((1, 2, 3), self._random.randint(1, 3))
        await self._controller.admin.alter_reassignments({CLICKS_0: target})

    async def _shrink(self) -> None:
        """As a leader does, or one that takes a replica in."""
        topic = self._controller.topic("clicks")
        state = topic.partitions[0]
        isr = state.replicas if self._random.random() < 0.7 else (state.leader,)
        planned = PlannedState(topic, 0, state, replace(state, isr=isr))
        assert await self._controller.states.write([planned])


def pair_of(member: Member) -> Pair:
    state = member.topic("clicks").partitions[0]
    return state.version, state.replicas


def interleave(member: Member, mover: Mover) -> None:
    """Let the mover act before each node that the member reads."""
    get, get_many = member.session.get, member.session.get_many

    async def interleaved_get(path: str) -> Node | None:
        await mover.maybe_change()
        return await get(path)

    async def interleaved_get_many(paths: Sequence[str]) -> Sequence[Node | None]:
        found: list[Node | None] = []
        for path in paths:
            await mover.maybe_change()
            found += await get_many([path])
        return found

    member.session.get = interleaved_get  # type: ignore[method-assign]
    member.session.get_many = interleaved_get_many  # type: ignore[method-assign]


@pytest.mark.parametrize("seed", range(12))
def test_what_is_published_was_so_at_one_moment(seed: int) -> None:
    async def story(stage: Stage) -> None:
        one, two, three = [await stage.join(broker_id) for broker_id in (1, 2, 3)]
        await one.lead()
        await one.admin.create_topic(TopicSpec(name="clicks", assignments={0: [1, 2, 3]}))
        await wait_until_idle()
        mover = Mover(one, seed)
        interleave(three, mover)
        while mover.left:
            await mover.maybe_change()
            await wait_until_idle()
            await three.publisher.refresh_topics(("clicks",))
        await wait_until_idle()
        shown = {
            (state.version, state.replicas)
            for _, image, _ in three.seen
            for state in (image.topics["clicks"].partitions if "clicks" in image.topics else ())
        }
        assert shown <= mover.pairs
        assert pair_of(three) == pair_of(two) == pair_of(one)

    play(story)


def test_partitions_that_are_added_do_not_undo_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """A move is written after the growth was planned, and before it is written."""

    async def story(stage: Stage) -> None:
        one, *_ = [await stage.join(broker_id) for broker_id in (1, 2, 3)]
        await one.lead()
        await one.admin.create_topic(TopicSpec(name="clicks", assignments={0: [1, 2]}))
        get, moves = one.session.get, [{CLICKS_0: [1]}]

        async def move_first(path: str) -> Node | None:
            if moves and path.endswith("/clicks"):
                assert await one.admin.alter_reassignments(moves.pop()) == {CLICKS_0: None}
            return await get(path)

        monkeypatch.setattr(one.session, "get", move_first)
        grown = await one.admin.create_partitions("clicks", 2)
        assert grown.partitions[0].replicas == (1,)
        assert grown == one.topic("clicks")

    play(story)


@pytest.mark.parametrize("is_heard_of", [False, True])
def test_a_move_whose_answer_was_lost_is_known_under_its_true_version(is_heard_of: bool) -> None:
    """Whether the news of it comes before the second attempt or not, a cancellation is one."""

    async def story(stage: Stage) -> None:
        one, *_ = [await stage.join(broker_id) for broker_id in (1, 2, 3)]
        await one.lead()
        await one.admin.create_topic(TopicSpec(name="clicks", assignments={0: [1, 2]}))
        await one.admin.alter_reassignments({CLICKS_0: [1, 2, 3]})
        await wait_until_idle()
        transact, answers = one.session.transact, [1]

        async def lose_the_answer(operations: Sequence[Operation]) -> Sequence[str]:
            paths = await transact(operations)
            if answers:
                answers.clear()
                raise StoreLostError("nobody answers")
            return paths

        one.session.transact = lose_the_answer  # type: ignore[method-assign]
        if not is_heard_of:
            await one.publisher.stop()
        cancelling = asyncio.create_task(one.admin.alter_reassignments({CLICKS_0: None}))
        await wait_until_idle()
        await stage.clock.advance(2 * RETRY_SECONDS)
        assert await cancelling == {CLICKS_0: None}
        node = await one.session.get(znodes.topic_path("clicks"))
        assert node is not None
        assert one.topic("clicks").version == node.version
        assert one.topic("clicks").partitions[0].replicas == (1, 2)
        assert await one.admin.alter_reassignments({CLICKS_0: [2]}) == {CLICKS_0: None}

    play(story)


def test_a_move_is_not_planned_over_replicas_that_are_older_than_the_node() -> None:
    async def story(stage: Stage) -> None:
        one, two, *_ = [await stage.join(broker_id) for broker_id in (1, 2, 3)]
        await one.lead()
        await one.admin.create_topic(TopicSpec(name="clicks", assignments={0: [1, 2], 1: [1, 2]}))
        await wait_until_idle()
        old = one.topic("clicks")
        assert await one.admin.alter_reassignments({CLICKS_0: [1]}) == {CLICKS_0: None}
        term = one.controllership.require_term()
        state = old.partitions[1]
        moved = replace(state, replicas=(BrokerId(2),), leader_epoch=LeaderEpoch(1))
        assert await one.states.move([PlannedState(old, 1, state, moved)], term=term)
        await wait_until_idle()
        assert [each.replicas for each in two.topic("clicks").partitions] == [(1,), (2,)]

    play(story)


def test_a_move_that_another_overtook_with_the_same_state_has_not_happened() -> None:
    """A broker that comes back with a hole writes the state as it is; so does the move."""

    async def story(stage: Stage) -> None:
        one, two, _ = [await stage.join(broker_id) for broker_id in (1, 2, 3)]
        await one.lead()
        await one.admin.create_topic(TopicSpec(name="clicks", assignments={0: [1, 2]}))
        await wait_until_idle()
        topic = one.topic("clicks")
        state = topic.partitions[0]
        term = one.controllership.require_term()
        begun = PlannedState(topic, 0, state, plan_redirection(state, (BrokerId(2),), (), 0))
        assert await two.states.write([PlannedState(topic, 0, state, state)])
        assert not await one.states.move([begun], term=term)
        assert not is_moving(one.topic("clicks").partitions[0])

    play(story)


def test_a_state_that_a_move_wrote_first_comes_with_the_replicas_of_the_move() -> None:
    """The other way round: the state is as it should be, and the replicas are others (META-4)."""

    async def story(stage: Stage) -> None:
        one, two, _ = [await stage.join(broker_id) for broker_id in (1, 2, 3)]
        await one.lead()
        await one.admin.create_topic(TopicSpec(name="clicks", assignments={0: [1, 2]}))
        await wait_until_idle()
        topic = two.topic("clicks")
        state = topic.partitions[0]
        term = one.controllership.require_term()
        moved = replace(state, replicas=(BrokerId(2), BrokerId(1)))
        assert await one.states.move([PlannedState(topic, 0, state, moved)], term=term)
        assert await two.states.write([PlannedState(topic, 0, state, state)])
        assert pair_of(two) == pair_of(one) == (1, (2, 1))

    play(story)


def test_replicas_do_not_change_under_the_same_epoch_nor_without_their_node() -> None:
    """CTL-3"""

    async def story(stage: Stage) -> None:
        one = await stage.join_and_lead(1)
        await one.admin.create_topic(TopicSpec(name="clicks"))
        topic = one.topic("clicks")
        state = topic.partitions[0]
        moved = replace(state, replicas=(BrokerId(1), BrokerId(2)))
        raised = replace(moved, leader_epoch=LeaderEpoch(state.leader_epoch + 1))
        term = one.controllership.require_term()
        with pytest.raises(InvariantViolation, match="CTL-3"):
            await one.states.move([PlannedState(topic, 0, state, moved)], term=term)
        with pytest.raises(InvariantViolation, match="CTL-3"):
            await one.states.write([PlannedState(topic, 0, state, raised)])
        assert await one.states.move([PlannedState(topic, 0, state, raised)], term=term)

    play(story)


def test_states_that_were_read_during_a_move_and_back_are_not_taken_for_those_before_it() -> None:
    """The topic's node says the same again; only its version tells that it was another."""

    async def story(stage: Stage) -> None:
        one, two, _ = [await stage.join(broker_id) for broker_id in (1, 2, 3)]
        await one.lead()
        await one.admin.create_topic(TopicSpec(name="clicks", assignments={0: [1, 2]}))
        await wait_until_idle()
        known = two.topic("clicks")
        reader, get_many = MetadataReader(two.session), two.session.get_many

        async def read_while_it_moves(paths: Sequence[str]) -> Sequence[Node | None]:
            found: list[Node | None] = []
            for path, replicas in zip(paths, ([2, 1], [1, 2]), strict=True):
                await one.admin.alter_reassignments({CLICKS_0: replicas})
                found += await get_many([path])
            return found

        two.session.get_many = read_while_it_moves  # type: ignore[method-assign]
        assert await reader.read_states([(known, [0])]) == [None]

    play(story)
