"""Values that every package shares: identifiers, protocol numbers, names, access control lists.

Standard library only, no I/O. Identifiers are nominal types, so that a leader epoch is never
passed where an offset is meant. What access control lists grant is decided by
`security.rules.authorization`.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, NewType, Self, overload
from uuid import UUID

Offset = NewType("Offset", int)
"""A record's place in its partition. Never negative; -1 means "unknown" on the wire only."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of a partition; grows by one with each election."""

BrokerId = NewType("BrokerId", int)

ProducerId = NewType("ProducerId", int)
"""Names an idempotent producer; -1 for a producer that is not idempotent."""

ProducerEpoch = NewType("ProducerEpoch", int)
"""Fences the older of two producers with one id."""

TopicId = NewType("TopicId", UUID)
"""Outlives the name: a topic deleted and made again has another id."""


class TopicPartition(NamedTuple):
    """One partition of one topic. A named tuple because it is the key of every hot dictionary."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@overload
def records_behind(position: int, end_offset: int) -> int: ...
@overload
def records_behind(position: int | None, end_offset: int | None) -> int | None: ...
def records_behind(position: int | None, end_offset: int | None) -> int | None:
    """The lag of a reader, as Kafka's consumer-groups tool counts it: offsets from its position to
    the end of the partition. None where one of them is not known.

    A position may be past the end: of a topic that was recreated, or after an unclean election.
    """
    if position is None or end_offset is None:
        return None
    return max(0, end_offset - position)


LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
"""What ListOffsets takes in the place of a timestamp: the end, the beginning, the newest record."""

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)

NO_BROKER: Final = BrokerId(-1)
"""In the place of a leader or a controller: there is none at the moment."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
"""Of a batch whose producer is not idempotent."""

NO_GENERATION: Final = -1
"""The generation of somebody who commits without being a member."""

CONSUMER: Final = -1
"""In the place of a replica's broker id: the request comes from a client."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""Isolation levels."""

USER: Final = "User"
"""The kind of every principal that this broker makes."""


class Principal(NamedTuple):
    """Somebody, as Kafka writes it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Read `Kind:name`; the name may contain colons. ValueError ends a message."""
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(f"{text!r} is not of the form User:name")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Whoever does not have to say who he is: a client of a listener without authentication."""


# Topic names: which of them are legal, and which collide in metrics (Kafka's `Topic` class).


MAX_TOPIC_NAME_LENGTH = 249
"""A folder is named `topic-partition` plus, while deleted, a 39-character suffix: 255 in all."""

GROUP_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The log of Kafka's own controllers, in a folder that came from there: no topic, and not ours."""
INTERNAL_TOPICS = frozenset({GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})

BRANCH_OF = "moldau.branch.of"
"""What stands among the configs of a topic to be made: the topic whose records it begins with."""

_LEGAL_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


def find_topic_name_fault(name: str) -> str | None:
    """Say what is wrong with a topic name, or None when it is legal."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return "the topic name must not be '.' or '..'"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return (
            f"the topic name has {len(name)} characters, "
            f"at most {MAX_TOPIC_NAME_LENGTH} are allowed"
        )
    if not _LEGAL_TOPIC_NAME.match(name):
        return (
            f"the topic name {name!r} contains a character other than ASCII letters and digits, "
            "'.', '_' and '-'"
        )
    return None


def find_colliding_name(name: str, others: frozenset[str]) -> str | None:
    """Find a topic whose name differs only in '.' against '_' (they share a metric name)."""
    flat = name.replace(".", "_")
    if flat == name and "_" not in name:
        return None
    return next((other for other in others if other.replace(".", "_") == flat), None)


UUID_TEXT_LENGTH = 22


def format_uuid(identifier: UUID) -> str:
    return urlsafe_b64encode(identifier.bytes)[:UUID_TEXT_LENGTH].decode("ascii")


def parse_uuid(text: str) -> UUID:
    """Raises `ValueError` for anything but 22 characters of url-safe base64."""
    if len(text) != UUID_TEXT_LENGTH:
        raise ValueError(f"{text!r} is not a base64 id of {UUID_TEXT_LENGTH} characters")
    try:
        identifier = UUID(bytes=urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a base64 id: {error}") from error
    if format_uuid(identifier) != text:  # the decoder skips foreign characters and spare bits
        raise ValueError(f"{text!r} is not a base64 id")
    return identifier


class AcknowledgeType(IntEnum):
    """What is said of a record that was delivered; the numbers are Kafka's."""

    GAP = 0
    """There is no record at this offset: compacted away, or a marker of a transaction."""

    ACCEPT = 1
    """Dealt with: never delivered again."""

    RELEASE = 2
    """Not dealt with: delivered again, to anybody, unless that was done too often already."""

    REJECT = 3
    """Cannot be dealt with: never delivered again."""

    RENEW = 4
    """Still being dealt with: the lock begins anew (KIP-1222)."""


# Access control lists. A binding is a pattern of resources with one entry: `User:alice` from any
# host may READ topics that begin with `orders.`. The numbers are those of the protocol, the labels
# those of the classic znodes and of Kafka's tools.


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
