"""Members by the consumer protocol (KIP-848), against a whole broker on a virtual clock.

What is the same by either protocol is in `test_consumer_groups`.
"""

from __future__ import annotations

from random import Random

import pytest

from client.consumer_stage import ConsumerStage, read, values
from client.group_worker import BY_CONSUMER_PROTOCOL, COOPERATIVE, Worker, settle
from moldau.client.consumer.coordinator import make_member_id
from moldau.errors import CommitFailedError, KafkaError, UnsupportedByBrokerError
from moldau.model import TopicPartition

ZERO = TopicPartition("t", 0)


def stage_of_consumer_protocol(**config: str) -> ConsumerStage:
    return ConsumerStage(group_protocol="consumer", **config)


def test_ids_of_members_are_written_as_kafkas_are() -> None:
    ids = {make_member_id(Random(seed)) for seed in range(50)}
    assert len(ids) == 50
    assert {len(one) for one in ids} == {22}


@pytest.mark.parametrize("classic", [{}, COOPERATIVE], ids=["eager", "cooperative"])
def test_members_of_both_protocols_share_a_group(classic: dict[str, object]) -> None:
    """As a fleet that is updated one process after the other, and back again."""
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 4)
        sent = 0

        async def produce() -> None:
            nonlocal sent
            for partition in range(4):
                await stage.produce("t", [sent], partition=partition)
                sent += 1
            await settle(stage)

        old = Worker(stage, **classic).start()
        await settle(stage)
        await produce()
        new = Worker(stage, **BY_CONSUMER_PROTOCOL).start()
        await settle(stage, 40.0)
        assert len(old.owned) == len(new.owned) == 2
        assert sorted(old.owned + new.owned) == [0, 1, 2, 3]
        await produce()
        await old.stop()
        await settle(stage)
        assert new.owned == [0, 1, 2, 3]
        await produce()
        again = Worker(stage, **classic).start()
        await settle(stage, 40.0)
        assert len(again.owned) == len(new.owned) == 2
        await produce()
        await new.stop()
        await settle(stage)
        assert again.owned == [0, 1, 2, 3]
        await produce()
        await again.stop()
        assert sorted(old.seen + new.seen + again.seen) == list(range(sent))
        assert set((await stage.committed("g")).values()) == {sent // 4}

    stage.play(story)


def test_a_broker_that_has_only_the_classic_protocol_says_what_to_do() -> None:
    stage = stage_of_consumer_protocol(group_coordinator_rebalance_protocols="classic")

    async def story() -> None:
        await stage.create_topic("t")
        async with stage.consumer(topics="t", group="g") as consumer:
            with pytest.raises(UnsupportedByBrokerError, match=r"set group\.protocol=classic"):
                await consumer.poll(5.0)

    stage.play(story)


def test_an_assignor_that_the_broker_does_not_have_is_told_by_its_message() -> None:
    stage = stage_of_consumer_protocol()

    async def story() -> None:
        await stage.create_topic("t")
        async with stage.consumer(topics="t", group="g", group_remote_assignor="other") as consumer:
            with pytest.raises(KafkaError, match="uniform, range"):
                await consumer.poll(5.0)

    stage.play(story)


def test_a_name_that_is_in_use_is_refused_until_its_member_has_left() -> None:
    stage = stage_of_consumer_protocol()

    async def story() -> None:
        await stage.create_topic("t")
        first = Worker(stage, group_instance_id="one").start()
        await settle(stage)
        async with stage.consumer(topics="t", group="g", group_instance_id="one") as second:
            with pytest.raises(KafkaError, match="has not left"):
                await second.poll(5.0)
        assert first.owned == [0]
        await first.stop()
        third = Worker(stage, group_instance_id="one").start()
        await settle(stage)
        assert third.owned == [0]
        await third.stop()

    stage.play(story)


def test_a_short_interruption_costs_a_member_nothing() -> None:
    """Answers are lost on the way, of whatever they tell."""
    stage = stage_of_consumer_protocol()

    async def story() -> None:
        await stage.create_topic("t", 4)
        first = Worker(stage, request_timeout_ms=3_000).start()
        await settle(stage)
        second = Worker(stage, request_timeout_ms=3_000).start()
        for _ in range(6):
            await settle(stage, 2.3)
            stage.network.isolate("c1")
            await settle(stage, 4.1)
            stage.network.rejoin("c1")
        await settle(stage, 40.0)
        assert sorted(first.owned + second.owned) == [0, 1, 2, 3]
        assert len(first.owned) == 2
        assert "!" not in {sign for sign, _ in first.events + second.events}
        await first.stop()
        await second.stop()

    stage.play(story)


def test_a_member_that_the_group_gave_up_on_starts_over() -> None:
    stage = stage_of_consumer_protocol(
        group_consumer_session_timeout_ms="10000", group_consumer_min_session_timeout_ms="10000"
    )

    async def story() -> None:
        await stage.create_topic("t", 2)
        first = Worker(stage, request_timeout_ms=3_000).start()
        await settle(stage)
        stage.network.isolate("c1")
        second = Worker(stage).start()
        await settle(stage, 30.0)
        assert second.owned == [0, 1]
        stage.network.rejoin("c1")
        await settle(stage, 60.0)
        assert first.events[:2] == [("+", [0, 1]), ("!", [0, 1])]
        assert len(first.owned) == len(second.owned) == 1
        await first.stop()
        await second.stop()

    stage.play(story)


def test_a_commit_of_who_lost_its_place_is_refused_while_others_read_on() -> None:
    stage = stage_of_consumer_protocol(
        group_consumer_session_timeout_ms="10000", group_consumer_min_session_timeout_ms="10000"
    )

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(5))
        lost = stage.consumer(topics="t", group="g", commit="manual", request_timeout_ms=3_000)
        await read(lost, 3)
        stage.network.isolate("c1")
        other = Worker(stage).start()
        await settle(stage, 30.0)
        stage.network.rejoin("c1")
        with pytest.raises(CommitFailedError):
            await lost.commit()
        assert await stage.committed("g") == {ZERO: 5}
        await other.stop()
        await lost.close()

    stage.play(story)


def test_a_topic_that_is_deleted_and_made_anew_is_read_from_its_beginning() -> None:
    stage = stage_of_consumer_protocol()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", [1])
        member = Worker(stage, allow_auto_create_topics=False).start()
        await settle(stage)
        await stage.admin.delete_topics(["t"])
        await settle(stage)
        await stage.create_topic("t")
        await stage.produce("t", [2])
        await settle(stage, 40.0)
        assert member.seen == [1, 2]
        await member.stop()

    stage.play(story)


def test_a_subscription_to_a_pattern_can_become_another_one_without_a_gap() -> None:
    stage = stage_of_consumer_protocol()

    async def story() -> None:
        for name in ("a1", "a2", "b1"):
            await stage.create_topic(name)
            await stage.produce(name, [1])
        events: list[tuple[str, list[str]]] = []
        async with stage.consumer(
            pattern="a.",
            group="g",
            on_revoked=lambda some: events.append(("-", sorted(one.topic for one in some))),
        ) as consumer:
            await read(consumer, 2)
            consumer.subscribe(pattern="a1|b.")
            found = await read(consumer, 1)
            assert [(one.topic, *values([one])) for one in found] == [("b1", 1)]
            assert events == [("-", ["a2"])]

    stage.play(story)
