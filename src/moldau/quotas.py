"""How much users, clients and addresses may ask of a broker.

Entities and the quotas that there are, filters of DescribeClientQuotas, which quota applies to a
request, token buckets, and the accounts that requests are charged to. The broker decides what a
request is charged for and how a connection is throttled (`broker.throttling`).
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

from moldau.clock import Clock
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
    """Whom a quota is for: a user, a client id, a client id of a user, or an address; each of them
    by name or as the default for all that have none of their own. None where the entity says
    nothing about users, client ids or addresses.

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


# Which entities DescribeClientQuotas asks for.
#
# A filter has one condition for each entity type that it names: this name, the default, or any of
# the two. An entity matches when it has all of these types with matching names; of a strict filter,
# when it has no others besides. A filter without conditions matches everything, and nothing if it
# is strict. A rule: values in, values out.


class Match(IntEnum):
    """How a name is compared; the numbers of the protocol."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class NameCondition(NamedTuple):
    """What a filter says about one entity type."""

    entity_type: str
    match_type: int
    match: str | None


def find_matching(
    quotas: Quotas, conditions: Sequence[NameCondition], *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """The entities that match and have quotas."""
    _check_conditions(conditions)
    return {
        entity: dict(limits)
        for entity, limits in quotas.items()
        if limits and _matches(entity, conditions, strict)
    }


def _matches(entity: QuotaEntity, conditions: Sequence[NameCondition], strict: bool) -> bool:
    parts = entity.parts
    if strict and len(parts) != len(conditions):
        return False
    for kind, match_type, name in conditions:
        if kind not in parts:
            return False
        if match_type == Match.EXACT and parts[kind] != name:
            return False
        if match_type == Match.DEFAULT and parts[kind] is not DEFAULT:
            return False
    return True


def _check_conditions(conditions: Sequence[NameCondition]) -> None:
    named: set[str] = set()
    for kind, match_type, name in conditions:
        if not kind:
            raise InvalidRequestError("a condition names no entity type")
        if kind not in ENTITY_TYPES:
            raise UnsupportedVersionError(f"there are no quotas of the entity type {kind!r}")
        if kind in named:
            raise InvalidRequestError(f"the filter has two conditions on {kind}")
        named.add(kind)
        if match_type not in (Match.EXACT, Match.DEFAULT, Match.ANY):
            raise InvalidRequestError(f"there is no way {match_type} to match a name")
        if (match_type == Match.EXACT) != (name is not None):
            raise InvalidRequestError(
                f"the condition on {kind} has a name that it does not match by, or none to match"
            )
    if IP in named and len(named) > 1:
        raise InvalidRequestError("no quota is of an address and of a user or client id")


# Which quota holds for a request: the most particular one, as Kafka chooses it (QUO-2).
#
#     1  the client id of the user       5  any client of any user
#     2  any client of the user          6  any user
#     3  the user                        7  the client id
#     4  the client id of any user       8  any client
#
# The one that is found says whose account is charged, too. A quota of a user is shared by all
# clients of that user; one of a client id of a user is that pair's own; and a default one is a
# quota for each that it holds for, not one that they share. A rule: values in, values out.


class QuotaAccount(NamedTuple):
    """Who is charged: a user, a client id, or a client id of a user."""

    kind: QuotaKind
    user: str | None
    client_id: str | None
    ip: str | None = None


class AppliedQuota(NamedTuple):
    """A limit, and the account that it is measured on."""

    account: QuotaAccount
    limit: float


class QuotaTable:
    """The quotas by kind. Made anew when one of them changes."""

    def __init__(self, quotas: Quotas) -> None:
        self._limits: dict[QuotaKind, dict[QuotaEntity, float]] = {}
        for kind in QuotaKind:
            limits = {
                entity: values[kind.value]
                for entity, values in quotas.items()
                if kind.value in values
            }
            if limits:
                self._limits[kind] = limits

    @property
    def kinds(self) -> frozenset[QuotaKind]:
        """What is limited for anybody."""
        return frozenset(self._limits)

    def find(self, kind: QuotaKind, user: str, client_id: str) -> AppliedQuota | None:
        limits = self._limits.get(kind)
        if limits is None:
            return None
        for entity, account_user, account_client in (
            (QuotaEntity(user, client_id), user, client_id),
            (QuotaEntity(user, DEFAULT), user, client_id),
            (QuotaEntity(user), user, None),
            (QuotaEntity(DEFAULT, client_id), user, client_id),
            (QuotaEntity(DEFAULT, DEFAULT), user, client_id),
            (QuotaEntity(DEFAULT), user, None),
            (QuotaEntity(None, client_id), None, client_id),
            (QuotaEntity(None, DEFAULT), None, client_id),
        ):
            limit = limits.get(entity)
            if limit is not None:
                return AppliedQuota(QuotaAccount(kind, account_user, account_client), limit)
        return None

    def find_for_address(self, ip: str) -> AppliedQuota | None:
        """The quota on new connections from an address."""
        limits = self._limits.get(QuotaKind.CONNECTION)
        if limits is None:
            return None
        limit = limits.get(QuotaEntity(ip=ip), limits.get(QuotaEntity(ip=DEFAULT)))
        if limit is None:
            return None
        return AppliedQuota(QuotaAccount(QuotaKind.CONNECTION, None, None, ip), limit)


# An account that fills with the rate of a quota and is charged for what was done.
#
# It never holds more than the burst. What was done may cost more than there is (a batch is never
# cut): then the account is in debt, and who owes waits until it is paid. So however large single
# requests are, what is let through in any time is the rate times that time, plus the burst, plus
# one request (QUO-1).
#
# Why not Kafka's average over eleven samples of a second: it lets ten seconds' worth through at
# once, and counts them again when they leave the window; over ten seconds a client may get half as
# much again as its quota. It also takes eleven numbers for each account, where this takes two.
# Kafka itself counts changes of topics in this way (KIP-599). A rule: values in, values out.


class Bucket(NamedTuple):
    """`tokens` were there at `at`; below zero they are owed."""

    tokens: float
    at: float

    def refilled(self, rate: float, burst: float, now: float) -> Bucket:
        """As it is now."""
        if now <= self.at:
            return Bucket(min(burst, self.tokens), self.at)
        return Bucket(min(burst, self.tokens + rate * (now - self.at)), now)

    def charged(self, amount: float) -> Bucket:
        return Bucket(self.tokens - amount, self.at)

    def seconds_of_debt(self, rate: float) -> float:
        """How long it takes until nothing is owed any more."""
        return 0.0 if self.tokens >= 0 else -self.tokens / rate


def is_idle(bucket: Bucket, rate: float, burst: float, now: float) -> bool:
    """Whether it is full again: forgotten, it loses nobody anything."""
    return bucket.refilled(rate, burst, now).tokens >= burst


MOST_ACCOUNTS: Final = 10_000
"""Clients may call themselves as they like, and a default quota gives each name an account."""

_STARTS_FULL: Final = (QuotaKind.MUTATION, QuotaKind.CONNECTION)
"""Bytes and time begin with nothing: a client that comes under a new name gains nothing by it."""


class QuotaWindows(NamedTuple):
    """How many seconds' worth of a quota may be used at once."""

    burst_seconds: float = 1.0
    mutation_burst_seconds: float = 11.0
    fetch_burst_seconds: float = 10.0  # of a single answer, which may put the account into debt


class WaitingClient(NamedTuple):
    """A client whose requests are not taken, and the quota for whose sake."""

    applied: AppliedQuota
    user: str
    client_id: str


class QuotaFigures(NamedTuple):
    """What became of the quotas of one kind since the broker started."""

    kind: QuotaKind
    accounts: int  # that are known now
    throttled_ms: int
    throttled_requests: int


class _Kept:
    """An account that is known."""

    __slots__ = ("bucket", "limit")

    def __init__(self, bucket: Bucket, limit: float) -> None:
        self.bucket = bucket
        self.limit = limit


class ClientQuotas:
    """What clients of this broker may do. `is_enabled` is all that is looked at without quotas.

    Quotas apply to each broker on its own, as in Kafka. The number of accounts is bounded: those
    that are idle are forgotten first, and after them those that were used the longest time ago.
    Owned by the event loop.
    """

    def __init__(
        self,
        clock: Clock,
        windows: Callable[[], QuotaWindows] = QuotaWindows,
        most_accounts: int = MOST_ACCOUNTS,
    ) -> None:
        self.clock = clock
        self._windows = windows
        self._most_accounts = most_accounts
        self._table = QuotaTable(NO_QUOTAS)
        self._kept: dict[QuotaAccount, _Kept] = {}  # the one that was used last at the end
        self._waiting: dict[Callable[[float], None], WaitingClient] = {}
        self._throttled = dict.fromkeys(QuotaKind, (0, 0))  # requests and milliseconds
        self.is_enabled = False  # whether anything is limited for anybody
        self.kinds: frozenset[QuotaKind] = frozenset()  # what is

    def apply(self, quotas: Quotas) -> None:
        """These are in force from now on. What is owed stays owed, and is paid at the new rate."""
        self._table = QuotaTable(quotas)
        self.kinds = self._table.kinds
        self.is_enabled = bool(self.kinds)
        for shorten, waiting in list(self._waiting.items()):
            applied = self.find(waiting.applied.account.kind, waiting.user, waiting.client_id)
            if applied != waiting.applied:
                shorten(0.0 if applied is None else self.seconds_of_debt(applied))
        if not self.is_enabled:
            self._kept.clear()

    def note_waiting(self, shorten: Callable[[float], None], waiting: WaitingClient) -> None:
        """When the client's quota changes, `shorten` gets the seconds that it has to wait then."""
        self._waiting[shorten] = waiting

    def forget_waiting(self, shorten: Callable[[float], None]) -> None:
        self._waiting.pop(shorten, None)

    def find(self, kind: QuotaKind, user: str, client_id: str) -> AppliedQuota | None:
        return self._table.find(kind, user, client_id)

    def charge(self, applied: AppliedQuota, amount: float) -> float:
        """Charge an account; the seconds that who did it has to wait."""
        kept = self._refilled(applied)
        kept.bucket = kept.bucket.charged(amount)
        return kept.bucket.seconds_of_debt(applied.limit)

    def seconds_of_debt(self, applied: AppliedQuota) -> float:
        return self._refilled(applied).bucket.seconds_of_debt(applied.limit)

    def fetch_burst(self, applied: AppliedQuota) -> float:
        """How many bytes a single answer may carry."""
        return applied.limit * self._windows().fetch_burst_seconds

    def note_throttled(self, kind: QuotaKind, throttle_ms: int) -> None:
        """Somebody has to wait for the sake of such an account."""
        requests, ms = self._throttled[kind]
        self._throttled[kind] = (requests + 1, ms + throttle_ms)

    def admit_connection(self, ip: str) -> float:
        """0 if another connection may come from there, else the seconds until one may."""
        applied = self._table.find_for_address(ip)
        if applied is None:
            return 0.0
        seconds = (1.0 - self._refilled(applied).bucket.tokens) / applied.limit
        if seconds <= 0:
            self.charge(applied, 1.0)
            return 0.0
        self.note_throttled(applied.account.kind, round(seconds * 1000))
        return seconds

    def figures(self) -> tuple[QuotaFigures, ...]:
        """By kind, for those who measure."""
        counted = dict.fromkeys(QuotaKind, 0)
        for account in self._kept:
            counted[account.kind] += 1
        return tuple(
            QuotaFigures(kind, counted[kind], ms, requests)
            for kind, (requests, ms) in self._throttled.items()
        )

    def _refilled(self, applied: AppliedQuota) -> _Kept:
        """The account as it is now."""
        account, limit = applied
        now = self.clock.monotonic()
        burst = self._burst(account.kind, limit)
        kept = self._kept.pop(account, None)
        if kept is None:
            self._make_room(now)
            kept = _Kept(Bucket(burst if account.kind in _STARTS_FULL else 0.0, now), limit)
        self._kept[account] = kept
        kept.limit = limit
        kept.bucket = kept.bucket.refilled(limit, burst, now)
        return kept

    def _burst(self, kind: QuotaKind, limit: float) -> float:
        windows = self._windows()
        if kind is QuotaKind.MUTATION:
            return limit * windows.mutation_burst_seconds
        burst = limit * windows.burst_seconds
        return max(1.0, burst) if kind is QuotaKind.CONNECTION else burst

    def _make_room(self, now: float) -> None:
        if len(self._kept) < self._most_accounts:
            return
        self._kept = {
            account: kept
            for account, kept in self._kept.items()
            if not is_idle(kept.bucket, kept.limit, self._burst(account.kind, kept.limit), now)
        }
        kept = max(1, self._most_accounts * 3 // 4)  # else each new name would cost a sweep
        while len(self._kept) > kept:
            self._kept.pop(next(iter(self._kept)))
