"""Whom a quota is for, and which quotas there are.

A quota belongs to a user, a client id, a client id of a user, or an address; each of them by name
or as the default for all that have none of their own. A rule: values in, values out.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from moldau.errors import InvalidRequestError, UnsupportedVersionError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)


class Default(Enum):
    """In the place of a name: everybody who has no quota of their own."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT

EntityName: TypeAlias = str | Default


class QuotaEntity(NamedTuple):
    """Who. None where the entity says nothing about users, client ids or addresses.

    Invariant: an address stands alone, and there is always something.
    """

    user: EntityName | None = None
    client_id: EntityName | None = None
    ip: EntityName | None = None

    @property
    def parts(self) -> dict[str, EntityName]:
        """By entity type, in the words of the protocol."""
        named = zip(ENTITY_TYPES, self, strict=True)
        return {kind: name for kind, name in named if name is not None}

    def __str__(self) -> str:
        return ", ".join(f"{kind} {_text(name)}" for kind, name in self.parts.items())


class QuotaKind(Enum):
    """What is limited; the value is Kafka's name of the setting."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"
    CONNECTION = "connection_creation_rate"


Quotas: TypeAlias = Mapping[QuotaEntity, Mapping[str, float]]
"""What is set: for each entity the limits by their names."""

NO_QUOTAS: Final[Quotas] = {}

_MAX_INT: Final = (1 << 31) - 1
_MAX_LONG: Final = (1 << 63) - 1
_WHOLE_WITHIN: Final = 1e-6
_LARGEST_WHOLE: Final = {
    QuotaKind.PRODUCE: _MAX_LONG,
    QuotaKind.FETCH: _MAX_LONG,
    QuotaKind.CONNECTION: _MAX_INT,
}
"""Of quotas that are whole numbers."""

_OF_ADDRESSES: Final = (QuotaKind.CONNECTION,)
_OF_CLIENTS: Final = tuple(kind for kind in QuotaKind if kind not in _OF_ADDRESSES)

QUOTA_NAMES: Final = frozenset(kind.value for kind in QuotaKind)


def require_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of pairs of type and name, None being the default; or what is wrong with it."""
    named: dict[str, EntityName] = {}
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise UnsupportedVersionError(f"there are no quotas of the entity type {kind!r}")
        if kind in named:
            raise InvalidRequestError(f"the entity names its {kind} twice")
        if name == "":
            raise InvalidRequestError(f"the name of the {kind} is empty")
        named[kind] = DEFAULT if name is None else name
    if not named:
        raise InvalidRequestError("the entity is empty: name a user, a client id or an address")
    entity = QuotaEntity(named.get(USER), named.get(CLIENT_ID), named.get(IP))
    if entity.ip is not None and len(named) > 1:
        raise InvalidRequestError("a quota of an address holds for every user and client there")
    if isinstance(entity.ip, str):
        return QuotaEntity(ip=_require_address(entity.ip))
    return entity


def _require_address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise InvalidRequestError(f"{text!r} is not an IP address") from None


def kinds_of(entity: QuotaEntity) -> tuple[QuotaKind, ...]:
    """What can be limited for it."""
    return _OF_CLIENTS if entity.ip is None else _OF_ADDRESSES


def require_limit(entity: QuotaEntity, name: str, value: float) -> float:
    """The limit as it is kept, or what is wrong with it."""
    kind = require_kind(entity, name)
    if not math.isfinite(value) or value <= 0:
        raise InvalidRequestError(f"{name} must be greater than 0, not {value}")
    largest = _LARGEST_WHOLE.get(kind)
    if largest is None:
        return value
    if abs(value - round(value)) > _WHOLE_WITHIN or round(value) < 1:
        raise InvalidRequestError(f"{name} is a whole number, not {value}")
    if value > largest:
        raise InvalidRequestError(f"{name} is at most {largest}, not {value}")
    return float(round(value))


def require_kind(entity: QuotaEntity, name: str) -> QuotaKind:
    for kind in kinds_of(entity):
        if kind.value == name:
            return kind
    possible = ", ".join(kind.value for kind in kinds_of(entity))
    raise InvalidRequestError(f"{name!r} is no quota of {entity}; possible are {possible}")


def _text(name: EntityName) -> str:
    return name.value if isinstance(name, Default) else repr(name)
