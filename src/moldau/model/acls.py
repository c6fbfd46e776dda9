"""Access control lists in Kafka's words: who may, or may not, do what to which resource.

A binding is a pattern of resources with one entry: `User:alice` from any host may READ topics that
begin with `orders.`. The numbers are those of the protocol, the labels those of the classic znodes
and of Kafka's tools. Values only; what follows from them is decided by
`security.rules.authorization`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Self

from moldau.light_classes import NamedTuple

ANYTHING: Final = "*"
"""As the name of a literal pattern every resource of the type, as a host every host."""

ANYBODY: Final = "User:*"
"""As the principal of an entry: whoever it is."""

CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of its type."""


class _Word(IntEnum):
    """A number of the protocol that people write as a word."""

    @property
    def label(self) -> str:
        """As Kafka writes it: `DescribeConfigs`."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read it in any of the spellings that are in use: DESCRIBE_CONFIGS, DescribeConfigs,
        describe-configs. ValueError ends a message."""
        wanted = _folded(text)
        for one in cls:
            if _folded(one.name) == wanted:
                return one
        raise ValueError(f"{text!r} is none of {', '.join(one.label for one in cls.choices())}")

    @classmethod
    def choices(cls) -> tuple[Self, ...]:
        """Those that a binding may have: without UNKNOWN, and without what only filters say."""
        return tuple(one for one in cls if one.name not in ("UNKNOWN", "ANY", "MATCH"))


def _folded(text: str) -> str:
    return text.replace("_", "").replace("-", "").casefold()


class AclOperation(_Word):
    """What is done; bit N of the authorized operations stands for the operation N."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, value: object) -> AclOperation:
        return cls.UNKNOWN  # of a newer client or broker


class AclResourceType(_Word):
    """What it is done to."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, value: object) -> AclResourceType:
        return cls.UNKNOWN


class PatternType(_Word):
    """How the name of a pattern is meant. ANY and MATCH are for filters: patterns of any type with
    this name, and those that hold for a resource of this name."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def _missing_(cls, value: object) -> PatternType:
        return cls.UNKNOWN


class AclPermission(_Word):
    """Whether it is granted or forbidden."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, value: object) -> AclPermission:
        return cls.UNKNOWN


class ResourcePattern(NamedTuple):
    """The resources that an entry is about."""

    type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        kind = "" if self.pattern_type is PatternType.LITERAL else f" ({self.pattern_type.label})"
        return f"{self.type.label}:{self.name}{kind}"

    def holds_for(self, name: str) -> bool:
        """Whether a resource of the type with this name is meant."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANYTHING)


class AclEntry(NamedTuple):
    """Who may, or may not, do something."""

    principal: str
    permission: AclPermission
    operation: AclOperation
    host: str = ANYTHING


class AclBinding(NamedTuple):
    """One entry about some resources."""

    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        principal, permission, operation, host = self.entry
        return f"{permission.label} {principal} from {host} to {operation.label} {self.pattern}"


class AclFilter(NamedTuple):
    """Bindings, by what is known of them; None and ANY stand for everything."""

    resource_type: AclResourceType = AclResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource_type not in (AclResourceType.ANY, pattern.type):
            return False
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or pattern.holds_for(self.name)
        if self.pattern_type not in (PatternType.ANY, pattern.pattern_type):
            return False
        return self.name in (None, pattern.name)

    def matches_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )


Acls = Mapping[ResourcePattern, frozenset[AclEntry]]
"""All bindings, by their patterns; no pattern without an entry."""

NO_ACLS: Final[Acls] = MappingProxyType({})


def _operations(*operations: AclOperation) -> frozenset[AclOperation]:
    return frozenset(operations)


OPERATIONS: Final[Mapping[AclResourceType, frozenset[AclOperation]]] = MappingProxyType(
    {
        AclResourceType.TOPIC: _operations(
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        AclResourceType.GROUP: _operations(
            AclOperation.READ,
            AclOperation.DELETE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        ),
        AclResourceType.CLUSTER: _operations(
            AclOperation.CREATE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
        ),
        AclResourceType.TRANSACTIONAL_ID: _operations(
            AclOperation.DESCRIBE, AclOperation.WRITE, AclOperation.TWO_PHASE_COMMIT
        ),
        AclResourceType.DELEGATION_TOKEN: _operations(AclOperation.DESCRIBE),
        AclResourceType.USER: _operations(AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
    }
)
"""What can be done to each type of resource."""


def operation_bits(operations: Iterable[AclOperation]) -> int:
    """Operations as one number, in which bit N stands for the operation N."""
    return sum(1 << operation for operation in operations)
