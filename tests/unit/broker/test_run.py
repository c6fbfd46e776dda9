"""A broker as a process: what SIGTERM and Ctrl-C do before it serves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from moldau.broker.lifecycle import BrokerLifecycle
from moldau.broker.ports import zookeeper_coordination
from moldau.broker.run import real_ports, run_broker
from moldau.broker.server import BrokerServer
from moldau.clock import MachineClock
from moldau.config.broker_options import BrokerOptions
from moldau.coordination import embedded
from moldau.coordination.embedded import FILE_NAME, EmbeddedSession, EmbeddedStore
from moldau.coordination.port import Coordination, SessionExpiredError, StoreLostError
from moldau.coordination.tree import Tree
from moldau.errors import StartupError
from moldau.testing import ManualClock
from moldau.workers import ThreadWorkers

NOBODY = "127.0.0.1:1"


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """Those that are made to embedded stores."""
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def note(*arguments: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*arguments, **options))
        return made[-1]

    monkeypatch.setattr("moldau.coordination.embedded.sqlite3.connect", note)
    return made


def is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return True
    return False


def never_ready(broker: BrokerServer) -> None:
    raise AssertionError("the broker serves")


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_broker_that_waits_for_its_store_stops_when_told(
    tmp_path: Path, number: signal.Signals
) -> None:
    left: list[str] = []

    @contextlib.asynccontextmanager
    async def never_answers(folder: Path) -> AsyncIterator[Coordination]:
        os.kill(os.getpid(), number)
        try:
            await asyncio.Event().wait()
        finally:
            left.append("the store")
        yield  # type: ignore[misc]  # never

    static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    asyncio.run(
        run_broker(static, never_ready, replace(real_ports(), open_coordination=never_answers))
    )
    assert left == ["the store"]
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_store_that_fails_is_told_as_before(tmp_path: Path) -> None:
    @contextlib.asynccontextmanager
    async def fails(folder: Path) -> AsyncIterator[Coordination]:
        if folder == tmp_path:
            raise StartupError("the store is away")
        yield  # type: ignore[misc]  # never

    static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    with pytest.raises(StartupError, match="the store is away"):
        asyncio.run(run_broker(static, never_ready, replace(real_ports(), open_coordination=fails)))


@pytest.mark.parametrize("loss", [SessionExpiredError, StoreLostError])
def test_a_store_that_is_lost_during_the_start_is_told_with_what_to_do(
    tmp_path: Path, loss: type[Exception]
) -> None:
    @contextlib.asynccontextmanager
    async def ends(folder: Path) -> AsyncIterator[Coordination]:
        if folder == tmp_path:
            raise loss("session 7 has ended")
        yield  # type: ignore[misc]  # never

    static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    with pytest.raises(StartupError, match=r"session 7 has ended.* Start again"):
        asyncio.run(run_broker(static, never_ready, replace(real_ports(), open_coordination=ends)))


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("is_session_over", [True, False])
def test_a_broker_that_loses_its_store_as_it_registers_stops_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_session_over: bool
) -> None:
    async def register(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)  # the loop hears of the signal
        if is_session_over:
            raise SessionExpiredError("the session is over")
        raise StoreLostError("nobody answers")

    async def renew(_: EmbeddedSession) -> None:
        raise StoreLostError("nobody answers")

    monkeypatch.setattr(BrokerLifecycle, "_prepare_registration", register)
    monkeypatch.setattr(EmbeddedSession, "renew", renew)
    static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    asyncio.run(asyncio.wait_for(run_broker(static, never_ready), 30))


def test_a_broker_says_soon_that_it_waits_for_zookeeper(caplog: pytest.LogCaptureFixture) -> None:
    async def wait_for_nobody() -> None:
        clock, workers = ManualClock(), ThreadWorkers(1)
        options = BrokerOptions.resolve({"zookeeper.connection.timeout.ms": "9000"})

        async def open_store() -> None:
            async with zookeeper_coordination(NOBODY, options, clock, workers):
                raise AssertionError("there is nobody")

        opening = asyncio.ensure_future(open_store())
        try:
            await clock.advance(1.9)
            assert waits() == []
            await clock.advance(0.2)
            assert len(waits()) == 1
            await clock.advance(7)
            with pytest.raises(StartupError, match="no session with ZooKeeper"):
                await opening
        finally:
            opening.cancel()
            workers.close()

    def waits() -> list[str]:
        said = [record.getMessage() for record in caplog.records]
        return [one for one in said if f"ZooKeeper at {NOBODY} has not answered yet" in one]

    with caplog.at_level(logging.WARNING):
        asyncio.run(wait_for_nobody())
    assert "9 seconds at most" in waits()[0]


class _Life:
    """A broker with a store of its own, and what ends it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)}
        self.folder = folder
        self.monkeypatch = monkeypatch

    def run(self, on_ready: Callable[[BrokerServer], None] = never_ready) -> None:
        asyncio.run(run_broker(self.static, on_ready))

    def stop_when_ready(self) -> None:
        self.run(lambda broker: os.kill(os.getpid(), signal.SIGTERM))

    def fail_when_ready(self) -> None:
        def fail(broker: BrokerServer) -> None:
            raise LookupError("a defect")

        with pytest.raises(LookupError):
            self.run(fail)

    def listen_where_another_does(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            self.static["listeners"] = f"PLAINTEXT://127.0.0.1:{other.getsockname()[1]}"
            with pytest.raises(StartupError, match="in use"):
                self.run()

    def want_another_id(self) -> None:
        self.stop_when_ready()
        self.static["broker.id"] = "7"
        with pytest.raises(StartupError, match="7"):
            self.run()

    def meet_several_brokers(self) -> None:
        def refuse(store: EmbeddedStore) -> None:
            raise StartupError("it is the store of several brokers")

        self.monkeypatch.setattr("moldau.broker.run.refuse_several_brokers", refuse)
        with pytest.raises(StartupError, match="several brokers"):
            self.run()

    def find_it_locked(self) -> None:
        other = sqlite3.connect(self.folder / FILE_NAME, isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        try:
            with pytest.raises(StartupError, match="in use by another process"):
                self.run()
        finally:
            other.close()

    def be_lost_as_it_closes(self) -> None:
        async def fail(session: EmbeddedSession) -> None:
            raise StoreLostError("the coordination store has stopped")

        self.monkeypatch.setattr(EmbeddedSession, "close", fail)
        with pytest.raises(StoreLostError):
            self.stop_when_ready()

    def cannot_hand_over(self) -> None:
        async def fail(membership: BrokerLifecycle) -> None:
            raise LookupError("a defect")

        self.monkeypatch.setattr(BrokerLifecycle, "run_controlled_shutdown", fail)
        with pytest.raises(LookupError):
            self.stop_when_ready()


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    "end",
    [
        _Life.stop_when_ready,
        _Life.fail_when_ready,
        _Life.listen_where_another_does,
        _Life.want_another_id,
        _Life.meet_several_brokers,
        _Life.find_it_locked,
        _Life.be_lost_as_it_closes,
        _Life.cannot_hand_over,
    ],
    ids=lambda end: end.__name__,
)
def test_however_a_broker_ends_the_connection_to_its_store_is_closed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    connections: list[sqlite3.Connection],
    end: Callable[[_Life], None],
) -> None:
    end(_Life(tmp_path, monkeypatch))
    assert connections
    assert all(map(is_closed, connections))


def test_a_store_whose_opening_is_cancelled_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connections: list[sqlite3.Connection]
) -> None:
    load, may_go_on = embedded._load, threading.Event()

    async def story() -> None:
        loop, is_loading = asyncio.get_running_loop(), asyncio.Event()

        def load_later(connection: sqlite3.Connection) -> Tree:
            loop.call_soon_threadsafe(is_loading.set)
            may_go_on.wait()
            return load(connection)

        monkeypatch.setattr(embedded, "_load", load_later)
        workers = ThreadWorkers(1)
        store = tmp_path / FILE_NAME
        opening = asyncio.ensure_future(
            EmbeddedStore.open(store, clock=MachineClock(), workers=workers)
        )
        await is_loading.wait()
        opening.cancel()
        await asyncio.sleep(0)  # the cancellation arrives
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await opening
        workers.close()

    asyncio.run(story())
    assert [is_closed(one) for one in connections] == [True]
