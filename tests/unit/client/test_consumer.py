"""The consumer alone: positions, seeking, pausing, failures. Groups have a module of their own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from client.consumer_stage import HOUR_MS, ConsumerStage, read, values
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.errors import (
    ClosedClientError,
    ClusterUnreachableError,
    ConfigurationError,
    NoOffsetError,
    NotAssignedError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
)
from moldau.model import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def test_assigned_partitions_are_read_from_where_the_policy_says() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 2)
        await stage.produce("t", range(5))
        await stage.produce("t", range(5, 8), partition=1)
        async with stage.consumer() as consumer:
            consumer.assign([ZERO, ONE])
            found = await read(consumer, 8)
            assert sorted(values(found)) == list(range(8))
            assert await consumer.position(ZERO) == 5
            assert await consumer.position(ONE) == 3
            assert (consumer.lag(ZERO), consumer.lag(ONE)) == (0, 0)
        async with stage.consumer(auto_offset_reset="latest") as consumer:
            consumer.assign([ZERO])
            assert await consumer.position(ZERO) == 5
            await stage.produce("t", [8])
            assert values(await read(consumer, 1)) == [8]

    stage.play(story)


def test_records_know_where_they_are_from() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", ["v"], timestamp_ms=1_699_999_999_000)
        async with stage.consumer() as consumer:
            consumer.assign([ZERO])
            (record,) = await consumer.poll()
            assert record[:7] == ("t", 0, 0, 1_699_999_999_000, None, b"v", ())
            assert (record.timestamp_type, record.leader_epoch) == (0, 0)

    stage.play(story)


def test_nothing_new_ends_a_poll_in_time() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        async with stage.consumer() as consumer:
            consumer.assign([ZERO])
            before = stage.clock.monotonic()
            assert await consumer.poll(2.5) == []
            assert stage.clock.monotonic() - before == pytest.approx(2.5)

    stage.play(story)


def test_a_poll_gives_as_many_records_as_it_is_asked_for() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(10))
        async with stage.consumer(max_poll_records=4) as consumer:
            consumer.assign([ZERO])
            assert values(await consumer.poll()) == [0, 1, 2, 3]
            assert values(await consumer.poll(max_records=2)) == [4, 5]

    stage.play(story)


def test_an_iteration_waits_for_more_and_ends_when_the_consumer_is_closed() -> None:
    stage = ConsumerStage()

    async def story() -> list[int]:
        await stage.create_topic("t")
        await stage.produce("t", range(3))
        seen = []
        consumer = stage.consumer()
        consumer.assign([ZERO])
        async for record in consumer:
            seen.append(int(record.value or b""))
            if seen[-1] == 2:
                await stage.produce("t", [3, 4])
            if seen[-1] == 4:
                await consumer.close()
        return seen

    assert stage.play(story) == [0, 1, 2, 3, 4]


def test_a_seek_takes_effect_at_once_also_in_the_middle_of_an_iteration() -> None:
    stage = ConsumerStage()

    async def story() -> list[int]:
        await stage.create_topic("t")
        await stage.produce("t", range(10))
        seen: list[int] = []
        async with stage.consumer() as consumer:
            consumer.assign([ZERO])
            async for record in consumer:
                seen.append(record.offset)
                if seen == [0, 1]:
                    consumer.seek(ZERO, 7)
                if record.offset == 9:
                    break
        return seen

    assert stage.play(story) == [0, 1, 7, 8, 9]


def test_whoever_seeks_before_partitions_are_known_is_told() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        async with stage.consumer() as consumer:
            consumer.subscribe("t")
            with pytest.raises(NotAssignedError, match="poll first"):
                consumer.seek_to_time(1_000)
            await consumer.poll(1.0)
            consumer.seek_to_beginning()
        async with stage.consumer(group="g") as consumer:
            consumer.subscribe("t")
            consumer.seek_to_beginning()  # a member may have none, for as long as it likes

    stage.play(story)


def test_reading_can_go_back_to_the_beginning_to_the_end_and_to_a_time() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        for hour in range(4):
            await stage.produce("t", [hour], timestamp_ms=1_000 + hour * HOUR_MS)
        async with stage.consumer() as consumer:
            consumer.assign([ZERO])
            await read(consumer, 4)
            consumer.seek_to_beginning()
            assert values(await read(consumer, 1)) == [0]
            consumer.seek_to_time(1_000 + HOUR_MS + 1)
            assert values(await read(consumer, 1)) == [2]
            consumer.seek_to_time(datetime.fromtimestamp(1 + HOUR_MS / 1000, tz=UTC), ZERO)
            assert values(await read(consumer, 1)) == [1]
            consumer.seek_to_time(1_000 + 9 * HOUR_MS)
            assert await consumer.position(ZERO) == 4
            consumer.seek_to_end([ZERO])
            assert await consumer.poll(1.0) == []
            assert await consumer.beginning_offsets([ZERO]) == {ZERO: 0}
            assert await consumer.end_offsets([ZERO]) == {ZERO: 4}

    stage.play(story)


def test_the_policy_can_be_a_time_before_now() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        for hour in range(4):
            stamp = stage.clock.now_ms() - (3 - hour) * HOUR_MS
            await stage.produce("t", [hour], timestamp_ms=stamp)
        async with stage.consumer(auto_offset_reset=timedelta(minutes=90)) as consumer:
            consumer.assign([ZERO])
            assert values(await read(consumer, 2)) == [2, 3]

    stage.play(story)


def test_a_paused_partition_waits_and_goes_on_where_it_was() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 2)
        await stage.produce("t", range(4))
        await stage.produce("t", range(10, 14), partition=1)
        async with stage.consumer() as consumer:
            consumer.assign([ZERO, ONE])
            await read(consumer, 1)
            consumer.pause([ZERO])
            assert consumer.paused == {ZERO}
            rest = await read(consumer, 4)
            assert {record.partition for record in rest} == {1}
            assert await consumer.poll(1.0) == []
            consumer.resume()
            assert len(await read(consumer, 3)) == 3

    stage.play(story)


def test_partitions_can_be_assigned_anew() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 2)
        await stage.produce("t", range(4))
        await stage.produce("t", range(10, 12), partition=1)
        async with stage.consumer() as consumer:
            consumer.assign([ZERO])
            assert values(await read(consumer, 2)) == [0, 1]
            consumer.assign([ONE])
            assert values(await read(consumer, 2)) == [10, 11]
            with pytest.raises(NotAssignedError):
                consumer.seek(ZERO, 0)
            with pytest.raises(ConfigurationError, match="assigned by hand"):
                consumer.subscribe("t")
            await consumer.unsubscribe()
            consumer.subscribe("t")
            with pytest.raises(ConfigurationError, match="subscribed"):
                consumer.assign([ZERO])

    stage.play(story)


def test_without_a_group_a_subscription_means_all_partitions_also_new_ones() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t", 2)
        await stage.produce("t", [0])
        await stage.produce("t", [1], partition=1)
        async with stage.consumer(topics="t", metadata_max_age_ms=10_000) as consumer:
            assert sorted(values(await read(consumer, 2))) == [0, 1]
            with pytest.raises(ConfigurationError, match="without a group"):
                await consumer.commit()
            await stage.admin.create_partitions({"t": 3})
            await stage.produce("t", [2], partition=2)
            assert values(await read(consumer, 1)) == [2]
            assert len(consumer.assignment) == 3

    stage.play(story)


def test_a_pattern_discovers_topics() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        for name in ("clicks-eu", "clicks-test", "orders"):
            await stage.create_topic(name)
            await stage.produce(name, [1])
        options = {"pattern": "clicks-.*", "deny": ".*-test", "metadata_max_age_ms": 10_000}
        async with stage.consumer(**options) as consumer:
            assert [record.topic for record in await read(consumer, 1)] == ["clicks-eu"]
            await stage.create_topic("clicks-us")
            await stage.produce("clicks-us", [1])
            assert [record.topic for record in await read(consumer, 1)] == ["clicks-us"]
            assert consumer.subscription == {"clicks-eu", "clicks-us"}

    stage.play(story)


def test_a_topic_that_is_made_later_is_read_then() -> None:
    stage = ConsumerStage(auto_create_topics_enable="false")

    async def story() -> None:
        async with stage.consumer(topics=["t"]) as consumer:
            assert await consumer.poll(5.0) == []
            await stage.create_topic("t")
            await stage.produce("t", [7])
            assert values(await read(consumer, 1)) == [7]

    stage.play(story)


# --- what goes wrong ----------------------------------------------------------------------------


def test_an_offset_that_is_gone_is_followed_by_the_policy() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(6))
        await stage.admin.delete_records({ZERO: 3})
        async with stage.consumer() as consumer:
            consumer.assign([ZERO])
            consumer.seek(ZERO, 1)
            assert values(await read(consumer, 3)) == [3, 4, 5]
        async with stage.consumer(auto_offset_reset="error") as consumer:
            consumer.assign([ZERO])
            consumer.seek(ZERO, 1)
            with pytest.raises(OffsetOutOfRangeError, match="offset 1 of t-0"):
                await consumer.poll(5.0)
            with pytest.raises(OffsetOutOfRangeError):
                await consumer.poll(5.0)
            consumer.seek(ZERO, 4)
            assert values(await read(consumer, 2)) == [4, 5]

    stage.play(story)


def test_what_was_fetched_before_an_offset_was_gone_is_given_first() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(3))
        async with stage.consumer() as consumer:
            consumer.assign([ZERO])
            assert values(await read(consumer, 1)) == [0]
            stage.network.isolate("c1")
            stage.network.drop_connections("c1")
            await stage.produce("t", range(3, 9))
            await stage.admin.delete_records({ZERO: 6})
            stage.network.rejoin("c1")
            await stage.clock.sleep(20.0)
            assert values(await read(consumer, 5)) == [1, 2, 6, 7, 8]

    stage.play(story)


def test_no_offset_and_no_policy_is_raised_until_the_program_seeks() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(3))
        async with stage.consumer(auto_offset_reset="error") as consumer:
            consumer.assign([ZERO])
            for _ in range(2):
                with pytest.raises(NoOffsetError, match="t-0"):
                    await consumer.poll(5.0)
            consumer.seek(ZERO, 1)
            assert values(await read(consumer, 2)) == [1, 2]

    stage.play(story)


def test_a_seek_right_after_assigning_needs_no_policy() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(3))
        async with stage.consumer(auto_offset_reset="error") as consumer:
            consumer.assign([ZERO])
            await stage.clock.sleep(1.0)
            consumer.seek(ZERO, 2)
            assert values(await read(consumer, 1)) == [2]

    stage.play(story)


def test_a_record_that_cannot_be_deserialized_can_be_passed() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", [0, "one", 2])
        async with stage.consumer(value_deserializer=int) as consumer:
            consumer.assign([ZERO])
            assert [record.value for record in await consumer.poll()] == [0]
            with pytest.raises(RecordDeserializationError) as raised:
                await consumer.poll()
            assert (raised.value.partition, raised.value.offset) == (ZERO, 1)
            consumer.seek(ZERO, raised.value.offset + 1)
            assert [record.value for record in await consumer.poll()] == [2]

    stage.play(story)


def test_a_cluster_that_does_not_answer_at_the_beginning_is_raised() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        host = stage.network.host("lonely")
        async with AsyncConsumer("nobody:9092", network=host, clock=stage.clock) as consumer:
            consumer.assign([ZERO])
            with pytest.raises(ClusterUnreachableError, match="nobody:9092"):
                await consumer.poll(60.0)

    stage.play(story)


def test_a_broker_that_restarts_is_waited_for() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(3))
        async with stage.consumer() as consumer:
            consumer.assign([ZERO])
            await read(consumer, 3)
            await stage.stop_broker()
            assert await consumer.poll(20.0) == []
            await stage.start_broker()
            await stage.produce("t", range(3, 5))
            assert values(await read(consumer, 2)) == [3, 4]

    stage.play(story)


def test_a_lost_connection_costs_no_record_and_repeats_none() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        async with stage.consumer() as consumer:
            consumer.assign([ZERO])
            seen: list[int] = []
            for number in range(6):
                await stage.produce("t", [number])
                stage.network.drop_connections("c1")
                seen += values(await read(consumer, 1))
            assert seen == list(range(6))

    stage.play(story)


def test_a_closed_consumer_says_so() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        consumer = stage.consumer()
        await consumer.close()
        await consumer.close()
        with pytest.raises(ClosedClientError):
            await consumer.poll()

    stage.play(story)


def test_closing_ends_every_task_timer_and_connection() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(3))
        connections = stage.network.open_connections
        timers = stage.clock.pending_timers
        async with stage.consumer(group="g", topics="t") as consumer:
            await read(consumer, 3)
        await stage.clock.sleep(0.001)
        assert stage.network.open_connections == connections
        assert stage.clock.pending_timers <= timers + 1

    stage.play(story)


def test_raw_batches_can_be_had() -> None:
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(3))
        await stage.produce("t", range(3, 5))
        async with stage.consumer() as consumer:
            consumer.assign([ZERO])
            consumer.seek(ZERO, 1)
            found = await consumer.poll_batches(5.0)
            assert [(one.partition, one.from_offset, one.next_offset) for one in found] == [
                (ZERO, 1, 3),
                (ZERO, 3, 5),
            ]
            assert await consumer.position(ZERO) == 5

    stage.play(story)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group": ""}, "empty"),
        ({"group": "a", "group_id": "b"}, "contradict"),
        ({"commit": "sometimes"}, "after"),
        ({"commit": "after", "enable_auto_commit": False}, "contradict"),
        ({"assignors": []}, "assignor"),
        ({"assignors": ["rang"]}, "range"),
        ({"topics": "a", "pattern": "b"}, "by their names"),
        ({"group_protocol": "new"}, "classic"),
        ({"group_protocol": "consumer", "session_timeout_ms": 1}, "group.consumer.session"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 1}, "heartbeat.interval.ms"),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
            "group.remote.assignor",
        ),
        ({"group_protocol": "consumer", "assignors": ["range"]}, "group.remote.assignor"),
        ({"group_remote_assignor": "range"}, "group.protocol=consumer"),
        ({"no_such_option": 1}, "no_such_option"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        AsyncConsumer("broker:9092", **options)  # type: ignore[arg-type]
