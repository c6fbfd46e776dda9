"""Sessions with real ZooKeeper servers that are killed, paused and cut off."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import re
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

from moldau.clock import SystemClock
from moldau.coordination.port import (
    CoordinationError,
    Create,
    NoAccessError,
    NodeExistsError,
    SessionExpiredError,
    StoreLostError,
)
from moldau.coordination.zookeeper.client import ZookeeperClient
from moldau.coordination.zookeeper.kazoo_client import MultiRead
from moldau.coordination.zookeeper.server import ZookeeperNode, send_command
from moldau.coordination.zookeeper.settings import ZookeeperSettings
from moldau.errors import StartupError, UsageError
from moldau.workers import ThreadWorkers
from support.strait import strait_to
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import TICK_MS, Zookeeper, running_ensemble, zookeeper, zookeeper_ensemble

__all__ = ("zookeeper", "zookeeper_ensemble")  # fixtures


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, PATIENCE_SECONDS))


@contextlib.asynccontextmanager
async def session_with(
    connect: str, *, attempts: int = 1, **options: Any
) -> AsyncIterator[ZookeeperClient]:
    """More than one attempt is for a short time-out: the server may be busy at the first."""
    workers = ThreadWorkers(2)
    try:
        settings = ZookeeperSettings.parse(connect, **options)
        session = await open_session(settings, workers, attempts)
        try:
            yield session
        finally:
            await session.close()
    finally:
        workers.close()


async def open_session(
    settings: ZookeeperSettings, workers: ThreadWorkers, attempts: int
) -> ZookeeperClient:
    try:
        return await ZookeeperClient.open(settings, clock=SystemClock(), workers=workers)
    except StartupError:
        if attempts == 1:
            raise
    return await open_session(settings, workers, attempts - 1)


async def patiently(ask: Callable[[], Awaitable[Any]]) -> Any:
    """What a caller does who hears that the connection was lost: ask again."""
    while True:
        try:
            return await ask()
        except StoreLostError:
            await asyncio.sleep(0.01)


class Watcher:
    """Looks at a node whenever its watch is told: of its creation too, on a server that lags."""

    def __init__(self, session: ZookeeperClient, path: str) -> None:
        self._session = session
        self._path = path
        self._told = asyncio.Event()
        session.watch_data(path, self._told.set)

    async def wait_until_present(self) -> None:
        while await self._session.get(self._path) is None:
            await self._next()

    async def wait_until_gone(self) -> None:
        while await self._session.get(self._path) is not None:
            await self._next()

    async def _next(self) -> None:
        await self._told.wait()
        self._told.clear()


def find_node(session: ZookeeperClient, servers: Zookeeper) -> ZookeeperNode | None:
    """The one that the session is connected to."""
    connection = session._session._handler._socket
    assert connection is not None
    try:
        port = connection.getpeername()[1]
    except OSError:
        return None
    return next(node for node in servers.nodes if node.port == port)


def node_of(session: ZookeeperClient, servers: Zookeeper) -> ZookeeperNode:
    return eventually(lambda: find_node(session, servers), "a connection")


# Servers that die


def test_a_session_outlives_the_server_that_it_is_connected_to() -> None:
    async def story(servers: Zookeeper) -> None:
        connect = servers.fresh_connect()
        async with (
            session_with(connect, session_timeout_ms=10_000) as session,
            session_with(connect, session_timeout_ms=10_000) as other,
        ):
            told = asyncio.Event()
            await session.create("/mine", ephemeral=True)
            session.watch_data("/watched", told.set)
            before = session.session_id
            node_of(session, servers).kill()
            with contextlib.suppress(NodeExistsError):  # when the first answer was lost
                await patiently(lambda: other.create("/watched"))
            await told.wait()
            assert await patiently(lambda: session.get("/watched")) is not None
            assert session.session_id == before
            mine = await patiently(lambda: other.get("/mine"))
            assert mine.ephemeral_owner == before

    with running_ensemble(3) as servers:
        run(story(servers))


def test_a_session_goes_on_when_the_leader_of_the_ensemble_is_killed() -> None:
    async def story(servers: Zookeeper) -> None:
        async with session_with(servers.fresh_connect(), session_timeout_ms=20_000) as session:
            await session.create("/count", b"0")
            before = session.session_id
            servers.leader().kill()
            # A write whose answer was lost may have happened: the version says so.
            version = 0
            while version < 5:
                with contextlib.suppress(StoreLostError):
                    await session.set("/count", b"%d" % (version + 1), version=version)
                node = await patiently(lambda: session.get("/count"))
                version = max(version, node.version)
                assert node.data == b"%d" % node.version
            assert session.session_id == before

    with running_ensemble(3) as servers:
        run(story(servers))


def test_a_server_that_hangs_is_left_for_another() -> None:
    async def story(servers: Zookeeper) -> None:
        async with session_with(servers.fresh_connect(), session_timeout_ms=6_000) as session:
            await session.create("/a", b"1")
            before, hanging = session.session_id, node_of(session, servers)
            hanging.pause()
            try:
                while find_node(session, servers) in (None, hanging):
                    node = await patiently(lambda: session.get("/a"))
                    assert node.data == b"1"
                assert session.session_id == before
            finally:
                hanging.resume()

    with running_ensemble(3) as servers:
        run(story(servers))


def test_a_watch_tells_of_what_changed_while_there_was_no_connection(zookeeper: Zookeeper) -> None:
    async def story() -> None:
        path = zookeeper.fresh_path()
        async with (
            strait_to(zookeeper.nodes[0].port) as strait,
            session_with(strait.address + path, session_timeout_ms=20_000) as session,
            session_with(zookeeper.connect + path) as other,
        ):
            rung = {name: asyncio.Event() for name in ("made", "written", "children", "none")}
            await other.create("/written")
            session.watch_data("/made", rung["made"].set)
            session.watch_data("/written", rung["written"].set)
            session.watch_children("/", rung["children"].set)
            session.watch_data("/none", rung["none"].set)
            assert await session.get("/none") is None
            strait.cut()
            await other.create("/made")
            await other.set("/written", b"1")
            strait.open()
            for name in ("made", "written", "children"):
                await rung[name].wait()
            assert not rung["none"].is_set()

    run(story())


def test_who_reads_when_told_has_the_last_state_however_often_the_connection_is_cut(
    zookeeper: Zookeeper,
) -> None:
    async def story() -> None:
        path = zookeeper.fresh_path()
        async with (
            strait_to(zookeeper.nodes[0].port) as strait,
            session_with(strait.address + path, session_timeout_ms=20_000) as reader,
            session_with(zookeeper.connect + path) as writer,
        ):
            known: dict[str, object] = {}
            looks: set[asyncio.Task[None]] = set()

            async def look() -> None:
                known["names"] = await patiently(lambda: reader.children("/all"))
                nodes = await patiently(lambda: reader.get_many(["/all/0", "/all/1"]))
                known["data"] = [node and node.data for node in nodes]

            def told() -> None:
                task = asyncio.ensure_future(look())
                looks.add(task)
                task.add_done_callback(looks.discard)

            reader.watch_children("/all", told)
            reader.watch_data("/all/0", told)
            reader.watch_data("/all/1", told)
            await look()
            choices = random.Random(1)
            await writer.create("/all")
            for number in range(150):
                child = f"/all/{choices.randrange(2)}"
                if await writer.get(child) is None:
                    await writer.create(child, b"%d" % number)
                elif choices.random() < 0.3:
                    await writer.delete(child)
                else:
                    await writer.set(child, b"%d" % number)
                if choices.random() < 0.1:
                    strait.cut()
                elif choices.random() < 0.3:
                    strait.open()
            strait.cut()
            await writer.delete_tree("/all/0")
            await writer.delete_tree("/all/1")
            await writer.create("/all/1", b"last")
            strait.open()
            names = await writer.children("/all")
            nodes = await writer.get_many(["/all/0", "/all/1"])
            last = {"names": names, "data": [node and node.data for node in nodes]}
            while known != last or looks:
                await asyncio.sleep(0.01)

    run(story())


def test_calls_end_while_no_server_answers_and_work_again_afterwards(zookeeper: Zookeeper) -> None:
    async def story() -> None:
        path = zookeeper.fresh_path()
        async with (
            strait_to(zookeeper.nodes[0].port) as strait,
            session_with(
                strait.address + path,
                attempts=20,
                session_timeout_ms=12_000,
                connection_timeout_ms=500,
                max_in_flight_requests=1,
            ) as session,
        ):
            await session.create("/a", b"1")
            before = session.session_id
            strait.close()
            in_flight = asyncio.ensure_future(session.set("/a", b"2", version=0))
            waiting = [asyncio.ensure_future(session.get("/a")) for _ in range(3)]
            await asyncio.sleep(0)
            strait.cut()
            for call in (in_flight, *waiting):
                with pytest.raises(StoreLostError):
                    await call
            with pytest.raises(StoreLostError):
                await session.get_many(["/a", "/b"])
            strait.open()
            node = await patiently(lambda: session.get("/a"))
            assert node.version in (0, 1)
            assert session.session_id == before

    run(story())


# The lease, and the end of a session


@pytest.mark.parametrize("mode", ["standalone", "leader", "follower"])
def test_the_lease_of_a_session_that_is_cut_off_ends_before_others_see_it_end(
    mode: str, zookeeper: Zookeeper, zookeeper_ensemble: Zookeeper
) -> None:
    servers = zookeeper if mode == "standalone" else zookeeper_ensemble
    node = next(node for node in servers.nodes if node.mode() == mode)

    async def story() -> None:
        clock, path = SystemClock(), servers.fresh_path()
        async with (
            strait_to(node.port) as strait,
            session_with(strait.address + path, session_timeout_ms=6 * TICK_MS) as session,
            session_with(servers.connect + path) as other,
        ):
            ended, watcher = asyncio.Event(), Watcher(other, "/mine")
            session.on_session_end(ended.set)
            await session.create("/mine", ephemeral=True)
            await watcher.wait_until_present()
            strait.close()
            await watcher.wait_until_gone()
            assert session.lease_end < clock.monotonic()
            assert not ended.is_set()  # it cannot know yet
            strait.open()
            await ended.wait()
            assert session.lease_end == -math.inf
            with pytest.raises(OSError, match="the session is over"):
                session._session._handler.create_connection(
                    ("127.0.0.1", 1)
                )  # where kazoo would begin another
            with pytest.raises(SessionExpiredError):
                await session.get("/mine")
            former = session.session_id
            await session.renew()
            assert session.session_id != former
            assert session.lease_end > clock.monotonic()
            await session.create("/mine", ephemeral=True)

    run(story())


def test_the_lease_moves_on_while_the_server_answers(zookeeper: Zookeeper) -> None:
    async def story() -> None:
        clock = SystemClock()
        async with session_with(zookeeper.fresh_connect(), session_timeout_ms=2_000) as session:
            first = session.lease_end
            assert first <= clock.monotonic() + 1.2
            while session.lease_end <= first + 2.0:  # longer than the whole time-out
                await asyncio.sleep(0.05)
                if session.lease_end == -math.inf:  # the server was too busy to answer
                    await patiently(session.renew)
                    first = session.lease_end

    run(story())


def test_the_lease_counts_with_the_time_out_that_the_server_granted(zookeeper: Zookeeper) -> None:
    async def story() -> None:
        clock = SystemClock()
        async with session_with(zookeeper.fresh_connect(), session_timeout_ms=100_000) as session:
            assert session.lease_end <= clock.monotonic() + 0.6 * 60

    run(story())


def test_a_session_that_cannot_be_renewed_yet_can_be_later(zookeeper: Zookeeper) -> None:
    async def story() -> None:
        path = zookeeper.fresh_path()
        async with (
            strait_to(zookeeper.nodes[0].port) as strait,
            session_with(
                strait.address + path,
                attempts=20,
                session_timeout_ms=4 * TICK_MS,
                connection_timeout_ms=300,
            ) as session,
            session_with(zookeeper.connect + path) as other,
        ):
            ended, told, watcher = asyncio.Event(), asyncio.Event(), Watcher(other, "/mine")
            session.on_session_end(ended.set)
            session.watch_data("/watched", told.set)
            await session.create("/mine", ephemeral=True)
            await watcher.wait_until_present()
            strait.close()
            await watcher.wait_until_gone()
            strait.open()
            await ended.wait()
            strait.close()
            for _ in range(2):
                with pytest.raises(StoreLostError):
                    await session.renew()
            strait.open()
            await patiently(session.renew)
            await told.wait()
            await session.create("/mine", ephemeral=True)

    run(story())


# Starting and closing


def test_a_server_that_never_answers_is_a_clear_failure_to_start() -> None:
    async def story(port: int) -> None:
        with pytest.raises(StartupError, match="moldau zookeeper start"):
            async with session_with(f"127.0.0.1:{port}", connection_timeout_ms=300):
                pass

    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as silent:
        run(story(silent.getsockname()[1]))
    assert set(threading.enumerate()) <= before


def test_no_threads_are_left_after_sessions_were_closed(zookeeper: Zookeeper) -> None:
    async def story() -> None:
        connect = zookeeper.fresh_connect()
        async with session_with(connect) as one, session_with(connect) as other:
            await one.create("/a")
            await other.get("/a")

    before = set(threading.enumerate())
    run(story())
    assert set(threading.enumerate()) <= before


def test_the_path_of_a_cluster_is_made_when_it_is_missing(zookeeper: Zookeeper) -> None:
    async def story() -> None:
        path = zookeeper.fresh_path()
        async with session_with(f"{zookeeper.connect}{path}/clusters/one") as session:
            assert await session.create("/n_", sequential=True) == "/n_0000000000"
            assert list(await session.transact([Create(path="/b")])) == ["/b"]
        async with session_with(zookeeper.connect) as outside:
            children = await outside.children(f"{path}/clusters/one")
            assert list(children) == ["b", "n_0000000000"]

    run(story())


def test_many_nodes_are_read_and_deleted_however_many_they_are(
    zookeeper_ensemble: Zookeeper,
) -> None:
    async def story() -> None:
        async with session_with(zookeeper_ensemble.fresh_connect()) as session:
            paths = [f"/tree/{number:04d}" for number in range(1_500)]
            await session.create("/tree")
            for start in range(0, len(paths), 500):
                chunk = paths[start : start + 500]
                await session.transact([Create(path=path, data=path.encode()) for path in chunk])
            nodes = await session.get_many(paths)
            assert [node.data for node in nodes if node] == [path.encode() for path in paths]
            await session.delete_tree("/tree")
            assert await session.get("/tree") is None

    run(story())


def packets_of(node: ZookeeperNode) -> int:
    """How many requests the server has had, from all clients."""
    answer = send_command(node.port, "mntr") or ""
    (count,) = re.findall(r"^zk_packets_received\s+(\d+)", answer, re.MULTILINE)
    return int(count)


def test_many_nodes_are_read_in_few_requests(zookeeper: Zookeeper) -> None:
    async def story() -> None:
        async with session_with(zookeeper.fresh_connect()) as session:
            paths = [f"/{number:04d}" for number in range(1_000)]
            await session.transact([Create(path=path, data=path.encode()) for path in paths[::2]])
            before = packets_of(zookeeper.nodes[0])
            nodes = await session.get_many(paths)
            assert packets_of(zookeeper.nodes[0]) - before < 100
            assert [node and node.data for node in nodes[::2]] == [p.encode() for p in paths[::2]]
            assert set(nodes[1::2]) == {None}
            one, none = await session.get_many(["/0000", "/0001"])
            assert (one, none) == (await session.get("/0000"), None)

    run(story())


def test_a_server_that_is_too_old_is_asked_one_by_one(
    zookeeper: Zookeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number that no server knows stands for the one that old servers do not know.

    The server ends the connection. What is asked while kazoo is about to say so must wait for the
    next connection; threads that take turns often meet that moment in some of the sessions.
    """
    monkeypatch.setattr(MultiRead, "type", 2_222)

    async def story() -> None:
        async with session_with(zookeeper.fresh_connect()) as session:
            await session.create("/a", b"1")
            before = session.session_id
            for _ in range(4):
                first, none, again = await session.get_many(["/a", "/b", "/a"])
                assert first is not None
                assert (first.data, none, again) == (b"1", None, first)
            assert session.session_id == before

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            run(story())
    finally:
        sys.setswitchinterval(interval)


# Access


def test_protected_nodes_are_written_by_their_owner_alone(zookeeper: Zookeeper) -> None:
    async def story() -> None:
        connect = zookeeper.fresh_connect()
        owner: dict[str, Any] = {"credential": "moldau:secret", "protects_nodes": True}
        async with session_with(connect, **owner) as session, session_with(connect) as stranger:
            await session.create("/brokers/topics/t", b"1", parents=True)
            await session.create("/config/users/alice", b"password", parents=True)
            node = await stranger.get("/brokers/topics/t")
            assert node is not None
            assert node.data == b"1"
            forbidden: list[Callable[[], Awaitable[object]]] = [
                lambda: stranger.set("/brokers/topics/t", b"2"),
                lambda: stranger.delete("/brokers/topics/t"),
                lambda: stranger.create("/brokers/topics/other"),
                lambda: stranger.get("/config/users/alice"),
                lambda: stranger.get_many(["/brokers/topics/t", "/config/users/alice"]),
            ]
            for attempt in forbidden:
                with pytest.raises(NoAccessError):
                    await attempt()
        async with session_with(connect, **owner) as later:
            assert await later.set("/brokers/topics/t", b"2") == 1

    run(story())


def test_protecting_nodes_needs_a_credential() -> None:
    with pytest.raises(StartupError, match=r"zookeeper\.auth\.credential"):
        ZookeeperSettings.parse("127.0.0.1:2181", protects_nodes=True)


@pytest.mark.parametrize("connect", ["", "host:port", "host:0", ",a:1", "a:1//b"])
def test_a_connect_text_that_names_no_servers_is_refused(connect: str) -> None:
    with pytest.raises(UsageError, match="ZooKeeper"):
        ZookeeperSettings.parse(connect)


def test_a_connect_text_has_servers_and_a_path() -> None:
    settings = ZookeeperSettings.parse("a:2182, b ,[::1]:2183/clusters/one/")
    assert settings.servers == ("a:2182", "b:2181", "[::1]:2183")
    assert settings.root == "/clusters/one"
    assert issubclass(NoAccessError, CoordinationError)
