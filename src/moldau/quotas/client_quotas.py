"""The accounts on which what clients do is charged. A shell over `rules`.

One for each broker, owned by its loop; quotas are held by each broker on its own, as in Kafka. How
many accounts there are is bounded: those that are idle are forgotten first, and after them those
that were used the longest time ago.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from moldau.clock import Clock
from moldau.quotas.rules.entities import NO_QUOTAS, QuotaKind, Quotas
from moldau.quotas.rules.quota_table import AppliedQuota, QuotaAccount, QuotaTable
from moldau.quotas.rules.token_bucket import Bucket, is_idle

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
    """What clients of this broker may do. `is_enabled` is all that is looked at without quotas."""

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
