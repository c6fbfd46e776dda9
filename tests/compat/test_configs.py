"""Settings of topics and brokers as each admin client sees and changes them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from typing import Any

import kafka.admin
import kafka.errors
import pytest
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from kio.schema.errors import ErrorCode

from support import aiokafka_client, confluent_client, kafka_python_client
from support.broker_process import BrokerProcess
from support.requests import full_request
from support.rows import Row
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS
from support.wire_client import WireClient

BROKER_SETTINGS = {"log.retention.hours": "48", "num.io.threads": "8"}
TWO_DAYS_MS = str(48 * 3_600_000)

TOPIC = ConfigResource.Type.TOPIC
BROKER = ConfigResource.Type.BROKER
GROUP = ConfigResource.Type.GROUP


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return confluent_client.admin_client(bootstrap)


def describe(admin: AdminClient, kind: ConfigResource.Type, name: str) -> dict[str, Any]:
    resource = ConfigResource(kind, name)
    return dict(admin.describe_configs([resource])[resource].result(PATIENCE_SECONDS))


def change(
    admin: AdminClient,
    kind: ConfigResource.Type,
    name: str,
    *changes: tuple[str, AlterConfigOpType, str | None],
) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=operation)
        for key, operation, value in changes
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_SECONDS)


def replace(
    admin: AdminClient, kind: ConfigResource.Type, name: str, configs: dict[str, str]
) -> None:
    resource = ConfigResource(kind, name, set_config=configs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # old, and still in use
        outcome = admin.alter_configs([resource])[resource]
    outcome.result(PATIENCE_SECONDS)


def change_all_brokers(broker: BrokerProcess, key: str, value: str | None) -> None:
    """The settings of the whole cluster are those of a broker without a name."""
    values = {
        "resource_type": 4,
        "resource_name": "",
        "name": key,
        "value": value,
        "config_operation": 0 if value is not None else 1,
    }
    with WireClient(broker.port) as wire:
        (answer,) = wire.ask(full_request(44, 1, values)).responses
    assert answer.error_code is ErrorCode.none, answer


def test_defaults_their_sources_and_their_synonyms(admin: AdminClient, topics: Topics) -> None:
    topic = topics.create(config={"max.message.bytes": "2000000"})

    found = describe(admin, TOPIC, topic)

    # From the topic itself, from the broker's file, and from Kafka's defaults.
    assert found["max.message.bytes"].value == "2000000"
    assert found["max.message.bytes"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not found["max.message.bytes"].is_default
    assert found["retention.ms"].value == TWO_DAYS_MS
    assert found["retention.ms"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["cleanup.policy"].is_default
    for entry in found.values():
        assert not entry.is_sensitive
    synonyms = found["max.message.bytes"].synonyms
    assert {(one.name, one.value, one.source) for one in synonyms.values()} == {
        ("max.message.bytes", "2000000", ConfigSource.DYNAMIC_TOPIC_CONFIG.value),
        ("message.max.bytes", "1048588", ConfigSource.DEFAULT_CONFIG.value),
    }
    assert "log.retention.hours" in found["retention.ms"].synonyms


def test_every_option_of_kafka_that_tools_look_for_is_there(admin: AdminClient, topic: str) -> None:
    assert describe(admin, TOPIC, topic).keys() >= {
        "cleanup.policy",
        "compression.type",
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "max.compaction.lag.ms",
        "max.message.bytes",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    }
    assert describe(admin, BROKER, "1").keys() >= {
        "advertised.listeners",
        "auto.create.topics.enable",
        "log.dirs",
        "log.retention.hours",
        "message.max.bytes",
        "num.partitions",
    }


def test_the_brokers_own_settings(admin: AdminClient) -> None:
    found = describe(admin, BROKER, "1")
    assert found["log.retention.hours"].value == "48"
    assert found["log.retention.hours"].source == ConfigSource.STATIC_BROKER_CONFIG.value
    assert found["log.retention.hours"].is_read_only
    assert not found["message.max.bytes"].is_read_only


def test_types_and_documentation(broker: BrokerProcess, topic: str) -> None:
    """Version 3 and later tell the type and, when asked, what an option is for."""
    values = {
        "resource_type": 2,
        "resource_name": topic,
        "configuration_keys": "retention.ms",
        "include_documentation": True,
    }
    with WireClient(broker.port) as wire:
        answer = wire.ask(full_request(32, 4, values))
        (config,) = answer.results[0].configs
        assert config.config_type == 5  # LONG
        assert len(config.documentation or "") > 20
        answer = wire.ask(full_request(32, 4, {**values, "include_documentation": False}))
        assert answer.results[0].configs[0].documentation is None


def test_only_the_asked_keys_are_answered(bootstrap: str, topic: str) -> None:
    with kafka_python_client.admin_client(bootstrap) as client:
        resource = kafka.admin.ConfigResource("TOPIC", topic, ["retention.ms", "segment.bytes"])
        found = client.describe_configs([resource], config_filter="all")
    assert found["topic"][topic].keys() == {"retention.ms", "segment.bytes"}


def test_incremental_changes_set_append_subtract_and_delete(admin: AdminClient, topic: str) -> None:
    change(
        admin,
        TOPIC,
        topic,
        ("retention.ms", AlterConfigOpType.SET, "1000"),
        ("segment.ms", AlterConfigOpType.SET, "2000"),
        ("cleanup.policy", AlterConfigOpType.APPEND, "compact"),
    )
    found = describe(admin, TOPIC, topic)
    assert found["retention.ms"].value == "1000"
    assert found["segment.ms"].value == "2000"
    assert set(found["cleanup.policy"].value.split(",")) == {"delete", "compact"}

    change(
        admin,
        TOPIC,
        topic,
        ("retention.ms", AlterConfigOpType.DELETE, None),
        ("cleanup.policy", AlterConfigOpType.SUBTRACT, "delete"),
    )
    found = describe(admin, TOPIC, topic)
    assert found["retention.ms"].value == TWO_DAYS_MS
    assert found["segment.ms"].value == "2000"
    assert found["cleanup.policy"].value == "compact"


def test_the_old_way_replaces_everything(admin: AdminClient, topic: str) -> None:
    replace(admin, TOPIC, topic, {"retention.ms": "1000", "segment.ms": "2000"})
    replace(admin, TOPIC, topic, {"segment.ms": "3000"})
    found = describe(admin, TOPIC, topic)
    assert found["segment.ms"].value == "3000"
    assert found["retention.ms"].value == TWO_DAYS_MS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("cleanup.policy", "recycle"),
        ("min.insync.replicas", "0"),
        ("compression.type", "rar"),
        ("message.timestamp.type", "Yesterday"),
        ("no.such.option", "1"),
        ("preallocate", "maybe"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_and_changes_nothing(
    admin: AdminClient, topic: str, key: str, value: str
) -> None:
    before = {name: entry.value for name, entry in describe(admin, TOPIC, topic).items()}
    for act in (
        lambda: change(
            admin,
            TOPIC,
            topic,
            ("segment.ms", AlterConfigOpType.SET, "1234"),
            (key, AlterConfigOpType.SET, value),
        ),
        lambda: replace(admin, TOPIC, topic, {"segment.ms": "1234", key: value}),
    ):
        with pytest.raises(KafkaException) as refused:
            act()
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
        assert key in refused.value.args[0].str()
    assert {n: entry.value for n, entry in describe(admin, TOPIC, topic).items()} == before


def test_unknown_resources(admin: AdminClient) -> None:
    with pytest.raises(KafkaException) as refused:
        describe(admin, TOPIC, "missing")
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(KafkaException) as refused:
        change(admin, TOPIC, "missing", ("retention.ms", AlterConfigOpType.SET, "1"))
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_change_to_a_topic_is_in_force_at_once(
    admin: AdminClient, bootstrap: str, topic: str
) -> None:
    rows = [Row(None, b"x" * 10_000)]
    confluent_client.produce(bootstrap, topic, rows)
    change(admin, TOPIC, topic, ("max.message.bytes", AlterConfigOpType.SET, "5000"))
    with pytest.raises(KafkaException) as refused:
        confluent_client.produce(bootstrap, topic, rows)
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


@pytest.fixture
def clean_broker_settings(admin: AdminClient, broker: BrokerProcess) -> Iterator[None]:
    """The broker is the module's: what a test sets on it goes with the test."""
    yield
    change(admin, BROKER, "1", ("message.max.bytes", AlterConfigOpType.DELETE, None))
    change_all_brokers(broker, "message.max.bytes", None)


@pytest.mark.usefixtures("clean_broker_settings")
def test_dynamic_settings_of_the_broker_and_of_all_brokers(
    admin: AdminClient, broker: BrokerProcess, topic: str
) -> None:
    change_all_brokers(broker, "message.max.bytes", "3000000")
    found = describe(admin, TOPIC, topic)["max.message.bytes"]
    assert found.value == "3000000"
    assert found.source == ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value

    change(admin, BROKER, "1", ("message.max.bytes", AlterConfigOpType.SET, "4000000"))
    found = describe(admin, TOPIC, topic)["max.message.bytes"]
    assert found.value == "4000000"
    assert found.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value

    change(admin, BROKER, "1", ("message.max.bytes", AlterConfigOpType.DELETE, None))
    assert describe(admin, BROKER, "1")["message.max.bytes"].value == "3000000"


@pytest.mark.usefixtures("clean_broker_settings")
def test_read_only_settings_of_the_broker_are_refused(admin: AdminClient) -> None:
    for key, value in (("log.dirs", "/elsewhere"), ("broker.id", "7")):
        with pytest.raises(KafkaException) as refused:
            change(admin, BROKER, "1", (key, AlterConfigOpType.SET, value))
        assert refused.value.args[0].code() in (
            KafkaError.INVALID_REQUEST,
            KafkaError.INVALID_CONFIG,
        )


def test_kafka_python_describes_and_changes(bootstrap: str, topic: str) -> None:
    with kafka_python_client.admin_client(bootstrap) as client:
        resource = kafka.admin.ConfigResource("TOPIC", topic)
        found = client.describe_configs([resource], include_synonyms=True, config_filter="all")
        retention = found["topic"][topic]["retention.ms"]
        assert retention["value"] == TWO_DAYS_MS
        assert retention["config_type"] == "LONG"
        assert retention["config_source"] == "STATIC_BROKER_CONFIG"
        assert retention["synonyms"][0]["source"] == "STATIC_BROKER_CONFIG"

        for incremental in (True, False):
            wanted = {"retention.ms": f"{1000 + incremental}"}
            changed = kafka.admin.ConfigResource("TOPIC", topic, wanted)
            answer = client.alter_configs([changed], incremental=incremental)
            assert answer == {"topic": {topic: "OK"}}
            found = client.describe_configs([kafka.admin.ConfigResource("TOPIC", topic)])
            assert found["topic"][topic]["retention.ms"]["value"] == wanted["retention.ms"]

        reset = kafka.admin.ConfigResource("TOPIC", topic, ["retention.ms"])
        client.reset_configs([reset])
        assert client.describe_configs([resource])["topic"][topic] == {}

        wrong = kafka.admin.ConfigResource("TOPIC", topic, {"retention.ms": "x"})
        assert "InvalidConfig" in client.alter_configs([wrong])["topic"][topic]


def test_a_group_has_settings_before_it_exists(admin: AdminClient) -> None:
    name, group = "consumer.session.timeout.ms", fresh_name("group")
    change(admin, GROUP, group, (name, AlterConfigOpType.SET, "60000"))
    found = describe(admin, GROUP, group)
    assert found[name].value == "60000"
    assert found[name].source == ConfigSource.GROUP_CONFIG.value
    assert "group.consumer.session.timeout.ms" in found[name].synonyms
    assert found["consumer.heartbeat.interval.ms"].is_default
    for key, value in ((name, "1"), (name, "soon"), ("retention.ms", "1")):
        with pytest.raises(KafkaException) as refused:
            change(admin, GROUP, group, (key, AlterConfigOpType.SET, value))
        assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    change(admin, GROUP, group, (name, AlterConfigOpType.DELETE, None))
    assert describe(admin, GROUP, group)[name].is_default


def test_kafka_python_changes_and_lists_groups(bootstrap: str, topics: Topics) -> None:
    name, group, topic = "consumer.heartbeat.interval.ms", fresh_name("group"), topics.create()
    with kafka_python_client.admin_client(bootstrap) as client:
        changed = kafka.admin.ConfigResource("GROUP", group, {name: "7000"})
        assert client.alter_configs([changed], incremental=True) == {"group": {group: "OK"}}
        found = client.describe_configs([kafka.admin.ConfigResource("GROUP", group)])
        assert found["group"][group][name]["value"] == "7000"
        listed = client.list_config_resources()
        assert group in listed["group"]
        assert topic in listed["topic"]
        assert listed["broker"] == ["1"]
        assert client.list_config_resources(["CLIENT_METRICS"]) == {}


def test_kafka_python_asks_for_features(bootstrap: str) -> None:
    with kafka_python_client.admin_client(bootstrap) as client:
        assert client.describe_features()["group.version"]["finalized"] == (1, 1)
        assert client.update_features({"group.version": 1}) == {"group.version": "OK"}
        with pytest.raises(kafka.errors.FeatureUpdateFailedError, match="cannot be changed to 0"):
            client.update_features({"group.version": ("SAFE_DOWNGRADE", 0)})


def test_aiokafka_describes_and_changes(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        async with aiokafka_client.admin_client(bootstrap) as client:
            wanted = AioResource(AioResourceType.TOPIC, topic, {"retention.ms": "77777"})
            (answer,) = await client.alter_configs([wanted])
            assert answer.resources[0][0] == 0, answer
            (found,) = await client.describe_configs([AioResource(AioResourceType.TOPIC, topic)])
            error_code, _, _, name, entries = found.resources[0]
            assert (error_code, name) == (0, topic)
            assert {entry[0]: entry[1] for entry in entries}["retention.ms"] == "77777"

    asyncio.run(run())
