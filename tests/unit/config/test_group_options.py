"""Options of single groups: what can be set, within which bounds, and how it is described."""

from __future__ import annotations

import re

import pytest

from moldau.config.broker_options import BrokerOptions
from moldau.config.describe import describe_group_configs
from moldau.config.group_options import GroupConfigOptions, value_in_group
from moldau.config.option import OptionSource
from moldau.errors import InvalidConfigError

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
BROKER = BrokerOptions.resolve({"group.consumer.session.timeout.ms": "50000"})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {SESSION: "45000"},
        {SESSION: "60000", HEARTBEAT: "15000"},
        {HEARTBEAT: "5000"},
    ],
)
def test_a_group_can_have_what_lies_within_the_bounds(settings: dict[str, str]) -> None:
    GroupConfigOptions.check_all(settings, BROKER)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({SESSION: "44999"}, "is smaller than group.consumer.min.session.timeout.ms=45000"),
        ({SESSION: "60001"}, "is larger than group.consumer.max.session.timeout.ms=60000"),
        (
            {"consumer.assignment.interval.ms": "15001"},
            "is larger than group.consumer.max.assignment.interval.ms=15000",
        ),
        ({HEARTBEAT: "4999"}, "is smaller than group.consumer.min.heartbeat.interval.ms=5000"),
        ({HEARTBEAT: "15001"}, "is larger than group.consumer.max.heartbeat.interval.ms=15000"),
        ({SESSION: "soon"}, "consumer.session.timeout.ms=soon"),
        ({"consumer.session.timeout": "45000"}, "Unknown group config name"),
        ({"retention.ms": "1"}, "Unknown group config name: retention.ms"),
    ],
)
def test_everything_else_is_refused_with_a_message(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        GroupConfigOptions.check_all(settings, BROKER)


def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    broker = BrokerOptions.resolve(
        {
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "1000",
        }
    )
    GroupConfigOptions.check_all({SESSION: "5001"}, broker)
    with pytest.raises(InvalidConfigError, match=r"not larger than consumer\.heartbeat"):
        GroupConfigOptions.check_all({SESSION: "5000"}, broker)
    GroupConfigOptions.check_all({SESSION: "5000", HEARTBEAT: "1000"}, broker)


def test_what_a_group_has_and_what_it_would_have_otherwise_is_described() -> None:
    _, heartbeat, session, *_ = describe_group_configs({SESSION: "60000"}, BROKER)
    assert (session.name, session.value) == (SESSION, "60000")
    assert session.source is OptionSource.GROUP_CONFIG
    assert not session.is_default
    assert not session.read_only
    assert [(one.name, one.value, one.source) for one in session.synonyms] == [
        (SESSION, "60000", OptionSource.GROUP_CONFIG),
        ("group.consumer.session.timeout.ms", "50000", OptionSource.STATIC_BROKER),
        ("group.consumer.session.timeout.ms", "45000", OptionSource.DEFAULT),
    ]
    assert (heartbeat.name, heartbeat.value, heartbeat.is_default) == (HEARTBEAT, "5000", True)


def test_the_defaults_are_those_of_the_broker() -> None:
    for declared in GroupConfigOptions.declarations().values():
        if declared.broker_default is None:
            assert f"group.{declared.name}" not in BrokerOptions.declarations()
            continue
        assert declared.default == BrokerOptions.declarations()[declared.broker_default].default


@pytest.mark.parametrize(("text", "value"), [("60000", 60_000), ("soon", 7), ("0", 7), (None, 7)])
def test_a_text_that_is_no_value_counts_as_not_set(text: str | None, value: int) -> None:
    settings = {} if text is None else {SESSION: text}
    assert value_in_group(GroupConfigOptions.consumer_session_timeout_ms, settings, 7) == value


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ({"share.session.timeout.ms": "1000"}, "smaller than group.share.min.session"),
        ({"share.heartbeat.interval.ms": "15001"}, "larger than group.share.max.heartbeat"),
        ({"share.assignment.interval.ms": "15001"}, "larger than group.share.max.assignment"),
        ({"share.record.lock.duration.ms": "60001"}, "larger than group.share.max.record.lock"),
        ({"share.delivery.count.limit": "11"}, "larger than group.share.max.delivery"),
        ({"share.partition.max.record.locks": "99"}, "is"),
        ({"share.auto.offset.reset": "none"}, "is not one of"),
        ({"share.isolation.level": "any"}, "is"),
    ],
)
def test_a_share_group_has_bounds(setting: dict[str, str], fault: str) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape(fault)):
        GroupConfigOptions.check_all(setting, BROKER)


def test_a_share_group_may_begin_as_far_back_as_it_likes() -> None:
    GroupConfigOptions.check_all(
        {
            "share.auto.offset.reset": "by_duration:PT1H",
            "share.isolation.level": "read_committed",
            "share.record.lock.duration.ms": "15000",
            "share.renew.acknowledge.enable": "false",
        },
        BROKER,
    )
