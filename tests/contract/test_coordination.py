"""What every coordination store does: the rules of `moldau.coordination.port`."""

from __future__ import annotations

import asyncio
import math
import socket
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

from moldau.clock import SystemClock
from moldau.coordination.embedded import FILE_NAME, MEMORY, EmbeddedStore
from moldau.coordination.port import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Coordination,
    CoordinationError,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
    StoreLostError,
)
from moldau.coordination.served.server import StoreServer
from moldau.coordination.served.session import SocketConnector, StoreSession
from moldau.coordination.zookeeper.client import ZookeeperClient
from moldau.coordination.zookeeper.settings import ZookeeperSettings
from moldau.simulation.coordination_service import CoordinationService, open_session
from moldau.simulation.manual_clock import DEFAULT_START_MS, ManualClock
from moldau.simulation.memory_network import MemoryNetwork
from moldau.workers import InlineWorkers, ThreadWorkers, Workers
from support.waiting import eventually
from support.zookeeper import end_session, require_zookeeper, shared_ensemble

PATIENCE = 60.0  # seconds of the real clock after which a story is stuck


class Session(Coordination, Protocol):
    """A session that a test can end from outside."""

    def expire(self) -> None: ...


Connect = Callable[[], Awaitable[Session]]
"""A new session with the one store of a story."""

Story = Callable[[Connect], Coroutine[Any, Any, None]]
Play = Callable[[Story], None]


async def play_embedded(story: Story, location: Path | str, workers: Workers) -> None:
    async with AsyncExitStack() as cleanup:
        cleanup.callback(workers.close)
        store = await EmbeddedStore.open(location, clock=ManualClock(), workers=workers)
        cleanup.push_async_callback(store.close)

        async def connect() -> Session:
            return store.session()

        await asyncio.wait_for(story(connect), PATIENCE)


class ServedSession(StoreSession):
    """A session with a server in the same process, which ends it when told to."""

    def __init__(self, server: StoreServer, path: Path) -> None:
        connector = SocketConnector(str(path), lambda: None)
        super().__init__(connector, SystemClock(), timeout_seconds=10.0)
        self._server = server

    def expire(self) -> None:
        """As if the server had said so."""
        if not self.is_lost:
            self._server.expire(self.session_id)
            self._end_session()


async def play_served(story: Story, folder: Path, workers: Workers) -> None:
    path = folder / "store.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    async with AsyncExitStack() as cleanup:
        cleanup.callback(workers.close)
        clock = SystemClock()
        store = await EmbeddedStore.open(folder / FILE_NAME, clock=clock, workers=workers)
        cleanup.push_async_callback(store.close)
        server = StoreServer(store, clock, listener)
        cleanup.push_async_callback(server.close)
        server.start()

        async def connect() -> Session:
            session = ServedSession(server, path)
            await session.open(PATIENCE)
            cleanup.push_async_callback(session.close)
            return session

        await asyncio.wait_for(story(connect), PATIENCE)


class RealSession(ZookeeperClient):
    """A session with a real server, which ends it when told to."""

    def expire(self) -> None:
        """Return when the session knows; it hears of it when it looks for its connection."""
        port = int(self._settings.servers[0].rpartition(":")[2])
        end_session(port, self.session_id, self._session.password)
        link = self._session
        eventually(lambda: link.is_lost, "the end of the session")


async def play_zookeeper(story: Story, connect_text: str, workers: Workers) -> None:
    settings = ZookeeperSettings.parse(connect_text, session_timeout_ms=10_000)
    async with AsyncExitStack() as cleanup:
        cleanup.callback(workers.close)

        async def connect() -> Session:
            session = await RealSession.open(settings, clock=SystemClock(), workers=workers)
            cleanup.push_async_callback(session.close)
            return cast("RealSession", session)

        await asyncio.wait_for(story(connect), PATIENCE)


async def play_simulated(story: Story) -> None:
    async with AsyncExitStack() as cleanup:
        clock = ManualClock()
        service = CoordinationService(MemoryNetwork(clock), clock)

        async def connect() -> Session:
            session = open_session(service, host="client", clock=clock, timeout_seconds=6.0)
            return await cleanup.enter_async_context(session)

        await asyncio.wait_for(story(connect), PATIENCE)


IMPLEMENTATIONS = ("embedded in memory", "embedded on disk", "served", "simulated", "zookeeper")


@pytest.fixture(params=IMPLEMENTATIONS)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    def play_story(story: Story) -> None:
        if request.param == "embedded in memory":
            asyncio.run(play_embedded(story, MEMORY, InlineWorkers()))
        elif request.param == "embedded on disk":
            asyncio.run(play_embedded(story, tmp_path / FILE_NAME, ThreadWorkers(2)))
        elif request.param == "served":
            with tempfile.TemporaryDirectory(prefix="moldau-") as short:  # a socket's path is
                asyncio.run(play_served(story, Path(short), ThreadWorkers(2)))
        elif request.param == "simulated":
            asyncio.run(play_simulated(story))
        else:
            require_zookeeper()
            connect_text = shared_ensemble(1).fresh_connect()
            asyncio.run(play_zookeeper(story, connect_text, ThreadWorkers(2)))

    return play_story


class Bell:
    """A callback that counts, and that a story can wait for."""

    def __init__(self) -> None:
        self.rings = 0
        self._rung = asyncio.Event()

    def __call__(self) -> None:
        self.rings += 1
        self._rung.set()

    async def wait_until_rung(self) -> None:
        await self._rung.wait()
        self._rung.clear()


async def until_armed(session: Coordination) -> None:
    """What a session reads after it has set a watch is read after the watch is in force."""
    await session.get("/")


async def answers_seen_by(session: Coordination) -> None:
    """Return when whatever was told to the session so far has arrived.

    A watch on a path of its own is told after those that were set off before.
    """
    bell = Bell()
    watch = session.watch_data("/last-of-all", bell)
    await session.create("/last-of-all")
    await session.delete("/last-of-all")
    await bell.wait_until_rung()
    watch.cancel()


# Reading and writing single nodes


def test_a_node_that_was_made_is_read_back(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        assert await session.create("/brokers", b"data") == "/brokers"
        node = await session.get("/brokers")
        assert node is not None
        assert (node.data, node.version, node.ephemeral_owner) == (b"data", 0, 0)

    play(story)


def test_a_node_that_does_not_exist_reads_as_none(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        assert await session.get("/nothing") is None
        assert list(await session.children("/nothing")) == []

    play(story)


def test_the_root_exists_from_the_beginning(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        assert await session.get("/") is not None
        with pytest.raises(NodeExistsError):
            await session.create("/")

    play(story)


def test_many_nodes_are_read_in_the_order_asked_for(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a", b"1")
        await session.create("/b", b"2")
        nodes = await session.get_many(["/b", "/missing", "/a"])
        assert [None if node is None else node.data for node in nodes] == [b"2", None, b"1"]
        assert not await session.get_many([])

    play(story)


def test_a_node_is_not_made_twice(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a", b"first")
        with pytest.raises(NodeExistsError):
            await session.create("/a", b"second")
        node = await session.get("/a")
        assert node is not None
        assert node.data == b"first"

    play(story)


def test_a_node_needs_its_parent(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        with pytest.raises(NoNodeError):
            await session.create("/a/b")
        assert await session.get("/a") is None

    play(story)


def test_missing_parents_are_made_on_the_way_when_asked_for(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a", b"stays")
        assert await session.create("/a/b/c", b"deep", parents=True) == "/a/b/c"
        nodes = await session.get_many(["/a", "/a/b", "/a/b/c"])
        assert [node.data for node in nodes if node] == [b"stays", b"", b"deep"]

    play(story)


def test_children_are_named_in_order_and_without_grandchildren(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        for path in ("/a", "/a/x", "/a/b", "/a/b/deep", "/ab"):
            await session.create(path)
        assert list(await session.children("/a")) == ["b", "x"]
        assert {"a", "ab"} <= set(await session.children("/"))

    play(story)


def test_a_write_counts_the_version_up(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a", b"0")
        assert await session.set("/a", b"1") == 1
        assert await session.set("/a", b"2", version=1) == 2
        node = await session.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"2", 2)

    play(story)


def test_a_write_over_another_version_is_refused(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a", b"0")
        await session.set("/a", b"1")
        with pytest.raises(BadVersionError):
            await session.set("/a", b"late", version=0)
        node = await session.get("/a")
        assert node is not None
        assert node.data == b"1"

    play(story)


def test_writing_and_deleting_what_is_not_there_is_refused(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        with pytest.raises(NoNodeError):
            await session.set("/a", b"")
        with pytest.raises(NoNodeError):
            await session.delete("/a")

    play(story)


def test_a_node_is_deleted_by_its_version(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a")
        await session.set("/a", b"1")
        with pytest.raises(BadVersionError):
            await session.delete("/a", version=0)
        await session.delete("/a", version=1)
        assert await session.get("/a") is None
        assert "a" not in await session.children("/")

    play(story)


def test_a_node_with_children_is_not_deleted(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a/b", parents=True)
        with pytest.raises(NotEmptyError):
            await session.delete("/a")
        await session.delete("/a/b")
        await session.delete("/a")

    play(story)


def test_a_whole_tree_is_deleted_and_its_neighbours_stay(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a/b/c", parents=True)
        await session.create("/a/d")
        await session.create("/ab")
        await session.delete_tree("/a")
        assert await session.get("/a") is None
        assert await session.get("/a/b/c") is None
        assert await session.get("/ab") is not None
        await session.delete_tree("/a")  # absent: no error

    play(story)


def test_a_node_made_again_begins_at_version_zero_with_a_higher_id(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a")
        await session.set("/a", b"1")
        former = await session.get("/a")
        await session.delete("/a")
        await session.create("/a")
        node = await session.get("/a")
        assert former is not None
        assert node is not None
        assert node.version == 0
        assert node.created_id > former.created_id

    play(story)


def test_writing_keeps_the_id_of_a_node(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a")
        made = await session.get("/a")
        await session.set("/a", b"1")
        written = await session.get("/a")
        assert made is not None
        assert written is not None
        assert made.created_id == written.created_id

    play(story)


def test_a_node_knows_when_it_was_written(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a")
        node = await session.get("/a")
        assert node is not None
        assert node.modified_ms >= DEFAULT_START_MS

    play(story)


# Sequential nodes


def test_sequential_nodes_end_in_ten_digits_that_count_up(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/queue")
        paths = [await session.create("/queue/n_", sequential=True) for _ in range(3)]
        assert paths == ["/queue/n_0000000000", "/queue/n_0000000001", "/queue/n_0000000002"]

    play(story)


def test_a_sequence_number_never_comes_twice(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/queue")
        first = await session.create("/queue/n_", sequential=True)
        await session.delete(first)
        assert await session.create("/queue/n_", sequential=True) > first

    play(story)


def test_deletions_leave_no_gap_in_the_sequence(play: Play) -> None:
    """Who reads sequential nodes sees from a gap that it has missed some."""

    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/queue")
        paths = [await session.create("/queue/n_", sequential=True) for _ in range(3)]
        await session.transact([Delete(path=path) for path in paths])
        with pytest.raises(NoNodeError):
            await session.transact(
                [Create(path="/queue/n_", sequential=True), Delete(path="/none")]
            )
        assert await session.create("/queue/n_", sequential=True) == "/queue/n_0000000003"

    play(story)


def test_every_child_counts_in_the_sequence_whatever_its_name(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/queue")
        await session.create("/queue/other")
        assert await session.create("/queue/n_", sequential=True) == "/queue/n_0000000001"

    play(story)


# Transactions


def test_a_transaction_does_all_of_its_operations_in_order(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/old")
        paths = await session.transact(
            [
                Create(path="/a", data=b"0"),
                Create(path="/a/n_", sequential=True),
                SetData(path="/a", data=b"1", version=0),
                Check(path="/a", version=1),
                Delete(path="/old"),
            ]
        )
        assert list(paths) == ["/a", "/a/n_0000000000", "", "", ""]
        node = await session.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"1", 1)
        assert await session.get("/old") is None

    play(story)


@pytest.mark.parametrize(
    ("impossible", "error"),
    [
        (Create(path="/a"), NodeExistsError),
        (Create(path="/missing/child"), NoNodeError),
        (SetData(path="/missing", data=b""), NoNodeError),
        (SetData(path="/a", data=b"", version=7), BadVersionError),
        (Delete(path="/missing"), NoNodeError),
        (Delete(path="/a", version=7), BadVersionError),
        (Delete(path="/a"), NotEmptyError),
        (Check(path="/a", version=7), BadVersionError),
        (Check(path="/missing", version=ANY_VERSION), NoNodeError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operation) else value.__name__,
)
def test_a_transaction_with_one_impossible_operation_does_nothing(
    play: Play, impossible: Operation, error: type[CoordinationError]
) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a/child", parents=True)
        before = await session.get("/a")
        with pytest.raises(error):
            await session.transact(
                [Create(path="/new"), SetData(path="/a", data=b"new"), impossible]
            )
        assert await session.get("/new") is None
        assert await session.get("/a") == before
        assert list(await session.children("/a")) == ["child"]

    play(story)


def test_a_transaction_of_nothing_does_nothing(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        assert list(await session.transact([])) == []
        await session.create("/a")

    play(story)


def test_the_first_impossible_operation_names_the_error(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a")
        with pytest.raises(BadVersionError):
            await session.transact([Check(path="/a", version=7), Delete(path="/missing")])

    play(story)


def test_a_check_holds_for_any_version_of_a_node_that_exists(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a")
        await session.set("/a", b"1")
        await session.transact([Check(path="/a", version=ANY_VERSION), Create(path="/b")])
        assert await session.get("/b") is not None

    play(story)


def test_of_many_who_make_one_node_at_once_exactly_one_succeeds(play: Play) -> None:
    async def story(connect: Connect) -> None:
        sessions = [await connect() for _ in range(3)]
        results = await asyncio.gather(
            *(session.create("/a") for session in sessions for _ in range(5)),
            return_exceptions=True,
        )
        assert results.count("/a") == 1
        assert sum(isinstance(result, NodeExistsError) for result in results) == 14

    play(story)


def test_writes_over_one_version_at_once_succeed_once(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a")
        writes = (session.set("/a", b"%d" % number, version=0) for number in range(5))
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert results.count(1) == 1
        assert sum(isinstance(result, BadVersionError) for result in results) == 4

    play(story)


# Sessions


def test_sessions_see_what_the_others_wrote(play: Play) -> None:
    async def story(connect: Connect) -> None:
        one, other = await connect(), await connect()
        assert one.session_id != other.session_id
        await one.create("/a", b"1")
        node = await other.get("/a")
        assert node is not None
        assert node.data == b"1"

    play(story)


def test_an_ephemeral_node_belongs_to_its_session(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a", ephemeral=True)
        node = await session.get("/a")
        assert node is not None
        assert node.ephemeral_owner == session.session_id

    play(story)


def test_closing_a_session_takes_its_ephemeral_nodes_and_no_others(play: Play) -> None:
    async def story(connect: Connect) -> None:
        one, other = await connect(), await connect()
        await one.create("/mine", ephemeral=True)
        await one.create("/stays")
        await other.create("/yours", ephemeral=True)
        await one.close()
        nodes = await other.get_many(["/mine", "/stays", "/yours"])
        assert [node is None for node in nodes] == [True, False, False]

    play(story)


def test_an_ephemeral_node_is_written_and_deleted_like_any_other(play: Play) -> None:
    async def story(connect: Connect) -> None:
        one, other = await connect(), await connect()
        await one.create("/a", ephemeral=True)
        assert await other.set("/a", b"1") == 1
        await other.delete("/a")
        await other.create("/a")
        await one.close()
        assert await other.get("/a") is not None

    play(story)


def test_an_ephemeral_node_cannot_have_children(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.create("/a", ephemeral=True)
        with pytest.raises(EphemeralParentError):
            await session.create("/a/b")

    play(story)


def test_sequential_nodes_can_be_ephemeral(play: Play) -> None:
    async def story(connect: Connect) -> None:
        one, other = await connect(), await connect()
        path = await one.create("/n_", ephemeral=True, sequential=True)
        assert await other.get(path) is not None
        await one.close()
        assert await other.get(path) is None

    play(story)


def test_an_expired_session_loses_its_ephemeral_nodes_and_hears_of_it(play: Play) -> None:
    async def story(connect: Connect) -> None:
        one, other = await connect(), await connect()
        ended, gone = Bell(), Bell()
        await one.create("/a", ephemeral=True)
        one.on_session_end(ended)
        other.watch_data("/a", gone)
        await until_armed(other)
        one.expire()
        await ended.wait_until_rung()
        await gone.wait_until_rung()
        assert await other.get("/a") is None
        assert ended.rings == 1

    play(story)


def test_a_session_that_ended_does_nothing_any_more(play: Play) -> None:
    async def story(connect: Connect) -> None:
        expired, closed, alive = await connect(), await connect(), await connect()
        expired.expire()
        await closed.close()
        for session in (expired, closed):
            attempts: list[Coroutine[Any, Any, object]] = [
                session.get("/"),
                session.get_many(["/"]),
                session.children("/"),
                session.create("/a"),
                session.set("/", b""),
                session.delete("/a"),
                session.delete_tree("/a"),
                session.transact([Create(path="/a")]),
            ]
            for attempt in attempts:
                with pytest.raises(SessionExpiredError):
                    await attempt
        assert await alive.get("/a") is None

    play(story)


def test_a_session_can_be_closed_twice_and_after_it_expired(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        await session.close()
        await session.close()
        expired = await connect()
        expired.expire()
        await expired.close()

    play(story)


def test_closing_a_session_is_no_loss_of_it(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session, other = await connect(), await connect()
        ended = Bell()
        session.on_session_end(ended)
        await session.close()
        await answers_seen_by(other)
        assert ended.rings == 0

    play(story)


# The lease, and sessions that are renewed


def test_the_lease_lies_ahead_while_the_session_lasts_and_is_over_with_it(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session, closed = await connect(), await connect()
        assert session.lease_end > 0
        session.expire()
        await closed.close()
        assert session.lease_end == closed.lease_end == -math.inf
        await session.renew()
        assert session.lease_end > 0

    play(story)


def test_a_renewed_session_is_another_one_and_works(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session, other = await connect(), await connect()
        former = session.session_id
        await session.create("/a", b"former", ephemeral=True)
        session.expire()
        await session.renew()
        assert session.session_id not in (former, other.session_id)
        await session.create("/a", b"renewed", ephemeral=True)
        node = await other.get("/a")
        assert node is not None
        assert (node.data, node.ephemeral_owner) == (b"renewed", session.session_id)

    play(story)


def test_every_watch_of_a_renewed_session_is_told_once_and_stays_armed(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session, writer = await connect(), await connect()
        data, children, cancelled = Bell(), Bell(), Bell()
        await writer.create("/a")
        session.watch_data("/a", data)
        session.watch_children("/a", children)
        session.watch_data("/a", cancelled).cancel()
        await until_armed(session)
        session.expire()
        await session.renew()
        await data.wait_until_rung()
        await children.wait_until_rung()
        await answers_seen_by(session)
        assert (data.rings, children.rings) == (1, 1)
        await writer.set("/a", b"1")
        await data.wait_until_rung()
        await writer.create("/a/b")
        await children.wait_until_rung()
        assert (data.rings, children.rings, cancelled.rings) == (2, 2, 0)

    play(story)


def test_every_end_of_a_session_that_was_renewed_is_told(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        ended = Bell()
        session.on_session_end(ended)
        for rings in (1, 2):
            session.expire()
            await ended.wait_until_rung()
            assert ended.rings == rings
            await session.renew()

    play(story)


def test_renewing_a_session_that_lasts_changes_nothing(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        bell = Bell()
        former = session.session_id
        await session.create("/a", ephemeral=True)
        session.watch_data("/a", bell)
        await session.renew()
        await answers_seen_by(session)
        assert session.session_id == former
        assert await session.get("/a") is not None
        assert bell.rings == 0

    play(story)


def test_a_closed_session_is_not_renewed(play: Play) -> None:
    async def story(connect: Connect) -> None:
        closed, lost = await connect(), await connect()
        await closed.close()
        lost.expire()
        await lost.close()
        for session in (closed, lost):
            with pytest.raises(SessionExpiredError):
                await session.renew()

    play(story)


def test_what_was_asked_for_in_a_lost_session_is_done_there_or_not_at_all(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session, other = await connect(), await connect()
        writes = [
            asyncio.ensure_future(session.create(f"/n{number}", ephemeral=True))
            for number in range(20)
        ]
        await asyncio.sleep(0)  # they are on their way
        session.expire()
        await session.renew()
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(r, str | SessionExpiredError | StoreLostError) for r in results)
        nodes = await other.get_many([f"/n{number}" for number in range(20)])
        assert nodes == [None] * 20

    play(story)


# Watches


def test_a_data_watch_tells_of_making_writing_and_deleting(play: Play) -> None:
    async def story(connect: Connect) -> None:
        watcher, writer = await connect(), await connect()
        bell = Bell()
        watcher.watch_data("/a", bell)
        await until_armed(watcher)
        await writer.create("/a")
        await bell.wait_until_rung()
        await writer.set("/a", b"1")
        await bell.wait_until_rung()
        await writer.delete("/a")
        await bell.wait_until_rung()
        assert bell.rings == 3

    play(story)


def test_a_child_watch_tells_of_children_made_and_deleted(play: Play) -> None:
    async def story(connect: Connect) -> None:
        watcher, writer = await connect(), await connect()
        bell = Bell()
        await writer.create("/a")
        watcher.watch_children("/a", bell)
        await until_armed(watcher)
        await writer.create("/a/b")
        await bell.wait_until_rung()
        await writer.delete("/a/b")
        await bell.wait_until_rung()
        assert bell.rings == 2

    play(story)


def test_a_child_watch_set_before_its_node_exists_works(play: Play) -> None:
    async def story(connect: Connect) -> None:
        watcher, writer = await connect(), await connect()
        bell = Bell()
        watcher.watch_children("/a", bell)
        await until_armed(watcher)
        await writer.create("/a/b", parents=True)
        await bell.wait_until_rung()
        assert list(await watcher.children("/a")) == ["b"]

    play(story)


def test_a_child_watch_does_not_tell_of_the_data_of_children_or_of_grandchildren(
    play: Play,
) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        bell = Bell()
        await session.create("/a/b", parents=True)
        session.watch_children("/a", bell)
        await session.set("/a/b", b"1")
        await session.set("/a", b"1")
        await session.create("/a/b/c")
        await answers_seen_by(session)
        assert bell.rings == 0

    play(story)


def test_a_data_watch_does_not_tell_of_children(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        bell = Bell()
        await session.create("/a")
        session.watch_data("/a", bell)
        await session.create("/a/b")
        await answers_seen_by(session)
        assert bell.rings == 0

    play(story)


def test_a_watch_tells_a_session_of_its_own_changes(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        bell = Bell()
        session.watch_data("/a", bell)
        await session.create("/a")
        await bell.wait_until_rung()

    play(story)


def test_a_failed_transaction_sets_off_no_watch(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        bell = Bell()
        session.watch_data("/a", bell)
        session.watch_children("/", bell)
        with pytest.raises(NoNodeError):
            await session.transact([Create(path="/a"), Delete(path="/missing")])
        assert bell.rings == 0
        await answers_seen_by(session)  # makes a child of the root, and deletes it
        assert await session.get("/a") is None
        assert 1 <= bell.rings <= 2

    play(story)


def test_a_cancelled_watch_is_silent(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        silent, other = Bell(), Bell()
        watch = session.watch_data("/a", silent)
        session.watch_data("/a", other)
        watch.cancel()
        watch.cancel()
        await session.create("/a")
        await other.wait_until_rung()
        assert silent.rings == 0

    play(story)


def test_the_watches_of_a_session_that_ended_are_silent(play: Play) -> None:
    async def story(connect: Connect) -> None:
        ended, alive = await connect(), await connect()
        silent, bell = Bell(), Bell()
        ended.watch_data("/a", silent)
        alive.watch_data("/a", bell)
        await until_armed(alive)
        ended.expire()
        await alive.create("/a")
        await bell.wait_until_rung()
        assert silent.rings == 0

    play(story)


def test_a_watcher_that_is_told_reads_the_change(play: Play) -> None:
    async def story(connect: Connect) -> None:
        watcher, writer = await connect(), await connect()
        bell = Bell()
        watcher.watch_children("/", bell)
        await until_armed(watcher)
        await writer.create("/a", b"1")
        await bell.wait_until_rung()
        node = await watcher.get("/a")
        assert node is not None
        assert node.data == b"1"

    play(story)


def test_a_node_deleted_and_made_again_in_one_transaction_is_told(play: Play) -> None:
    async def story(connect: Connect) -> None:
        session = await connect()
        data, children = Bell(), Bell()
        await session.create("/a")
        session.watch_data("/a", data)
        session.watch_children("/", children)
        await session.transact([Delete(path="/a"), Create(path="/a")])
        await data.wait_until_rung()
        await children.wait_until_rung()

    play(story)
