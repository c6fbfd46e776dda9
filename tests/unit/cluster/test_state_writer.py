"""Partition states are written by compare-and-set, and what became of a write is always known."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from moldau.cluster import znodes
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.coordination.port import Operation, SessionExpiredError, StoreLostError
from moldau.errors import InvariantViolation, NotControllerError
from moldau.model import BrokerId, LeaderEpoch
from moldau.simulation.manual_clock import wait_until_idle

from .stage import Member, Stage, play

Transact = Callable[[Sequence[Operation]], Awaitable[Sequence[str]]]


async def three(stage: Stage, partitions: int = 1) -> list[Member]:
    members = [await stage.join_and_lead(1), await stage.join(2), await stage.join(3)]
    await wait_until_idle()
    await members[0].admin.create_topic(
        TopicSpec(name="clicks", partition_count=partitions, replication_factor=3)
    )
    await wait_until_idle()
    return members


def isr_change(member: Member, *isr: int, partition: int = 0) -> PlannedState:
    topic = member.topic("clicks")
    former = topic.partitions[partition]
    state = replace(former, isr=tuple(BrokerId(broker) for broker in isr))
    return PlannedState(topic, partition, former, state)


def stored_isr(stage: Stage, partition: int = 0) -> list[int]:
    entry = stage.store.find(znodes.partition_state_path("clicks", partition))
    assert entry is not None
    isr = json.loads(entry.node.data)["isr"]
    assert isinstance(isr, list)
    return isr


def isr_of(member: Member, partition: int = 0) -> tuple[int, ...]:
    return member.topic("clicks").partitions[partition].isr


async def told_late(stage: Stage, work: Awaitable[bool]) -> bool:
    """Wait for work that pauses between its attempts."""
    task = asyncio.ensure_future(work)
    for _ in range(20):
        await wait_until_idle()
        if task.done():
            break
        await stage.clock.advance(1.0)
    return await task


def losing_answers(
    monkeypatch: pytest.MonkeyPatch, member: Member, *, times: int, arrives: bool
) -> list[int]:
    """The first `times` transactions end with a lost connection, having happened or not."""
    original: Transact = member.session.transact
    lost: list[int] = []

    async def transact(operations: Sequence[Operation]) -> Sequence[str]:
        if len(lost) < times:
            lost.append(len(operations))
            if arrives:
                with contextlib.suppress(Exception):
                    await original(operations)
            raise StoreLostError("nobody answers")
        return await original(operations)

    monkeypatch.setattr(member.session, "transact", transact)
    return lost


def test_a_written_state_is_published_here_and_heard_of_elsewhere() -> None:
    async def story(stage: Stage) -> None:
        first, second, _ = await three(stage)
        assert await second.states.write([isr_change(second, 1, 2)])
        assert isr_of(second) == (1, 2)
        assert second.topic("clicks").partitions[0].version == 1
        await wait_until_idle()
        assert first.topic("clicks") == second.topic("clicks")

    play(story)


def test_who_was_overtaken_has_written_nothing_and_knows_what_is_there() -> None:
    async def story(stage: Stage) -> None:
        first, second, _ = await three(stage)
        late = isr_change(second, 1, 3)
        assert await first.states.write([isr_change(first, 1, 2)])
        assert not await second.states.write([late])
        assert isr_of(second) == (1, 2)
        assert stored_isr(stage) == [1, 2]

    play(story)


def test_one_state_that_was_overtaken_keeps_the_others_of_its_transaction_back() -> None:
    async def story(stage: Stage) -> None:
        first, second, _ = await three(stage, partitions=2)
        plan = [isr_change(second, 2, 3, partition=1), isr_change(second, 1, 3)]
        assert await first.states.write([isr_change(first, 1, 2)])
        assert await second.states.find_overtaken(plan) == plan
        assert stored_isr(stage, 1) == [2, 3, 1]

    play(story)


@pytest.mark.parametrize("arrives", [True, False])
def test_a_lost_answer_is_asked_for_until_it_is_known(
    monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    async def story(stage: Stage) -> None:
        _, second, third = await three(stage)
        lost = losing_answers(monkeypatch, second, times=3, arrives=arrives)
        assert await told_late(stage, second.states.write([isr_change(second, 1, 2)]))
        assert len(lost) == 3
        assert (isr_of(second), stored_isr(stage)) == ((1, 2), [1, 2])
        assert second.topic("clicks").partitions[0].version == 1
        await wait_until_idle()
        assert isr_of(third) == (1, 2)

    play(story)


def test_a_store_that_cannot_be_written_for_long_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its disk may be full, and so may be the one that the log of the broker is on."""

    async def story(stage: Stage) -> None:
        _, second, _ = await three(stage)
        lost = losing_answers(monkeypatch, second, times=15, arrives=False)
        assert await told_late(stage, second.states.write([isr_change(second, 1, 2)]))
        assert len(lost) == 15

    with caplog.at_level(logging.WARNING):
        play(story)
    assert caplog.text.count("writing partition states again") == 1


def test_a_lost_answer_of_a_write_that_another_wrote_over_counts_as_overtaken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Stage) -> None:
        first, second, _ = await three(stage)
        losing_answers(monkeypatch, second, times=1, arrives=True)
        writing = asyncio.ensure_future(second.states.write([isr_change(second, 1, 2)]))
        await wait_until_idle()
        assert isr_of(first) == (1, 2)
        assert await first.states.write([isr_change(first, 1)])
        assert not await told_late(stage, writing)
        assert isr_of(second) == (1,)

    play(story)


def test_the_end_of_the_session_is_no_answer() -> None:
    async def story(stage: Stage) -> None:
        _, second, _ = await three(stage)
        planned = isr_change(second, 1, 2)
        second.session.expire()
        with pytest.raises(SessionExpiredError):
            await second.states.write([planned])

    play(story)


def test_what_was_planned_in_a_session_that_is_over_is_not_written_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the store was set back meanwhile, the version may be that of another state (DEL-2)."""

    async def story(stage: Stage) -> None:
        _, second, _ = await three(stage)
        plan = [isr_change(second, 1, 2)]
        losing_answers(monkeypatch, second, times=1, arrives=False)
        writing = asyncio.ensure_future(second.states.write(plan))
        await wait_until_idle()
        second.session.expire()
        await second.session.renew()
        with pytest.raises(SessionExpiredError, match="session that is over"):
            await told_late(stage, writing)
        assert stored_isr(stage) == [1, 2, 3]

    play(story)


def test_a_controller_whose_term_is_over_writes_nothing() -> None:
    async def story(stage: Stage) -> None:
        first, second, _ = await three(stage)
        term = first.controllership.require_term()
        await second.session.delete("/controller")
        assert await second.controllership.claim() is not None
        with pytest.raises(NotControllerError):
            await first.states.write([isr_change(first, 1, 2)], term=term)
        assert stored_isr(stage) == [1, 2, 3]

    play(story)


def test_a_large_plan_is_written_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.cluster.state_writer.MAX_WRITE_BYTES", 1800)

    async def story(stage: Stage) -> None:
        _, second, _ = await three(stage, partitions=7)
        sizes: list[int] = []
        original = second.session.transact

        async def transact(operations: Sequence[Operation]) -> Sequence[str]:
            sizes.append(len(operations))
            return await original(operations)

        monkeypatch.setattr(second.session, "transact", transact)
        leaders = [state.leader for state in second.topic("clicks").partitions]
        plan = [isr_change(second, leaders[n], partition=n) for n in range(7)]
        assert await second.states.write(plan)
        assert sizes == [6, 6, 4]  # with a notification each, and a look at the topic's life
        assert [isr_of(second, number) for number in range(7)] == [(leader,) for leader in leaders]

    play(story)


def test_a_state_of_a_deleted_topic_is_not_written_into_one_made_again_under_its_name() -> None:
    async def story(stage: Stage) -> None:
        controller, leader, _ = await three(stage)
        late = isr_change(leader, 1, 2)
        await controller.admin.delete_topic("clicks")
        spec = TopicSpec(name="clicks", partition_count=1, replication_factor=3)
        await controller.admin.create_topic(spec)
        assert late.former.version == controller.topic("clicks").partitions[0].version
        assert not await leader.states.write([late])
        assert stored_isr(stage) == [1, 2, 3]
        await wait_until_idle()
        assert await leader.states.write([isr_change(leader, 1, 2)])
        assert await stage.store.session().children(znodes.DELETED_TOPICS)

    play(story)


def test_a_published_state_never_goes_back_to_an_older_one() -> None:
    async def story(stage: Stage) -> None:
        first, _, _ = await three(stage)
        old = first.topic("clicks")
        assert await first.states.write([isr_change(first, 1, 2)])
        first.publisher.apply_topics((old,))
        assert isr_of(first) == (1, 2)
        moved: PartitionState = replace(old.partitions[0], replicas=(BrokerId(1), BrokerId(4)))
        first.publisher.apply_topics((replace(old, partitions=(moved,)),))
        assert isr_of(first) == (1, 2)
        assert first.topic("clicks").partitions[0].replicas == (1, 2, 3)  # META-4

    play(story)


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({"leader": BrokerId(2), "isr": (BrokerId(2),)}, "REP-1"),
        ({"leader_epoch": LeaderEpoch(-1)}, "REP-1"),
        ({"isr": (BrokerId(2), BrokerId(3))}, "CTL-2"),
        ({"leader": BrokerId(4), "leader_epoch": LeaderEpoch(1)}, "CTL-2"),
    ],
    ids=["two leaders of one epoch", "an epoch that falls", "a leader out of sync", "a stranger"],
)
def test_a_state_that_breaks_the_rules_is_not_written(changes: dict[str, Any], number: str) -> None:
    async def story(stage: Stage) -> None:
        first, _, _ = await three(stage)
        topic = first.topic("clicks")
        former = topic.partitions[0]
        assert (former.leader, former.leader_epoch) == (1, 0)
        planned = PlannedState(topic, 0, former, replace(former, **changes))
        with pytest.raises(InvariantViolation, match=number):
            await first.states.write([planned])
        assert stored_isr(stage) == [1, 2, 3]

    play(story)
