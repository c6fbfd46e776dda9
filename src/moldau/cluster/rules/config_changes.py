"""What becomes of the configs of a topic or broker when some of them are changed. A rule.

They are replaced as a whole, or one by one: the four operations are those of
IncrementalAlterConfigs. Appending to and subtracting from a list
that was not set begins with its default, as Kafka does, which is why the caller hands in a function
that knows the lists and their defaults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from moldau.config.changes import append_to_list, subtract_from_list
from moldau.config.operations import ConfigAlteration, ConfigChange, ConfigOperation
from moldau.errors import InvalidConfigError, InvalidRequestError

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
