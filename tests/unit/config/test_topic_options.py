from __future__ import annotations

import pytest

from moldau.config.broker_options import BrokerOptions
from moldau.config.option import OptionType
from moldau.config.topic_options import TopicOptions
from moldau.errors import InvalidConfigError

BROKER = BrokerOptions.resolve({})
NO_LIMIT = "9223372036854775807"

KAFKA_OPTIONS = {
    "cleanup.policy": (OptionType.LIST, "delete", "log.cleanup.policy"),
    "compression.gzip.level": (OptionType.INT, "-1", "compression.gzip.level"),
    "compression.lz4.level": (OptionType.INT, "9", "compression.lz4.level"),
    "compression.type": (OptionType.STRING, "producer", "compression.type"),
    "compression.zstd.level": (OptionType.INT, "3", "compression.zstd.level"),
    "delete.retention.ms": (OptionType.LONG, "86400000", "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": (OptionType.LONG, "60000", "log.segment.delete.delay.ms"),
    "flush.messages": (OptionType.LONG, NO_LIMIT, "log.flush.interval.messages"),
    "flush.ms": (OptionType.LONG, NO_LIMIT, "log.flush.interval.ms"),
    "follower.replication.throttled.replicas": (OptionType.LIST, "", None),
    "index.interval.bytes": (OptionType.INT, "4096", "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": (OptionType.LIST, "", None),
    "local.retention.bytes": (OptionType.LONG, "-2", "log.local.retention.bytes"),
    "local.retention.ms": (OptionType.LONG, "-2", "log.local.retention.ms"),
    "max.compaction.lag.ms": (OptionType.LONG, NO_LIMIT, "log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": (OptionType.INT, "1048588", "message.max.bytes"),
    "message.timestamp.after.max.ms": (
        OptionType.LONG,
        "3600000",
        "log.message.timestamp.after.max.ms",
    ),
    "message.timestamp.before.max.ms": (
        OptionType.LONG,
        NO_LIMIT,
        "log.message.timestamp.before.max.ms",
    ),
    "message.timestamp.type": (OptionType.STRING, "CreateTime", "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": (OptionType.DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": (OptionType.LONG, "0", "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": (OptionType.INT, "1", "min.insync.replicas"),
    "preallocate": (OptionType.BOOLEAN, "false", "log.preallocate"),
    "remote.copy.lag.bytes": (OptionType.LONG, "0", None),
    "remote.copy.lag.ms": (OptionType.LONG, "0", None),
    "remote.log.copy.disable": (OptionType.BOOLEAN, "false", None),
    "remote.log.delete.on.disable": (OptionType.BOOLEAN, "false", None),
    "remote.storage.enable": (OptionType.BOOLEAN, "false", None),
    "retention.bytes": (OptionType.LONG, "-1", "log.retention.bytes"),
    "retention.ms": (OptionType.LONG, "604800000", "log.retention.ms"),
    "segment.bytes": (OptionType.INT, "1073741824", "log.segment.bytes"),
    "segment.index.bytes": (OptionType.INT, "10485760", "log.index.size.max.bytes"),
    "segment.jitter.ms": (OptionType.LONG, "0", "log.roll.jitter.ms"),
    "segment.ms": (OptionType.LONG, "604800000", "log.roll.ms"),
    "unclean.leader.election.enable": (
        OptionType.BOOLEAN,
        "false",
        "unclean.leader.election.enable",
    ),
}
"""Name, type, default and server property as Kafka 4 documents them."""


def test_the_options_are_kafkas_those_of_two_proposals_and_two_of_our_own() -> None:
    public = {o.name for o in TopicOptions.declarations().values() if not o.is_internal}
    proposed = {"unclean.recovery.strategy", "errors.deadletterqueue.group.enable"}
    ours = {"cleanup.suspended", "record.validation"}
    assert public == KAFKA_OPTIONS.keys() | proposed | ours


@pytest.mark.parametrize("name", KAFKA_OPTIONS)
def test_type_default_and_broker_option_are_kafkas(name: str) -> None:
    declared = TopicOptions.declarations()[name]
    assert (
        declared.kind.type,
        declared.default_text,
        declared.broker_default,
    ) == KAFKA_OPTIONS[name]


@pytest.mark.parametrize("name", TopicOptions.declarations())
def test_an_attribute_is_the_name_with_underscores(name: str) -> None:
    assert TopicOptions.declarations()[name].attribute == name.replace(".", "_")


@pytest.mark.parametrize("name", TopicOptions.declarations())
def test_a_broker_without_settings_gives_a_topic_the_declared_default(name: str) -> None:
    declared = TopicOptions.declarations()[name]
    assert getattr(TopicOptions.resolve({}, BROKER), declared.attribute) == declared.default


def test_the_topics_own_value_wins_over_the_brokers() -> None:
    broker = BrokerOptions.resolve({"log.retention.hours": "1", "log.segment.bytes": "2097152"})
    options = TopicOptions.resolve({"retention.ms": "5"}, broker)
    assert options.retention_ms == 5
    assert options.segment_bytes == 2_097_152


def test_the_brokers_coarser_synonym_reaches_the_topic_in_milliseconds() -> None:
    broker = BrokerOptions.resolve({"log.retention.hours": "1", "log.roll.hours": "2"})
    options = TopicOptions.resolve({}, broker)
    assert (options.retention_ms, options.segment_ms) == (3_600_000, 7_200_000)


def test_cleanup_policies_are_a_set() -> None:
    options = TopicOptions.resolve({"cleanup.policy": "delete, compact"}, BROKER)
    assert options.cleanup_policy == {"compact", "delete"}
    assert TopicOptions.resolve({"cleanup.policy": ""}, BROKER).cleanup_policy == frozenset()


def test_topics_without_settings_share_one_object() -> None:
    assert TopicOptions.resolve({}, BROKER) is TopicOptions.resolve({}, BROKER)


def test_a_new_broker_config_gives_new_topic_options() -> None:
    changed = BrokerOptions.resolve({}, {"message.max.bytes": "77"})
    assert TopicOptions.resolve({}, changed).max_message_bytes == 77
    assert TopicOptions.resolve({}, BROKER).max_message_bytes == 1_048_588


def test_a_stored_setting_that_nobody_knows_is_passed_over() -> None:
    assert TopicOptions.resolve({"from.the.future": "1", "flush.ms": "9"}, BROKER).flush_ms == 9


def test_tests_may_have_tiny_segments() -> None:
    assert TopicOptions.resolve({"internal.segment.bytes": "100"}, BROKER).segment_bytes == 100


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cleanup.policy", "compact,delete"),
        ("compression.gzip.level", "-1"),
        ("compression.type", "zstd"),
        ("follower.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", ""),
        ("leader.replication.throttled.replicas", "0:101,1:102"),
        ("record.validation", "header"),
        ("remote.storage.enable", "false"),
        ("retention.ms", "-1"),
        ("segment.bytes", "1048576"),
    ],
)
def test_a_good_setting_passes(name: str, value: str) -> None:
    TopicOptions.check_settings({name: value}, "topic")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("cleanup.policy", "burn", "cleanup.policy=burn names burn, which is not one of"),
        ("compression.gzip.level", "0", "is neither -1 nor between 1 and 9"),
        ("compression.lz4.level", "18", "is not between 1 and 17"),
        ("compression.type", "brotli", "compression.type=brotli is not one of uncompressed"),
        ("follower.replication.throttled.replicas", "0-1", "partition:broker pairs"),
        ("min.cleanable.dirty.ratio", "1.1", "is not between 0 and 1"),
        ("min.insync.replicas", "0", "min.insync.replicas=0 is less than 1"),
        ("record.validation", "none", "is not one of full, header"),
        ("remote.storage.enable", "true", "needs tiered storage"),
        ("retention.ms", "week", "retention.ms=week is not a whole number"),
        ("retention.ms", "-2", "is less than -1"),
        ("segment.bytes", "1000", "segment.bytes=1000 is less than 1048576"),
        ("retention.m", "1", "Unknown topic config name: retention.m; did you mean retention.ms?"),
        ("xyz", "1", "Unknown topic config name: xyz$"),
    ],
)
def test_a_bad_setting_is_refused_with_a_reason(name: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message.replace("?", r"\?")):
        TopicOptions.check_settings({name: value}, "topic")


def test_settings_that_contradict_each_other_are_refused_together() -> None:
    settings = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    for name, value in settings.items():
        TopicOptions.check_settings({name: value}, "topic")
    with pytest.raises(InvalidConfigError, match=r"min.compaction.lag.ms=10 is larger than"):
        TopicOptions.check_all(settings, BROKER)


def test_a_setting_may_contradict_what_the_broker_gives() -> None:
    broker = BrokerOptions.resolve({"log.cleaner.max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfigError, match=r"max.compaction.lag.ms=5"):
        TopicOptions.check_all({"min.compaction.lag.ms": "10"}, broker)


def test_resolving_refuses_what_checking_refuses() -> None:
    with pytest.raises(InvalidConfigError, match=r"flush.ms=x is not a whole number"):
        TopicOptions.resolve({"flush.ms": "x"}, BROKER)
