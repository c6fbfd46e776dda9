"""A client of a simulated coordination service: the product's own, over links that fail."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from moldau.clock import Clock
from moldau.coordination.store_session import StoreSession
from moldau.testing.simulated_coordination import CoordinationService

_OPENING_TIMEOUTS: Final = 10.0
"""How many session time-outs to wait for the service at first."""


class SimulatedSession(StoreSession):
    """The client. Use `open_session`; owned by the loop of its clock."""

    def __init__(
        self,
        service: CoordinationService,
        host: str,
        clock: Clock,
        timeout_seconds: float,
        process_id: int = 0,
    ) -> None:
        super().__init__(partial(service.connect, host, clock), clock, timeout_seconds, process_id)
        self._service = service

    def expire(self) -> None:
        """End the session now, and let the service know of it at once."""
        session_id = self.session_id
        if not self.is_lost:
            self._service.clock.call_later(0, lambda: self._service.expire(session_id))
            self._lose_and_tell()


@contextlib.asynccontextmanager
async def open_session(
    service: CoordinationService,
    *,
    host: str,
    clock: Clock,
    timeout_seconds: float,
    process_id: int = 0,
) -> AsyncIterator[SimulatedSession]:
    """A session that lasts as long as the block; raises `StoreLostError` without a service."""
    session = SimulatedSession(service, host, clock, timeout_seconds, process_id)
    await session.open(_OPENING_TIMEOUTS * timeout_seconds)
    try:
        yield session
    finally:
        await session.close()
