"""A session without a connection finds out whether it is over, whatever happens on the way."""

from __future__ import annotations

import asyncio

import pytest

from moldau.coordination.port import StoreLostError
from moldau.coordination.zookeeper import client
from moldau.coordination.zookeeper.client import ZookeeperClient
from moldau.coordination.zookeeper.settings import ZookeeperSettings
from moldau.simulation.manual_clock import ManualClock, wait_until_idle
from moldau.workers import InlineWorkers


class Probe:
    """A link of its own: the first fails in a way that nobody has thought of."""

    outcomes: list[Exception | None]

    def __init__(self, *_: object) -> None: ...

    async def open(self) -> None:
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome

    async def close(self) -> None: ...


def test_a_look_that_fails_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock = ManualClock()
        settings = ZookeeperSettings.parse("127.0.0.1:1", session_timeout_ms=3_000)
        session = ZookeeperClient(settings, clock, InlineWorkers())
        link = session._session
        ended: list[bool] = []
        session._is_started = True
        session.on_session_end(lambda: ended.append(True))
        Probe.outcomes = [RuntimeError("odd"), StoreLostError("nobody answers"), None, None]
        monkeypatch.setattr(client, "Session", Probe)
        session._on_detached(link)
        for left in (3, 2, 1):
            await clock.advance(3.0)
            await wait_until_idle()
            assert len(Probe.outcomes) == left
            assert not ended
        await clock.advance(3.0)  # somebody was there twice in a row, and does not know us
        await wait_until_idle()
        assert ended
        await session.close()

    asyncio.run(story())
