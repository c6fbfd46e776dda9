"""The broker's event loop: whom it calls directly, and that asyncio's own parts work as ever."""

from __future__ import annotations

import asyncio
import select
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from moldau.net.event_loop import ReadyLoop, new_event_loop

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="epoll is Linux's")

TIMEOUT_SECONDS = 60.0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await story()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(bounded())


def test_it_is_the_loop_where_there_is_epoll() -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert isinstance(runner.get_loop(), ReadyLoop)


def test_who_reads_is_called_until_it_is_removed(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    received: list[bytes] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        came = asyncio.Event()

        def read() -> None:
            received.append(ours.recv(10))
            came.set()

        loop.add_reader(ours, read)
        for text in (b"a", b"b"):
            came.clear()
            theirs.send(text)
            await came.wait()
        assert loop.remove_reader(ours)
        assert not loop.remove_reader(ours)
        theirs.send(b"c")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    play(story)
    assert received == [b"a", b"b"]


def test_one_socket_may_be_read_and_written(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair

    async def story() -> None:
        loop = asyncio.get_running_loop()
        readable, writable = asyncio.Event(), asyncio.Event()
        loop.add_reader(ours, readable.set)
        loop.add_writer(ours, writable.set)
        await writable.wait()
        assert not readable.is_set()
        assert loop.remove_writer(ours)
        theirs.send(b"x")
        await readable.wait()
        assert loop.remove_reader(ours)

    play(story)


def test_the_later_callback_takes_the_place_of_the_former(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    called: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        loop.add_reader(ours, lambda: called.append("former"))
        loop.add_reader(ours, lambda: (called.append("later"), done.set()))
        theirs.send(b"x")
        await done.wait()
        loop.remove_reader(ours)

    play(story)
    assert set(called) == {"later"}


def test_callbacks_with_arguments_are_put_in_and_taken_out_by_their_socket(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """asyncio calls these."""
    ours, theirs = pair
    called: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell(who: str) -> None:
            called.append(who)
            done.set()

        for who in ("former", "later"):
            loop.add_reader(ours, tell, who)
        theirs.send(b"x")
        await done.wait()
        assert loop.remove_reader(ours)
        assert not loop.remove_reader(ours)
        done.clear()
        for who in ("former writer", "later writer"):
            loop.add_writer(ours, tell, who)
        await done.wait()
        assert loop.remove_writer(ours)
        assert not loop.remove_writer(ours)

    play(story)
    assert set(called) == {"later", "later writer"}


def test_the_end_of_the_other_side_is_told_to_both(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    told: set[str] = set()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def tell(who: str) -> None:
            told.add(who)
            if len(told) == 2:
                loop.remove_reader(ours)
                loop.remove_writer(ours)
                done.set()

        loop.add_reader(ours, lambda: tell("reader"))
        loop.add_writer(ours, lambda: tell("writer"))
        theirs.close()
        await done.wait()

    play(story)
    assert told == {"reader", "writer"}


def test_who_was_removed_by_another_in_the_same_turn_is_not_called() -> None:
    called: list[int] = []
    pairs = [socket.socketpair() for _ in range(2)]

    async def story() -> None:
        loop = asyncio.get_running_loop()
        for number, (ours, theirs) in enumerate(pairs):

            def read(number: int = number) -> None:
                called.append(number)
                for one, _ in pairs:
                    loop.remove_reader(one)

            loop.add_reader(ours, read)
            theirs.send(b"x")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    play(story)
    for ours, theirs in pairs:
        ours.close()
        theirs.close()
    assert len(called) == 1


@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError])
@pytest.mark.parametrize("is_at_an_end", [False, True])
def test_a_failure_is_told_and_the_others_are_served(
    kind: type[BaseException], is_at_an_end: bool
) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    failures: list[BaseException] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        served = asyncio.Event()

        def fail() -> None:
            loop.remove_reader(pairs[0][0])
            raise kind("a bug")

        loop.add_reader(pairs[0][0], fail)
        loop.add_reader(pairs[1][0], served.set)
        for _, theirs in pairs:
            theirs.send(b"x")
        if is_at_an_end:
            pairs[0][1].close()
        await served.wait()
        loop.remove_reader(pairs[1][0])

    play(story)
    for ours, theirs in pairs:
        ours.close()
        theirs.close()
    assert [str(one) for one in failures] == ["a bug"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_who_ends_the_process_ends_the_loop(
    pair: tuple[socket.socket, socket.socket], kind: type[BaseException]
) -> None:
    ours, theirs = pair

    async def story() -> None:
        loop = asyncio.get_running_loop()

        def end() -> None:
            loop.remove_reader(ours)
            raise kind

        loop.add_reader(ours, end)
        theirs.send(b"x")
        await asyncio.Event().wait()

    with pytest.raises(kind):
        play(story)


def test_a_closed_socket_can_be_removed(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair

    async def story() -> None:
        loop = asyncio.get_running_loop()
        descriptor = ours.fileno()
        loop.add_reader(descriptor, lambda: None)
        ours.close()
        assert loop.remove_reader(descriptor)

    play(story)


def test_asyncios_own_sockets_streams_and_children_work() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(3))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        for _ in range(2):
            with socket.socket() as plain:
                plain.setblocking(False)
                await loop.sock_connect(plain, address)
                await loop.sock_sendall(plain, b"abc")
                assert await loop.sock_recv(plain, 3) == b"abc"
        server.close()
        await server.wait_closed()
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print('hello')", stdout=asyncio.subprocess.PIPE
        )
        output, _ = await child.communicate()
        assert output == b"hello\n"

    play(story)
