"""What an option is: one declaration from which everything else about it follows.

    class TopicOptions(OptionSet):
        segment_bytes = option("segment.bytes", INT, 1 << 30, "…", at_least(1 << 20))

`TopicOptions.segment_bytes` is the declaration (an `Option[int]`); on an instance the same name is
a plain attribute holding an `int`, because an option is a non-data descriptor: the instance's own
value comes first. Parsing, validation, DescribeConfigs, AlterConfigs, the command line's help and
the reference page all read the declaration.

Which value applies, strongest first (Kafka's `DynamicBrokerConfig`):

1. the topic's own config
2. the dynamic config of this broker
3. the dynamic config of all brokers (the cluster-wide default)
4. what the broker was started with: `server.properties`, `--set`
5. the default of the declaration

Within one level an option is read by its own name first and then by the names it falls back to
(`log.retention.ms`, then `.minutes`, then `.hours`). Rule: values in, values out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum, IntEnum
from typing import (
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    NoReturn,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from moldau.config.properties import origin_of
from moldau.errors import ConfigurationError, InvalidConfigError

# A `Kind` reads one of Kafka's config types; a `Rule` narrows it (a range, a choice of words). Both
# report a fault as the end of a message that begins with `name=value`, e.g. "is not a whole
# number".


V_co = TypeVar("V_co", covariant=True)
V_contra = TypeVar("V_contra", contravariant=True)

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = 1.7976931348623157e308

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+\Z")
_DECIMAL_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z"


class OptionType(IntEnum):
    """The codes that DescribeConfigs puts on the wire."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Kind(Generic[V_co]):
    """Reads the text of one type; `parse` raises ValueError with the end of a message."""

    type: OptionType
    parse: Callable[[str], V_co]

    def tidy(self, text: str) -> str:
        """The text as Kafka prints it back: trimmed, numbers and lists in their plain form."""
        if self.type is OptionType.LIST:
            return ",".join(split_list(text))
        if self.type in (OptionType.STRING, OptionType.CLASS, OptionType.PASSWORD):
            return text.strip()
        return to_text(self.parse(text))


@dataclass(frozen=True, slots=True)
class Rule(Generic[V_contra]):
    """A limit on the values of a kind, with its words for the reference page."""

    words: str
    find_fault: Callable[[V_contra], str | None]


def split_list(text: str) -> tuple[str, ...]:
    """The items of a comma-separated list, trimmed; an empty text has none."""
    stripped = text.strip()
    return tuple(item.strip() for item in stripped.split(",")) if stripped else ()


def to_text(value: object) -> str:
    """A value as Kafka prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, frozenset):
        return ",".join(sorted(map(str, value)))
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{item}" for key, item in value.items())
    return str(value)


def _double_text(value: float) -> str:
    # Java writes the exponent as E308, Python as e+308.
    return repr(value).replace("e+", "E").replace("e", "E")


def _parse_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return word == "true"


def _whole_number(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        stripped = text.strip()
        # int() alone would also take 1_000 and digits of other scripts, which Kafka refuses.
        if not _WHOLE_NUMBER.match(stripped):
            raise ValueError("is not a whole number")
        value = int(stripped)
        if not -limit <= value < limit:
            raise ValueError(f"does not fit into {bits} bits")
        return value

    return parse


def _parse_double(text: str) -> float:
    stripped = text.strip()
    if not re.match(_DECIMAL_NUMBER, stripped):
        raise ValueError("is not a number")
    return float(stripped)


def _parse_list(text: str) -> tuple[str, ...]:
    items = split_list(text)
    if "" in items:
        raise ValueError("has an empty item between two commas")
    return items


def _parse_set(text: str) -> frozenset[str]:
    return frozenset(_parse_list(text))


BOOLEAN = Kind(OptionType.BOOLEAN, _parse_boolean)
SHORT = Kind(OptionType.SHORT, _whole_number(16))
INT = Kind(OptionType.INT, _whole_number(32))
LONG = Kind(OptionType.LONG, _whole_number(64))
DOUBLE = Kind(OptionType.DOUBLE, _parse_double)
STRING = Kind(OptionType.STRING, str.strip)
CLASS = Kind(OptionType.CLASS, str.strip)
PASSWORD = Kind(OptionType.PASSWORD, str.strip)
LIST = Kind(OptionType.LIST, _parse_list)
SET = Kind(OptionType.LIST, _parse_set)


def at_least(lowest: float) -> Rule[float]:
    """From `lowest` upwards."""
    fault = f"is less than {lowest}"
    return Rule(f"at least {lowest}", lambda value: fault if value < lowest else None)


def between(lowest: float, highest: float) -> Rule[float]:
    """From `lowest` to `highest`, both included."""
    fault = f"is not between {lowest} and {highest}"
    return Rule(
        f"{lowest} to {highest}",
        lambda value: None if lowest <= value <= highest else fault,
    )


def one_of(*words: str) -> Rule[str]:
    """One of these words, spelled exactly so."""
    fault = f"is not one of {', '.join(words)}"
    return Rule(" or ".join(words), lambda value: None if value in words else fault)


def any_of(*words: str) -> Rule[Collection[str]]:
    """A list made of these words."""

    def find_fault(value: Iterable[str]) -> str | None:
        strange = sorted(set(value) - set(words))
        return f"names {strange[0]}, which is not one of {', '.join(words)}" if strange else None

    return Rule("a list of " + ", ".join(words), find_fault)


V = TypeVar("V")

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

_IGNORED = "Accepted so that existing files work; Moldau does not use it."


class Reload(Enum):
    """How an option changes while the broker runs; the words of Kafka's "Update Mode"."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Importance(Enum):
    """Orders the reference page, most important first."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class Fallback:
    """Another option that speaks when this one is not set, in a unit `factor` times as large."""

    name: str
    factor: int = 1

    def convert(self, value: object) -> object:
        """The fallback's value in this option's unit. Negative numbers mean "no limit" as such."""
        if self.factor == 1 or not isinstance(value, int) or value < 0:
            return value
        return value * self.factor


class OptionDetails(TypedDict, total=False):
    """What an option has beside its name, kind, default and documentation."""

    reload: Reload
    """That of the class (`class TopicOptions(OptionSet, reload=...)`) where it is not given."""
    importance: Importance
    broker_default: str | None
    """The broker option that gives a topic or a group its value when it has none of its own."""
    falls_back_to: tuple[Fallback, ...]
    sensitive: bool
    ignored: bool
    """Accepted, and not used."""
    internal: bool
    """Not on the reference page and not in DescribeConfigs, as in Kafka."""


class Option(Generic[V]):
    """The declaration of one option. Made by `option`, `optional` and `inherited` below."""

    def __init__(
        self,
        name: str,
        kind: Kind[V],
        default: V | None,
        documentation: str,
        rule: Rule[V] | None = None,
        **details: Unpack[OptionDetails],
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.is_ignored = details.get("ignored", False)
        self.documentation = f"{documentation} {_IGNORED}" if self.is_ignored else documentation
        self.rule = rule
        self.has_own_reload = "reload" in details
        self.reload = details.get("reload", Reload.READ_ONLY)
        self.importance = details.get("importance", Importance.MEDIUM)
        self.broker_default = details.get("broker_default")
        self.falls_back_to = details.get("falls_back_to", ())
        self.is_sensitive = details.get("sensitive", False)
        self.is_internal = details.get("internal", False)
        self.attribute = ""

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute

    @overload
    def __get__(self, instance: None, owner: type) -> Option[V]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> V: ...
    def __get__(self, instance: object | None, owner: type) -> Option[V] | V:
        if instance is None:
            return self
        raise AttributeError(f"{owner.__name__} was made without a value for {self.attribute}")

    def __repr__(self) -> str:
        return f"Option({self.name})"

    def parse(self, text: str) -> V:
        """Read and check a text; ValueError carries the end of a message about `name=text`."""
        value = self.kind.parse(text)
        fault = self.rule.find_fault(value) if self.rule is not None else None
        if fault is not None:
            raise ValueError(fault)
        return value

    def require(self, text: str) -> V:
        """Read a text of somebody who changes a config; raises InvalidConfigError."""
        try:
            return self.parse(text)
        except ValueError as fault:
            raise InvalidConfigError(self.message(text, fault)) from None

    def message(self, text: str, fault: ValueError) -> str:
        """The whole message about a text that `parse` refused; a password is not repeated."""
        return f"{self.name}={'…' if self.is_sensitive else text} {fault}"

    @property
    def default_text(self) -> str | None:
        """The default as Kafka prints it; None where it has none."""
        return None if self.default is None else to_text(self.default)


AnyOption = Option[object]


def option(
    name: str,
    kind: Kind[V],
    default: V,
    documentation: str,
    rule: Rule[V] | None = None,
    **details: Unpack[OptionDetails],
) -> Option[V]:
    """Declare an option that always has a value."""
    return Option(name, kind, default, documentation, rule, **details)


def optional(
    name: str,
    kind: Kind[V],
    documentation: str,
    rule: Rule[V] | None = None,
    **details: Unpack[OptionDetails],
) -> Option[V | None]:
    """Declare an option that is None when nobody set it."""
    declared = Option(name, kind, None, documentation, rule, **details)
    # A rule on V is never asked about None, so the wider type is safe to promise.
    return cast("Option[V | None]", declared)


def inherited(
    name: str,
    kind: Kind[V],
    documentation: str,
    rule: Rule[V] | None = None,
    **details: Unpack[OptionDetails],
) -> Option[V]:
    """Declare an option that takes the value of another when it is not set: `log.roll.ms`."""
    return Option(name, kind, None, documentation, rule, **details)


class OptionSet:
    """A class of declarations, and an instance of it the values. Instances never change."""

    _declared: ClassVar[Mapping[str, AnyOption]] = {}

    def __init_subclass__(
        cls, *, ignored: Iterable[AnyOption] = (), reload: Reload = Reload.READ_ONLY
    ) -> None:
        """`ignored` options are declared by a table: their values are not read, so they need no
        typed attribute. `reload` is that of the options that do not say otherwise."""
        for one in ignored:
            one.attribute = one.name.replace(".", "_")
            setattr(cls, one.attribute, one)
        for declared in vars(cls).values():
            if isinstance(declared, Option) and not declared.has_own_reload:
                declared.reload = reload
        found = (v for base in cls.__mro__ for v in vars(base).values() if isinstance(v, Option))
        cls._declared = {declared.name: declared for declared in found}

    def __init__(self, values: Mapping[str, object]) -> None:
        """Take values by attribute name. They are trusted: `resolve` has checked them."""
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; resolve a new one")

    @classmethod
    def declarations(cls) -> Mapping[str, AnyOption]:
        """Every option of the class by its dotted name, in the order of declaration."""
        return cls._declared

    @classmethod
    def find_declaration(cls, name: str) -> AnyOption | None:
        return cls._declared.get(name)

    @classmethod
    def check_settings(cls, settings: Mapping[str, str], called: str) -> None:
        """Raise InvalidConfigError for a name without a declaration, and for a wrong text."""
        for name, text in settings.items():
            declared = cls.find_declaration(name)
            if declared is None:
                hint = suggest(name, cls.declarations())
                raise InvalidConfigError(f"Unknown {called} config name: {name}{hint}")
            declared.require(text)

    def replace(self, **values: object) -> Self:
        """A copy with other values by attribute name, unchecked: for tests and derived topics."""
        strange = values.keys() - self.__dict__.keys()
        if strange:
            raise AttributeError(f"{type(self).__name__} has no option {sorted(strange)[0]}")
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **values)
        return copy

    def has_values_of(self, other: Self) -> bool:
        return self is other or self.__dict__ == other.__dict__


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
        setting.fallback.convert(_parse_setting(declared[setting.name], setting, layers))
        for setting in settings_of(option, layers)
    ]
    return given[0]


def _default_of(option: AnyOption, declared: Mapping[str, AnyOption]) -> object | None:
    if option.default is not None:
        return option.default
    defaults = ((fallback, declared[fallback.name].default) for fallback in option.falls_back_to)
    return next((f.convert(value) for f, value in defaults if value is not None), None)


def _parse_setting(option: AnyOption, setting: Setting, layers: Layers) -> object:
    try:
        return option.parse(setting.text)
    except ValueError as fault:
        origin = layers.origin(setting.source, setting.name)
        raise ConfigurationError(origin + option.message(setting.text, fault)) from None


class ResetTo(Enum):
    """Where reading begins when no offset is known, or the known one is gone."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"
    DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """A value of `auto.offset.reset`; the duration counts back from now."""

    to: ResetTo
    duration_ms: int = 0

    def __str__(self) -> str:
        return f"by_duration:PT{self.duration_ms / 1000:g}S" if self.duration_ms else self.to.value


_DURATION = r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?\Z"
_UNITS_MS = (24 * 60 * MINUTE_MS, 60 * MINUTE_MS, MINUTE_MS, SECOND_MS)


def parse_offset_reset(text: str) -> OffsetReset:
    word = text.strip()
    if word in ("none", "error"):  # Kafka says none
        return OffsetReset(ResetTo.ERROR)
    if word in ("earliest", "latest"):
        return OffsetReset(ResetTo(word))
    if word.startswith("by_duration:"):
        return OffsetReset(ResetTo.DURATION, _parse_duration_ms(word.partition(":")[2]))
    raise ValueError("is not one of earliest, latest, error, by_duration:PT1H (or another time)")


def _parse_duration_ms(text: str) -> int:
    found = re.match(_DURATION, text, re.IGNORECASE)
    if found is None or not any(found.groups()):
        raise ValueError("has no duration like PT1H30M or P2D behind the colon")
    return round(
        sum(
            float(part) * unit
            for part, unit in zip(found.groups(), _UNITS_MS, strict=True)
            if part is not None
        )
    )


OFFSET_RESET = Kind(OptionType.STRING, parse_offset_reset)


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean log.retention.hours?`, or nothing when no name is close."""
    close = find_close(name, known)
    return "" if close is None else f"; did you mean {close}?"


def find_close(name: str, known: Iterable[str]) -> str | None:
    found = get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return found[0] if found else None
