"""How often somebody may try to log in. Rules: `now` is handed in.

A few attempts are free, so that people may mistype. After that each failure doubles the time until
the next attempt, up to five minutes. Attempts are counted when they begin: a thousand at the same
time are not all checked before the first one has failed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

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
