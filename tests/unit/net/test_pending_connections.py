"""Handshakes and logins that take long, or are too many."""

from __future__ import annotations

import asyncio

from moldau.net.connection_quotas import PENDING_SECONDS, PendingConnections
from moldau.simulation.manual_clock import ManualClock


class Client:
    def __init__(self, host: str) -> None:
        self.peer_host = host
        self.reason = ""

    def close(self, reason: str) -> None:
        self.reason = reason


def test_who_takes_too_long_is_ended_and_it_is_told() -> None:
    async def run() -> None:
        clock = ManualClock()
        told: list[tuple[str, str]] = []
        pending = PendingConnections(
            clock, "login", on_ended=lambda host, reason: told.append((host, reason))
        )
        slow, quick = Client("10.0.0.1"), Client("10.0.0.2")
        pending.add(slow)
        pending.add(quick)
        pending.discard(quick)
        await clock.advance(PENDING_SECONDS + 1)
        assert slow.reason == "the login took longer than 20 seconds"
        assert not quick.reason
        assert told == [("10.0.0.1", slow.reason)]

    asyncio.run(run())


def test_when_there_are_too_many_the_oldest_goes() -> None:
    async def run() -> None:
        clock = ManualClock()
        pending = PendingConnections(clock, "login", most=2)
        clients = [Client(str(number)) for number in range(3)]
        for client in clients:
            pending.add(client)
        assert [bool(client.reason) for client in clients] == [True, False, False]
        pending.close()

    asyncio.run(run())
