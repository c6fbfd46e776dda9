from __future__ import annotations

import pytest

from moldau.config.properties import load_flags, load_properties, load_settings, origin_of
from moldau.errors import ConfigurationError


def test_each_setting_remembers_its_line() -> None:
    static = load_properties("# comment\nbroker.id=1\n\nlog.dirs=/a\n", "server.properties")
    assert dict(static) == {"broker.id": "1", "log.dirs": "/a"}
    assert static.origin("log.dirs") == "server.properties line 4: "


def test_of_a_name_that_stands_twice_the_last_line_counts() -> None:
    static = load_properties("a=1\na=2\n", "server.properties")
    assert static["a"] == "2"
    assert static.origin("a") == "server.properties line 2: "


def test_a_damaged_file_is_refused_with_name_and_line() -> None:
    with pytest.raises(ConfigurationError, match=r"^server.properties line 1: \\u must"):
        load_properties("a=\\u1", "server.properties")


def test_flags_win_over_the_file_and_are_named_as_such() -> None:
    file = load_properties("a=1\nb=2\n", "server.properties")
    static = file | load_settings(["b=3", "c = x=y "])
    assert dict(static) == {"a": "1", "b": "3", "c": "x=y"}
    assert static.origin("a") == "server.properties line 1: "
    assert static.origin("b") == "--set "
    assert file["b"] == "2"


@pytest.mark.parametrize("setting", ["broker.id", "=1", " = 1"])
def test_a_flag_without_a_name_or_value_is_refused(setting: str) -> None:
    with pytest.raises(ConfigurationError, match="must have the form key=value"):
        load_settings([setting])


def test_another_flag_can_stand_for_a_setting() -> None:
    assert load_flags({"broker.id": "x"}, "--broker-id").origin("broker.id") == "--broker-id: "


def test_a_plain_mapping_has_no_origin() -> None:
    assert origin_of({"a": "1"}, "a") == ""


def test_values_are_not_printed() -> None:
    assert "hunter2" not in repr(load_settings(["ssl.key.password=hunter2"]))
