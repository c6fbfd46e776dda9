"""What every broker of a cluster tells about all of them, and topics that are made on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from kio.index import load_request_schema

from broker.cluster_stage import Cluster, Machine, play
from moldau.cluster.rules.metadata_image import BrokerState
from moldau.errors import ErrorCode
from moldau.simulation.manual_clock import wait_until_idle
from moldau.wire.layout import layout_of

METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 3, 10, 60, 75
LISTENER = "PLAINTEXT"


async def metadata(cluster: Cluster, machine: Machine, *topics: str, creates: bool = False) -> Any:
    return await cluster.ask(
        machine,
        METADATA,
        8,
        topics=[{"name": topic} for topic in topics],
        allow_auto_topic_creation=creates,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


async def coordinator(cluster: Cluster, machine: Machine) -> Any:
    answer = await cluster.ask(
        machine, FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("readers",)
    )
    return answer.coordinators[0]


def test_a_broker_tells_of_itself_also_while_nobody_is_registered() -> None:
    """Clients that are told of no broker at all have nobody left to ask."""

    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        assert await cluster.create(one, "clicks", [1]) == 0
        assert one.broker is not None
        assert one.session is not None
        assert one.broker._lifecycle is not None
        registration = one.broker._lifecycle._registration
        may_register = asyncio.Event()
        register = registration.register

        async def register_late(broker: BrokerState) -> BrokerState:
            await may_register.wait()
            return await register(broker)

        registration.register = register_late  # type: ignore[method-assign]
        one.session.expire()
        await cluster.until(lambda: not one.image.brokers)
        answer = await metadata(cluster, one, "clicks")
        assert [(broker.node_id, broker.host) for broker in answer.brokers] == [(1, "b1")]
        assert answer.topics[0].partitions[0].error_code is ErrorCode.leader_not_available
        described = await cluster.ask(
            one,
            DESCRIBE_CLUSTER,
            1,
            include_cluster_authorized_operations=False,
            endpoint_type=1,
        )
        assert [broker.broker_id for broker in described.brokers] == [1]
        assert (await coordinator(cluster, one)).node_id == -1  # but nobody coordinates
        may_register.set()
        await cluster.until(lambda: bool(one.image.brokers))

    play(story)


def test_every_broker_knows_all_of_them_and_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await cluster.start(1, 2, 3)
        for machine in machines:
            answer = await metadata(cluster, machine)
            assert answer.controller_id == 1
            assert [(one.node_id, one.host) for one in answer.brokers] == [
                (1, "b1"),
                (2, "b2"),
                (3, "b3"),
            ]
            described = await cluster.ask(
                machine, DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False
            )
            assert described.controller_id == 1
            assert [one.broker_id for one in described.brokers] == [1, 2, 3]

    play(story)


def test_every_version_tells_all_topics_or_those_asked_for_each_of_them_once() -> None:
    async def story(cluster: Cluster) -> None:
        one, _ = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2], [2, 1])
        await cluster.create(one, "orders", [2])
        for version in range(14):
            request_class = load_request_schema(METADATA, version)
            known = {field.name for field in layout_of(request_class)}
            asked = {name: False for name in known if name != "topics"}
            everything = await cluster.ask(
                one, METADATA, version, topics=None if version else [], **asked
            )
            assert [topic.name for topic in everything.topics] == ["clicks", "orders"]
            names = ("orders", "missing", "clicks", "orders", "a b", "orders")
            topics = [{"name": name} for name in names]
            if version >= 10:
                topics = [{"name": name, "topic_id": None} for name in names]
            named = await cluster.ask(one, METADATA, version, topics=topics, **asked)
            orders, missing, clicks, illegal = named.topics
            assert [clicks, orders] == list(everything.topics)
            assert missing.error_code is ErrorCode.unknown_topic_or_partition
            assert illegal.error_code is ErrorCode.invalid_topic_exception
            assert [(row.partition_index, row.leader_id) for row in clicks.partitions] == [
                (0, 1),
                (1, 2),
            ]
            if version >= 12:
                ids = (clicks.topic_id, UUID(int=7))
                for no_name in (None, ""):  # Java's consumer sends the latter
                    by_id = [{"name": no_name, "topic_id": id_} for id_ in ids]
                    found = await cluster.ask(one, METADATA, version, topics=by_id, **asked)
                    assert found.topics[0] == clicks
                    assert found.topics[1].error_code is ErrorCode.unknown_topic_id

    play(story, auto_create_topics_enable="false")


async def pages(cluster: Cluster, machine: Machine, names: Sequence[str], limit: int) -> list[Any]:
    """Every page, as a tool asks for them that follows the cursors."""
    found: list[Any] = []
    while not found or found[-1].next_cursor is not None:
        cursor = found[-1].next_cursor if found else None
        found.append(
            await cluster.ask(
                machine,
                DESCRIBE_TOPIC_PARTITIONS,
                0,
                topics=[{"name": name} for name in names],
                response_partition_limit=limit,
                cursor=cursor
                and {"topic_name": cursor.topic_name, "partition_index": cursor.partition_index},
            )
        )
    return found


def test_topics_are_described_in_pages_of_no_more_partitions_than_asked_for() -> None:
    async def story(cluster: Cluster) -> None:
        machine, _ = await cluster.start(1, 2)
        counts = {"clicks": 5, "orders": 1, "visits": 3}
        for name, count in counts.items():
            await cluster.create(machine, name, *([1, 2],) * count)
        everything = [(name, number) for name, count in counts.items() for number in range(count)]
        for limit in range(1, 12):
            found = await pages(cluster, machine, (), limit)
            rows = [
                [
                    (topic.name, row.partition_index)
                    for topic in page.topics
                    for row in topic.partitions
                ]
                for page in found
            ]
            assert [row for page in rows for row in page] == everything
            assert {len(page) for page in rows[:-1]} <= {limit}
            assert len(rows[-1]) <= limit
        (page,) = await pages(cluster, machine, ("visits", "a b", "missing"), 10)
        assert [(topic.name, topic.error_code) for topic in page.topics] == [
            ("a b", ErrorCode.invalid_topic_exception),
            ("missing", ErrorCode.unknown_topic_or_partition),
            ("visits", ErrorCode.none),
        ]
        for row in page.topics[2].partitions:
            assert (row.leader_id, row.replica_nodes, row.offline_replicas) == (1, (1, 2), ())
            assert (row.eligible_leader_replicas, row.last_known_elr) == ((), ())

    play(story)


def test_a_cursor_past_the_end_or_before_the_beginning_is_no_error() -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await cluster.create(one, "clicks", [1], [1])
        for partition, numbers in ((-3, [0, 1]), (7, [])):
            page = await cluster.ask(
                one,
                DESCRIBE_TOPIC_PARTITIONS,
                0,
                topics=[],
                response_partition_limit=10,
                cursor={"topic_name": "clicks", "partition_index": partition},
            )
            (topic,) = page.topics
            assert [row.partition_index for row in topic.partitions] == numbers
            assert page.next_cursor is None

    play(story)


def test_replicas_that_are_offline_and_leaders_that_are_missing_are_told() -> None:
    async def story(cluster: Cluster) -> None:
        one, two, _ = await cluster.start(1, 2, 3)
        await cluster.create(one, "clicks", [2, 3], [3, 2])
        await cluster.create(one, "alone", [2])
        await two.stop()
        await wait_until_idle()
        clicks, alone = (await metadata(cluster, one, "clicks", "alone")).topics
        for row in clicks.partitions:
            assert (row.leader_id, row.isr_nodes, row.offline_replicas) == (3, (3,), (2,))
        (row,) = alone.partitions
        assert row.error_code is ErrorCode.leader_not_available
        assert (row.leader_id, row.isr_nodes, row.offline_replicas) == (-1, (2,), (2,))

    play(story)


def test_a_topic_is_made_on_demand_by_a_broker_that_is_not_the_controller() -> None:
    async def story(cluster: Cluster) -> None:
        one, _, three = await cluster.start(1, 2, 3)
        answer = await metadata(cluster, three, "clicks", creates=True)
        assert answer.topics[0].error_code is ErrorCode.none
        await wait_until_idle()
        assert len(one.image.topics["clicks"].partitions[0].replicas) == 2

    play(story, default_replication_factor="2")


def test_a_topic_is_made_on_demand_while_the_controller_changes() -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await one.stop()
        answer = await metadata(cluster, three, "clicks", creates=True)
        assert answer.topics[0].error_code is ErrorCode.none
        assert two.image.controller_id in (2, 3)

    play(story)


def test_groups_wait_until_their_topic_can_have_all_its_replicas() -> None:
    async def story(cluster: Cluster) -> None:
        _, two = await cluster.start(1, 2)
        refused = await coordinator(cluster, two)
        assert refused.error_code is ErrorCode.coordinator_not_available
        assert "__consumer_offsets" not in two.image.topics
        await cluster.start(3)
        found = await coordinator(cluster, two)
        assert (found.error_code, found.node_id in (1, 2, 3)) == (ErrorCode.none, True)
        partitions = two.image.topics["__consumer_offsets"].partitions
        assert {len(state.replicas) for state in partitions} == {3}

    play(story, offsets_topic_replication_factor="3", offsets_topic_num_partitions="3")


def test_a_broker_alone_keeps_one_replica_of_the_topic_of_groups() -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        assert (await coordinator(cluster, one)).node_id == 1
        partitions = one.image.topics["__consumer_offsets"].partitions
        assert {state.replicas for state in partitions} == {(1,)}

    play(story)


def test_with_zookeeper_the_topic_of_groups_has_three_replicas_unless_told_otherwise() -> None:
    async def story(cluster: Cluster) -> None:
        one, _ = await cluster.start(1, 2)
        refused = await coordinator(cluster, one)
        assert refused.error_code is ErrorCode.coordinator_not_available
        await cluster.start(3)
        assert (await coordinator(cluster, one)).error_code is ErrorCode.none
        partitions = one.image.topics["__consumer_offsets"].partitions
        assert {len(state.replicas) for state in partitions} == {3}

    play(story, zookeeper_connect="unused:2181", offsets_topic_num_partitions="2")


def test_who_asks_what_it_may_do_hears_that_it_may_do_everything_and_others_hear_nothing() -> None:
    """The numbers are Kafka's own without an authorizer."""

    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await cluster.create(one, "clicks", [1])
        for asks, of_topic, of_cluster in ((True, 3576, 8096), (False, -(2**31), -(2**31))) * 2:
            answer = await cluster.ask(
                one,
                METADATA,
                10,
                topics=[{"name": "clicks", "topic_id": None}, {"name": "none", "topic_id": None}],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=asks,
                include_topic_authorized_operations=asks,
            )
            clicks, missing = answer.topics
            assert clicks.topic_authorized_operations == of_topic
            assert missing.topic_authorized_operations == -(2**31)
            assert answer.cluster_authorized_operations == of_cluster
            described = await cluster.ask(
                one, DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=asks
            )
            assert described.cluster_authorized_operations == of_cluster
        page = await cluster.ask(
            one,
            DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=[{"name": "clicks"}, {"name": "none"}],
            response_partition_limit=10,
            cursor=None,
        )
        assert [topic.topic_authorized_operations for topic in page.topics] == [3576, -(2**31)]

    play(story)
