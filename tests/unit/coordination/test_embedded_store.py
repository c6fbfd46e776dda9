"""What only the embedded store promises: its file, its order, and what it does when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from moldau.coordination.embedded import FILE_NAME, MEMORY, Database, EmbeddedStore
from moldau.coordination.port import Create, NodeExistsError, SessionExpiredError, StoreLostError
from moldau.errors import StartupError
from moldau.simulation.manual_clock import ManualClock, wait_until_idle
from moldau.workers import InlineWorkers, Workers

T = TypeVar("T")


async def open_store(location: Path | str, workers: Workers | None = None) -> EmbeddedStore:
    return await EmbeddedStore.open(
        location, clock=ManualClock(), workers=workers or InlineWorkers()
    )


class SlowWorkers:
    """Holds work back until it is let go, and fails it on request."""

    def __init__(self) -> None:
        self.held: list[asyncio.Event] = []
        self.hold = False
        self.failure: Exception | None = None
        self.runs = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.runs += 1
        if self.hold:
            gate = asyncio.Event()
            self.held.append(gate)
            await gate.wait()
        if self.failure is not None:
            raise self.failure
        return work()

    def let_go(self) -> None:
        self.hold = False
        for gate in self.held:
            gate.set()

    def close(self) -> None:
        pass


# The file


def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_store(tmp_path / FILE_NAME)
        session = store.session()
        await session.create("/a/b", b"\x00data", parents=True)
        await session.create("/gone")
        await session.delete("/gone")
        await session.set("/a", b"1")
        before = await session.get_many(["/a", "/a/b"])
        await store.close()

        store = await open_store(tmp_path / FILE_NAME)
        session = store.session()
        assert await session.get_many(["/a", "/a/b"]) == before
        assert await session.children("/") == ["a"]
        assert await session.get("/gone") is None
        with pytest.raises(NodeExistsError):
            await session.create("/a/b")
        await store.close()

    asyncio.run(story())


def test_what_was_acknowledged_survives_a_killed_process(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_store(tmp_path / FILE_NAME)
        await store.session().create("/a", b"1")
        await store.session().create("/b", b"2")
        crashed = tmp_path / "crashed"
        crashed.mkdir()
        for file in tmp_path.glob(f"{FILE_NAME}*"):
            shutil.copy(file, crashed)
        await store.close()

        revived = await open_store(crashed / FILE_NAME)
        assert await revived.session().children("/") == ["a", "b"]
        await revived.close()

    asyncio.run(story())


def test_each_commit_is_synced(tmp_path: Path) -> None:
    """SQLite syncs its log at each commit when `synchronous` is FULL (2), and only then."""
    for _ in ("a new file", "a file that is there"):
        database, _tree = Database.open(tmp_path / FILE_NAME)
        with contextlib.closing(database):
            for setting, expected in (("synchronous", 2), ("journal_mode", "wal")):
                asked = database._connection.execute(f"PRAGMA {setting}")
                assert asked.fetchone() == (expected,)


def test_the_first_commit_stands_on_a_whole_database_file(tmp_path: Path) -> None:
    # SQLite drops a log whose database file is empty, as an unsynced one may be after power loss.
    async def story() -> None:
        store = await open_store(tmp_path / FILE_NAME)
        await store.session().create("/a", b"1")
        without_log = tmp_path / "without_log.db"
        shutil.copy(tmp_path / FILE_NAME, without_log)
        await store.close()
        with sqlite3.connect(without_log) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
        connection.close()
        assert tables == [("counters",), ("nodes",)]

    asyncio.run(story())


def test_ephemeral_nodes_of_a_former_process_are_gone(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_store(tmp_path / FILE_NAME)
        session = store.session()
        await session.create("/ids/1", b"broker", ephemeral=True, parents=True)
        await store.close()

        store = await open_store(tmp_path / FILE_NAME)
        session = store.session()
        assert await session.children("/ids") == []
        await session.create("/ids/1", ephemeral=True)
        await session.delete("/ids/1")
        await session.delete("/ids")
        await store.close()

    asyncio.run(story())


def test_ids_grow_over_restarts_also_those_of_ephemeral_nodes(tmp_path: Path) -> None:
    async def story() -> None:
        last = 0
        for _ in range(3):
            store = await open_store(tmp_path / FILE_NAME)
            session = store.session()
            await session.create("/broker", ephemeral=True)
            node = await session.get("/broker")
            assert node is not None
            assert node.created_id > last
            last = node.created_id
            await store.close()

    asyncio.run(story())


def test_a_sequence_goes_on_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_store(tmp_path / FILE_NAME)
        session = store.session()
        first = await session.create("/n_", sequential=True, ephemeral=True)
        await store.close()
        store = await open_store(tmp_path / FILE_NAME)
        assert await store.session().create("/n_", sequential=True) > first
        await store.close()

    asyncio.run(story())


def test_a_file_that_is_not_a_database_stops_the_start_with_advice(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all" * 1000)
    with pytest.raises(StartupError, match=r"coordination\.db is damaged .* backup"):
        asyncio.run(open_store(tmp_path / FILE_NAME))


def test_a_database_with_a_damaged_page_stops_the_start_with_advice(tmp_path: Path) -> None:
    async def fill() -> None:
        store = await open_store(tmp_path / FILE_NAME)
        session = store.session()
        await session.transact([Create(path=f"/{n}", data=b"x" * 500) for n in range(200)])
        await store.close()

    asyncio.run(fill())
    with (tmp_path / FILE_NAME).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    with pytest.raises(StartupError, match="is damaged"):
        asyncio.run(open_store(tmp_path / FILE_NAME))


def test_a_database_whose_rows_make_no_tree_stops_the_start_with_advice(tmp_path: Path) -> None:
    async def fill() -> None:
        store = await open_store(tmp_path / FILE_NAME)
        await store.session().create("/a/b", parents=True)
        await store.close()

    asyncio.run(fill())
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("DELETE FROM nodes WHERE path = '/a'")
    connection.close()
    with pytest.raises(StartupError, match=r"is damaged .*parent /a"):
        asyncio.run(open_store(tmp_path / FILE_NAME))


def test_a_database_of_another_program_stops_the_start_with_advice(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("CREATE TABLE nodes (something TEXT)")
    connection.close()
    with pytest.raises(StartupError, match=r"coordination\.db is damaged"):
        asyncio.run(open_store(tmp_path / FILE_NAME))


def test_a_folder_that_does_not_exist_stops_the_start_with_advice(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot be opened for writing .* folder"):
        asyncio.run(open_store(tmp_path / "missing" / FILE_NAME))


def test_a_folder_in_the_place_of_the_file_stops_the_start_with_advice(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).mkdir()
    with pytest.raises(StartupError, match="cannot be opened for writing"):
        asyncio.run(open_store(tmp_path / FILE_NAME))


def test_a_file_in_use_stops_the_start_with_advice(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_store(tmp_path / FILE_NAME)
        await store.session().create("/a")
        with pytest.raises(StartupError, match="in use by another process"):
            await open_store(tmp_path / FILE_NAME)
        await store.session().create("/b")
        await store.close()

    asyncio.run(story())


def test_a_file_of_a_newer_format_stops_the_start_with_advice(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StartupError, match="newer Moldau"):
        asyncio.run(open_store(tmp_path / FILE_NAME))


# Order and durability


def test_nobody_sees_what_is_not_on_disk_yet() -> None:
    async def story() -> None:
        workers = SlowWorkers()
        store = await open_store(MEMORY, workers)
        session = store.session()
        rings: list[str] = []
        session.watch_data("/a", lambda: rings.append("/a"))
        workers.hold = True
        write = asyncio.ensure_future(session.create("/a"))
        await wait_until_idle()
        assert await session.get("/a") is None
        assert await session.children("/") == []
        assert not rings
        assert not write.done()
        workers.let_go()
        assert await write == "/a"
        await wait_until_idle()
        assert rings == ["/a"]
        await store.close()

    asyncio.run(story())


def test_writes_that_gather_meanwhile_share_a_commit_and_keep_their_order() -> None:
    async def story() -> None:
        workers = SlowWorkers()
        store = await open_store(MEMORY, workers)
        session = store.session()
        workers.hold = True
        answered: list[int] = []

        async def write(number: int) -> None:
            await session.create(f"/{number}")
            answered.append(number)

        writes = asyncio.gather(*(write(number) for number in range(50)))
        await wait_until_idle()
        runs = workers.runs
        workers.let_go()
        await writes
        assert answered == list(range(50))
        assert workers.runs <= runs + 1
        await store.close()

    asyncio.run(story())


def test_a_failed_commit_changes_nothing_and_is_told_to_every_caller() -> None:
    async def story() -> None:
        workers = SlowWorkers()
        store = await open_store(MEMORY, workers)
        session = store.session()
        await session.create("/before")
        workers.failure = StoreLostError("the disk is full")
        results = await asyncio.gather(
            session.create("/a"), session.set("/before", b"1"), return_exceptions=True
        )
        assert [type(result) for result in results] == [StoreLostError] * 2
        assert await session.children("/") == ["before"]
        workers.failure = None
        await session.create("/a")
        assert await session.set("/before", b"1") == 1
        await store.close()

    asyncio.run(story())


def test_a_database_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_store(tmp_path / FILE_NAME)
        session = store.session()
        await session.create("/a")
        store._database._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreLostError, match=r"coordination\.db cannot be written"):
            await session.create("/b")
        assert await session.get("/b") is None
        store._database._connection.execute("PRAGMA query_only = OFF")
        await session.create("/b")
        await store.close()

    asyncio.run(story())


def test_a_session_ends_even_when_the_disk_fails() -> None:
    async def story() -> None:
        workers = SlowWorkers()
        store = await open_store(MEMORY, workers)
        one, other = store.session(), store.session()
        await one.create("/mine", ephemeral=True)
        workers.hold = True
        write = asyncio.ensure_future(other.create("/a"))
        await wait_until_idle()
        one.expire()
        late = asyncio.ensure_future(other.create("/b"))
        workers.failure = StoreLostError("the disk is full")
        workers.let_go()
        with pytest.raises(StoreLostError):
            await write
        with pytest.raises(StoreLostError):
            await late
        assert await other.get("/mine") is None
        workers.failure = None
        await store.close()

    asyncio.run(story())


def test_a_write_that_waited_while_its_session_ended_is_refused() -> None:
    async def story() -> None:
        workers = SlowWorkers()
        store = await open_store(MEMORY, workers)
        one, other = store.session(), store.session()
        workers.hold = True
        under_way = asyncio.ensure_future(one.create("/under-way", ephemeral=True, parents=True))
        blocked = asyncio.ensure_future(other.create("/first"))
        await wait_until_idle()
        waiting = asyncio.ensure_future(one.create("/waiting"))
        await wait_until_idle()
        one.expire()
        workers.let_go()
        await asyncio.gather(under_way, blocked)
        with pytest.raises(SessionExpiredError):
            await waiting
        await wait_until_idle()
        assert await other.children("/") == ["first"]
        await store.close()

    asyncio.run(story())


def test_a_cancelled_writer_leaves_nobody_waiting() -> None:
    async def story() -> None:
        workers = SlowWorkers()
        store = await open_store(MEMORY, workers)
        session = store.session()
        workers.hold = True
        first = asyncio.ensure_future(session.create("/a"))
        await wait_until_idle()
        second = asyncio.ensure_future(session.create("/b"))
        await wait_until_idle()
        await store._tasks.close()
        for write in (first, second):
            with pytest.raises(StoreLostError):
                await write
        workers.let_go()
        await store.close()

    asyncio.run(story())


def test_a_caller_who_stops_waiting_does_not_disturb_the_others() -> None:
    async def story() -> None:
        workers = SlowWorkers()
        store = await open_store(MEMORY, workers)
        session = store.session()
        workers.hold = True
        impatient = asyncio.ensure_future(session.create("/a"))
        patient = asyncio.ensure_future(session.create("/b"))
        await wait_until_idle()
        impatient.cancel()
        workers.let_go()
        assert await patient == "/b"
        await store.close()

    asyncio.run(story())


def test_writing_and_deleting_ephemeral_nodes_needs_no_commit() -> None:
    async def story() -> None:
        workers = SlowWorkers()
        store = await open_store(MEMORY, workers)
        session = store.session()
        await session.create("/ids")
        await session.create("/ids/1", ephemeral=True)
        runs = workers.runs
        await session.set("/ids/1", b"1")
        await session.delete("/ids/1")
        assert workers.runs == runs
        await session.set("/ids", b"1")
        assert workers.runs == runs + 1
        await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("path", ["a", "", "/a/", "//a", "/a//b"])
def test_a_path_that_is_none_is_a_mistake_of_the_caller(path: str) -> None:
    async def story() -> None:
        store = await open_store(MEMORY)
        with pytest.raises(ValueError, match="is not a path"):
            await store.session().create(path)
        await store.close()

    asyncio.run(story())


def test_the_root_cannot_be_deleted() -> None:
    async def story() -> None:
        store = await open_store(MEMORY)
        session = store.session()
        for attempt in (session.delete("/"), session.delete_tree("/")):
            with pytest.raises(ValueError, match="root"):
                await attempt
        await store.close()

    asyncio.run(story())


async def _made_file(folder: Path) -> None:
    store = await open_store(folder / FILE_NAME)
    session = store.session()
    await session.transact([Create(path="/a", data=b"")])
    names = [path for path in folder.iterdir() if path.name.startswith(FILE_NAME)]
    assert len(names) >= 2  # the log of SQLite beside it
    assert all(path.stat().st_mode & 0o077 == 0 for path in names)
    await session.close()
    await store.close()


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    """What is known of users' passwords is in it."""
    asyncio.run(_made_file(tmp_path))


# The loop


async def count_turns(task: asyncio.Task[object]) -> int:
    """How many turns of the loop others have had when a task ends."""
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


def test_a_large_transaction_leaves_the_loop_to_others_and_is_seen_as_a_whole() -> None:
    async def story() -> None:
        store = await open_store(MEMORY)
        session, other = store.session(), store.session()
        await session.create("/topics")
        writes = [Create(path=f"/topics/{number}") for number in range(2000)]
        large = asyncio.create_task(session.transact(writes))
        await asyncio.sleep(0)  # it is under way
        small = asyncio.create_task(other.create("/behind"))
        seen = set()
        turns = 0
        while not large.done():
            turns += 1
            seen.add(len(await other.children("/topics")))
            await asyncio.sleep(0)
        assert turns >= 5, "of 2,000 operations a few hundred are done in one turn"
        assert seen <= {0, 2000}
        assert await large == [write.path for write in writes]
        assert await small == "/behind"
        await store.close()

    asyncio.run(story())


def test_many_small_transactions_leave_the_loop_to_others() -> None:
    async def story() -> None:
        store = await open_store(MEMORY)
        session = store.session()
        asked = asyncio.gather(*(session.create(f"/{number}") for number in range(2000)))
        assert await count_turns(asyncio.ensure_future(asked)) >= 5  # type: ignore[arg-type]
        assert len(await session.children("/")) == 2000
        await store.close()

    asyncio.run(story())


def test_a_session_that_ends_in_the_middle_of_its_transaction_leaves_nothing_behind() -> None:
    async def story() -> None:
        store = await open_store(MEMORY)
        session, other = store.session(), store.session()
        writes = [Create(path=f"/{number}", ephemeral=True) for number in range(2000)]
        asked = asyncio.create_task(session.transact(writes))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not asked.done()
        session.expire()
        await asked  # it was before the end
        await session.renew()
        assert await other.children("/") == []
        await store.close()

    asyncio.run(story())
