from __future__ import annotations

import pytest

from moldau.config.alterations import append_to_list, subtract_from_list
from moldau.config.broker_options import BrokerOptions
from moldau.config.describe import (
    check_broker_settings,
    check_default_broker_settings,
    describe_broker,
    describe_topic,
    find_list,
)
from moldau.config.topic_options import TopicOptions
from moldau.errors import InvalidConfigError

BROKER = BrokerOptions.resolve({"log.cleanup.policy": "compact"})


def test_good_settings_pass() -> None:
    TopicOptions.check_all({"retention.ms": "1", "cleanup.policy": "compact"}, BROKER)
    check_broker_settings({"leader.replication.throttled.rate": "1"}, BROKER)
    check_default_broker_settings({"max.connections": "1"}, BROKER)


def test_each_setting_is_checked() -> None:
    with pytest.raises(InvalidConfigError, match="Unknown topic config name"):
        TopicOptions.check_all({"retention": "1"}, BROKER)
    with pytest.raises(InvalidConfigError, match="cannot change while the broker runs"):
        check_broker_settings({"listeners": "PLAINTEXT://:1"}, BROKER)
    with pytest.raises(InvalidConfigError, match="can only be set for one broker"):
        check_default_broker_settings({"leader.replication.throttled.rate": "1"}, BROKER)


SHORT = {"log.cleaner.max.compaction.lag.ms": "5"}
LONG = {"log.cleaner.min.compaction.lag.ms": "6"}


@pytest.mark.parametrize(
    "broker", [BrokerOptions.resolve(SHORT), BrokerOptions.resolve({}, {}, SHORT)]
)
def test_settings_of_a_broker_are_checked_with_the_other_levels(broker: BrokerOptions) -> None:
    with pytest.raises(InvalidConfigError, match=r"min.compaction.lag.ms=6 is larger"):
        check_broker_settings(LONG, broker)


@pytest.mark.parametrize("broker", [BrokerOptions.resolve(SHORT), BrokerOptions.resolve({}, SHORT)])
def test_settings_of_all_brokers_are_checked_with_the_other_levels(broker: BrokerOptions) -> None:
    with pytest.raises(InvalidConfigError, match=r"min.compaction.lag.ms=6 is larger"):
        check_default_broker_settings(LONG, broker)


def test_settings_replace_those_of_their_own_level() -> None:
    check_broker_settings(LONG, BrokerOptions.resolve({}, SHORT))
    check_default_broker_settings(LONG, BrokerOptions.resolve({}, {}, SHORT))


def test_a_list_that_is_not_set_begins_with_what_it_inherits() -> None:
    assert find_list("cleanup.policy", describe_topic({}, BROKER)) == "compact"
    assert find_list("leader.replication.throttled.replicas", describe_topic({}, BROKER)) == ""
    assert find_list("log.cleanup.policy", describe_broker(BROKER)) == "compact"


def test_what_is_no_list_has_no_items() -> None:
    assert find_list("retention.ms", describe_topic({}, BROKER)) is None
    assert find_list("from.the.future", describe_topic({}, BROKER)) is None
    assert find_list("max.connections", describe_broker(BROKER)) is None


def test_appending_adds_what_is_missing() -> None:
    assert append_to_list("delete", "compact") == "delete,compact"
    assert append_to_list("", "0:1, 1:2") == "0:1,1:2"
    assert append_to_list("a,b", "b,c") == "a,b,c"


def test_subtracting_takes_away_what_is_there() -> None:
    assert subtract_from_list("a,b,c", "b, d") == "a,c"
    assert subtract_from_list("a", "a") == ""
