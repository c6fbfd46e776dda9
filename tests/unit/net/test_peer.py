"""A connection between brokers: every wait ends, and no answer goes to the wrong request."""

import asyncio
import struct
from collections.abc import Callable

import pytest

from moldau.errors import BrokerUnreachableError, ConnectionLostError, NoAnswerError
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.peer import Peer, PeerAddress, PeerSettings
from moldau.net.port import Connection
from moldau.testing import ManualClock, MemoryNetwork
from support.connection_limits import Limits

ADDRESS = PeerAddress("server", 9092)


class Receiver:
    """Answers each request with its own body, or not at all."""

    def __init__(self, connection: Connection, server: "Server") -> None:
        self._connection = connection
        self._server = server

    def on_frame(self, frame: memoryview) -> None:
        data = bytes(frame)
        self._server.requests.append(data)
        if self._server.is_silent:
            return
        correlation_id = struct.unpack_from(">i", data, 4)[0] + self._server.shift
        answer = struct.pack(">i", correlation_id) + data[8:]
        self._connection.send([struct.pack(">i", len(answer)) + answer])

    def on_client_gone(self) -> None:
        self._connection.close("nobody waits for an answer")

    def on_closed(self) -> None:
        self._server.closed += 1


class Server:
    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.is_silent = False
        self.shift = 0
        self.accepted = 0
        self.closed = 0

    def accept(self, connection: Connection) -> Receiver:
        self.accepted += 1
        return Receiver(connection, self)


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock)
        self.server = Server()
        self.address: PeerAddress | None = ADDRESS
        self.peer = Peer(
            self.network.host("client"),
            self.clock,
            lambda: self.address,
            name="broker 2",
            settings=PeerSettings(connect_seconds=2.0),
        )

    async def listen(self, port: int = 9092) -> None:
        await self.network.host("server").listen(
            "server",
            port,
            self.server.accept,
            listener_name="PLAINTEXT",
            quotas=ConnectionQuotas(Limits(), self.clock),
        )

    def begin(self, body: bytes, timeout_seconds: float = 5.0) -> asyncio.Task[memoryview]:
        return asyncio.create_task(self.ask_here(body, timeout_seconds))

    async def ask_here(self, body: bytes, timeout_seconds: float = 5.0) -> memoryview:
        """In the task of the caller."""
        frame = struct.pack(">ihhi", 8 + len(body), 1, 16, 99) + body
        return await self.peer.ask((frame,), timeout_seconds=timeout_seconds)

    async def finish(self, task: asyncio.Task[memoryview]) -> bytes:
        for _ in range(100):
            if task.done():
                break
            await self.clock.advance(0.1)
        return bytes(await task)[4:]

    async def ask(self, body: bytes, timeout_seconds: float = 5.0) -> bytes:
        return await self.finish(self.begin(body, timeout_seconds))


def run(story: Callable[[World], object]) -> None:
    async def tell() -> None:
        world = World()
        try:
            await story(world)
        finally:
            await world.peer.close()

    asyncio.run(tell())


def test_a_request_is_answered_and_the_connection_kept():
    async def story(world: World) -> None:
        await world.listen()
        assert await world.ask(b"one") == b"one"
        assert await world.ask(b"two") == b"two"
        assert world.server.accepted == 1
        ids = [struct.unpack_from(">i", request, 4)[0] for request in world.server.requests]
        assert len(set(ids)) == 2

    run(story)


def test_requests_of_several_tasks_take_turns():
    async def story(world: World) -> None:
        await world.listen()
        asked = [world.begin(b"%d" % number) for number in range(5)]
        for number, task in enumerate(asked):
            assert await world.finish(task) == b"%d" % number
        assert world.server.accepted == 1

    run(story)


def test_an_address_that_nobody_has_is_unreachable_at_once():
    async def story(world: World) -> None:
        world.address = None
        with pytest.raises(BrokerUnreachableError):
            await world.ask(b"one")
        assert world.clock.monotonic() < 1

    run(story)


@pytest.mark.parametrize("address", [None, PeerAddress("server", 9093)], ids=["left", "moved"])
def test_a_broker_that_leaves_is_not_waited_for(address: PeerAddress | None):
    """It may be paused, and others lead by now."""

    async def story(world: World) -> None:
        await world.listen()
        world.server.is_silent = True
        asked, next_one = world.begin(b"one", 60.0), world.begin(b"two", 60.0)
        await world.clock.advance(3)
        assert not asked.done()
        world.address = address
        with pytest.raises(ConnectionLostError, match="broker 2 has left or moved"):
            await world.finish(asked)
        assert world.clock.monotonic() < 5
        with pytest.raises(BrokerUnreachableError):
            await world.finish(next_one)
        assert not world.peer.is_connected

    run(story)


def test_the_news_that_a_broker_has_left_is_no_cancellation_of_the_caller():
    async def story(world: World) -> None:
        await world.listen()
        world.server.is_silent = True

        async def ask() -> int:
            task = asyncio.current_task()
            assert task is not None
            with pytest.raises(ConnectionLostError, match="has left or moved"):
                await world.ask_here(b"one")
            return task.cancelling()

        asked = asyncio.create_task(ask())
        await world.clock.advance(1)
        world.address = None
        await world.clock.advance(1)
        assert await asked == 0

    run(story)


def test_a_broker_that_stays_is_waited_for_and_leaves_no_timer():
    async def story(world: World) -> None:
        await world.listen()
        assert await world.ask(b"one") == b"one"
        await world.clock.advance(2)
        timers = world.clock.pending_timers  # the network's
        world.server.is_silent = True
        with pytest.raises(NoAnswerError):
            await world.ask(b"two", timeout_seconds=7.0)
        await world.clock.advance(2)
        assert world.clock.pending_timers <= timers

    run(story)


def test_a_host_that_refuses_is_unreachable_and_found_again_later():
    async def story(world: World) -> None:
        with pytest.raises(BrokerUnreachableError):
            await world.ask(b"one")
        await world.listen()
        assert await world.ask(b"two") == b"two"

    run(story)


def test_a_host_that_is_cut_off_is_given_up_in_time():
    async def story(world: World) -> None:
        await world.listen()
        world.network.cut("client", "server")
        with pytest.raises(BrokerUnreachableError, match=r"to broker 2: \S"):
            await world.ask(b"one")
        assert world.clock.monotonic() < 3

    run(story)


def test_silence_ends_in_time_and_the_late_answer_goes_to_nobody():
    async def story(world: World) -> None:
        await world.listen()
        world.server.is_silent = True
        with pytest.raises(NoAnswerError):
            await world.ask(b"one", timeout_seconds=1.0)
        assert world.server.closed == 1
        world.server.is_silent = False
        assert await world.ask(b"two") == b"two"
        assert world.server.accepted == 2

    run(story)


def test_whoever_waits_for_a_turn_gives_up_in_time():
    async def story(world: World) -> None:
        await world.listen()
        world.server.is_silent = True
        first = world.begin(b"one", timeout_seconds=8.0)
        second = world.begin(b"two", timeout_seconds=1.0)
        await world.clock.advance(1.0)
        assert second.done()
        assert not first.done()
        with pytest.raises(NoAnswerError):
            await second
        with pytest.raises(NoAnswerError):
            await world.finish(first)
        assert len(world.server.requests) == 1

    run(story)


def test_a_lost_connection_is_told_and_opened_again():
    async def story(world: World) -> None:
        await world.listen()
        assert await world.ask(b"one") == b"one"
        world.network.drop_connections("server")
        with pytest.raises(ConnectionLostError):
            await world.ask(b"two")
        assert await world.ask(b"three") == b"three"

    run(story)


def test_an_answer_to_another_request_ends_the_connection():
    async def story(world: World) -> None:
        await world.listen()
        world.server.shift = 1
        with pytest.raises(ConnectionLostError):
            await world.ask(b"one")
        world.server.shift = 0
        assert await world.ask(b"two") == b"two"

    run(story)


def test_a_caller_that_goes_takes_the_connection_along():
    async def story(world: World) -> None:
        await world.listen()
        world.server.is_silent = True
        task = world.begin(b"one")
        await world.clock.advance(0.1)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()
        assert not world.peer.is_connected
        world.server.is_silent = False
        assert await world.ask(b"two") == b"two"

    run(story)


def test_a_broker_that_moved_is_reached_at_its_new_place():
    async def story(world: World) -> None:
        await world.listen()
        await world.listen(9093)
        assert await world.ask(b"one") == b"one"
        world.address = PeerAddress("server", 9093)
        assert await world.ask(b"two") == b"two"
        assert world.server.accepted == 2

    run(story)


def test_after_its_end_nothing_is_sent():
    async def story(world: World) -> None:
        await world.listen()
        await world.peer.close()
        with pytest.raises(BrokerUnreachableError):
            await world.ask(b"one")
        assert world.server.requests == []

    run(story)
