"""Consumers in groups, against a whole broker on a virtual clock."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from client.consumer_stage import ConsumerStage, read, values
from client.group_worker import BY_CONSUMER_PROTOCOL, COOPERATIVE, Worker, settle
from moldau.client.admin.values import GroupState
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.errors import CommitFailedError, KafkaError, OperationTimeoutError
from moldau.model import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
SHORT_SESSION = {"session_timeout_ms": 10_000}


@pytest.fixture(params=["classic", "consumer"])
def group_protocol(request: pytest.FixtureRequest) -> str:
    """The story is the same by either."""
    return str(request.param)


async def state_of(stage: ConsumerStage) -> GroupState:
    (found,) = (await stage.admin.describe_groups(["g"])).values()
    assert not isinstance(found, KafkaError)
    return found.state


def test_a_group_goes_on_where_it_was(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 2)
        await stage.produce("t", range(5))
        await stage.produce("t", range(5, 8), partition=1)
        async with stage.consumer(topics="t", group="g") as consumer:
            assert sorted(values(await read(consumer, 8))) == list(range(8))
        assert await stage.committed("g") == {ZERO: 5, ONE: 3}
        assert await state_of(stage) is GroupState.EMPTY
        await stage.produce("t", [8])
        async with stage.consumer(topics="t", group="g") as consumer:
            assert values(await read(consumer, 1)) == [8]

    stage.play(story)


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"partition_assignment_strategy": (assignor,)}
            for assignor in ("range", "roundrobin", "sticky", "cooperative-sticky")
        ),
        *({**BY_CONSUMER_PROTOCOL, "group_remote_assignor": one} for one in ("uniform", "range")),
    ],
    ids=lambda options: str(list(options.values())[-1]),
)
def test_partitions_are_shared_among_those_who_are_there(options: dict[str, Any]) -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 4)
        first = Worker(stage, **options).start()
        await settle(stage)
        assert first.owned == [0, 1, 2, 3]
        second = Worker(stage, **options).start()
        await settle(stage)
        assert len(first.owned) == len(second.owned) == 2
        assert sorted(first.owned + second.owned) == [0, 1, 2, 3]
        for partition in range(4):
            await stage.produce("t", [partition], partition=partition)
        await settle(stage)
        assert sorted(first.seen) == first.owned
        assert sorted(second.seen) == second.owned
        await first.stop()
        await settle(stage)
        assert second.owned == [0, 1, 2, 3]
        await second.stop()

    stage.play(story)


def test_an_eager_member_gives_up_everything_and_gets_its_share_anew() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 4)
        first = Worker(stage).start()
        await settle(stage)
        second = Worker(stage).start()
        await settle(stage)
        assert first.events[:2] == [("+", [0, 1, 2, 3]), ("-", [0, 1, 2, 3])]
        assert [sign for sign, _ in first.events] == ["+", "-", "+"]
        assert len(first.events[2][1]) == 2
        await second.stop()
        assert [sign for sign, _ in second.events] == ["+", "-"]
        await first.stop()

    stage.play(story)


@pytest.mark.parametrize(
    "options", [COOPERATIVE, BY_CONSUMER_PROTOCOL], ids=["classic", "consumer"]
)
def test_a_cooperative_member_keeps_what_it_keeps(options: dict[str, Any]) -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 4)
        first = Worker(stage, **options).start()
        await settle(stage)
        second = Worker(stage, **options).start()
        await settle(stage)
        assert first.events[0] == ("+", [0, 1, 2, 3])
        (given_up,) = first.events[1:]
        assert (given_up[0], len(given_up[1])) == ("-", 2)
        assert second.events == [("+", given_up[1])]
        await first.stop()
        await settle(stage)
        assert second.owned == [0, 1, 2, 3]
        assert len(second.events) == 2  # the rest came, nothing went
        await second.stop()

    stage.play(story)


def test_a_cooperative_member_reads_on_while_the_group_waits_for_another() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 2)
        first = Worker(stage, **COOPERATIVE).start()
        second = Worker(stage, **COOPERATIVE).start()
        await settle(stage)
        await second.crash("c2")  # the group will wait until its session is over
        third = Worker(stage, **COOPERATIVE).start()
        await settle(stage, 10.0)
        (mine,) = first.owned
        await stage.produce("t", [7], partition=mine)
        await settle(stage, 10.0)
        assert await state_of(stage) is GroupState.PREPARING_REBALANCE
        assert first.seen == [7]
        await settle(stage, 10.0)
        assert (await stage.committed("g"))[TopicPartition("t", mine)] == 1
        await first.stop()
        await third.stop()

    stage.play(story)


def test_a_rebalance_waits_until_the_program_has_dealt_with_its_records(
    group_protocol: str,
) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 2)
        for partition in range(2):
            await stage.produce("t", range(3), partition=partition)
        first = stage.consumer(topics="t", group="g")
        assert len(await read(first, 2)) == 2
        second = Worker(stage).start()
        await settle(stage, 30.0)  # the first one works on its two records
        assert second.owned == []
        assert len(first.assignment) == 2
        await first.poll(0.0)  # and has dealt with them
        await settle(stage, 5.0)
        committed = await stage.committed("g")  # what it gave up
        assert committed
        assert committed.items() <= {ZERO: 2, ONE: 0}.items()
        await first.poll(5.0)
        assert len(first.assignment) == 1
        assert len(second.owned) == 1
        await second.stop()
        await first.close()

    stage.play(story)


@pytest.mark.parametrize(
    "options", [SHORT_SESSION, BY_CONSUMER_PROTOCOL], ids=["classic", "consumer"]
)
def test_a_member_that_dies_is_replaced_when_its_session_is_over(options: dict[str, Any]) -> None:
    stage = ConsumerStage(
        group_consumer_session_timeout_ms="10000", group_consumer_min_session_timeout_ms="10000"
    )

    async def story() -> None:
        await stage.create_topic("t", 2)
        first = Worker(stage, **options).start()
        second = Worker(stage, **options).start()
        await settle(stage)
        assert len(second.owned) == 1
        await stage.produce("t", [1], partition=first.owned[0])
        await first.crash("c1")
        await settle(stage, 20.0)
        assert second.owned == [0, 1]
        await stage.produce("t", [2], partition=0)
        await settle(stage, 5.0)
        assert 2 in second.seen
        await second.stop()

    stage.play(story)


def test_a_program_that_is_too_slow_loses_its_partitions_and_comes_back(
    group_protocol: str,
) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 2)
        slow = Worker(stage, max_poll_interval_ms=15_000)
        await slow.consumer.poll(5.0)
        other = Worker(stage).start()
        await settle(stage, 5.0)
        await settle(stage, 20.0)
        assert other.owned == [0, 1]
        slow.start()
        await settle(stage)
        assert len(slow.owned) == len(other.owned) == 1
        assert slow.events[0] == ("+", [0, 1])
        lost = [one for sign, some in slow.events if sign == "!" for one in some]
        assert sorted(lost) == [0, 1]
        await slow.stop()
        await other.stop()

    stage.play(story)


def test_a_commit_of_a_member_that_was_replaced_is_refused(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 1)
        await stage.produce("t", range(5))
        slow = stage.consumer(topics="t", group="g", commit="manual", max_poll_interval_ms=10_000)
        await read(slow, 3)
        other = Worker(stage, commit="manual").start()
        await settle(stage, 30.0)
        assert other.owned == [0]
        with pytest.raises(CommitFailedError, match="rebalanced"):
            await slow.commit()
        assert await stage.committed("g") == {}
        await other.stop()
        await slow.close()

    stage.play(story)


def test_a_member_that_was_replaced_has_no_name_to_commit_by_in_a_transaction(
    group_protocol: str,
) -> None:
    """A commit without a generation is taken from everybody: as Kafka, for producers of old."""
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 1)
        await stage.produce("t", range(5))
        slow = stage.consumer(topics="t", group="g", commit="manual", max_poll_interval_ms=10_000)
        await read(slow, 3)
        assert slow.group_metadata.generation_id >= 0
        other = Worker(stage, commit="manual").start()
        await settle(stage, 30.0)
        assert other.owned == [0]
        with pytest.raises(CommitFailedError, match="rebalanced"):
            _ = slow.group_metadata
        await other.stop()
        await slow.close()

    stage.play(story)


def test_iterating_is_a_sign_of_life(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 1)
        await stage.produce("t", range(10))
        async with stage.consumer(topics="t", group="g", max_poll_interval_ms=10_000) as consumer:
            async for record in consumer:
                await stage.clock.sleep(8.0)  # 80 seconds in all, in one run
                if record.offset == 9:
                    break
            assert consumer.assignment == {ZERO}
        assert await stage.committed("g") == {ZERO: 10}

    stage.play(story)


# --- commits ------------------------------------------------------------------------------------


def test_what_failed_is_seen_again(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(5))

        async def fail_in_an_iteration() -> None:
            async with stage.consumer(topics="t", group="g") as consumer:
                async for record in consumer:
                    _ = 1 // (3 - record.offset)

        async def fail_after_a_poll() -> None:
            async with stage.consumer(topics="t", group="g") as consumer:
                for record in await consumer.poll(10.0):
                    _ = 1 // (4 - record.offset)

        with pytest.raises(ZeroDivisionError):
            await fail_in_an_iteration()
        assert await stage.committed("g") == {ZERO: 3}
        with pytest.raises(ZeroDivisionError):
            await fail_after_a_poll()
        assert await stage.committed("g") == {ZERO: 3}  # the whole poll is seen again

    stage.play(story)


def test_what_was_dealt_with_is_committed_now_and_then(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(8))
        async with stage.consumer(topics="t", group="g", auto_commit_interval_ms=5_000) as c:
            async for record in c:
                if record.offset == 4:
                    # While the record is worked on it is not committed.
                    await settle(stage, 12.0)
                    assert await stage.committed("g") == {}
                if record.offset == 6:
                    await settle(stage, 1.0)
                    assert await stage.committed("g") == {ZERO: 5}
                    break

    stage.play(story)


def test_at_most_once_commits_before_it_gives(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(10))

        async def fail() -> None:
            async with stage.consumer(
                topics="t", group="g", commit="before", max_poll_records=4
            ) as consumer:
                for record in await consumer.poll(10.0):
                    assert await stage.committed("g") == {ZERO: 4}
                    _ = 1 // (2 - record.offset)

        with pytest.raises(ZeroDivisionError):
            await fail()
        # Of what was given nothing is seen again.
        assert await stage.committed("g") == {ZERO: 4}

    stage.play(story)


def test_at_most_once_a_record_that_was_not_given_is_not_lost(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(10))
        seen: list[int] = []
        for _ in range(4):
            async with stage.consumer(
                topics="t", group="g", commit="before", max_poll_records=4
            ) as consumer:
                async for record in consumer:
                    seen.append(record.offset)
                    if len(seen) % 3 == 0 or record.offset == 9:
                        break
        assert seen == list(range(10))

    stage.play(story)


def test_manual_commits_are_the_programs_alone(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(10))
        async with stage.consumer(topics="t", group="g", commit="manual") as consumer:
            records = await read(consumer, 6)
            assert await stage.committed("g") == {}
            await consumer.commit(records[1])
            assert await stage.committed("g") == {ZERO: 2}
            await consumer.commit(records[:4])
            assert await stage.committed("g") == {ZERO: 4}
            await consumer.commit({ZERO: 1})
            assert await stage.committed("g") == {ZERO: 1}
            await consumer.commit()
            assert await stage.committed("g") == {ZERO: 6}
            found = await consumer.committed()
            assert found[ZERO] is not None
            assert (found[ZERO].offset, found[ZERO].leader_epoch) == (6, 0)
            await read(consumer, 1)
        assert await stage.committed("g") == {ZERO: 6}

    stage.play(story)


def test_a_commit_inside_an_iteration_includes_the_record_at_hand(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(10))
        async with stage.consumer(topics="t", group="g", commit="manual") as consumer:
            async for record in consumer:
                if record.offset == 3:
                    await consumer.commit()
                    break
        assert await stage.committed("g") == {ZERO: 4}

    stage.play(story)


def test_partitions_assigned_by_hand_can_be_committed_too(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(4))
        for expected in ([0, 1], [2, 3]):
            async with stage.consumer(group="g") as consumer:
                consumer.assign([ZERO])
                assert values(await read(consumer, 2)) == expected

    stage.play(story)


def test_a_consumer_can_commit_before_anything_else(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        async with stage.consumer(group="g") as consumer:
            await consumer.commit({ZERO: 7})
        assert await stage.committed("g") == {ZERO: 7}

    stage.play(story)


def test_a_coordinator_that_says_nothing_is_waited_for_as_long_as_the_program_says(
    group_protocol: str,
) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        async with stage.consumer(group="g", default_api_timeout_ms=3000) as consumer:
            await consumer.commit({ZERO: 7})
            stage.network.cut("c1", "broker")
            began = stage.clock.monotonic()
            with pytest.raises(OperationTimeoutError):
                await consumer.commit({ZERO: 8}, timeout_seconds=2.0)
            assert stage.clock.monotonic() - began == pytest.approx(2.0)
            with pytest.raises(OperationTimeoutError):
                await consumer.committed([ZERO])
            assert stage.clock.monotonic() - began == pytest.approx(5.0)
            stage.network.heal("c1", "broker")
            await consumer.commit({ZERO: 9}, timeout_seconds=120.0)
        assert await stage.committed("g") == {ZERO: 9}

    stage.play(story)


def test_a_commit_that_is_confirmed_after_a_seek_does_not_move_the_position(
    group_protocol: str,
) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(6))
        async with stage.consumer(topics="t", group="g", commit="manual") as consumer:
            await read(consumer, 4)
            committing = asyncio.create_task(consumer.commit())
            await asyncio.sleep(0)  # it is under way
            consumer.seek(ZERO, 1)
            await committing
            assert await consumer.position(ZERO) == 1
        assert await stage.committed("g") == {ZERO: 4}

    stage.play(story)


def test_what_failed_after_its_partition_was_paused_is_seen_again(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(5))

        async def fail() -> None:
            async with stage.consumer(topics="t", group="g") as consumer:
                async for record in consumer:
                    if record.offset == 3:
                        consumer.pause(ZERO)
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await stage.committed("g") == {ZERO: 3}

    stage.play(story)


# --- membership ---------------------------------------------------------------------------------


def test_a_static_member_that_comes_back_in_time_finds_its_partitions(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 4)
        named = Worker(stage, group_instance_id="one").start()
        other = Worker(stage, group_instance_id="two").start()
        await settle(stage)
        before, events = named.owned, list(other.events)
        await named.stop()
        await settle(stage, 10.0)
        again = Worker(stage, group_instance_id="one").start()
        await settle(stage, 10.0)
        assert again.owned == before
        assert other.events == events  # the other one did not notice
        await again.stop()
        await other.stop()

    stage.play(story)


def test_a_static_member_whose_name_is_taken_over_is_told() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        first = stage.consumer(topics="t", group="g", group_instance_id="one")
        await first.poll(5.0)
        second = Worker(stage, group_instance_id="one").start()
        await settle(stage, 10.0)
        assert second.owned == [0]
        with pytest.raises(KafkaError, match="fenced"):
            await first.poll(10.0)
        await first.close()
        await second.stop()

    stage.play(story)


def test_new_partitions_are_noticed(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 2)
        first = Worker(stage, metadata_max_age_ms=10_000).start()
        second = Worker(stage, metadata_max_age_ms=10_000).start()
        await settle(stage)
        await stage.admin.create_partitions({"t": 5})
        await settle(stage, 30.0)
        assert sorted(first.owned + second.owned) == [0, 1, 2, 3, 4]
        await first.stop()
        await second.stop()

    stage.play(story)


def test_a_pattern_of_a_group_discovers_topics(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("a1")
        async with stage.consumer(pattern="a.", group="g", metadata_max_age_ms=10_000) as consumer:
            await consumer.poll(5.0)
            await stage.create_topic("a2")
            await stage.produce("a2", [1])
            assert [record.topic for record in await read(consumer, 1)] == ["a2"]
            assert {one.topic for one in consumer.assignment} == {"a1", "a2"}

    stage.play(story)


def test_a_subscription_can_change(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        for name in ("a", "b"):
            await stage.create_topic(name)
            await stage.produce(name, [1, 2])
        async with stage.consumer(topics="a", group="g") as consumer:
            assert [record.topic for record in await read(consumer, 1)] == ["a"]
            await consumer.commit()
            consumer.subscribe(["b"])
            assert [record.topic for record in await read(consumer, 2)] == ["b", "b"]
            assert {one.topic for one in consumer.assignment} == {"b"}
            await consumer.unsubscribe()
            assert consumer.assignment == frozenset()
            assert await state_of(stage) is GroupState.EMPTY
            consumer.subscribe("a")
            assert values(await read(consumer, 1)) == [2]

    stage.play(story)


def test_members_without_a_common_assignor_are_refused() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        first = Worker(stage, assignors=["range"]).start()
        await settle(stage, 5.0)
        async with stage.consumer(topics="t", group="g", assignors=["sticky"]) as other:
            with pytest.raises(KafkaError, match="protocol"):
                await other.poll(10.0)
        await first.stop()

    stage.play(story)


def test_an_error_in_a_listener_is_the_programs(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", [1])

        def fail(partitions: frozenset[TopicPartition]) -> None:
            raise ValueError("on purpose")

        async with stage.consumer(topics="t", group="g", on_assigned=fail) as consumer:
            with pytest.raises(ValueError, match="on purpose"):
                await consumer.poll(10.0)
            assert values(await read(consumer, 1)) == [1]

    stage.play(story)


def test_a_listener_can_seek_and_commit(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(5))
        consumer: AsyncConsumer

        async def go_back(partitions: frozenset[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 3)

        async def commit(partitions: frozenset[TopicPartition]) -> None:
            await consumer.commit()

        consumer = stage.consumer(
            topics="t", group="g", commit="manual", on_assigned=go_back, on_revoked=commit
        )
        assert values(await read(consumer, 1)) == [3]
        await consumer.close()
        assert await stage.committed("g") == {ZERO: 4}

    stage.play(story)


def test_members_and_offsets_survive_a_restart_of_the_broker(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 2)
        first, second = Worker(stage).start(), Worker(stage).start()
        await settle(stage)
        for partition in range(2):
            await stage.produce("t", [partition], partition=partition)
        await settle(stage)
        await stage.stop_broker()
        await settle(stage, 5.0)
        await stage.start_broker()
        await settle(stage)
        for partition in range(2):
            await stage.produce("t", [10 + partition], partition=partition)
        await settle(stage)
        assert sorted(first.seen + second.seen) == [0, 1, 10, 11]
        assert await stage.committed("g") == {ZERO: 2, ONE: 2}
        await first.stop()
        await second.stop()

    stage.play(story)


# --- many of them -------------------------------------------------------------------------------


class Crowd:
    """Members that come and go by chance, and a register of who owns what.

    The register goes by the program's view: a partition is owned from `on_assigned` until
    `on_revoked`. Each is told of the other's partitions only, so every call has its counterpart.
    An error in these functions is the program's, and ends its task.
    """

    def __init__(self, stage: ConsumerStage, options: dict[str, Any], chance: Random) -> None:
        self._stage = stage
        self._options = options
        self._chance = chance
        self._owners: dict[TopicPartition, int] = {}
        self._members: dict[int, tuple[asyncio.Task[None], asyncio.Event]] = {}
        self._count = 0
        self.seen: Counter[int] = Counter()

    @property
    def size(self) -> int:
        return len(self._members)

    def join(self) -> None:
        self._count += 1
        leaving = asyncio.Event()
        task = asyncio.create_task(self._read(self._count, leaving))
        self._members[self._count] = task, leaving

    async def leave(self) -> None:
        number = self._chance.choice(sorted(self._members))
        task, leaving = self._members.pop(number)
        leaving.set()
        await task

    async def _read(self, number: int, leaving: asyncio.Event) -> None:
        def got(partitions: frozenset[TopicPartition]) -> None:
            for partition in partitions:
                assert partition not in self._owners, f"{partition} has two owners"
                self._owners[partition] = number

        def gave_up(partitions: frozenset[TopicPartition]) -> None:
            for partition in partitions:
                owner = self._owners.pop(partition, None)
                assert owner == number, f"{number} gave up {partition} of {owner}"

        async with self._stage.consumer(
            topics="t",
            group="g",
            on_assigned=got,
            on_revoked=gave_up,
            auto_commit_interval_ms=500,
            **self._options,
        ) as consumer:
            while not leaving.is_set():
                for record in await consumer.poll(0.4, max_records=5):
                    partition = TopicPartition(record.topic, record.partition)
                    assert self._owners[partition] == number
                    self.seen[int(record.value or b"")] += 1
                await self._stage.clock.sleep(self._chance.random() / 2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("jitter_seconds", [0.0, 0.3])
@pytest.mark.parametrize(
    "options",
    [
        *({"assignors": [assignor]} for assignor in ("range", "sticky", "cooperative-sticky")),
        BY_CONSUMER_PROTOCOL,
    ],
    ids=["range", "sticky", "cooperative-sticky", "consumer-protocol"],
)
def test_whoever_comes_and_goes_every_record_is_seen_once_and_partitions_have_one_owner(
    options: dict[str, Any], jitter_seconds: float, seed: int
) -> None:
    """More than Kafka promises, and true only because nobody here is cut off or too slow.

    A member that the group gives up on may still work on records that another one gets; that is
    for other tests. Here all leave in good order, if in the middle of rebalances: with answers
    that take their time, between any two of their requests.
    """
    stage = ConsumerStage()
    chance = Random(seed)
    for number in range(1, 60):
        stage.network.set_delay(
            f"c{number}", "broker", jitter_seconds / 10, jitter_seconds=jitter_seconds
        )

    async def story() -> None:
        await stage.create_topic("t", 5)
        crowd = Crowd(stage, options, chance)
        sent = 0
        for _ in range(40):
            await stage.produce("t", range(sent, sent + 7), partition=chance.randrange(5))
            sent += 7
            if crowd.size < 2 or (crowd.size < 5 and chance.random() < 0.4):
                crowd.join()
            elif chance.random() < 0.4:
                await crowd.leave()
            await stage.clock.sleep(chance.random() * 5)
        await stage.clock.sleep(60.0)
        while crowd.size:
            await crowd.leave()
        # Nobody crashed: so every record was also committed, and nothing was seen twice.
        assert crowd.seen == Counter(range(sent))
        assert sum((await stage.committed("g")).values()) == sent

    stage.play(story)


# --- streams ------------------------------------------------------------------------------------


def test_streams_share_the_partitions_of_one_consumer(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 4)
        for partition in range(4):
            await stage.produce("t", range(5), partition=partition)
        seen: list[set[int]] = []
        offsets: list[tuple[int, int]] = []

        async def work(stream: Any) -> None:
            mine: set[int] = set()
            seen.append(mine)
            async for record in stream:
                mine.add(record.partition)
                offsets.append((record.partition, record.offset))
                await stage.clock.sleep(0.1)

        consumer = stage.consumer(topics="t", group="g")
        tasks = [asyncio.create_task(work(stream)) for stream in consumer.streams(2)]
        await settle(stage, 30.0)
        await consumer.close()
        await asyncio.gather(*tasks)
        assert sorted(offsets) == [(p, at) for p in range(4) for at in range(5)]
        assert sorted(map(len, seen)) == [2, 2]
        assert set(seen[0]).isdisjoint(seen[1])
        assert set((await stage.committed("g")).values()) == {5}

    stage.play(story)


def test_a_rebalance_waits_for_all_streams(group_protocol: str) -> None:
    stage = ConsumerStage(group_protocol=group_protocol)

    async def story() -> None:
        await stage.create_topic("t", 2)
        for partition in range(2):
            await stage.produce("t", range(2), partition=partition)
        consumer = stage.consumer(topics="t", group="g")
        slow, quick = consumer.streams(2)

        async def work(stream: Any, is_slow: bool) -> None:
            async for _ in stream:
                if is_slow:
                    await stage.clock.sleep(60.0)

        tasks = [asyncio.create_task(work(slow, True)), asyncio.create_task(work(quick, False))]
        await settle(stage, 10.0)
        other = Worker(stage).start()
        await settle(stage, 30.0)
        assert other.owned == []  # the slow stream still works on its record
        await settle(stage, 60.0)
        assert len(other.owned) == 1
        await consumer.close()
        await asyncio.gather(*tasks)
        await other.stop()
        assert set((await stage.committed("g")).values()) == {2}

    stage.play(story)
