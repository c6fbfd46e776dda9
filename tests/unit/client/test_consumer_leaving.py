"""How members part with partitions: leaving a group, being lost by it, and what they hear of it."""

from __future__ import annotations

from typing import Any

import pytest

from client.consumer_stage import ConsumerStage, read
from client.group_worker import BY_CONSUMER_PROTOCOL, COOPERATIVE, Worker, settle
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.errors import CommitFailedError, ConfigurationError
from moldau.model import TopicPartition

ZERO = TopicPartition("t", 0)
EAGER: dict[str, Any] = {"partition_assignment_strategy": ("range",)}

SHORT_SESSION = {"session_timeout_ms": 10_000}
MEMBERS: list[dict[str, Any]] = [
    EAGER | SHORT_SESSION,
    COOPERATIVE | SHORT_SESSION,
    BY_CONSUMER_PROTOCOL,
]

either_protocol = pytest.mark.parametrize("options", MEMBERS, ids=["eager", "coop", "consumer"])


def stage_with_short_sessions() -> ConsumerStage:
    """By the consumer protocol the broker says how long sessions are."""
    return ConsumerStage(
        group_consumer_session_timeout_ms="10000", group_consumer_min_session_timeout_ms="10000"
    )


@either_protocol
def test_who_leaves_before_it_heard_of_partitions_hears_nothing_of_them(
    options: dict[str, Any],
) -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 2)
        member = Worker(stage, **options)
        await member.consumer.poll(0.0)
        await settle(stage, 5.0)
        assert member.owned == [0, 1]  # the program does not know, it is busy elsewhere
        await member.consumer.close()
        assert member.events == []

    stage.play(story)


@pytest.mark.parametrize("options", MEMBERS[1:], ids=["coop", "consumer"])
def test_who_leaves_gives_up_what_it_had_and_not_what_was_about_to_come(
    options: dict[str, Any],
) -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 2)
        leaver = Worker(stage, **options).start()
        other = Worker(stage, **options).start()
        await settle(stage)
        (had,) = leaver.owned
        await leaver.freeze()
        await other.stop()
        await settle(stage)
        assert leaver.owned == [0, 1]
        await leaver.consumer.close()
        assert leaver.events[-1] == ("-", [had])
        heard = {
            sign: sorted(one for other, some in leaver.events if other == sign for one in some)
            for sign in "+-!"
        }
        assert (heard["+"], heard["!"]) == (heard["-"], [])

    stage.play(story)


@either_protocol
def test_partitions_that_are_lost_again_before_the_program_heard_of_them_never_came(
    options: dict[str, Any],
) -> None:
    stage = stage_with_short_sessions()

    async def story() -> None:
        await stage.create_topic("t", 2)
        member = Worker(stage, **options)
        await member.consumer.poll(0.0)
        await settle(stage, 5.0)
        assert member.owned == [0, 1]
        stage.network.isolate("c1")
        await settle(stage, 30.0)
        stage.network.rejoin("c1")
        await settle(stage, 60.0)
        assert member.events == []
        member.start()
        await settle(stage)
        assert member.events == [("+", [0, 1])]
        await member.stop()

    stage.play(story)


@either_protocol
def test_who_was_lost_and_closes_has_lost_its_partitions_and_commits_nothing(
    options: dict[str, Any],
) -> None:
    stage = stage_with_short_sessions()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(9))
        lost = Worker(stage, **options)
        await read(lost.consumer, 3)
        stage.network.isolate("c1")
        other = Worker(stage, **options).start()
        await settle(stage, 30.0)
        assert other.seen == list(range(9))
        await other.stop()  # an empty group takes commits from anybody
        stage.network.rejoin("c1")
        await settle(stage, 60.0)
        await lost.consumer.close()
        assert lost.events == [("+", [0]), ("!", [0])]
        assert await stage.committed("g") == {ZERO: 9}

    stage.play(story)


@either_protocol
def test_who_was_lost_cannot_commit_into_an_empty_group(options: dict[str, Any]) -> None:
    stage = stage_with_short_sessions()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(5))
        lost = stage.consumer(topics="t", group="g", commit="manual", **options)
        await read(lost, 3)
        stage.network.isolate("c1")
        await settle(stage, 30.0)
        stage.network.rejoin("c1")
        await settle(stage, 60.0)
        with pytest.raises(CommitFailedError, match="no member"):
            await lost.commit()
        assert await stage.committed("g") == {}
        await lost.close()

    stage.play(story)


@pytest.mark.parametrize("leader_leaves", [True, False])
@pytest.mark.parametrize("tenth", range(36, 90, 3))
def test_who_leaves_in_the_middle_of_a_rebalance_commits_what_it_has_read(
    tenth: int, leader_leaves: bool
) -> None:
    """Half a second passes between a request and its answer, so the moments of leaving lie before
    the join, between join and sync, and after. In between the coordinator takes no commits."""
    stage = ConsumerStage()
    for number in range(1, 4):
        stage.network.set_delay(f"c{number}", "broker", 0.25)

    async def story() -> None:
        await stage.create_topic("t", 4)
        options = COOPERATIVE | {"heartbeat_interval_ms": 500, "auto_commit_interval_ms": 60_000}
        first = Worker(stage, **options).start()
        await settle(stage)
        second = Worker(stage, **options).start()
        await settle(stage)
        leaver = first if leader_leaves else second
        for partition in range(4):
            await stage.produce("t", [partition], partition=partition)
        await settle(stage)
        assert leaver.seen
        third = Worker(stage, **options).start()
        await settle(stage, tenth / 10)
        await leaver.stop()
        await settle(stage)
        assert sorted(first.seen + second.seen + third.seen) == [0, 1, 2, 3]
        for worker in {first, second, third} - {leaver}:
            await worker.stop()
        assert set((await stage.committed("g")).values()) == {1}

    stage.play(story)


# --- functions for rebalances -------------------------------------------------------------------


def fail(partitions: frozenset[TopicPartition]) -> None:
    raise ValueError("on purpose")


def test_an_error_in_a_listener_while_closing_is_the_programs() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        consumer = stage.consumer(topics="t", group="g", on_revoked=fail)
        await consumer.poll(5.0)
        with pytest.raises(ValueError, match="on purpose"):
            await consumer.close()
        await consumer.close()  # it is closed all the same
        again = Worker(stage).start()
        await settle(stage, 5.0)
        assert again.owned == [0]  # and has left
        await again.stop()

    stage.play(story)


def test_an_error_of_the_program_is_not_hidden_by_one_of_its_listeners() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")

        async def fail_inside() -> None:
            async with stage.consumer(topics="t", group="g", on_revoked=fail) as consumer:
                await consumer.poll(5.0)
                _ = 1 // 0

        with pytest.raises(ZeroDivisionError):
            await fail_inside()

    stage.play(story)


@pytest.mark.parametrize("name", ["poll", "poll_batches", "iterate", "close", "unsubscribe"])
def test_a_listener_that_would_wait_for_itself_is_refused(name: str) -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        consumer: AsyncConsumer

        async def go_wrong(partitions: frozenset[TopicPartition]) -> None:
            if name == "iterate":
                await anext(aiter(consumer))
            else:
                await getattr(consumer, name)()

        consumer = stage.consumer(topics="t", group="g", on_assigned=go_wrong)
        with pytest.raises(ConfigurationError, match="function for rebalances"):
            await consumer.poll(5.0)
        await consumer.close()

    stage.play(story)


def test_who_ends_while_the_broker_is_silent_waits_no_longer_than_its_session() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        member = Worker(stage, enable_auto_commit=False, session_timeout_ms=6_000).start()
        await settle(stage)
        assert member.owned == [0]
        stage.network.isolate("c1")
        began = stage.clock.monotonic()
        await member.stop()
        assert stage.clock.monotonic() - began <= 6.5
        stage.network.rejoin("c1")

    stage.play(story)
