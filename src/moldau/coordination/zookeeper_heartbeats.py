"""How long a session cannot be over: the lease of `port`, from heartbeats. A shell.

A heartbeat is a `sync`: it goes through the server to the leader of the ensemble, which alone
decides when a session has timed out, and back. It is sent every sixth of the session's time-out T
(the one that the server granted); the lease ends 0.6 T after the last confirmed one was *sent*. The
0.4 T below are for a server that is not the leader and tells it of its clients' life only with its
next ping, and for a clock that runs a little faster than the others.

Since heartbeats keep kazoo from sending its own pings, whose loss would tell it of a dead server,
a heartbeat without an answer for T / 3 cuts the connection: there may be a better server.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections import deque

from moldau.clock import Clock, Timer
from moldau.coordination.port import StoreLostError
from moldau.coordination.zookeeper_link import Link

_PER_TIMEOUT = 6
_LEASE_SHARE = 0.6
_TIMEOUT_SHARE = 1 / 3


class Heartbeats:
    """The heartbeats of one link, from `begin` to `stop`."""

    def __init__(self, link: Link, clock: Clock, path: str) -> None:
        self._link = link
        self._clock = clock
        self._path = path
        self._timer: Timer | None = None
        self._unconfirmed: deque[float] = deque()  # when they were sent; answers keep the order
        self._confirmed = asyncio.Event()
        self.lease_end = -math.inf

    def begin(self) -> None:
        """Send one at once; called whenever the link is attached."""
        self._stop_timer()
        self._unconfirmed.clear()
        self._beat()

    def stop(self) -> None:
        self._stop_timer()
        self.lease_end = -math.inf
        self._confirmed.set()

    async def wait_until_confirmed(self, seconds: float) -> None:
        """Until there is a lease. Raises `StoreLostError` when there is none in time."""
        timer = self._clock.call_later(seconds, self._confirmed.set)
        try:
            await self._confirmed.wait()
        finally:
            timer.cancel()
        if self.lease_end == -math.inf:
            raise StoreLostError(f"no heartbeat was answered within {seconds:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        timeout = self._link.timeout_seconds
        self._timer = self._clock.call_later(timeout / _PER_TIMEOUT, self._beat)
        if not self._link.is_attached:
            return
        now = self._clock.monotonic()
        if self._unconfirmed and now - self._unconfirmed[0] > timeout * _TIMEOUT_SHARE:
            self._link.cut()
            return
        self._unconfirmed.append(now)
        answer = self._link.call_at_once(lambda client: client.sync_async(self._path))
        answer.add_done_callback(functools.partial(self._answered, now))

    def _answered(self, sent: float, answer: asyncio.Future[object]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return  # the link says more: it is detached or lost
        if self._unconfirmed and self._unconfirmed[0] == sent:
            self._unconfirmed.popleft()
        if self._timer is not None:
            self.lease_end = max(self.lease_end, sent + _LEASE_SHARE * self._link.timeout_seconds)
            self._confirmed.set()
