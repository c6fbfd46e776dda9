from __future__ import annotations

from moldau.config.broker_options import BrokerOptions
from moldau.config.describe import (
    DescribedOption,
    OptionSynonym,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from moldau.config.option import PASSWORD, OptionSource, OptionType, optional
from moldau.config.topic_options import TopicOptions

BROKER = BrokerOptions.resolve({})


class BrokerWithPassword(BrokerOptions):
    keystore_password = optional("keystore.password", PASSWORD, "Opens it.", sensitive=True)


def topic(overrides: dict[str, str], name: str, broker: BrokerOptions = BROKER) -> DescribedOption:
    return next(one for one in describe_topic(overrides, broker) if one.name == name)


def broker(options: BrokerOptions, name: str) -> DescribedOption:
    return next(one for one in describe_broker(options) if one.name == name)


def test_a_topic_shows_every_public_option_by_name() -> None:
    names = [one.name for one in describe_topic({}, BROKER)]
    assert names == sorted(TopicOptions.declarations().keys() - {"internal.segment.bytes"})


def test_a_default_comes_from_the_broker_option_behind_it() -> None:
    assert topic({}, "segment.bytes") == DescribedOption(
        name="segment.bytes",
        value="1073741824",
        is_default=True,
        source=OptionSource.DEFAULT,
        read_only=False,
        sensitive=False,
        type=OptionType.INT,
        documentation=TopicOptions.segment_bytes.documentation,
        synonyms=(
            OptionSynonym(
                name="log.segment.bytes", value="1073741824", source=OptionSource.DEFAULT
            ),
        ),
    )


def test_the_chain_has_every_level_that_was_set() -> None:
    name = "log.segment.bytes"
    options = BrokerOptions.resolve({name: "3000000"}, {name: "5000000"}, {name: "4000000"})
    described = topic({"segment.bytes": "6000000"}, "segment.bytes", options)
    assert described.value == "6000000"
    assert described.source is OptionSource.TOPIC_CONFIG
    assert not described.is_default
    assert [(one.name, one.value, one.source) for one in described.synonyms] == [
        ("segment.bytes", "6000000", OptionSource.TOPIC_CONFIG),
        (name, "5000000", OptionSource.DYNAMIC_BROKER),
        (name, "4000000", OptionSource.DYNAMIC_DEFAULT_BROKER),
        (name, "3000000", OptionSource.STATIC_BROKER),
        (name, "1073741824", OptionSource.DEFAULT),
    ]


def test_a_coarser_synonym_shows_in_its_own_unit_and_counts_in_the_options() -> None:
    options = BrokerOptions.resolve({"log.retention.hours": "1"})
    for described in (topic({}, "retention.ms", options), broker(options, "log.retention.ms")):
        assert described.value == "3600000"
        assert described.source is OptionSource.STATIC_BROKER
        assert [(one.name, one.value) for one in described.synonyms] == [
            ("log.retention.hours", "1"),
            ("log.retention.hours", "168"),
        ]


def test_an_option_without_a_broker_option_has_only_the_topics_own_setting() -> None:
    name = "leader.replication.throttled.replicas"
    assert topic({}, name).value == ""
    assert topic({}, name).synonyms == ()
    assert topic({}, name).is_default
    assert [one.source for one in topic({name: "*"}, name).synonyms] == [OptionSource.TOPIC_CONFIG]


def test_values_show_tidied_but_in_the_given_order() -> None:
    assert topic({"cleanup.policy": "delete , compact"}, "cleanup.policy").value == "delete,compact"
    assert topic({}, "cleanup.policy").value == "delete"
    assert topic({"preallocate": "TRUE"}, "preallocate").value == "true"
    options = BrokerOptions.resolve({"log.cleanup.policy": "delete,compact"})
    assert topic({}, "cleanup.policy", options).value == "delete,compact"


def test_tiered_storage_is_read_only() -> None:
    described = topic({}, "remote.storage.enable")
    assert described.read_only
    assert described.value == "false"


def test_a_broker_shows_every_option_with_its_source() -> None:
    options = BrokerOptions.resolve({"num.partitions": "3"}, {"max.connections": "9"})
    assert len(describe_broker(options)) == len(BrokerOptions.declarations())
    partitions, connections = broker(options, "num.partitions"), broker(options, "max.connections")
    assert (partitions.value, partitions.source) == ("3", OptionSource.STATIC_BROKER)
    assert partitions.read_only
    assert (connections.value, connections.source) == ("9", OptionSource.DYNAMIC_BROKER)
    assert not connections.read_only


def test_an_option_that_nobody_set_and_that_has_no_default_has_no_value() -> None:
    described = broker(BROKER, "broker.rack")
    assert described.value is None
    assert described.is_default
    assert described.synonyms == ()


def test_a_password_is_never_told() -> None:
    options = BrokerWithPassword.resolve({"keystore.password": "hunter2"})
    described = broker(options, "keystore.password")
    assert described.sensitive
    assert described.value is None
    assert [(one.value, one.source) for one in described.synonyms] == [
        (None, OptionSource.STATIC_BROKER)
    ]


def test_the_default_of_all_brokers_shows_only_what_is_set() -> None:
    strange, described = describe_broker_defaults({"max.connections": " 9", "from.a.plugin": "1"})
    assert (strange.name, strange.value, strange.sensitive) == ("from.a.plugin", None, True)
    assert (described.name, described.value) == ("max.connections", "9")
    assert described.source is OptionSource.DYNAMIC_DEFAULT_BROKER
    assert not described.is_default
