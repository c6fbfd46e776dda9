"""The life of a session, on a clock that the test moves. Passwords: test_console_login.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import moldau.testing
from moldau.console.sessions import IDLE_SECONDS, LONGEST_SECONDS, Sessions, TooManyAttemptsError
from moldau.console.settings import ConsoleSettings
from moldau.errors import ConfigurationError, MoldauError
from moldau.simulation.manual_clock import ManualClock

Story = Callable[[Sessions, ManualClock], Awaitable[None]]


def play(story: Story, bootstrap: str = "") -> None:
    async def run(address: str) -> None:
        clock = ManualClock()
        sessions = Sessions(ConsoleSettings(bootstrap=address), clock)
        try:
            await story(sessions, clock)
        finally:
            await sessions.stop()

    if bootstrap:
        asyncio.run(run(bootstrap))
        return
    with moldau.testing.broker() as broker:
        asyncio.run(run(broker.bootstrap))


def test_a_session_that_nobody_uses_ends_and_its_clients_with_it() -> None:
    async def story(sessions: Sessions, clock: ManualClock) -> None:
        token = await sessions.log_in("alice", "secret", "10.0.0.1")
        console = sessions.find(token)
        assert console is not None
        assert console.user == "alice"
        assert sessions.find("another") is None
        assert sessions.find(None) is None
        await clock.advance(IDLE_SECONDS - 1)
        assert sessions.find(token) is console  # which is a use
        await clock.advance(IDLE_SECONDS + 1)
        assert sessions.find(token) is None
        await sessions.sweep()
        assert console.is_over
        with pytest.raises(ConfigurationError, match="log in again"):
            await console.cluster.admin.list_topics()

    play(story)


def test_no_session_lasts_longer_than_half_a_day() -> None:
    async def story(sessions: Sessions, clock: ManualClock) -> None:
        token = await sessions.log_in("alice", "secret", "10.0.0.1")
        for _ in range(int(LONGEST_SECONDS // IDLE_SECONDS)):
            assert sessions.find(token) is not None
            await clock.advance(IDLE_SECONDS)
        await clock.advance(1)
        assert sessions.find(token) is None

    play(story)


def test_logging_out_ends_one_session_and_no_other() -> None:
    async def story(sessions: Sessions, clock: ManualClock) -> None:
        first = await sessions.log_in("alice", "secret", "10.0.0.1")
        second = await sessions.log_in("alice", "secret", "10.0.0.1")
        await sessions.log_out(first)
        await sessions.log_out(first)
        await sessions.log_out(None)
        assert sessions.find(first) is None
        assert sessions.find(second) is not None

    play(story)


def test_a_login_that_fails_leaves_nothing_behind_and_is_counted() -> None:
    async def story(sessions: Sessions, clock: ManualClock) -> None:
        for _ in range(5):
            with pytest.raises(MoldauError):
                await sessions.log_in("alice", "secret", "10.0.0.1")
        with pytest.raises(TooManyAttemptsError):
            await sessions.log_in("alice", "secret", "10.0.0.1")
        assert not sessions._sessions

    play(story, "not an address")
