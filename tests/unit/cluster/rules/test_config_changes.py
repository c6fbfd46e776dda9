from __future__ import annotations

import pytest

from moldau.config.alterations import ConfigChange, ConfigOperation, apply_config_changes
from moldau.errors import InvalidConfigError, InvalidRequestError

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def list_default(name: str) -> str | None:
    return {"cleanup.policy": "delete", "throttled": ""}.get(name)


def change(
    configs: dict[str, str], name: str, value: str | None, operation: ConfigOperation
) -> dict[str, str]:
    one = ConfigChange(name=name, value=value, operation=operation)
    return apply_config_changes(configs, [one], list_default)


def test_a_config_is_set_over_its_former_value() -> None:
    assert change({"a": "1", "b": "2"}, "a", "3", SET) == {"a": "3", "b": "2"}


def test_a_config_is_deleted_whether_it_was_set_or_not() -> None:
    assert change({"a": "1", "b": "2"}, "a", None, DELETE) == {"b": "2"}
    assert change({"b": "2"}, "a", "ignored", DELETE) == {"b": "2"}


def test_the_configs_given_are_left_alone() -> None:
    before = {"a": "1"}
    change(before, "a", "2", SET)
    assert before == {"a": "1"}


@pytest.mark.parametrize(
    ("current", "operation", "value", "expected"),
    [
        ({}, APPEND, "compact", "delete,compact"),
        ({"cleanup.policy": "compact"}, APPEND, "delete", "compact,delete"),
        ({"cleanup.policy": "compact"}, APPEND, "compact", "compact"),
        ({"cleanup.policy": "compact, delete"}, SUBTRACT, "compact", "delete"),
        ({"cleanup.policy": "compact"}, SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "compact,delete", ""),
        ({}, SUBTRACT, "delete", ""),
    ],
)
def test_a_list_grows_and_shrinks_from_its_value_or_its_default(
    current: dict[str, str], operation: ConfigOperation, value: str, expected: str
) -> None:
    changed = change(current, "cleanup.policy", value, operation)
    assert changed == {"cleanup.policy": expected}


def test_an_empty_list_has_no_empty_item() -> None:
    assert change({}, "throttled", "0:1", APPEND) == {"throttled": "0:1"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_grow_and_shrink(operation: ConfigOperation) -> None:
    with pytest.raises(InvalidConfigError, match=r"'retention\.ms' is not one"):
        change({"retention.ms": "1"}, "retention.ms", "2", operation)


@pytest.mark.parametrize("operation", [SET, APPEND, SUBTRACT])
def test_a_missing_value_is_refused(operation: ConfigOperation) -> None:
    with pytest.raises(InvalidRequestError, match="needs a value"):
        change({}, "cleanup.policy", None, operation)


def test_a_config_named_twice_is_refused() -> None:
    twice = [ConfigChange(name="a", value="1"), ConfigChange(name="a", value="2")]
    with pytest.raises(InvalidRequestError, match="once in a request: a"):
        apply_config_changes({}, twice, list_default)


def test_operations_are_numbered_as_on_the_wire() -> None:
    assert [operation.value for operation in ConfigOperation] == [0, 1, 2, 3]


def test_a_mapping_is_all_that_is_set_then():
    assert apply_config_changes({"a": "1", "b": "2"}, {"b": "3"}, list_default) == {"b": "3"}
