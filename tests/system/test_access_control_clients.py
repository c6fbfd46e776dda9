"""Access control with the clients that people use, over SASL: what is granted, what is refused, and
in which of their words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.errors import TopicAuthorizationFailedError as AioTopicError
from aiokafka.helpers import create_ssl_context
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

import moldau
from moldau import model
from moldau.errors import (
    ClusterAuthorizationError,
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
)
from moldau.testing.running_secured_broker import SecuredBroker, secured_broker
from support.waiting import eventually

MECHANISM = "PLAIN"
OPTIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(OPTIONS, folder=tmp_path_factory.mktemp("controlled")) as running:
        admin = moldau.Admin(running.bootstrap, **_options(running, "admin"))
        with admin:
            made = admin.create_topics(
                [moldau.NewTopic(name=name) for name in ("open", "shut", "orders.eu")]
            )
            assert not [one for one in made.values() if isinstance(one, KafkaError)]
            grants = [
                _grant(model.AclOperation.READ, "open"),
                _grant(model.AclOperation.WRITE, "open"),
                _grant(model.AclOperation.READ, "readers", model.AclResourceType.GROUP),
                _grant(model.AclOperation.ALL, "orders.", pattern=model.PatternType.PREFIXED),
            ]
            assert set(admin.create_acls(grants).values()) == {None}
        yield running


def _grant(
    operation: model.AclOperation,
    name: str,
    kind: model.AclResourceType = model.AclResourceType.TOPIC,
    pattern: model.PatternType = model.PatternType.LITERAL,
) -> model.AclBinding:
    return model.AclBinding(
        model.ResourcePattern(kind, name, pattern),
        model.AclEntry("User:alice", model.AclPermission.ALLOW, operation),
    )


def _options(broker: SecuredBroker, user: str) -> dict[str, str]:
    found = broker.client_options(user, MECHANISM)
    return {name.replace(".", "_"): value for name, value in found.items()}


def test_our_clients_do_what_is_granted_and_say_what_is_not(broker: SecuredBroker) -> None:
    alice = _options(broker, "alice")
    with moldau.Producer(broker.bootstrap, **alice) as producer:
        assert producer.send("open", value=b"v").result(30).topic == "open"
        assert producer.send("orders.eu", value=b"v").result(30).topic == "orders.eu"
        with pytest.raises(TopicAuthorizationError, match="moldau acls add"):
            producer.send("shut", value=b"v").result(30)
    reading: dict[str, Any] = {"auto_offset_reset": "earliest", **alice}
    with moldau.Consumer(broker.bootstrap, topics=["open"], group="readers", **reading) as consumer:
        assert next(iter(consumer)).value == b"v"
    with (
        pytest.raises(GroupAuthorizationError, match="User:alice lacks Describe on Group:others"),
        moldau.Consumer(broker.bootstrap, topics=["open"], group="others", **reading) as consumer,
    ):
        consumer.poll(30.0)
    with (
        pytest.raises(TopicAuthorizationError, match="'shut'"),
        moldau.Consumer(broker.bootstrap, topics=["shut"], group="readers", **reading) as consumer,
    ):
        consumer.poll(30.0)
    with moldau.Admin(broker.bootstrap, **alice) as admin:
        assert set(admin.list_topics()) == {"open", "orders.eu"}
        with pytest.raises(ClusterAuthorizationError, match="--operation describe --cluster"):
            admin.describe_acls()


def _librdkafka(broker: SecuredBroker, user: str, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.authority_file),
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password": broker.users[user],
        **more,
    }


def test_librdkafka_is_refused_in_its_words(broker: SecuredBroker) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(_librdkafka(broker, "alice"))
    for topic in ("open", "shut"):
        producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert any(error is None for error in errors)
    (denied,) = [error for error in errors if error is not None]
    assert denied.code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    settings = _librdkafka(
        broker, "alice", **{"group.id": "others", "auto.offset.reset": "earliest"}
    )
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.subscribe(["open"])
        message = eventually(lambda: consumer.poll(1.0), "librdkafka says why")
        assert message.error().code() == confluent_kafka.KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        consumer.close()


def test_librdkafka_changes_the_lists(broker: SecuredBroker) -> None:
    admin = AdminClient(_librdkafka(broker, "admin"))
    binding = AclBinding(
        ResourceType.TOPIC,
        "by-librdkafka",
        ResourcePatternType.LITERAL,
        "User:bob",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    wanted = AclBindingFilter(
        ResourceType.TOPIC,
        "by-librdkafka",
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    (made,) = admin.create_acls([binding]).values()
    made.result(30)
    assert admin.describe_acls(wanted).result(30) == [binding]
    (deleted,) = admin.delete_acls([wanted]).values()
    assert deleted.result(30) == [binding]
    alice = AdminClient(_librdkafka(broker, "alice"))
    assert alice.describe_acls(wanted).result(30) == []  # librdkafka passes over the code
    (refused,) = alice.create_acls([binding]).values()
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        refused.result(30)
    code = caught.value.args[0].code()
    assert code == confluent_kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED


def _kafka_python(broker: SecuredBroker, user: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(broker.authority_file),
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": user,
        "sasl_plain_password": broker.users[user],
    }


def test_kafka_python_is_refused_in_its_words(broker: SecuredBroker) -> None:
    settings = _kafka_python(broker, "alice")
    producer = kafka.KafkaProducer(**settings, max_block_ms=30_000)
    try:
        assert producer.send("open", b"v").get(30).topic == "open"
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send("shut", b"v").get(30)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer("open", group_id="others", **settings)
    try:
        with pytest.raises(GroupAuthorizationFailedError):
            consumer.poll(30_000)
    finally:
        consumer.close(autocommit=False)


def test_aiokafka_is_refused_in_its_words(broker: SecuredBroker) -> None:
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": create_ssl_context(cafile=str(broker.authority_file)),
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": "alice",
        "sasl_plain_password": broker.users["alice"],
    }

    async def story() -> None:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            assert (await producer.send_and_wait("open", b"v")).topic == "open"
            with pytest.raises(AioTopicError):
                await producer.send_and_wait("shut", b"v")

    asyncio.run(asyncio.wait_for(story(), 60))
