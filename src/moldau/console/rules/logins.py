"""Who logs in to what, how often it may be tried, and where a browser goes after it. Rules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

# Who logs in to what, and where a browser goes after it. Rules.
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


_LONGEST_SECONDS = 300.0
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

    def begin(self, limits: Iterable[Limit], now: float) -> float:
        """Seconds to wait; 0 lets the attempt begin, and counts it."""
        limits = tuple(limits)
        wait = max(self._wait(key, free, now) for key, free in limits)
        if wait > 0:
            return wait
        for key, _ in limits:
            before = self._tried.pop(key, None)
            is_fresh = before is None or now - before.last > _LONGEST_SECONDS
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
        pause = min(_LONGEST_SECONDS, 2.0 ** min(16, tried.count - free))
        return max(0.0, tried.last + pause - now)
