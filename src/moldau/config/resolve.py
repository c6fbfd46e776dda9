"""Which of several values wins, and where it came from.

Precedence, strongest first (Kafka's `DynamicBrokerConfig`):

1. the topic's own config
2. the dynamic config of this broker
3. the dynamic config of all brokers (the cluster-wide default)
4. what the broker was started with: `server.properties`, `--set`
5. the default of the declaration

Within one level an option is asked by its own name first and then by the names it falls back to
(`log.retention.ms`, then `.minutes`, then `.hours`). Rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from moldau.config.option import AnyOption, Fallback
from moldau.config.static import origin_of
from moldau.errors import ConfigurationError


class OptionSource(IntEnum):
    """Where a value came from; the codes that DescribeConfigs puts on the wire."""

    TOPIC_CONFIG = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """A broker's settings as they were given, level by level."""

    dynamic: Mapping[str, str] = field(default_factory=dict)
    default_dynamic: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)

    def levels(self) -> tuple[tuple[OptionSource, Mapping[str, str]], ...]:
        """The levels, strongest first."""
        return (
            (OptionSource.DYNAMIC_BROKER, self.dynamic),
            (OptionSource.DYNAMIC_DEFAULT_BROKER, self.default_dynamic),
            (OptionSource.STATIC_BROKER, self.static),
        )

    def origin(self, source: OptionSource, name: str) -> str:
        """The beginning of a message about a setting: `server.properties line 12: `."""
        if source is OptionSource.DYNAMIC_BROKER:
            return "dynamic config of this broker: "
        if source is OptionSource.DYNAMIC_DEFAULT_BROKER:
            return "dynamic config of all brokers: "
        return origin_of(self.static, name)


class Setting(NamedTuple):
    """One value that somebody gave to an option, under its own name or one it falls back to."""

    name: str
    text: str
    source: OptionSource
    fallback: Fallback


def settings_of(option: AnyOption, layers: Layers) -> Iterator[Setting]:
    """Everything that was set for an option, the one that wins first."""
    names = (Fallback(option.name), *option.falls_back_to)
    for source, values in layers.levels():
        for fallback in names:
            text = values.get(fallback.name)
            if text is not None:
                yield Setting(name=fallback.name, text=text, source=source, fallback=fallback)


def resolve_values(declared: Mapping[str, AnyOption], layers: Layers) -> dict[str, object]:
    """The winning value of every option by attribute name; a wrong text is a ConfigurationError."""
    given = {name for _, values in layers.levels() for name in values}
    return {
        option.attribute: (
            _default_of(option, declared)
            if given.isdisjoint(_names_of(option))
            else _resolve_value(option, declared, layers)
        )
        for option in declared.values()
    }


def _names_of(option: AnyOption) -> tuple[str, ...]:
    return option.name, *(fallback.name for fallback in option.falls_back_to)


def _resolve_value(option: AnyOption, declared: Mapping[str, AnyOption], layers: Layers) -> object:
    # All are read, not just the first: a wrong line stops the start even where it is overruled.
    given = [
        setting.fallback.convert(_parse(declared[setting.name], setting, layers))
        for setting in settings_of(option, layers)
    ]
    return given[0]


def _default_of(option: AnyOption, declared: Mapping[str, AnyOption]) -> object | None:
    if option.default is not None:
        return option.default
    defaults = ((fallback, declared[fallback.name].default) for fallback in option.falls_back_to)
    return next((f.convert(value) for f, value in defaults if value is not None), None)


def _parse(option: AnyOption, setting: Setting, layers: Layers) -> object:
    try:
        return option.parse(setting.text)
    except ValueError as fault:
        origin = layers.origin(setting.source, setting.name)
        raise ConfigurationError(origin + option.message(setting.text, fault)) from None
