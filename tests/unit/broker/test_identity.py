"""Who a broker is: the store, the data folders and the options agree about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from moldau.broker.identity import BrokerIdentity, establish_identity
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.embedded import EmbeddedSession
from moldau.errors import StartupError
from moldau.simulation.manual_clock import ManualClock
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.log_store import LogStore
from moldau.workers import InlineWorkers
from support.memory_stores import open_memory_store

FOLDER = Path("data")
IN_A_CLUSTER = {"zookeeper.connect": "127.0.0.1:2181"}


class Machine:
    """One data folder, and a coordination store, with which a broker starts again and again."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.files = MemoryFiles()

    def directory_failed(self, folder: Path, error: OSError) -> None:
        raise AssertionError(folder) from error

    async def new_session(self) -> EmbeddedSession:
        store = await open_memory_store(self.clock)
        return store.session()

    async def identify(self, session: EmbeddedSession, settings: dict[str, str]) -> BrokerIdentity:
        options = BrokerOptions.resolve({"log.dirs": str(FOLDER)} | settings)
        logs = LogStore(
            [FOLDER],
            files=self.files,
            clock=self.clock,
            workers=InlineWorkers(),
            options=lambda: options,
            failures=self,
            random=Random(1),
        )
        await logs.open()
        try:
            return await establish_identity(session, logs, options, uuid4)
        finally:
            await logs.close()


def play(story: Callable[[Machine, EmbeddedSession], Awaitable[None]]) -> None:
    async def main() -> None:
        machine = Machine()
        await story(machine, await machine.new_session())

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "broker_id"),
    [
        ({}, 1),
        ({"broker.id": "7"}, 7),
        (IN_A_CLUSTER, 1001),
        (IN_A_CLUSTER | {"broker.id": "7"}, 7),
    ],
)
def test_a_broker_has_the_id_that_it_was_given_or_a_new_one(
    settings: dict[str, str], broker_id: int
) -> None:
    async def story(machine: Machine, session: EmbeddedSession) -> None:
        assert (await machine.identify(session, settings)).broker_id == broker_id

    play(story)


def test_a_broker_is_the_same_when_it_is_started_again() -> None:
    async def story(machine: Machine, session: EmbeddedSession) -> None:
        first = await machine.identify(session, IN_A_CLUSTER)
        assert await machine.identify(session, IN_A_CLUSTER) == first

    play(story)


def test_a_new_store_takes_the_cluster_id_of_the_folder() -> None:
    async def story(machine: Machine, session: EmbeddedSession) -> None:
        first = await machine.identify(session, {})
        assert await machine.identify(await machine.new_session(), {}) == first

    play(story)


def test_a_folder_of_another_cluster_is_refused() -> None:
    async def story(machine: Machine, session: EmbeddedSession) -> None:
        await machine.identify(session, {})
        other = await machine.new_session()
        await Machine().identify(other, {})
        with pytest.raises(StartupError, match="cluster"):
            await machine.identify(other, {})

    play(story)
