"""Who says what may be deleted ends the suspension; who changes something else does not."""

import pytest

from moldau.config.broker_options import (
    UNKNOWN_BROKER_SETTINGS,
    BrokerOptions,
    find_internal_configs,
)
from moldau.config.topic_options import (
    SUSPENDED,
    UNKNOWN_TOPIC_SETTINGS,
    TopicOptions,
    with_confirmation,
)
from moldau.model import INTERNAL_TOPICS


@pytest.mark.parametrize("name", ["cleanup.policy", "retention.ms", "retention.bytes"])
def test_setting_what_may_be_deleted_confirms(name):
    assert with_confirmation({SUSPENDED: "true", name: "1"}, [name]) == {name: "1"}


def test_setting_something_else_does_not_confirm():
    settings = {SUSPENDED: "true", "max.message.bytes": "1"}
    assert with_confirmation(settings, ["max.message.bytes"]) == settings


def test_who_asks_for_the_suspension_gets_it():
    settings = {SUSPENDED: "true", "retention.ms": "1"}
    assert with_confirmation(settings, ["retention.ms", SUSPENDED]) == settings


def test_settings_that_are_not_known_suspend():
    broker = BrokerOptions.resolve({})
    assert not TopicOptions.resolve({}, broker).cleanup_suspended
    assert TopicOptions.resolve(UNKNOWN_TOPIC_SETTINGS, broker).cleanup_suspended
    unknown = BrokerOptions.resolve({}, {}, UNKNOWN_BROKER_SETTINGS)
    assert TopicOptions.resolve({"retention.ms": "1"}, unknown).cleanup_suspended


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_topics_of_the_brokers_lose_nothing_by_age_or_size(name):
    broker = BrokerOptions.resolve({"log.retention.bytes": "1000", "log.retention.ms": "1000"})
    configs = find_internal_configs(name, broker)
    assert configs is not None
    options = TopicOptions.resolve(configs, broker)
    if "delete" in options.cleanup_policy:
        assert (options.retention_ms, options.retention_bytes) == (-1, -1)
    assert options.segment_bytes == 100 << 20


def test_other_topics_are_nobodys_own():
    assert find_internal_configs("clicks", BrokerOptions.resolve({})) is None
