"""A broker as a process: what SIGTERM and Ctrl-C do before it serves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.broker.run import real_ports, run_broker
from moldau.broker.server import BrokerServer
from moldau.broker.zookeeper_coordination import zookeeper_coordination
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import Coordination, SessionExpiredError, StoreLostError
from moldau.errors import StartupError
from moldau.testing import ManualClock
from moldau.workers import ThreadWorkers

NOBODY = "127.0.0.1:1"


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
