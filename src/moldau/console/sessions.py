"""Who is logged in. A session is a token in a cookie, and a `Console` with that user's clients.

Passwords are checked by the cluster, and kept nowhere but in the options of the session's clients.
A shell; used by the tasks of one loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from dataclasses import dataclass, replace

from moldau.clock import Clock
from moldau.console.console import Console, make_console
from moldau.console.data.cluster import EXPECTED
from moldau.console.rules.logins import LoginAttempts, is_expired, limits_of, options_of_user
from moldau.console.settings import ConsoleSettings
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
        wait = self._attempts.begin(limits, self._clock.monotonic())
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
            if one.console.watch.is_looked_at:
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
