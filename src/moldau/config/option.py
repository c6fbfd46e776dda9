"""What an option is: one declaration from which everything else about it follows.

    class TopicOptions(OptionSet):
        segment_bytes = option("segment.bytes", INT, 1 << 30, "…", at_least(1 << 20))

`TopicOptions.segment_bytes` is the declaration (an `Option[int]`); on an instance the same name is
a plain attribute holding an `int`, because an option is a non-data descriptor: the instance's own
value comes first. Parsing, validation, DescribeConfigs, AlterConfigs, the command line's help and
the reference page all read the declaration. Which of several values wins is `resolve`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, Generic, NoReturn, Self, TypeVar, cast, overload

from moldau.config.kinds import Kind, Rule, to_text

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


class Option(Generic[V]):
    """The declaration of one option. Made by `option`, `optional` and `inherited` below."""

    __slots__ = (
        "attribute",
        "broker_default",
        "default",
        "documentation",
        "falls_back_to",
        "importance",
        "is_ignored",
        "is_internal",
        "is_sensitive",
        "kind",
        "name",
        "reload",
        "rule",
    )

    def __init__(
        self,
        name: str,
        kind: Kind[V],
        default: V | None,
        documentation: str,
        rule: Rule[V] | None = None,
        *,
        reload: Reload = Reload.READ_ONLY,
        importance: Importance = Importance.MEDIUM,
        broker_default: str | None = None,
        falls_back_to: tuple[Fallback, ...] = (),
        sensitive: bool = False,
        ignored: bool = False,
        internal: bool = False,
    ) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.documentation = f"{documentation} {_IGNORED}" if ignored else documentation
        self.is_ignored = ignored
        self.rule = rule
        self.reload = reload
        self.importance = importance
        # The broker option that gives a topic its value when the topic has none of its own.
        self.broker_default = broker_default
        self.falls_back_to = falls_back_to
        self.is_sensitive = sensitive
        # Not on the reference page and not in DescribeConfigs, as in Kafka.
        self.is_internal = internal
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
    *,
    reload: Reload = Reload.READ_ONLY,
    importance: Importance = Importance.MEDIUM,
    broker_default: str | None = None,
    falls_back_to: tuple[Fallback, ...] = (),
    sensitive: bool = False,
) -> Option[V]:
    """Declare an option that always has a value."""
    return Option(
        name,
        kind,
        default,
        documentation,
        rule,
        reload=reload,
        importance=importance,
        broker_default=broker_default,
        falls_back_to=falls_back_to,
        sensitive=sensitive,
    )


def optional(
    name: str,
    kind: Kind[V],
    documentation: str,
    rule: Rule[V] | None = None,
    *,
    reload: Reload = Reload.READ_ONLY,
    importance: Importance = Importance.MEDIUM,
    broker_default: str | None = None,
    sensitive: bool = False,
    ignored: bool = False,
    internal: bool = False,
) -> Option[V | None]:
    """Declare an option that is None when nobody set it."""
    declared = Option(
        name,
        kind,
        None,
        documentation,
        rule,
        reload=reload,
        importance=importance,
        broker_default=broker_default,
        sensitive=sensitive,
        ignored=ignored,
        internal=internal,
    )
    # A rule on V is never asked about None, so the wider type is safe to promise.
    return cast("Option[V | None]", declared)


def inherited(
    name: str,
    kind: Kind[V],
    documentation: str,
    rule: Rule[V] | None = None,
    *,
    falls_back_to: tuple[Fallback, ...],
    reload: Reload = Reload.READ_ONLY,
    importance: Importance = Importance.MEDIUM,
) -> Option[V]:
    """Declare an option that takes another's value when nobody set it: `log.roll.ms`."""
    return Option(
        name,
        kind,
        None,
        documentation,
        rule,
        reload=reload,
        importance=importance,
        falls_back_to=falls_back_to,
    )


class OptionSet:
    """A class of declarations, and an instance of it the values. Instances never change."""

    _declared: ClassVar[Mapping[str, AnyOption]] = {}

    def __init_subclass__(cls, *, ignored: Iterable[AnyOption] = ()) -> None:
        """`ignored` are declared by a table: nobody reads them, so they need no typed attribute."""
        for one in ignored:
            one.attribute = one.name.replace(".", "_")
            setattr(cls, one.attribute, one)
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
