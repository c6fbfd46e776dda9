"""A served store beyond its contract: lost connections, ended processes, time, nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from moldau.clock import SystemClock
from moldau.coordination.embedded import MEMORY, EmbeddedStore
from moldau.coordination.port import SessionExpiredError, StoreLostError
from moldau.coordination.served.messages import (
    LENGTH,
    UNREAD_BYTES,
    ConnectRequest,
    ReadNodes,
    StoreResponse,
    StoreSocket,
    ToService,
    decode_response,
    encode_request,
)
from moldau.coordination.served.server import StoreServer, listen_again, listening_beside
from moldau.coordination.served.session import SocketConnector, StoreSession
from moldau.workers import InlineWorkers
from support.descriptors import no_descriptor_left

TIMEOUT = 6.0
LONG = 30.0
TURNS = 200


class Stage:
    """A server, and its clients in the same process."""

    def __init__(self, store: EmbeddedStore, server: StoreServer, path: Path) -> None:
        self.store = store
        self.server = server
        self.path = path
        self.gone = asyncio.Event()
        self.is_cut = False  # no connection is to be had
        self.connections: list[StoreSocket[ToService] | None] = []
        self._sessions: list[StoreSession] = []

    async def connect(self, process_id: int = 0, timeout: float = TIMEOUT) -> StoreSession:
        connector = SocketConnector(str(self.path), self.gone.set)

        def note(*arguments: Any) -> StoreSocket[ToService] | None:
            if self.is_cut:
                return None
            self.connections.append(connector(*arguments))
            return self.connections[-1]

        session = StoreSession(note, SystemClock(), timeout, process_id)
        await session.open(LONG)
        self._sessions.append(session)
        return session

    def break_last(self) -> None:
        """The newest connection breaks, as if the server had dropped it."""
        connection = self.connections[-1]
        assert connection is not None
        connection._break("as the test wants it")

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()


Story = Callable[[Stage], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def staged(folder: Path) -> AsyncIterator[Stage]:
    clock = SystemClock()
    store = await EmbeddedStore.open(MEMORY, clock=clock, workers=InlineWorkers())
    with listening_beside(folder) as (listener, path):
        server = StoreServer(store, clock, listener)
        server.start()
        stage = Stage(store, server, path)
        try:
            yield stage
        finally:
            await stage.close()
            await server.close()
            await store.close()


def play(story: Story) -> None:
    async def run(folder: Path) -> None:
        async with staged(folder) as stage:
            await asyncio.wait_for(story(stage), LONG)

    with tempfile.TemporaryDirectory(prefix="moldau-") as folder:
        asyncio.run(run(Path(folder)))


def test_a_session_goes_on_over_another_connection() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect()
        await session.create("/a", ephemeral=True)
        former = session.session_id
        stage.break_last()
        node = await session.get("/a")  # waits for the next connection
        assert node is not None
        assert node.ephemeral_owner == session.session_id == former
        assert len(stage.connections) == 2
        assert stage.server.session_count == 1

    play(story)


def test_what_a_watch_missed_without_a_connection_is_told() -> None:
    async def story(stage: Stage) -> None:
        other, session = await stage.connect(), await stage.connect()
        told = asyncio.Event()
        await session.create("/a")
        session.watch_data("/a", told.set)
        await session.get("/a")
        stage.is_cut = True
        stage.break_last()
        await other.set("/a", b"1")
        assert not told.is_set()
        stage.is_cut = False
        await told.wait()

    play(story)


def test_a_request_that_was_under_way_when_the_connection_broke_has_an_unknown_outcome() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect()
        write = asyncio.ensure_future(session.create("/a"))
        await asyncio.sleep(0)
        stage.break_last()
        with pytest.raises(StoreLostError):
            await write

    play(story)


def test_the_end_of_a_process_ends_its_sessions_at_once_and_no_others() -> None:
    async def story(stage: Stage) -> None:
        dead, alive = await stage.connect(process_id=7), await stage.connect(process_id=8)
        gone = asyncio.Event()
        await dead.create("/dead", ephemeral=True)
        await alive.create("/alive", ephemeral=True)
        alive.watch_data("/dead", gone.set)
        await alive.get("/dead")
        stage.server.end_sessions_of(7)
        await gone.wait()
        assert await alive.get("/dead") is None
        assert await alive.get("/alive") is not None
        with pytest.raises(SessionExpiredError):
            await dead.get("/")

    play(story)


def test_a_client_that_is_silent_for_its_time_out_loses_its_session() -> None:
    async def story(stage: Stage) -> None:
        silent, other = await stage.connect(timeout=1.0), await stage.connect()
        gone = asyncio.Event()
        await silent.create("/a", ephemeral=True)
        other.watch_data("/a", gone.set)
        await other.get("/a")
        timer = silent._timer
        assert timer is not None
        timer.cancel()  # as SIGSTOP does
        await gone.wait()
        assert silent.lease_end < SystemClock().monotonic()

    play(story)


def test_sessions_end_with_their_server_and_it_is_known() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect()
        ended = asyncio.Event()
        session.on_session_end(ended.set)
        await stage.server.close()
        await ended.wait()
        assert stage.gone.is_set()
        assert session.lease_end == float("-inf")
        with pytest.raises(StoreLostError):
            await session.renew()
        with pytest.raises(SessionExpiredError):
            await session.get("/")

    play(story)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 0xFFFFFFFF),
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 10) + b'["ping",1]',
    ],
)
def test_nonsense_ends_its_own_connection_and_nothing_else(nonsense: bytes) -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect()
        reader, writer = await asyncio.open_unix_connection(str(stage.path))
        writer.write(nonsense)
        assert await reader.read() == b""
        writer.close()
        await session.create("/a")

    play(story)


def test_a_client_that_does_not_read_is_not_heard_until_it_does() -> None:
    count, node_bytes = 200, 100_000

    async def story(stage: Stage) -> None:
        other = await stage.connect()
        await other.create("/a", b"x" * node_bytes)
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(str(stage.path))
        hello = ConnectRequest(session_id=0, timeout_seconds=LONG, watches=(), seen=0)
        reads = [ReadNodes(number=number, paths=("/a",)) for number in range(count)]
        connected.sendall(b"".join(map(encode_request, (hello, *reads))))
        while len(stage.server._connections) < 2:
            await other.get("/")
        kept = list(stage.server._connections)[-1]
        while kept._is_reading:
            await other.get("/")
        await other.get("/")
        assert len(kept._to_send) < UNREAD_BYTES + 2 * node_bytes
        reader, writer = await asyncio.open_unix_connection(sock=connected)
        for number in range(-1, count):  # the welcome, then every answer in order
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            answer = decode_response(await reader.readexactly(length))
            assert number == -1 or (isinstance(answer, StoreResponse) and answer.number == number)
        writer.close()

    play(story)


def test_a_session_goes_on_after_a_time_without_descriptors() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect(timeout=6.0)
        await session.create("/a", ephemeral=True)
        with no_descriptor_left():
            stage.break_last()  # and another connection is tried for, in vain
        assert stage.connections[-1] is None
        assert await session.get("/a") is not None

    play(story)


def test_a_client_that_comes_while_no_descriptor_is_left_is_served_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(stage: Stage) -> None:
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        with no_descriptor_left(), caplog.at_level("ERROR"):
            await loop.sock_connect(client, str(stage.path))
            while not caplog.records:
                await asyncio.sleep(0)
            for _ in range(TURNS):
                await asyncio.sleep(0)
        assert len(caplog.records) == 1, "told once, and not in every turn of the loop"
        frame = encode_request(
            ConnectRequest(session_id=0, timeout_seconds=TIMEOUT, process_id=0, watches=(), seen=0)
        )
        await loop.sock_sendall(client, frame)
        assert await loop.sock_recv(client, 4096)
        client.close()

    play(story)


def test_closing_a_session_that_has_just_ended_is_no_loss() -> None:
    async def story(stage: Stage) -> None:
        other, session = await stage.connect(), await stage.connect()
        ends: list[str] = []
        session.on_session_end(lambda: ends.append("lost"))
        stage.server.expire(session.session_id)
        await session.close()
        await other.get("/")
        assert ends == []

    play(story)


def test_a_session_that_nobody_knows_is_over() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect()
        stage.server._sessions.clear()  # as after a restart
        stage.break_last()
        with pytest.raises(SessionExpiredError):
            await session.get("/")

    play(story)


def test_ten_thousand_nodes_are_read_in_one_go() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect(timeout=LONG)  # a busy machine needs seconds for this
        names = [f"/n{number}" for number in range(10_000)]
        await asyncio.gather(*(session.create(name, b"x" * 100) for name in names))
        nodes = await session.get_many(names)
        assert sum(node is not None for node in nodes) == len(names)

    play(story)


# The socket


def test_the_socket_is_for_this_user_and_goes_with_the_server(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="moldau-") as name:
        folder = Path(name)
        with listening_beside(folder) as (_, path):
            assert path.parent == folder.resolve()
            assert path.stat().st_mode & 0o777 == 0o600
        assert not path.exists()


def test_a_socket_that_a_killed_process_left_is_in_nobodys_way() -> None:
    with tempfile.TemporaryDirectory(prefix="moldau-") as name:
        folder = Path(name)
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(folder / "coordination.sock"))
        with listening_beside(folder) as (_, path), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_path_that_is_too_long_is_replaced_by_one_that_others_cannot_enter() -> None:
    with tempfile.TemporaryDirectory(prefix="moldau-") as name:
        folder = Path(name) / ("a" * 120)
        folder.mkdir()
        with listening_beside(folder) as (_, path):
            assert path.parent != folder
            assert path.parent.stat().st_mode & 0o777 == 0o700
        assert not path.parent.exists()


def test_a_socket_that_somebody_removed_is_made_again() -> None:
    async def story(stage: Stage) -> None:
        former = await stage.connect()
        assert listen_again(stage.path.parent, stage.path) is None
        stage.path.unlink()
        listener = listen_again(stage.path.parent, stage.path)
        assert listener is not None
        stage.server.listen_on(listener)
        later = await stage.connect()
        await later.create("/a")
        assert await former.get("/a") is not None  # its connection has not noticed
        stage.break_last()
        assert await later.get("/a") is not None

    play(story)


def test_a_socket_of_a_temporary_folder_is_made_again_with_the_folder() -> None:
    with tempfile.TemporaryDirectory(prefix="moldau-") as name:
        folder = Path(name) / ("a" * 120)
        folder.mkdir()
        with listening_beside(folder) as (_, path):
            path.unlink()
            path.parent.rmdir()
            listener = listen_again(folder, path)
            assert listener is not None
            with listener:
                assert path.parent.stat().st_mode & 0o777 == 0o700
        assert not path.parent.exists()
