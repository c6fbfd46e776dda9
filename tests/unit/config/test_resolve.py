"""Precedence, and the messages of wrong values, on the real declarations."""

from __future__ import annotations

import pytest

from moldau.config.broker_options import BrokerOptions
from moldau.config.option import Layers, OptionSource, settings_of
from moldau.config.properties import load_properties, load_settings
from moldau.errors import ConfigurationError

NAME = "log.segment.bytes"
HOUR_MS = 3_600_000


def test_the_stronger_level_wins() -> None:
    static, default_dynamic, dynamic = ({NAME: str(2**size)} for size in (21, 22, 23))
    assert BrokerOptions.resolve({}).log_segment_bytes == 1 << 30
    assert BrokerOptions.resolve(static).log_segment_bytes == 1 << 21
    assert BrokerOptions.resolve(static, {}, default_dynamic).log_segment_bytes == 1 << 22
    assert BrokerOptions.resolve(static, dynamic, default_dynamic).log_segment_bytes == 1 << 23


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finer_unit_wins_over_the_coarser(static: dict[str, str], retention_ms: int) -> None:
    assert BrokerOptions.resolve(static).log_retention_ms == retention_ms


def test_a_dynamic_value_wins_over_a_static_one_in_another_unit() -> None:
    options = BrokerOptions.resolve({"log.roll.hours": "1"}, {}, {"log.roll.ms": "5"})
    assert options.log_roll_ms == 5
    assert options.log_roll_hours == 1


def test_the_settings_of_an_option_come_strongest_first() -> None:
    layers = Layers(
        dynamic={"log.roll.ms": "1"},
        default_dynamic={"log.roll.ms": "2", "log.roll.hours": "5"},
        static={"log.roll.hours": "4", "log.roll.ms": "3"},
    )
    declared = BrokerOptions.declarations()["log.roll.ms"]
    assert [(one.name, one.text, one.source) for one in settings_of(declared, layers)] == [
        ("log.roll.ms", "1", OptionSource.DYNAMIC_BROKER),
        ("log.roll.ms", "2", OptionSource.DYNAMIC_DEFAULT_BROKER),
        ("log.roll.hours", "5", OptionSource.DYNAMIC_DEFAULT_BROKER),
        ("log.roll.ms", "3", OptionSource.STATIC_BROKER),
        ("log.roll.hours", "4", OptionSource.STATIC_BROKER),
    ]


def test_a_wrong_value_names_file_and_line() -> None:
    static = load_properties("broker.id=1\nlog.segment.bytes=abc\n", "server.properties")
    with pytest.raises(ConfigurationError) as caught:
        BrokerOptions.resolve(static)
    assert str(caught.value) == (
        "server.properties line 2: log.segment.bytes=abc is not a whole number"
    )


def test_a_wrong_value_names_the_flag() -> None:
    with pytest.raises(ConfigurationError) as caught:
        BrokerOptions.resolve(load_settings(["log.retention.ms=abc"]))
    assert str(caught.value) == "--set log.retention.ms=abc is not a whole number"


def test_a_wrong_value_under_a_coarser_name_is_reported_under_that_name() -> None:
    with pytest.raises(ConfigurationError, match=r"^log.retention.hours=week is not a whole"):
        BrokerOptions.resolve({"log.retention.hours": "week"})


def test_a_wrong_dynamic_value_says_that_it_is_dynamic() -> None:
    with pytest.raises(ConfigurationError, match=r"^dynamic config of this broker: max.conn"):
        BrokerOptions.resolve({}, {"max.connections": "-1"})
    with pytest.raises(ConfigurationError, match=r"^dynamic config of all brokers: max.conn"):
        BrokerOptions.resolve({}, {}, {"max.connections": "-1"})


def test_a_wrong_line_stops_the_start_even_where_it_is_overruled() -> None:
    with pytest.raises(ConfigurationError, match=r"^log.segment.bytes=abc is not"):
        BrokerOptions.resolve({NAME: "abc"}, {NAME: str(1 << 20)})
