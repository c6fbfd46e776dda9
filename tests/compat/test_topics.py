"""Topics as each admin client makes, lists, describes, enlarges and deletes them."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta

import kafka.errors
import pytest
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import NewPartitions, NewTopic
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.errors import ErrorCode

from moldau.records.record_batch import build_batch
from support import aiokafka_client, confluent_client, kafka_python_client
from support.broker_process import BrokerProcess
from support.requests import full_request
from support.rows import numbered_rows
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS, eventually
from support.wire_client import WireClient

BROKER_SETTINGS = {"num.partitions": "4"}
BROKER_ID = 1


# confluent-kafka


def test_confluent_kafka_makes_lists_describes_enlarges_and_deletes(bootstrap: str) -> None:
    admin = confluent_client.admin_client(bootstrap)
    name = fresh_name()

    admin.create_topics([NewTopic(name, 3, 1)])[name].result(PATIENCE_SECONDS)
    listed = admin.list_topics(timeout=PATIENCE_SECONDS)
    described = admin.describe_topics(TopicCollection([name]))[name].result(PATIENCE_SECONDS)

    assert sorted(listed.topics[name].partitions) == [0, 1, 2]
    assert listed.controller_id == BROKER_ID
    assert {broker.host for broker in listed.brokers.values()} == {"127.0.0.1"}
    assert not described.is_internal
    for partition in described.partitions:
        assert partition.leader.id == BROKER_ID
        assert [node.id for node in partition.replicas] == [BROKER_ID]
        assert [node.id for node in partition.isr] == [BROKER_ID]

    admin.create_partitions([NewPartitions(name, 5)])[name].result(PATIENCE_SECONDS)
    assert len(admin.list_topics(name, PATIENCE_SECONDS).topics[name].partitions) == 5
    assert confluent_client.produce(bootstrap, name, numbered_rows(1), partition=4) == [0]

    admin.delete_topics([name])[name].result(PATIENCE_SECONDS)
    assert name not in admin.list_topics(timeout=PATIENCE_SECONDS).topics


def test_confluent_kafka_describes_the_cluster(bootstrap: str) -> None:
    admin = confluent_client.admin_client(bootstrap)
    cluster = admin.describe_cluster().result(PATIENCE_SECONDS)
    assert cluster.cluster_id == admin.list_topics(timeout=PATIENCE_SECONDS).cluster_id
    assert [node.id for node in cluster.nodes] == [BROKER_ID]
    assert cluster.controller.id == BROKER_ID


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad name", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("ä", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("no-partitions", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("too-many-replicas", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("no-replicas", 1, 0), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("bad-config", 1, 1, config={"retention.ms": "x"}), KafkaError.INVALID_CONFIG),
        (NewTopic("odd-config", 1, 1, config={"no.such.thing": "1"}), KafkaError.INVALID_CONFIG),
        (
            NewTopic("no-such-broker", 1, replica_assignment=[[17]]),
            KafkaError.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            NewTopic("bad-policy", 1, 1, config={"cleanup.policy": "x"}),
            KafkaError.INVALID_CONFIG,
        ),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else "",
)
def test_confluent_kafka_learns_why_a_topic_is_refused(
    bootstrap: str, topic: NewTopic, code: int
) -> None:
    admin = confluent_client.admin_client(bootstrap)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([topic])[topic.topic].result(PATIENCE_SECONDS)
    assert refused.value.args[0].code() == code, refused.value
    assert topic.topic not in admin.list_topics(timeout=PATIENCE_SECONDS).topics


def test_a_topic_that_exists_is_refused(bootstrap: str, topic: str) -> None:
    admin = confluent_client.admin_client(bootstrap)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_SECONDS)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_names_that_would_share_their_metrics_are_refused(bootstrap: str) -> None:
    """a.b and a_b, as in Kafka: a metric's name has no dots."""
    admin = confluent_client.admin_client(bootstrap)
    admin.create_topics([NewTopic("twin.name", 1, 1)])["twin.name"].result(PATIENCE_SECONDS)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("twin_name", 1, 1)])["twin_name"].result(PATIENCE_SECONDS)
    assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_one_bad_topic_does_not_keep_the_others_from_being_made(bootstrap: str) -> None:
    admin = confluent_client.admin_client(bootstrap)
    good = fresh_name()
    outcomes = admin.create_topics([NewTopic("bad name", 1, 1), NewTopic(good, 1, 1)])
    outcomes[good].result(PATIENCE_SECONDS)
    with pytest.raises(KafkaException):
        outcomes["bad name"].result(PATIENCE_SECONDS)


def test_a_validated_topic_is_not_made(bootstrap: str) -> None:
    admin = confluent_client.admin_client(bootstrap)
    name = fresh_name()
    admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].result(PATIENCE_SECONDS)
    assert name not in admin.list_topics(timeout=PATIENCE_SECONDS).topics


def test_partitions_are_only_added(bootstrap: str, topics: Topics) -> None:
    admin = confluent_client.admin_client(bootstrap)
    name = topics.create(partitions=3)
    for count in (3, 2, 1):
        with pytest.raises(KafkaException) as refused:
            admin.create_partitions([NewPartitions(name, count)])[name].result(PATIENCE_SECONDS)
        assert refused.value.args[0].code() == KafkaError.INVALID_PARTITIONS
    with pytest.raises(KafkaException) as refused:
        admin.create_partitions([NewPartitions("missing", 2)])["missing"].result(PATIENCE_SECONDS)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert len(topics.describe(name)[1]) == 3


def test_an_unknown_topic_cannot_be_deleted(bootstrap: str) -> None:
    admin = confluent_client.admin_client(bootstrap)
    with pytest.raises(KafkaException) as refused:
        admin.delete_topics(["missing"])["missing"].result(PATIENCE_SECONDS)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_made_again_under_its_name_is_another_topic(bootstrap: str, topics: Topics) -> None:
    name = topics.create()
    first = topics.describe(name)[0]
    confluent_client.produce(bootstrap, name, numbered_rows(10))
    topics.delete(name)
    topics.create_named(name, 2)
    assert topics.describe(name)[0] != first
    assert confluent_client.produce(bootstrap, name, numbered_rows(1)) == [0]


def test_a_topic_that_is_seen_before_it_is_ready_is_worth_a_retry(
    broker: BrokerProcess,
) -> None:
    """Another client may learn of a new topic while its partitions are still being made."""
    name = fresh_name()
    wanted = CreatableTopic(
        name=name, num_partitions=300, replication_factor=1, assignments=(), configs=()
    )
    creation = CreateTopicsRequest(topics=(wanted,), timeout=timedelta(seconds=30))
    metadata = full_request(3, 12, {"name": name, "allow_auto_topic_creation": False})
    batch = bytes(build_batch([(0, b"k", b"v", ())]))
    last = full_request(0, 9, {"name": name, "acks": -1, "index": 299, "records": batch})
    seen = set()
    with WireClient(broker.port) as maker, WireClient(broker.port) as other:
        sent = maker.send_request(creation)
        eventually(lambda: other.ask(metadata).topics[0].partitions, "the topic is seen")
        while ErrorCode.none not in seen:
            (answer,) = other.ask(last).responses[0].partition_responses
            seen.add(answer.error_code)
        maker.receive_response(type(creation), sent)
    assert seen <= {
        ErrorCode.none,
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
    }


# kafka-python


def test_kafka_python_makes_lists_describes_enlarges_and_deletes(bootstrap: str) -> None:
    name = fresh_name()
    with kafka_python_client.admin_client(bootstrap) as admin:
        made = admin.create_topics(
            {name: {"num_partitions": 2, "configs": {"retention.ms": "9999999"}}}
        )
        assert name in admin.list_topics()
        (described,) = admin.describe_topics([name])
        assert [part["partition_index"] for part in described["partitions"]] == [0, 1]
        assert {part["leader_id"] for part in described["partitions"]} == {BROKER_ID}
        topic_id = uuid.UUID(described["topic_id"])
        assert made["topics"][0]["topic_id"] == str(topic_id)
        assert made["topics"][0]["configs"]["retention.ms"]["value"] == "9999999"
        (by_id,) = admin.describe_topics([topic_id])
        assert by_id["name"] == name

        admin.create_partitions({name: 4})
        (described,) = admin.describe_topics([name])
        assert len(described["partitions"]) == 4
        by_partition = admin.describe_topic_partitions([name])
        assert len(by_partition["topics"][0]["partitions"]) == 4

        admin.delete_topics([topic_id])
        assert name not in admin.list_topics()


def test_kafka_python_takes_the_brokers_defaults(bootstrap: str) -> None:
    name = fresh_name()
    with kafka_python_client.admin_client(bootstrap) as admin:
        admin.create_topics([name])
        (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == int(BROKER_SETTINGS["num.partitions"])


def test_kafka_python_assigns_replicas_by_hand(bootstrap: str) -> None:
    name = fresh_name()
    with kafka_python_client.admin_client(bootstrap) as admin:
        admin.create_topics({name: {"assignments": {0: [BROKER_ID], 1: [BROKER_ID]}}})
        (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 2


def test_kafka_python_learns_why_it_is_refused(bootstrap: str, topic: str) -> None:
    with kafka_python_client.admin_client(bootstrap) as admin:
        for wanted, error in (
            ({"bad name": {}}, kafka.errors.InvalidTopicError),
            ({"x": {"num_partitions": -7}}, kafka.errors.InvalidPartitionsError),
            ({"x": {"replication_factor": 2}}, kafka.errors.InvalidReplicationFactorError),
            ({"x": {"configs": {"retention.ms": "?"}}}, kafka.errors.InvalidConfigurationError),
            ({topic: {}}, kafka.errors.TopicAlreadyExistsError),
        ):
            with pytest.raises(error):
                admin.create_topics(wanted)
        with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
            admin.delete_topics(["missing"])
        with pytest.raises(kafka.errors.UnknownTopicIdError):
            admin.delete_topics([uuid.uuid4()])
        with pytest.raises(kafka.errors.InvalidPartitionsError):
            admin.create_partitions({topic: 1})


def test_kafka_python_describes_cluster_and_log_directories(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(2)
    confluent_client.produce(bootstrap, topic, numbered_rows(50), partition=1)
    with kafka_python_client.admin_client(bootstrap) as admin:
        cluster = admin.describe_cluster()
        directories = admin.describe_log_dirs()
    assert [node["broker_id"] for node in cluster["brokers"]] == [BROKER_ID]
    sizes = {
        part["partition_index"]: part["partition_size"]
        for node in directories
        for directory in node["log_dirs"]
        for found in directory["topics"]
        if found["name"] == topic
        for part in found["partitions"]
    }
    assert sizes[0] == 0
    assert sizes[1] > 1_000


# aiokafka


def test_aiokafka_makes_lists_describes_enlarges_and_deletes(bootstrap: str) -> None:
    async def run() -> None:
        name = fresh_name()
        async with aiokafka_client.admin_client(bootstrap) as admin:
            made = await admin.create_topics([AioNewTopic(name, 3, 1)])
            assert [error[1] for error in made.topic_errors] == [0]
            assert name in await admin.list_topics()
            (described,) = await admin.describe_topics([name])
            assert sorted(part["partition"] for part in described["partitions"]) == [0, 1, 2]
            grown = await admin.create_partitions({name: AioNewPartitions(total_count=6)})
            assert [error[1] for error in grown.topic_errors] == [0]
            (described,) = await admin.describe_topics([name])
            assert len(described["partitions"]) == 6
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
            cluster = await admin.describe_cluster()
            assert cluster["controller_id"] == BROKER_ID

    asyncio.run(run())


def test_aiokafka_learns_why_it_is_refused(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        async with aiokafka_client.admin_client(bootstrap) as admin:
            answer = await admin.create_topics(
                [
                    AioNewTopic("bad name", 1, 1),
                    AioNewTopic(topic, 1, 1),
                    AioNewTopic("too-many-replicas", 1, 5),
                ]
            )
            codes = {error[0]: error[1] for error in answer.topic_errors}
            assert codes == {"bad name": 17, topic: 36, "too-many-replicas": 38}

    asyncio.run(run())
