"""Eligible leaders and unclean recovery, as the controller and the brokers keep them."""

from __future__ import annotations

import asyncio
import logging

import pytest

from moldau.cluster.elections import Answers, Questions
from moldau.cluster.rules.broker_shutdown import ReplicaCondition
from moldau.cluster.rules.leader_election import LogEnd
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.errors import ElectionNotNeededError
from moldau.model import NO_BROKER, BrokerId, TopicPartition
from moldau.simulation.manual_clock import wait_until_idle

from .stage import Member, Stage, play

CLICKS_0 = TopicPartition("clicks", 0)
BALANCED = {"recovery": "balanced"}
AGGRESSIVE = {"recovery": "aggressive"}


async def make(member: Member, *replicas: int, configs: dict[str, str] | None = None) -> None:
    spec = TopicSpec(name="clicks", assignments={0: list(replicas)}, configs=configs or {})
    await member.admin.create_topic(spec)
    await wait_until_idle()


async def kill(member: Member) -> None:
    member.session.expire()
    await wait_until_idle()


async def back(
    stage: Stage, broker_id: int, condition: ReplicaCondition, **options: object
) -> Member:
    member = await stage.join(broker_id, min_in_sync=2, condition=condition, **options)
    await member.serve()
    await wait_until_idle()
    return member


def state_of(member: Member) -> PartitionState:
    return member.topic("clicks").partitions[0]


def sets_of(member: Member) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    state = state_of(member)
    return state.leader, state.isr, state.elr, state.last_known_elr


# Eligible leaders


def test_who_dies_while_too_few_stay_is_eligible_and_stays_so_over_a_clean_restart() -> None:
    async def story(stage: Stage) -> None:
        one, two, _ = await stage.cluster(1, 2, 3, min_in_sync=2)
        await make(one, 2, 3)
        await kill(two)
        assert sets_of(one) == (3, (3,), (2,), ())
        await back(stage, 2, ReplicaCondition.WHOLE)
        assert sets_of(one) == (3, (3,), (2,), ())

    play(story)


def test_who_comes_back_with_a_hole_is_not_eligible_any_more() -> None:
    async def story(stage: Stage) -> None:
        one, two, _ = await stage.cluster(1, 2, 3, min_in_sync=2)
        await make(one, 2, 3)
        await kill(two)
        await back(stage, 2, ReplicaCondition.HOLE)
        assert sets_of(one) == (3, (3,), (), (2,))

    play(story)


@pytest.mark.parametrize("first", [3, 4])
def test_one_is_killed_and_the_other_loses_power_and_the_killed_one_leads(first: int) -> None:
    async def story(stage: Stage) -> None:
        one, three, four = await stage.cluster(1, 3, 4, min_in_sync=2)
        await make(one, 3, 4)
        await kill(three)
        await kill(four)
        assert sets_of(one) == (NO_BROKER, (4,), (3,), ())
        assert state_of(one).last_known_leader == 4
        conditions = {3: ReplicaCondition.WHOLE, 4: ReplicaCondition.HOLE}
        await back(stage, first, conditions.pop(first))
        ((second, condition),) = conditions.items()
        await back(stage, second, condition)
        assert sets_of(one) == (3, (3,), (), (4,))

    play(story)


def test_an_eligible_one_that_lives_leads_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        one, two, three = await stage.cluster(1, 2, 3, min_in_sync=2)
        await make(one, 2, 3)
        await kill(two)
        await back(stage, 2, ReplicaCondition.WHOLE)
        with caplog.at_level(logging.INFO):
            await kill(three)
        assert sets_of(one) == (2, (2,), (3,), ())

    play(story)
    assert "clicks-0: broker 2 leads, which is eligible" in caplog.text


# Recovery


async def lose_power(stage: Stage, recovery: dict[str, str], logs: dict[int, LogEnd]) -> Member:
    """Three replicas lose power at once; the controller, a fourth broker, does not."""
    one, two, three, four = await stage.cluster(1, 2, 3, 4, min_in_sync=2, logs=logs)
    await make(one, 2, 3, 4, configs=recovery)
    for member in (two, three, four):
        member.session.expire()
    await wait_until_idle()
    assert sets_of(one)[:2] == (NO_BROKER, (2, 3, 4))
    return one


def test_balanced_waits_for_all_and_elects_the_best_log(caplog: pytest.LogCaptureFixture) -> None:
    logs = {2: LogEnd(0, 7), 3: LogEnd(0, 9), 4: LogEnd(0, 8)}

    async def story(stage: Stage) -> None:
        one = await lose_power(stage, BALANCED, logs)
        await back(stage, 2, ReplicaCondition.HOLE)
        await back(stage, 4, ReplicaCondition.HOLE)
        assert sets_of(one) == (NO_BROKER, (3,), (), (2, 4))
        await back(stage, 3, ReplicaCondition.HOLE)
        assert sets_of(one) == (3, (3,), (), ())

    with caplog.at_level(logging.WARNING):
        play(story)
    assert "clicks-0: unclean election by the balanced strategy: broker 3 leads" in caplog.text
    assert "2 (epoch 0, end 7), 3 (epoch 0, end 9), 4 (epoch 0, end 8)" in caplog.text


def test_balanced_asks_again_until_all_have_answered() -> None:
    logs = {2: LogEnd(0, 7), 3: LogEnd(0, 9)}

    async def story(stage: Stage) -> None:
        one = await lose_power(stage, BALANCED, logs)
        for broker in (2, 3, 4):
            await back(stage, broker, ReplicaCondition.HOLE)
        await stage.clock.advance(2)
        assert sets_of(one) == (NO_BROKER, (), (), (2, 3, 4))
        logs[4] = LogEnd(0, 11)
        await stage.clock.advance(40)
        await wait_until_idle()
        assert sets_of(one) == (4, (4,), (), ())

    play(story)


def test_without_a_strategy_a_person_is_waited_for_who_gets_the_best_log() -> None:
    logs = {2: LogEnd(0, 7), 3: LogEnd(0, 7), 4: LogEnd(1, 3)}

    async def story(stage: Stage) -> None:
        one = await lose_power(stage, {}, logs)
        for broker in (2, 3, 4):
            await back(stage, broker, ReplicaCondition.HOLE)
        await stage.clock.advance(60)
        assert sets_of(one) == (NO_BROKER, (), (), (2, 3, 4))
        outcomes = await one.admin.elect_leaders([CLICKS_0], unclean=True)
        assert outcomes == {CLICKS_0: None}
        assert sets_of(one) == (4, (4,), (), ())
        outcomes = await one.admin.elect_leaders([CLICKS_0], unclean=True)
        assert isinstance(outcomes[CLICKS_0], ElectionNotNeededError)

    play(story)


def test_a_person_gets_the_first_living_replica_when_nobody_answers() -> None:
    async def story(stage: Stage) -> None:
        one = await lose_power(stage, {}, {})
        await back(stage, 4, ReplicaCondition.HOLE)
        await back(stage, 3, ReplicaCondition.HOLE)
        await one.admin.elect_leaders([CLICKS_0], unclean=True)
        assert sets_of(one) == (3, (3,), (), ())

    play(story)


def test_aggressive_takes_the_best_of_those_who_are_there() -> None:
    logs = {2: LogEnd(0, 7), 3: LogEnd(0, 9), 4: LogEnd(0, 8)}

    async def story(stage: Stage) -> None:
        one = await lose_power(stage, AGGRESSIVE, logs)
        await back(stage, 2, ReplicaCondition.HOLE)
        assert sets_of(one) == (2, (2,), (), ())

    play(story)


def test_a_broker_that_does_not_answer_holds_no_other_duty() -> None:
    never = asyncio.Event()

    async def wait_for_ever(questions: Questions) -> Answers:
        await never.wait()
        return {}

    async def story(stage: Stage) -> None:
        one = await lose_power(stage, BALANCED, {})
        one.controller.recovery._ask = wait_for_ever
        for broker in (2, 3, 4):
            await back(stage, broker, ReplicaCondition.HOLE)
        await one.admin.create_topic(TopicSpec(name="other", assignments={0: [4, 1]}))
        await kill(stage.members[-1])
        assert one.topic("other").partitions[0].leader == BrokerId(1)
        assert state_of(one).leader == NO_BROKER

    play(story)
