"""Changes of dynamic configs, as AlterConfigs and IncrementalAlterConfigs ask for them. Rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from moldau.config.option import split_list
from moldau.errors import InvalidConfigError, InvalidRequestError


class ConfigOperation(IntEnum):
    """How to change a setting; the numbers of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChange:
    """One change of one setting. DELETE has no value: the default applies again."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


ConfigAlteration: TypeAlias = Sequence[ConfigChange] | Mapping[str, str]
"""Changes of single settings (IncrementalAlterConfigs), or all settings that there shall be
(AlterConfigs)."""


# What becomes of the configs of a topic or broker when some of them are changed. A rule.
#
# They are replaced as a whole, or one by one: the four operations are those of
# IncrementalAlterConfigs. Appending to and subtracting from a list that was not set begins with its
# default, as Kafka does, which is why the caller hands in a function that knows the lists and their
# defaults.


def append_to_list(current: str, added: str) -> str:
    """A comma-separated list with the items that it does not have yet."""
    items = split_list(current)
    return ",".join((*items, *(item for item in split_list(added) if item not in items)))


def subtract_from_list(current: str, removed: str) -> str:
    """A comma-separated list without some of its items."""
    gone = split_list(removed)
    return ",".join(item for item in split_list(current) if item not in gone)


FindListDefault = Callable[[str], str | None]
"""The default of a list option, its items joined by commas; None when the option is no list."""


def apply_config_changes(
    configs: Mapping[str, str],
    changes: ConfigAlteration,
    find_list_default: FindListDefault,
) -> dict[str, str]:
    """The configs after the changes. Whether the values are good is checked elsewhere."""
    if isinstance(changes, Mapping):
        return dict(changes)
    _check_named_once(changes)
    changed = dict(configs)
    for change in changes:
        if change.operation == ConfigOperation.DELETE:
            changed.pop(change.name, None)
        elif change.value is None:
            raise InvalidRequestError(
                f"the config {change.name!r} needs a value for {change.operation.name}"
            )
        elif change.operation == ConfigOperation.SET:
            changed[change.name] = change.value
        else:
            changed[change.name] = _changed_list(
                changed.get(change.name), change, change.value, find_list_default
            )
    return changed


def _check_named_once(changes: Sequence[ConfigChange]) -> None:
    named = Counter(change.name for change in changes)
    twice = sorted(name for name, times in named.items() if times > 1)
    if twice:
        raise InvalidRequestError(f"a config may be changed once in a request: {', '.join(twice)}")


def _changed_list(
    current: str | None, change: ConfigChange, value: str, find_list_default: FindListDefault
) -> str:
    default = find_list_default(change.name)
    if default is None:
        raise InvalidConfigError(
            f"{change.operation.name} works on lists only, and {change.name!r} is not one"
        )
    combine = append_to_list if change.operation == ConfigOperation.APPEND else subtract_from_list
    return combine(default if current is None else current, value)
