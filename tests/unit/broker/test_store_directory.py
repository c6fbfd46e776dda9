"""A broker alone has one store, in the first of its log directories (DEL-3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from moldau.broker.missing_log_dirs import check_store_directory, note_store_directory
from moldau.cluster.broker_registration import ensure_znodes
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.coordination.embedded import FILE_NAME, EmbeddedSession, EmbeddedStore
from moldau.errors import StartupError
from moldau.model import BrokerId, TopicId, TopicPartition
from moldau.simulation.manual_clock import ManualClock
from moldau.storage.files import RealFiles
from moldau.storage.log_store import LogStore
from moldau.workers import InlineWorkers


class Bench:
    """A broker's folders, with which it is started again and again."""

    def __init__(self, folder: Path) -> None:
        self.one, self.two, self.three = (folder / name for name in ("one", "two", "three"))
        self.clock = ManualClock()
        self.random = Random(1)

    def directory_failed(self, folder: Path, error: OSError) -> None:
        """The store knows it, too."""

    def options(self, *folders: Path, **settings: str) -> BrokerOptions:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return BrokerOptions.resolve({"log.dirs": ",".join(map(str, folders))} | named)

    @contextlib.asynccontextmanager
    async def logs(self, *folders: Path) -> AsyncIterator[LogStore]:
        store = LogStore(
            folders,
            files=RealFiles(),
            clock=self.clock,
            workers=InlineWorkers(),
            options=lambda: self.options(*folders),
            failures=self,
            random=self.random,
        )
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def begin(self) -> None:
        """A log is in the first of two folders."""
        async with self.logs(self.one, self.two) as store:
            await store.write_identity(BrokerId(1), "cluster-one")
            options = TopicOptions.resolve({}, self.options(self.one, self.two))
            await store.create_log(TopicPartition("clicks", 0), TopicId(UUID(int=1)), options)


@pytest.mark.parametrize("place", [0, 1])
def test_a_new_store_is_not_begun_in_a_folder_that_is_new_beside_others(
    tmp_path: Path, place: int
) -> None:
    async def story() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        folders = [bench.one, bench.two]
        folders.insert(place, bench.three)
        async with bench.logs(*folders) as store:
            alone = bench.options(*folders)
            if place:  # then the store is where it was
                check_store_directory(store, alone, is_new=True)
                return
            with pytest.raises(StartupError, match=r"three is new, .* name it behind the others"):
                check_store_directory(store, alone, is_new=True)
            check_store_directory(
                store, bench.options(*folders, adopt_topics_enable="true"), is_new=True
            )
            check_store_directory(
                store, bench.options(*folders, zookeeper_connect="localhost:2181"), is_new=True
            )

    asyncio.run(story())


def test_a_new_store_is_not_begun_beside_the_one_that_the_broker_has(tmp_path: Path) -> None:
    """Somebody has named the log directories in another order."""

    async def story() -> None:
        bench = Bench(tmp_path)
        await bench.begin()

        @contextlib.asynccontextmanager
        async def kept() -> AsyncIterator[EmbeddedSession]:
            store = await EmbeddedStore.open(
                bench.one / FILE_NAME, clock=bench.clock, workers=InlineWorkers()
            )
            yield store.session()
            await store.close()

        async with kept() as session:
            await session.create("/elsewhere", b"")
        swapped = bench.options(bench.two, bench.one)
        async with bench.logs(bench.two, bench.one) as store:
            # What a start that was refused has left is no store.
            check_store_directory(store, swapped, is_new=True)
            async with kept() as session:
                await ensure_znodes(session, "cluster-one")
            with pytest.raises(StartupError, match=r"users in \S+one, .* Name \S+one first"):
                check_store_directory(store, swapped, is_new=True)
            check_store_directory(
                store, bench.options(bench.two, bench.one, adopt_topics_enable="true"), is_new=True
            )

    asyncio.run(story())


def test_a_broker_begins_with_folders_that_are_all_new(tmp_path: Path) -> None:
    async def story() -> None:
        bench = Bench(tmp_path)
        async with bench.logs(bench.one, bench.two) as store:
            check_store_directory(store, bench.options(bench.one, bench.two), is_new=True)

    asyncio.run(story())


async def noted(bench: Bench, *folders: Path) -> str:
    """The broker was at work with these; returns the id of the one with its store."""
    async with bench.logs(*folders) as store:
        await store.write_identity(BrokerId(1), "cluster-one")
        await note_store_directory(store, bench.options(*folders))
        found = store.identities.id_of(folders[0])
        assert found is not None
        return found


def test_a_new_store_is_not_begun_while_the_directory_that_has_it_is_left_out(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        first_id = await noted(bench, bench.one, bench.two)
        async with bench.logs(bench.two) as store:
            message = rf"one \(id {first_id}\) is missing, .* users\. .*log\.dirs\.lost={first_id}:"
            for settings in ({}, {"log_dirs_lost": "another"}):
                with pytest.raises(StartupError, match=message):
                    check_store_directory(store, bench.options(bench.two, **settings), is_new=True)
            given_up = bench.options(bench.two, log_dirs_lost=first_id)
            check_store_directory(store, given_up, is_new=True)
            elsewhere = bench.options(bench.two, zookeeper_connect="localhost:2181")
            check_store_directory(store, elsewhere, is_new=True)

    asyncio.run(story())


def test_a_disk_with_the_store_that_is_not_mounted_is_given_up_by_its_id(tmp_path: Path) -> None:
    async def story() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        first_id = await noted(bench, bench.one, bench.two)
        bench.one.rename(tmp_path / "away")
        both = (bench.one, bench.two)
        async with bench.logs(*both) as store:
            with pytest.raises(StartupError, match=rf"id {first_id}\) is missing"):
                check_store_directory(store, bench.options(*both), is_new=True)
            given_up = bench.options(*both, log_dirs_lost=first_id)
            check_store_directory(store, given_up, is_new=True)
        assert await noted(bench, *both) != first_id
        async with bench.logs(*both) as store:  # from then on the new one is missed
            check_store_directory(store, bench.options(*both), is_new=False)

    asyncio.run(story())


def test_an_older_store_is_not_taken_for_the_one_that_was_begun_meanwhile(tmp_path: Path) -> None:
    """The first directory was given up, and is back."""

    async def story() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        await noted(bench, bench.one, bench.two)
        second_id = await noted(bench, bench.two, bench.three)
        async with bench.logs(bench.one, bench.two) as store:
            message = rf"Name \S+two first .*log\.dirs\.lost={second_id}:"
            both = bench.options(bench.one, bench.two)
            with pytest.raises(StartupError, match=message):
                check_store_directory(store, both, is_new=False)
        async with bench.logs(bench.one, bench.three) as store:
            message = rf"two \(id {second_id}\) is missing"
            with pytest.raises(StartupError, match=message):
                check_store_directory(store, bench.options(bench.one, bench.three), is_new=False)

    asyncio.run(story())


def test_a_store_beside_which_meta_properties_was_moved_away_is_the_one_that_is_meant(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        both = (bench.one, bench.two)
        await noted(bench, *both)
        (bench.one / "meta.properties").unlink()
        async with bench.logs(*both) as store:
            check_store_directory(store, bench.options(*both), is_new=False)

    asyncio.run(story())


def test_who_has_one_directory_or_no_store_of_its_own_notes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        both = (bench.one, bench.two)
        for now in (bench.options(bench.two), bench.options(*both, zookeeper_connect="localhost")):
            await noted(bench, *both)
            async with bench.logs(*(bench.two,) if len(now.log_dirs) == 1 else both) as store:
                await note_store_directory(store, now)
            async with bench.logs(bench.two) as store:
                check_store_directory(store, bench.options(bench.two), is_new=True)

    asyncio.run(story())


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b"\xff"])
def test_a_note_that_makes_no_sense_is_passed_over(tmp_path: Path, damage: bytes) -> None:
    async def story() -> None:
        bench = Bench(tmp_path)
        await bench.begin()
        await noted(bench, bench.one, bench.two)
        (bench.two / "store-directory").write_bytes(damage)
        async with bench.logs(bench.two) as store:
            check_store_directory(store, bench.options(bench.two), is_new=True)

    asyncio.run(story())
