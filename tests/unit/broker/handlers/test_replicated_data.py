"""Produce, Fetch and their kin on three brokers: who answers what, and when."""

from typing import Any
from uuid import UUID

import pytest

from broker.cluster_stage import Cluster, Machine, play
from moldau.errors import ErrorCode
from moldau.records.batch_builder import build_batch
from moldau.records.batch_header import walk_headers
from moldau.records.batch_reader import records_of
from moldau.replication.rules.read_replica import RACK_AWARE_SELECTOR

PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS = 0, 1, 2, 21


async def produce(
    cluster: Cluster, machine: Machine, value: bytes, *, acks: int = -1, timeout_ms: int = 1500
) -> Any:
    batch = build_batch([(cluster.clock.now_ms(), None, value, ())])
    answer = await cluster.ask(
        machine,
        PRODUCE,
        11,
        transactional_id=None,
        acks=acks,
        timeout=timeout_ms,
        topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": bytes(batch)}]}],
    )
    return answer.responses[0].partition_responses[0], answer


async def fetch(
    cluster: Cluster, machine: Machine, offset: int, *, rack: str = "", version: int = 12
) -> Any:
    values = {
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {
                "topic": "t",
                "partitions": [
                    {
                        "partition": 0,
                        "current_leader_epoch": -1,
                        "fetch_offset": offset,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": 1 << 20,
                    }
                ],
            }
        ],
        "forgotten_topics_data": [],
        "rack_id": rack,
        "replica_id": -1,
        "cluster_id": None,
    }
    if version < 12:
        del values["cluster_id"], values["topics"][0]["partitions"][0]["last_fetched_epoch"]
    answer = await cluster.ask(machine, FETCH, version, **values)
    return answer.responses[0].partitions[0]


def values_of(partition: Any) -> list[bytes]:
    data = memoryview(bytes(partition.records or b""))
    return [
        bytes(row.value)
        for position, header in walk_headers(data)
        for row in records_of(data[position : position + header.size_bytes], header)
    ]


async def three(cluster: Cluster) -> list[Machine]:
    machines = await cluster.start(1, 2, 3)
    assert await cluster.create(machines[0], "t", [1, 2, 3]) is ErrorCode.none
    await cluster.until(lambda: all(len(each.state("t").isr) == 3 for each in machines))
    return machines


def replica(machine: Machine) -> Any:
    found = machine.services.partitions.find("t", 0)
    assert found is not None
    return found


def test_what_is_acknowledged_by_all_is_in_every_log() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        answer, _ = await produce(cluster, machines[0], b"a")
        assert answer.error_code is ErrorCode.none
        assert [replica(each).log.log_end_offset for each in machines] == [1, 1, 1]
        assert values_of(await fetch(cluster, machines[0], 0)) == [b"a"]

    play(story)


def test_a_topic_made_again_is_not_taken_for_the_one_that_is_still_open() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, "t", [1])
        partition, topic_id = replica(machine), machine.image.topics["t"].topic_id
        partition.topic_id = UUID(int=7)  # that of the former topic of this name
        batch = build_batch([(cluster.clock.now_ms(), None, b"a", ())])
        produced = await cluster.ask(
            machine,
            PRODUCE,
            13,
            transactional_id=None,
            acks=-1,
            timeout=1500,
            topic_data=[
                {"topic_id": topic_id, "partition_data": [{"index": 0, "records": bytes(batch)}]}
            ],
        )
        answer = produced.responses[0].partition_responses[0]
        assert answer.error_code is ErrorCode.unknown_topic_id
        assert partition.log.log_end_offset == 0
        wanted = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": 1 << 20,
        }
        fetched = await cluster.ask(
            machine,
            FETCH,
            13,
            replica_id=-1,
            max_wait=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic_id": topic_id, "partitions": [wanted]}],
            forgotten_topics_data=[],
            rack_id="",
            cluster_id=None,
        )
        assert fetched.responses[0].partitions[0].error_code is ErrorCode.unknown_topic_id

    play(story)


def test_a_batch_that_not_all_get_is_not_acknowledged_in_time() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        for other in (1, 2):
            cluster.network.cut("b3", f"b{other}")
        started = cluster.clock.monotonic()
        answer, _ = await produce(cluster, machines[0], b"a")
        assert answer.error_code is ErrorCode.request_timed_out
        assert cluster.clock.monotonic() - started >= 1.5
        assert values_of(await fetch(cluster, machines[0], 0)) == []

    play(story)


def test_a_follower_that_is_cut_off_leaves_the_set_and_the_others_go_on() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        for other in (1, 2):
            cluster.network.cut("b3", f"b{other}")
        answer, _ = await produce(cluster, machines[0], b"a", timeout_ms=30_000)
        assert answer.error_code is ErrorCode.none
        assert machines[0].state("t").isr == (1, 2)
        for other in (1, 2):
            cluster.network.heal("b3", f"b{other}")
        await cluster.until(lambda: set(machines[0].state("t").isr) == {1, 2, 3})
        assert replica(machines[2]).log.log_end_offset == 1

    play(story, replica_lag_time_max_ms="3000")


def test_too_few_in_sync_replicas_take_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        await machines[1].stop()
        await machines[2].stop()
        await cluster.until(lambda: machines[0].state("t").isr == (1,))
        answer, _ = await produce(cluster, machines[0], b"a")
        assert answer.error_code is ErrorCode.not_enough_replicas
        answer, _ = await produce(cluster, machines[0], b"a", acks=1)
        assert answer.error_code is ErrorCode.none

    play(story, min_insync_replicas="2")


def test_a_set_that_shrinks_under_a_batch_is_told() -> None:
    """Nothing is committed by too few (ELR-1), so it is waited for those who may come back."""

    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        for other in (2, 3):
            cluster.network.cut(f"b{other}", "b1")
        answer, _ = await produce(cluster, machines[0], b"a", timeout_ms=30_000)
        assert answer.error_code is ErrorCode.request_timed_out
        answer, _ = await produce(cluster, machines[0], b"b")
        assert answer.error_code is ErrorCode.not_enough_replicas

    play(story, min_insync_replicas="2", replica_lag_time_max_ms="3000")


def test_a_leader_that_dies_loses_nothing_that_was_acknowledged() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        await produce(cluster, machines[0], b"a")
        await machines[0].kill()
        assert machines[0].session is not None
        machines[0].session.expire()
        await cluster.until(lambda: machines[1].state("t").leader == 2)
        await cluster.until(lambda: replica(machines[1]).is_leader)
        answer, _ = await produce(cluster, machines[1], b"b")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, 1)
        assert values_of(await fetch(cluster, machines[1], 0)) == [b"a", b"b"]
        await machines[0].start()
        await cluster.until(lambda: 1 in machines[1].state("t").isr)
        assert replica(machines[0]).log.log_end_offset == 2

    play(story)


def test_a_produce_that_waits_hears_that_its_leader_is_gone() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        for other in (2, 3):
            cluster.network.cut(f"b{other}", "b1")
        assert machines[0].session is not None
        cluster.clock.call_later(0.5, machines[0].session.expire)
        started = cluster.clock.monotonic()
        answer, _ = await produce(cluster, machines[0], b"a", timeout_ms=30_000)
        assert answer.error_code is ErrorCode.not_leader_or_follower
        assert cluster.clock.monotonic() - started < 5

    play(story)


def test_who_asks_the_wrong_broker_is_told_the_right_one() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        answer, whole = await produce(cluster, machines[1], b"a")
        assert answer.error_code is ErrorCode.not_leader_or_follower
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 0)
        (endpoint,) = whole.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (1, "b1", 9092)

    play(story)


@pytest.mark.parametrize("version", [11, 12])
def test_a_consumer_may_read_from_a_follower(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        await produce(cluster, machines[0], b"a")
        await cluster.until(lambda: replica(machines[1]).high_watermark == 1)
        found = await fetch(cluster, machines[1], 0, version=version)
        assert found.error_code is ErrorCode.none
        assert values_of(found) == [b"a"]
        found = await fetch(cluster, machines[1], 5, version=version)  # which it cannot judge
        assert found.error_code is ErrorCode.offset_not_available
        found = await fetch(cluster, machines[0], 5, version=version)
        assert found.error_code is ErrorCode.offset_out_of_range

    play(story)


def test_an_old_consumer_reads_from_the_leader_alone() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        values = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": "t",
                    "partitions": [
                        {
                            "partition": 0,
                            "current_leader_epoch": -1,
                            "fetch_offset": 0,
                            "log_start_offset": -1,
                            "partition_max_bytes": 1 << 20,
                        }
                    ],
                }
            ],
            "forgotten_topics_data": [],
        }
        answer = await cluster.ask(machines[1], FETCH, 10, **values)
        found = answer.responses[0].partitions[0]
        assert found.error_code is ErrorCode.not_leader_or_follower

    play(story)


def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    async def story(cluster: Cluster) -> None:
        machines = []
        for broker_id in (1, 2, 3):
            machine = cluster.machines[broker_id] = Machine(cluster, broker_id)
            await machine.start(broker_rack=f"rack-{broker_id}")
            machines.append(machine)
        await cluster.create(machines[0], "t", [1, 2, 3])
        await produce(cluster, machines[0], b"a")
        found = await fetch(cluster, machines[0], 0, rack="rack-3")
        assert found.preferred_read_replica == 3
        assert values_of(found) == []
        found = await fetch(cluster, machines[0], 0, rack="rack-1")
        assert found.preferred_read_replica == -1
        assert values_of(found) == [b"a"]
        found = await fetch(cluster, machines[0], 0, rack="rack-9")
        assert values_of(found) == [b"a"]

    play(story, replica_selector_class=RACK_AWARE_SELECTOR)


def test_without_a_selector_everybody_reads_from_the_leader() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        await produce(cluster, machines[0], b"a")
        found = await fetch(cluster, machines[0], 0, rack="rack-3")
        assert found.preferred_read_replica == -1
        assert values_of(found) == [b"a"]

    play(story)


def test_records_are_deleted_in_every_replica() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        await produce(cluster, machines[0], b"a")
        await produce(cluster, machines[0], b"b")
        row = {"partition_index": 0, "offset": 1}
        topics = [{"name": "t", "partitions": [row]}]
        answer = await cluster.ask(machines[0], DELETE_RECORDS, 2, topics=topics, timeout=5000)
        found = answer.topics[0].partitions[0]
        assert (found.error_code, found.low_watermark) == (ErrorCode.none, 1)
        assert [replica(each).log.log_start_offset for each in machines] == [1, 1, 1]

    play(story)


def test_records_are_not_deleted_in_time_where_a_replica_cannot_be_reached() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        await produce(cluster, machines[0], b"a")
        cluster.network.cut("b3", "b1")
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
        answer = await cluster.ask(machines[0], DELETE_RECORDS, 2, topics=topics, timeout=1000)
        assert answer.topics[0].partitions[0].error_code is ErrorCode.request_timed_out

    play(story)


def test_the_end_of_the_log_is_not_told_before_it_is_known() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        await produce(cluster, machines[0], b"a")
        cluster.network.cut("b2", "b3")
        await machines[0].stop()
        await cluster.until(lambda: replica(machines[1]).is_leader)
        replica(machines[1]).state.leadership.start_offset = 5  # as if it had more than it knows of
        replica(machines[1]).state.is_settled = False
        wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        topics = [{"name": "t", "partitions": [wanted]}]
        for version, code in ((4, ErrorCode.leader_not_available), (5, None)):
            answer = await cluster.ask(
                machines[1],
                LIST_OFFSETS,
                version,
                replica_id=-1,
                isolation_level=0,
                topics=topics,
            )
            expected = code or ErrorCode.offset_not_available
            assert answer.topics[0].partitions[0].error_code is expected

    play(story)


def test_any_replica_tells_where_its_own_log_ends() -> None:
    """Replica id -2, whoever leads and also where nobody does: a recovery compares it (ELR-4)."""

    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        await produce(cluster, machines[0], b"a")
        await cluster.until(lambda: replica(machines[1]).log.log_end_offset == 1)
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]

        async def ask(replica_id: int) -> Any:
            answer = await cluster.ask(
                machines[1],
                LIST_OFFSETS,
                9,
                replica_id=replica_id,
                isolation_level=0,
                topics=topics,
            )
            return answer.topics[0].partitions[0]

        assert (await ask(-1)).error_code is ErrorCode.not_leader_or_follower
        row = await ask(-2)
        assert (row.error_code, row.offset, row.leader_epoch) == (ErrorCode.none, 1, 0)

    play(story)
