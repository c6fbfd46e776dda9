"""A fetch that waits for news of its partitions (long poll): Kafka's DelayedFetch.

A task for each would cost more than all that the fetch does: most consumers wait at the end of
their log, and every record wakes all who wait for it. So this is an object that hears of what
happens from the moment in which it is made, and looks again in the next turn of the loop, together
with all others whom the same record has woken. A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from moldau.broker.fetch_session import FetchSession, FetchWait
from moldau.broker.request_charge import RequestCharge
from moldau.broker.services import Services
from moldau.clock import Timer
from moldau.net.port import Chunk

Look = Callable[[bool], list[Chunk] | int]
"""The answer, or how many bytes are missing for one. Called with True when the time is over, and
then there has to be an answer."""

OnAnswer = Callable[[list[Chunk] | Exception], None]


class DelayedFetch(FetchWait):
    """`begin` or `await` it, once; `cancel` it when nobody waits for the answer any more."""

    __slots__ = (
        "_charge",
        "_is_due",
        "_is_late",
        "_is_over",
        "_look",
        "_on_answer",
        "_services",
        "_session",
        "_timer",
    )

    def __init__(
        self,
        session: FetchSession,
        look: Look,
        missing_bytes: int,
        max_wait_ms: int,
        services: Services,
        charge: RequestCharge | None,
        *,
        hears_commits: bool,
    ) -> None:
        """The session watches its partitions already, and a look has found too little."""
        super().__init__(missing_bytes, hears_commits=hears_commits)
        self._session = session
        self._look = look
        self._services = services
        self._charge = charge
        self._on_answer: OnAnswer | None = None
        self._is_due = False  # a look is to come
        self._is_late = False  # the time is over
        self._is_over = False  # it was answered or given up
        session.waits[self] = None
        services.purgatory.fetches += 1
        self._timer: Timer = services.clock.call_later(max_wait_ms / 1000, self._be_late)
        if charge is not None:
            charge.pause()

    def begin(self, on_answer: OnAnswer) -> None:
        """Have the answer told, or why there is none; not before the next turn of the loop."""
        self._on_answer = on_answer
        if self._is_due:
            self._services.purgatory.look_soon(self)

    def __await__(self) -> Generator[Any, Any, list[Chunk]]:
        answer: asyncio.Future[list[Chunk]] = asyncio.get_running_loop().create_future()

        def settle(found: list[Chunk] | Exception) -> None:
            if answer.done():
                return
            if isinstance(found, Exception):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        self.begin(settle)
        try:
            return (yield from answer)
        finally:
            self.cancel()

    def wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            if self._on_answer is not None:
                self._services.purgatory.look_soon(self)

    def _be_late(self) -> None:
        self._is_late = True
        self.wake()

    def look(self) -> None:
        """See whether there is an answer now."""
        on_answer = self._on_answer
        if self._is_over or on_answer is None:
            return
        self._is_due = False
        found: list[Chunk] | int | Exception
        charge = self._charge
        if charge is not None:
            charge.go_on()
        try:
            found = self._look(self._is_late)
        except Exception as error:  # noqa: BLE001 who waits for the answer decides what it costs
            found = error
        if charge is not None:
            charge.pause()
        if isinstance(found, int):
            self.missing_bytes = found
        else:
            self.cancel()
            on_answer(found)

    def cancel(self) -> None:
        """Wait no longer, and tell nothing."""
        if self._is_over:
            return
        self._is_over = True
        services, session = self._services, self._session
        services.purgatory.fetches -= 1
        del session.waits[self]
        self._timer.cancel()
        if not session.is_kept:
            services.fetch_sessions.unwatch(session.partitions.values())
