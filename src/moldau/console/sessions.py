"""Who is logged in. A session is a token in a cookie, and a `Console` with that user's clients."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from moldau.clock import Clock, SystemClock
from moldau.console.cluster import EXPECTED, Cluster
from moldau.console.groups import LagHistories
from moldau.console.settings import ConsoleSettings
from moldau.console.watch import ConsoleWatch
from moldau.errors import MoldauError

_MOST_SESSIONS = 200
_CHECKS_AT_ONCE = 8
_SWEEP_SECONDS = 30.0
_TOKEN_BYTES = 32


class TooManyAttemptsError(MoldauError):
    """Somebody has to wait before the next attempt."""

    def __init__(self, seconds: float) -> None:
        self.seconds = max(1, round(seconds))
        super().__init__(f"too many attempts; try again in {self.seconds} s")


@dataclass(slots=True, kw_only=True)
class _Session:
    console: Console
    started: float
    seen: float


class Sessions:
    """By the hash of the token: who reads the memory of a session's key cannot use it."""

    def __init__(self, settings: ConsoleSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._attempts = LoginAttempts()
        self._checking = asyncio.Semaphore(_CHECKS_AT_ONCE)
        self._sessions: dict[str, _Session] = {}
        self._sweeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._sweeping = asyncio.create_task(self._sweep_repeatedly(), name="console sessions")

    async def stop(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        for key in list(self._sessions):
            await self._end(key)

    def find(self, token: str | None) -> Console | None:
        """The console of whoever has this token; looking for it counts as use."""
        session = None if token is None else self._sessions.get(_key(token))
        now = self._clock.monotonic()
        if session is None or is_expired(started=session.started, seen=session.seen, now=now):
            return None
        session.seen = now
        return session.console

    async def log_in(self, user: str, password: str, address: str) -> str:
        """The token of a new session. Raises what the cluster says of this user."""
        limits = limits_of(address, user)
        wait = self._attempts.begin_attempt(limits, self._clock.monotonic())
        if wait > 0:
            raise TooManyAttemptsError(wait)
        options = options_of_user(self._settings.client_options, user, password)
        console = make_console(replace(self._settings, client_options=options), user=user)
        try:
            async with self._checking:
                await console.cluster.admin.describe_cluster()
        except BaseException:
            await console.cluster.close()
            raise
        self._attempts.succeeded(limits)
        await self._make_room()
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        now = self._clock.monotonic()
        self._sessions[_key(token)] = _Session(console=console, started=now, seen=now)
        console.watch.start()
        return token

    async def log_out(self, token: str | None) -> None:
        if token is not None:
            await self._end(_key(token))

    async def sweep(self) -> None:
        """End what has expired. A session with an open tab is in use."""
        now = self._clock.monotonic()
        for key, one in list(self._sessions.items()):
            if one.console.watch.is_watched:
                one.seen = now
            if is_expired(started=one.started, seen=one.seen, now=now):
                await self._end(key)

    async def _sweep_repeatedly(self) -> None:
        while True:
            await self._clock.sleep(_SWEEP_SECONDS)
            await self.sweep()

    async def _make_room(self) -> None:
        """The session that was not used for longest goes."""
        while len(self._sessions) >= _MOST_SESSIONS:
            await self._end(min(self._sessions, key=lambda one: self._sessions[one].seen))

    async def _end(self, key: str) -> None:
        session = self._sessions.pop(key, None)
        if session is not None:
            with contextlib.suppress(
                *EXPECTED
            ):  # of a cluster that is away: it is over all the same
                await session.console.close()


def _key(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass(slots=True, kw_only=True)
class Console:
    """One for a process; where people log in, one for each session, with that user's clients."""

    settings: ConsoleSettings
    cluster: Cluster
    watch: ConsoleWatch
    lags: LagHistories
    clock: Clock
    user: str | None = None  # None where nobody logs in
    is_over: bool = False  # logged out, or expired: its pages are to be left

    @property
    def may_change(self) -> bool:
        return not self.settings.is_read_only

    async def close(self) -> None:
        self.is_over = True
        await self.watch.stop()
        await self.cluster.close()


def make_console(settings: ConsoleSettings, user: str | None = None) -> Console:
    clock = SystemClock()
    cluster = Cluster(settings)
    return Console(
        settings=settings,
        cluster=cluster,
        watch=ConsoleWatch(cluster, clock),
        lags=LagHistories(clock),
        clock=clock,
        user=user,
    )


# Who logs in to what, and where a browser goes after it.
#
# A user of the console is a user of the cluster: name and password of the login page are those of
# SASL. What else a client needs (how to connect, whom to trust) comes from the options that the
# console was given; credentials among these are not used for people who log in.


_WITH_PASSWORD = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
_CREDENTIALS = frozenset({"sasl.jaas.config", "sasl.username", "sasl.password"})
_DEFAULT_MECHANISM = "SCRAM-SHA-512"
IDLE_SECONDS = 30 * 60.0
LONGEST_SECONDS = 12 * 3600.0


def asks_for_password(options: Mapping[str, object]) -> bool:
    """Whether clients of this cluster are users with a password."""
    named = _by_name(options)
    protocol = str(named.get("security.protocol", "")).upper()
    mechanism = str(named.get("sasl.mechanism", _DEFAULT_MECHANISM)).upper()
    return protocol.startswith("SASL_") and mechanism in _WITH_PASSWORD


def without_credentials(options: Mapping[str, object]) -> dict[str, object]:
    return {name: one for name, one in _by_name(options).items() if name not in _CREDENTIALS}


def options_of_user(options: Mapping[str, object], user: str, password: str) -> dict[str, object]:
    """For the clients of one session."""
    return {**without_credentials(options), "sasl.username": user, "sasl.password": password}


def _by_name(options: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): one for name, one in options.items()}


def local_path(text: str) -> str:
    """Where to go after a login: a path of this console, whatever a link says."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    is_clean = text.isprintable() and "\\" not in text
    if not (is_path and is_clean):
        return "/"
    return "/" if urlsplit(text).path in ("/login", "/logout") else text


def is_expired(*, started: float, seen: float, now: float) -> bool:
    return now - seen > IDLE_SECONDS or now - started > LONGEST_SECONDS


# How often somebody may try to log in. Rules: `now` is handed in.
#
# A few attempts are free, so that people may mistype. After that each failure doubles the time
# until the next attempt, up to five minutes. Attempts are counted when they begin: a thousand at
# the same time are not all checked before the first one has failed.


_LONGEST_PAUSE_SECONDS = 300.0
_MOST_KEYS = 10_000

Limit = tuple[str, int]
"""Whom to count (an address, a name, both) and how many attempts of it are free."""


def limits_of(address: str, user: str) -> tuple[Limit, ...]:
    """One address with one name; one address with any name; one name from anywhere. Only the last
    can keep out somebody who has done nothing, so that it is the widest."""
    return (f"{address} {user}", 5), (address, 20), (f" {user}", 100)


@dataclass(slots=True)
class _Tried:
    count: int
    last: float


class LoginAttempts:
    """Remembers the keys that were tried last, a bounded number of them."""

    def __init__(self) -> None:
        self._tried: OrderedDict[str, _Tried] = OrderedDict()

    def begin_attempt(self, limits: Iterable[Limit], now: float) -> float:
        """Seconds to wait; 0 lets the attempt begin, and counts it."""
        limits = tuple(limits)
        wait = max(self._wait(key, free, now) for key, free in limits)
        if wait > 0:
            return wait
        for key, _ in limits:
            before = self._tried.pop(key, None)
            is_fresh = before is None or now - before.last > _LONGEST_PAUSE_SECONDS
            self._tried[key] = _Tried(1 if is_fresh or before is None else before.count + 1, now)
        while len(self._tried) > _MOST_KEYS:
            self._tried.popitem(last=False)
        return 0.0

    def succeeded(self, limits: Iterable[Limit]) -> None:
        """Who knows the password has not guessed: this name from this address begins anew, and the
        attempt does not count for others, of whom many may come through one proxy."""
        own, *shared = (key for key, _ in limits)
        self._tried.pop(own, None)
        for key in shared:
            if key in self._tried:
                self._tried[key].count -= 1

    def _wait(self, key: str, free: int, now: float) -> float:
        tried = self._tried.get(key)
        if tried is None or tried.count < free:
            return 0.0
        pause = min(_LONGEST_PAUSE_SECONDS, 2.0 ** min(16, tried.count - free))
        return max(0.0, tried.last + pause - now)
