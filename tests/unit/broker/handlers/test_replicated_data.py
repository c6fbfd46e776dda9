"""Produce, Fetch and their kin on three brokers: who answers what, and when."""

from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema

from broker.cluster_stage import Cluster, Machine, play
from moldau.errors import ErrorCode
from moldau.net.port import MOST_OWED_ANSWERS
from moldau.records.batch_header import walk_headers
from moldau.records.record_batch import build_batch, records_of
from moldau.replication.rules.replica import RACK_AWARE_SELECTOR
from moldau.simulation.manual_clock import wait_until_idle
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit

PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS, DESCRIBE_PRODUCERS = 0, 1, 2, 21, 61


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


# Produce while former batches wait for the replicas


def test_every_replica_describes_the_producers_of_a_partition() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        batch = build_batch(
            [(cluster.clock.now_ms(), None, b"a", ())],
            producer_id=5,
            producer_epoch=2,
            base_sequence=0,
        )
        answer = await cluster.ask(
            machines[0],
            PRODUCE,
            11,
            transactional_id=None,
            acks=-1,
            timeout=1500,
            topic_data=[{"name": "t", "partition_data": [{"index": 0, "records": bytes(batch)}]}],
        )
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
        for machine in machines:
            wanted = [{"name": "t", "partition_indexes": (0,)}]
            described = await cluster.ask(machine, DESCRIBE_PRODUCERS, 0, topics=wanted)
            partition = described.topics[0].partitions[0]
            assert partition.error_code is ErrorCode.none
            assert [one.producer_id for one in partition.active_producers] == [5]

    play(story)


def produce_values(cluster: Cluster, value: bytes, acks: int, **sequence: int) -> dict[str, object]:
    batch = build_batch([(cluster.clock.now_ms(), None, value, ())], **sequence)
    data = {"name": "t", "partition_data": [{"index": 0, "records": bytes(batch)}]}
    return {"transactional_id": None, "acks": acks, "timeout": 1500, "topic_data": [data]}


def list_offsets_values() -> dict[str, object]:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": "t", "partitions": [wanted]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


class Pipeline:
    """One connection, on which requests leave without waiting for answers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sent: list[tuple[int, int]] = []

    async def open(self, machine: Machine) -> None:
        host = self.cluster.network.host("client")
        self.channel = await self.cluster.during(host.connect(f"b{machine.id}", 9092, timeout=5))

    async def send(self, key: int, version: int, values: dict[str, object]) -> None:
        entity = fit(load_request_schema(key, version), values)
        await self.channel.send([encode_request(entity, len(self.sent), "test")])
        self.sent.append((key, version))
        await wait_until_idle()

    async def receive(self) -> Any:
        """The next answer, which has to be the one to the next request."""
        key, version = self.sent[self.received]
        frame = memoryview(await self.cluster.during(self.channel.receive()))
        correlation_id, answer = parse_response(key, version, frame)
        assert correlation_id == self.received
        self.received += 1
        return answer

    received = 0


def produced(answer: Any) -> tuple[ErrorCode, int]:
    row = answer.responses[0].partition_responses[0]
    return row.error_code, row.base_offset


async def cut_off(cluster: Cluster, machines: list[Machine]) -> Pipeline:
    """The followers hear nothing more of the leader; a client does."""
    pipeline = Pipeline(cluster)
    await pipeline.open(machines[0])
    cluster.network.cut("b1", "b2")
    cluster.network.cut("b1", "b3")
    return pipeline


def mend(cluster: Cluster) -> None:
    cluster.network.heal("b1", "b2")
    cluster.network.heal("b1", "b3")


def test_batches_are_appended_while_former_ones_wait_for_the_replicas() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        pipeline = await cut_off(cluster, machines)
        for value in (b"a", b"b", b"c"):
            await pipeline.send(PRODUCE, 11, produce_values(cluster, value, acks=-1))
        await pipeline.send(PRODUCE, 11, produce_values(cluster, b"d", acks=1))
        assert replica(machines[0]).log.log_end_offset == 4
        assert replica(machines[0]).high_watermark == 0
        mend(cluster)
        answers = [produced(await pipeline.receive()) for _ in range(4)]
        assert answers == [(ErrorCode.none, offset) for offset in range(4)]

    play(story)


def test_any_other_request_waits_until_what_was_produced_before_it_is_answered() -> None:
    """A client that asks for the end has to find what it has produced before."""

    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        pipeline = await cut_off(cluster, machines)
        await pipeline.send(PRODUCE, 11, produce_values(cluster, b"a", acks=-1))
        await pipeline.send(LIST_OFFSETS, 5, list_offsets_values())
        await pipeline.send(PRODUCE, 11, produce_values(cluster, b"b", acks=-1))
        assert replica(machines[0]).log.log_end_offset == 1
        mend(cluster)
        assert produced(await pipeline.receive()) == (ErrorCode.none, 0)
        assert (await pipeline.receive()).topics[0].partitions[0].offset == 1
        assert produced(await pipeline.receive()) == (ErrorCode.none, 1)

    play(story)


def test_what_follows_a_refused_batch_of_an_idempotent_producer_is_refused_as_well() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        pipeline = await cut_off(cluster, machines)
        for sequence in (0, 2, 3, 1):
            batch = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            values = produce_values(cluster, b"%d" % sequence, -1, **batch)
            await pipeline.send(PRODUCE, 11, values)
        assert replica(machines[0]).log.log_end_offset == 2
        mend(cluster)
        codes = [produced(await pipeline.receive())[0] for _ in range(4)]
        refused = ErrorCode.out_of_order_sequence_number
        assert codes == [ErrorCode.none, refused, refused, ErrorCode.none]
        assert values_of(await fetch(cluster, machines[0], 0)) == [b"0", b"1"]

    play(story)


def test_batches_that_are_not_replicated_in_time_are_answered_in_order() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        pipeline = await cut_off(cluster, machines)
        for value in (b"a", b"b"):
            await pipeline.send(PRODUCE, 11, produce_values(cluster, value, acks=-1))
        await pipeline.send(PRODUCE, 11, produce_values(cluster, b"c", acks=1))
        codes = [produced(await pipeline.receive())[0] for _ in range(3)]
        assert codes == [ErrorCode.request_timed_out, ErrorCode.request_timed_out, ErrorCode.none]
        mend(cluster)

    play(story)


def test_what_a_client_sent_before_it_went_is_appended_and_nobody_waits_for_it() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await three(cluster)
        pipeline = await cut_off(cluster, machines)
        for number in range(MOST_OWED_ANSWERS + 5):
            await pipeline.send(PRODUCE, 11, produce_values(cluster, b"%d" % number, acks=-1))
        assert replica(machines[0]).log.log_end_offset == MOST_OWED_ANSWERS
        await pipeline.channel.close()
        await wait_until_idle()
        assert replica(machines[0]).log.log_end_offset == MOST_OWED_ANSWERS + 5
        assert len(machines[0].services.purgatory) == 0
        mend(cluster)

    play(story)
