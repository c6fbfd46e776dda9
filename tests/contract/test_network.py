"""What every network does, on real sockets and in memory: the rules of `moldau.net.port`."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from moldau.clock import Clock
from moldau.errors import InvariantViolation
from moldau.net.connection import COPIED_BYTES
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.event_loop import new_event_loop
from moldau.net.port import MOST_OWED_ANSWERS, Accept, Channel, Connection, Network, Server
from moldau.net.sockets import SocketNetwork
from moldau.simulation.manual_clock import ManualClock, wait_until_idle
from moldau.simulation.memory_files import MemoryFiles
from moldau.simulation.memory_network import MemoryNetwork
from moldau.storage.files import Files, FileSlice, RealFiles
from support.connection_limits import Limits

NETWORKS: dict[str, Callable[[Clock], Network]] = {
    "sockets": SocketNetwork,
    "sockets, asyncio's loop": SocketNetwork,
    "memory": MemoryNetwork,
}
LOOPS = {"sockets": new_event_loop}
MEBIBYTE = 1 << 20
PATIENCE = 60.0  # seconds of the real clock after which a story is stuck


class Receiver:
    """Notes what it is told. Answers by `answer`, or leaves that to the test when it is None."""

    def __init__(
        self, connection: Connection, answer: Callable[[Connection, memoryview], None] | None
    ) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.gone = 0
        self.closed = 0
        self.happened = asyncio.Event()
        self._answer = answer
        self._waiting = False

    def on_frame(self, frame: memoryview) -> None:
        assert not self.closed, "a frame after on_closed"
        assert not self._waiting, "a frame before the one before it was answered"
        self.frames.append(bytes(frame))
        self._waiting = True
        self.happened.set()
        if self._answer is not None:
            self._waiting = False
            self._answer(self.connection, frame)

    def answer(self, *chunks: bytes | FileSlice) -> None:
        self._waiting = False
        self.connection.send([_length(*chunks), *chunks])

    def skip(self) -> None:
        self._waiting = False
        self.connection.skip_answer()

    def owe(self) -> None:
        self._waiting = False
        self.connection.owe_answer()

    def on_client_gone(self) -> None:
        assert not self.closed, "the client's end was told after the connection's"
        self.gone += 1
        self.happened.set()

    def on_closed(self) -> None:
        self.closed += 1
        self.happened.set()

    async def wait_for_frames(self, count: int) -> None:
        while len(self.frames) < count:
            self.happened.clear()
            await self.happened.wait()

    async def wait_until_gone(self) -> None:
        while not self.gone:
            self.happened.clear()
            await self.happened.wait()

    async def wait_until_closed(self) -> None:
        while not self.closed:
            self.happened.clear()
            await self.happened.wait()


class Stage:
    """One listening server, and what it has accepted."""

    def __init__(self, make_network: Callable[[Clock], Network]) -> None:
        self.clock = ManualClock()
        self.network = make_network(self.clock)
        self.limits = Limits()
        self.quotas = ConnectionQuotas(self.limits, self.clock)
        self.receivers: list[Receiver] = []
        self.accepted = asyncio.Event()
        self.answer: Callable[[Connection, memoryview], None] | None = None
        self.server: Server | None = None
        self.servers: list[Server] = []
        self.channels: list[Channel] = []

    async def listen(self, accept: Accept | None = None) -> Server:
        self.server = await self.listen_as("PLAINTEXT", accept)
        return self.server

    async def listen_as(self, listener_name: str, accept: Accept | None = None) -> Server:
        """One more listener; `connect` goes to the one of `listen`."""
        server = await self.network.listen(
            "127.0.0.1", 0, accept or self.accept, listener_name=listener_name, quotas=self.quotas
        )
        self.servers.append(server)
        return server

    def accept(self, connection: Connection) -> Receiver:
        receiver = Receiver(connection, self.answer)
        self.receivers.append(receiver)
        self.accepted.set()
        return receiver

    async def connect(self, to: Server | None = None) -> Channel:
        server = to or self.server
        assert server is not None
        channel = await self.network.connect("127.0.0.1", server.port, timeout=PATIENCE)
        self.channels.append(channel)
        return channel

    async def connect_and_accept(self) -> tuple[Channel, Receiver]:
        """A connection on which one request has been exchanged, so both ends know of it."""
        self.accepted.clear()
        channel = await self.connect()
        await self.accepted.wait()
        return channel, self.receivers[-1]

    async def close(self) -> None:
        for channel in self.channels:
            await channel.close()
        for server in (self.server, *self.servers):
            if server is not None:
                await server.close()


@pytest.fixture(params=NETWORKS)
def perform(request: pytest.FixtureRequest) -> Callable[[Callable[[Stage], Story]], None]:
    def run(story: Callable[[Stage], Story]) -> None:
        async def play() -> None:
            stage = Stage(NETWORKS[request.param])
            try:
                async with asyncio.timeout(PATIENCE):
                    await story(stage)
            finally:
                await stage.close()

        with asyncio.Runner(loop_factory=LOOPS.get(request.param)) as runner:
            runner.run(play())

    return run


Story = Coroutine[object, object, None]
Perform = Callable[[Callable[[Stage], Story]], None]


def _length(*chunks: bytes | FileSlice) -> bytes:
    sizes = (chunk.length if isinstance(chunk, FileSlice) else len(chunk) for chunk in chunks)
    return struct.pack(">i", sum(sizes))


def framed(data: bytes) -> list[bytes]:
    return [_length(data), data]


def echo(connection: Connection, frame: memoryview) -> None:
    data = bytes(frame)
    connection.send([_length(data), data])


# Frames and answers


def test_a_request_is_answered(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channel = await stage.connect()
        await channel.send(framed(b"hello"))
        assert await channel.receive() == b"hello"
        assert stage.receivers[0].frames == [b"hello"]

    perform(story)


def test_an_empty_frame_is_a_frame(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channel = await stage.connect()
        await channel.send(framed(b""))
        assert await channel.receive() == b""

    perform(story)


def test_the_frame_is_a_writable_view(perform: Perform) -> None:
    def overwrite(connection: Connection, frame: memoryview) -> None:
        assert not frame.readonly
        frame[:3] = b"ABC"
        echo(connection, frame)

    async def story(stage: Stage) -> None:
        stage.answer = overwrite
        await stage.listen()
        channel = await stage.connect()
        await channel.send(framed(b"abcdef"))
        assert await channel.receive() == b"ABCdef"

    perform(story)


def test_the_view_stays_valid_until_the_answer_while_more_frames_arrive(perform: Perform) -> None:
    frames = [bytes([number]) * 10_000 for number in range(10)]

    async def story(stage: Stage) -> None:
        kept: list[memoryview] = []
        stage.answer = lambda _, frame: kept.append(frame)
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        for frame in frames:
            await channel.send(framed(frame))
        for number, frame in enumerate(frames):
            await receiver.wait_for_frames(number + 1)
            await wait_until_idle()
            assert kept[number] == frame
            receiver.answer(bytes(kept[number]))
            assert await channel.receive() == frame

    perform(story)


def test_pipelined_requests_are_answered_in_order(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channel = await stage.connect()
        requests = [b"request %d" % number for number in range(500)]
        await channel.send([chunk for request in requests for chunk in framed(request)])
        assert [await channel.receive() for _ in requests] == requests

    perform(story)


def test_no_second_frame_comes_before_the_first_is_answered(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([*framed(b"1"), *framed(b"2"), *framed(b"3")])
        for number in (b"1", b"2", b"3"):
            await receiver.wait_for_frames(int(number))
            await wait_until_idle()
            assert receiver.frames[-1] == number
            receiver.answer(b"answer " + number)
        assert [await channel.receive() for _ in range(3)] == [
            b"answer 1",
            b"answer 2",
            b"answer 3",
        ]

    perform(story)


def test_an_answer_may_come_long_after_its_frame(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"long poll"))
        await receiver.wait_for_frames(1)
        await stage.clock.advance(30)
        receiver.answer(b"late")
        assert await channel.receive() == b"late"

    perform(story)


def test_frames_whose_answer_is_skipped_are_followed_by_the_next(perform: Perform) -> None:
    def answer_only_questions(connection: Connection, frame: memoryview) -> None:
        if bytes(frame).endswith(b"?"):
            echo(connection, frame)
        else:
            connection.skip_answer()

    async def story(stage: Stage) -> None:
        stage.answer = answer_only_questions
        await stage.listen()
        channel = await stage.connect()
        await channel.send([*framed(b"a"), *framed(b"b"), *framed(b"c?"), *framed(b"d")])
        await channel.send(framed(b"e?"))
        assert [await channel.receive(), await channel.receive()] == [b"c?", b"e?"]
        assert stage.receivers[0].frames == [b"a", b"b", b"c?", b"d", b"e?"]

    perform(story)


def test_a_late_skip_lets_the_next_frame_through(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([*framed(b"1"), *framed(b"2")])
        await receiver.wait_for_frames(1)
        await wait_until_idle()
        receiver.skip()
        await receiver.wait_for_frames(2)
        receiver.answer(b"to 2")
        assert await channel.receive() == b"to 2"

    perform(story)


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 9])
def test_a_frame_may_arrive_in_pieces(perform: Perform, cut: int) -> None:
    data = b"".join(framed(b"in pieces"))

    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([data[:cut]])
        await wait_until_idle()
        assert receiver.frames == []
        await channel.send([data[cut:]])
        assert await channel.receive() == b"in pieces"

    perform(story)


@pytest.mark.parametrize("size", [30_000, 40_000, 300_000, 5 * MEBIBYTE])
def test_large_frames_between_small_ones_come_whole(perform: Perform, size: int) -> None:
    requests = [b"small", bytes(range(250)) * (size // 250), b"small again", b"x" * size, b"end"]

    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channel = await stage.connect()

        async def ask() -> None:
            for request in requests:
                await channel.send(framed(request))

        asking = asyncio.ensure_future(ask())
        assert [await channel.receive() for _ in requests] == requests
        await asking

    perform(story)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_an_answer_may_be_made_of_many_chunks(
    perform: Perform, kind: Callable[[bytes], bytes]
) -> None:
    parts = [b"part %d " % number for number in range(200)]

    def answer(connection: Connection, _: memoryview) -> None:
        connection.send([_length(*parts), *map(kind, parts)])

    async def story(stage: Stage) -> None:
        stage.answer = answer
        await stage.listen()
        channel = await stage.connect()
        await channel.send(framed(b"?"))
        assert await channel.receive() == b"".join(parts)

    perform(story)


def test_empty_chunks_are_no_trouble(perform: Perform) -> None:
    def answer(connection: Connection, _: memoryview) -> None:
        connection.send([b"", _length(b"abc"), b"", b"abc", b""])

    async def story(stage: Stage) -> None:
        stage.answer = answer
        await stage.listen()
        channel = await stage.connect()
        for _ in range(3):
            await channel.send(framed(b"?"))
            assert await channel.receive() == b"abc"

    perform(story)


# Large answers and slow readers


@pytest.mark.parametrize("size", [100_000, 300_000, 3 * MEBIBYTE])
def test_pipelined_requests_with_large_answers_are_all_answered(
    perform: Perform, size: int
) -> None:
    """Answers large enough to make the server stop looking at further requests for a while."""

    def answer(connection: Connection, frame: memoryview) -> None:
        data = bytes(frame) * size
        connection.send([_length(data), data])

    async def story(stage: Stage) -> None:
        stage.answer = answer
        await stage.listen()
        channel = await stage.connect()
        letters = [b"a", b"b", b"c", b"d", b"e"]
        await channel.send([chunk for letter in letters for chunk in framed(letter)])
        for letter in letters:
            assert await channel.receive() == letter * size

    perform(story)


def test_a_client_that_does_not_read_its_answers_is_not_read_from(perform: Perform) -> None:
    large = 64 * MEBIBYTE  # more than the kernel's buffers take

    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([*framed(b"1"), *framed(b"2")])
        await receiver.wait_for_frames(1)
        answer = bytes(large)
        receiver.answer(answer)
        await wait_until_idle()
        assert receiver.frames == [b"1"]
        assert await channel.receive() == answer
        await receiver.wait_for_frames(2)
        receiver.answer(b"to 2")
        assert await channel.receive() == b"to 2"

    perform(story)


def test_a_client_that_floods_has_to_wait_while_its_first_request_is_worked_on(
    perform: Perform,
) -> None:
    """Nothing is kept without bound on the server's side."""
    data = b"".join(framed(b"x" * 1_000_000))

    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()

        async def flood() -> None:
            for _ in range(64):
                await channel.send([data])

        flooding = asyncio.ensure_future(flood())
        await receiver.wait_for_frames(1)
        await wait_until_idle()
        assert not flooding.done()
        for number in range(1, 65):
            await receiver.wait_for_frames(number)
            receiver.skip()
        await flooding

    perform(story)


# Answers that are owed


def test_frames_follow_while_answers_are_owed_and_these_leave_in_order(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        for number in range(3):
            await channel.send(framed(b"%d" % number))
            await receiver.wait_for_frames(number + 1)
            receiver.owe()
        for number in range(3):
            receiver.connection.send_owed(framed(b"answer %d" % number))
        for number in range(3):
            assert await channel.receive() == b"answer %d" % number
        await channel.send(framed(b"last"))
        await receiver.wait_for_frames(4)
        receiver.answer(b"to the last")
        assert await channel.receive() == b"to the last"

    perform(story)


def test_no_frame_comes_while_too_many_answers_are_owed(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        for number in range(MOST_OWED_ANSWERS + 2):
            await channel.send(framed(b"%d" % number))
        for number in range(MOST_OWED_ANSWERS):
            await receiver.wait_for_frames(number + 1)
            receiver.owe()
        await wait_until_idle()
        assert len(receiver.frames) == MOST_OWED_ANSWERS
        for number in range(2):
            receiver.connection.send_owed(framed(b"%d" % number))
            await receiver.wait_for_frames(MOST_OWED_ANSWERS + number + 1)
            receiver.owe()
            assert await channel.receive() == b"%d" % number

    perform(story)


def test_an_owed_answer_leaves_while_the_next_frame_is_worked_on(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"first"))
        await receiver.wait_for_frames(1)
        receiver.owe()
        await channel.send(framed(b"second"))
        await receiver.wait_for_frames(2)
        receiver.connection.send_owed(framed(b"to the first"))
        assert await channel.receive() == b"to the first"
        receiver.answer(b"to the second")
        assert await channel.receive() == b"to the second"

    perform(story)


def test_a_client_that_goes_while_an_answer_is_owed_is_noticed_once(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"?"))
        await receiver.wait_for_frames(1)
        receiver.owe()
        await channel.close()
        await receiver.wait_until_gone()
        assert not receiver.closed
        receiver.connection.send_owed(())
        await receiver.wait_until_closed()
        assert (receiver.gone, receiver.closed) == (1, 1)

    perform(story)


def test_frames_that_came_before_the_client_went_follow_when_nothing_is_owed_any_more(
    perform: Perform,
) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        for number in range(MOST_OWED_ANSWERS + 1):
            await channel.send(framed(b"%d" % number))
        for number in range(MOST_OWED_ANSWERS):
            await receiver.wait_for_frames(number + 1)
            receiver.owe()
        await channel.close()
        await receiver.wait_until_gone()
        for _ in range(MOST_OWED_ANSWERS):
            receiver.connection.send_owed(())
        await receiver.wait_for_frames(MOST_OWED_ANSWERS + 1)
        receiver.skip()
        await receiver.wait_until_closed()

    perform(story)


def test_an_answer_that_nobody_is_owed_breaks_a_rule(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        _, receiver = await stage.connect_and_accept()
        with pytest.raises(InvariantViolation, match="NET-1"):
            receiver.connection.send_owed(())

    perform(story)


# File ranges


FILES: dict[str, Callable[[], Files]] = {"real file": RealFiles, "memory file": MemoryFiles}


@pytest.fixture(params=FILES)
def files(request: pytest.FixtureRequest) -> Files:
    return FILES[request.param]()


@pytest.mark.parametrize("size", [1, 5_000, COPIED_BYTES, COPIED_BYTES + 1, 8 * MEBIBYTE])
def test_file_ranges_are_sent_between_bytes(
    perform: Perform, files: Files, tmp_path: Path, size: int
) -> None:
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    files.make_folder(tmp_path)
    file = files.open(tmp_path / "segment", create=True)
    file.write_at(0, b"before" + content + b"after")
    chunks = [b"head", FileSlice(file, 6, size), b"middle", FileSlice(file, 6 + size, 5), b"tail"]

    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        for _ in range(2):
            await channel.send(framed(b"?"))
            await receiver.wait_for_frames(1)
            receiver.frames.clear()
            receiver.answer(*chunks)
            assert await channel.receive() == b"head" + content + b"middleaftertail"

    perform(story)


def test_an_empty_file_range_is_no_trouble(perform: Perform, files: Files, tmp_path: Path) -> None:
    files.make_folder(tmp_path)
    file = files.open(tmp_path / "segment", create=True)

    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"?"))
        await receiver.wait_for_frames(1)
        receiver.answer(b"a", FileSlice(file, 0, 0), b"b", FileSlice(file, 0, 0))
        assert await channel.receive() == b"ab"

    perform(story)


def test_a_removed_file_is_sent_to_its_end(perform: Perform, files: Files, tmp_path: Path) -> None:
    content = bytes(range(256)) * 16_384  # 4 MiB
    files.make_folder(tmp_path)

    def take_slice() -> FileSlice:
        file = files.open(tmp_path / "segment", create=True)
        file.write_at(0, content)
        return FileSlice(file, 0, len(content))

    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"?"))
        await receiver.wait_for_frames(1)
        receiver.answer(take_slice())
        files.remove(tmp_path / "segment")
        assert await channel.receive() == content

    perform(story)


@pytest.mark.parametrize("size", [20, COPIED_BYTES + 1])
def test_a_file_range_that_is_shorter_than_announced_ends_the_connection(
    perform: Perform, files: Files, tmp_path: Path, size: int
) -> None:
    """The answer cannot be completed, and the client must not take what follows for it."""
    files.make_folder(tmp_path)
    file = files.open(tmp_path / "segment", create=True)
    file.write_at(0, b"0123456789")

    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"?"))
        await receiver.wait_for_frames(1)
        receiver.answer(FileSlice(file, 0, size))
        with pytest.raises(ConnectionError):
            await channel.receive()
        await receiver.wait_until_closed()

    perform(story)


# Bad frames


def test_a_frame_of_the_largest_size_is_taken(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.socket_request_max_bytes = 1_000
        await stage.listen()
        channel = await stage.connect()
        await channel.send(framed(b"x" * 1_000))
        assert await channel.receive() == b"x" * 1_000

    perform(story)


@pytest.mark.parametrize("length", [1_001, 2**31 - 1, -1, -(2**31)])
def test_a_frame_of_an_illegal_size_ends_the_connection_at_once(
    perform: Perform, length: int
) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.socket_request_max_bytes = 1_000
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([struct.pack(">i", length)])
        with pytest.raises(ConnectionError):
            await channel.receive()
        await receiver.wait_until_closed()
        assert (receiver.frames, receiver.closed) == ([], 1)

    perform(story)


def test_the_answers_before_an_illegal_frame_are_not_disturbed(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channel = await stage.connect()
        await channel.send(framed(b"good"))
        assert await channel.receive() == b"good"
        await channel.send([struct.pack(">i", -5)])
        with pytest.raises(ConnectionError):
            await channel.receive()

    perform(story)


@pytest.mark.parametrize("sent", [1, 3, 4, 6])
def test_a_frame_cut_short_by_the_end_is_never_handed_over(perform: Perform, sent: int) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([b"".join(framed(b"truncated"))[:sent]])
        await channel.close()
        await receiver.wait_until_closed()
        await wait_until_idle()
        assert (receiver.frames, receiver.closed) == ([], 1)

    perform(story)


# The end of a connection


def test_a_client_that_closes_is_noticed_once(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"hello"))
        await channel.receive()
        await channel.close()
        await channel.close()
        await receiver.wait_until_closed()
        receiver.connection.close("too late")
        await wait_until_idle()
        assert receiver.closed == 1

    perform(story)


def test_a_server_that_closes_is_told_once_and_the_client_sees_it(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        receiver.connection.close("a reason")
        receiver.connection.close("another")
        with pytest.raises(ConnectionError):
            await channel.receive()
        await receiver.wait_until_closed()
        await wait_until_idle()
        assert receiver.closed == 1

    perform(story)


def test_a_connection_may_be_closed_instead_of_answered(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = lambda connection, _: connection.close("not answered")
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([*framed(b"1"), *framed(b"2")])
        with pytest.raises(ConnectionError):
            await channel.receive()
        await receiver.wait_until_closed()
        await wait_until_idle()
        assert (receiver.frames, receiver.closed) == ([b"1"], 1)

    perform(story)


def test_a_connection_may_be_closed_by_the_one_who_accepts_it(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        def accept(connection: Connection) -> Receiver:
            receiver = stage.accept(connection)
            connection.close("not welcome")
            return receiver

        await stage.listen(accept)
        channel, receiver = await stage.connect_and_accept()
        with pytest.raises(ConnectionError):
            await channel.receive()
        await receiver.wait_until_closed()
        assert receiver.closed == 1

    perform(story)


def test_an_answer_after_the_end_is_no_error(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"?"))
        await receiver.wait_for_frames(1)
        await channel.close()
        await receiver.wait_until_gone()
        receiver.answer(b"nobody hears it")
        await receiver.wait_until_closed()
        receiver.answer(b"nor this")
        receiver.connection.skip_answer()
        await wait_until_idle()
        assert receiver.closed == 1

    perform(story)


def test_frames_sent_before_the_client_closed_are_still_handed_over(perform: Perform) -> None:
    """A producer with acks=0 sends and goes; Kafka's selector takes what it sent, too."""

    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([*framed(b"1"), *framed(b"2"), *framed(b"3")])
        await receiver.wait_for_frames(1)
        await channel.close()
        for number in (1, 2, 3):
            await receiver.wait_for_frames(number)
            await wait_until_idle()
            receiver.skip()
        await receiver.wait_until_closed()
        assert (receiver.frames, receiver.closed) == ([b"1", b"2", b"3"], 1)

    perform(story)


def test_a_client_that_goes_while_its_request_is_worked_on_is_noticed_once(
    perform: Perform,
) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([*framed(b"1"), *framed(b"2")])
        await receiver.wait_for_frames(1)
        await channel.close()
        await receiver.wait_until_gone()
        await wait_until_idle()
        assert (receiver.frames, receiver.gone, receiver.closed) == ([b"1"], 1, 0)
        receiver.answer(b"nobody hears it")
        await receiver.wait_for_frames(2)
        receiver.answer(b"nor this")
        await receiver.wait_until_closed()
        assert (receiver.frames, receiver.gone, receiver.closed) == ([b"1", b"2"], 1, 1)

    perform(story)


def test_frames_behind_answers_that_nobody_reads_are_still_handed_over(perform: Perform) -> None:
    """The first answer to a client that is gone ends in a reset; what it sent counts."""

    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        sent = [b"%03d" % number * 300 for number in range(60)]
        await channel.send([chunk for data in sent for chunk in framed(data)])
        await channel.close()
        await receiver.wait_until_closed()
        assert receiver.frames == sent

    perform(story)


def test_waiting_for_an_answer_ends_when_the_channel_is_closed(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, _ = await stage.connect_and_accept()
        waiting = asyncio.ensure_future(channel.receive())
        await asyncio.sleep(0)
        await channel.close()
        with pytest.raises(ConnectionError):
            await waiting

    perform(story)


def test_sending_to_a_closed_peer_fails_in_the_end(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        receiver.connection.close("gone")

        async def send_on() -> None:
            for _ in range(100_000):  # more than any buffers hold
                await channel.send(framed(b"x" * 10_000))
                await asyncio.sleep(0)

        with pytest.raises(ConnectionError):
            await send_on()

    perform(story)


def test_answers_sent_before_the_server_closed_are_received(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"?"))
        await receiver.wait_for_frames(1)
        receiver.answer(b"the last one")
        receiver.connection.close("done")
        assert await channel.receive() == b"the last one"
        with pytest.raises(ConnectionError):
            await channel.receive()

    perform(story)


# Servers


def test_a_connection_says_where_it_comes_from(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        receivers = [(await stage.connect_and_accept())[1] for _ in range(3)]
        connections = [receiver.connection for receiver in receivers]
        assert len({connection.id for connection in connections}) == 3
        assert {connection.listener_name for connection in connections} == {"PLAINTEXT"}
        assert all(connection.peer_host for connection in connections)

    perform(story)


def test_a_server_knows_its_real_port(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        server = await stage.listen()
        assert server.host == "127.0.0.1"
        assert 0 < server.port < 65536

    perform(story)


def test_a_port_in_use_is_refused(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        server = await stage.listen()
        with pytest.raises(OSError, match="in use"):
            await stage.network.listen(
                "127.0.0.1",
                server.port,
                lambda connection: Receiver(connection, echo),
                listener_name="OTHER",
                quotas=stage.quotas,
            )

    perform(story)


def test_connecting_where_nobody_listens_is_refused(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        server = await stage.listen()
        await server.close()
        with pytest.raises(ConnectionRefusedError):
            await stage.connect()

    perform(story)


def test_a_server_that_stops_accepting_serves_those_it_has(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        server = await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        server.stop_accepting()
        server.stop_accepting()
        with pytest.raises(ConnectionRefusedError):
            await stage.connect()
        await channel.send(framed(b"still here"))
        assert await channel.receive() == b"still here"
        assert receiver.closed == 0

    perform(story)


def test_closing_a_server_closes_its_connections(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        server = await stage.listen()
        pairs = [await stage.connect_and_accept() for _ in range(3)]
        await server.close()
        await server.close()
        for channel, receiver in pairs:
            with pytest.raises(ConnectionError):
                await channel.receive()
            await receiver.wait_until_closed()
            assert receiver.closed == 1

    perform(story)


def test_a_port_is_free_again_after_its_server_closed(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        server = await stage.listen()
        await stage.connect_and_accept()
        await server.close()
        stage.server = await stage.network.listen(
            "127.0.0.1",
            server.port,
            lambda connection: Receiver(connection, echo),
            listener_name="AGAIN",
            quotas=stage.quotas,
        )
        channel = await stage.connect()
        await channel.send(framed(b"again"))
        assert await channel.receive() == b"again"

    perform(story)


def test_many_connections_do_not_mix_up_their_answers(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channels = [await stage.connect() for _ in range(100)]

        async def talk(number: int, channel: Channel) -> None:
            for turn in range(5):
                request = b"%d/%d" % (number, turn)
                await channel.send(framed(request))
                assert await channel.receive() == request

        await asyncio.gather(*(talk(number, each) for number, each in enumerate(channels)))

    perform(story)


# Limits


async def is_served(channel: Channel) -> bool:
    try:
        await channel.send(framed(b"?"))
        return await channel.receive() == b"?"
    except ConnectionError:
        return False


async def is_still_waiting(stage: Stage, channel: Channel) -> asyncio.Task[object]:
    """Ask on a connection that is not accepted yet; the answer comes when it is."""
    accepted = len(stage.receivers)
    await channel.send(framed(b"!"))
    asked = asyncio.create_task(_receive(channel))
    for _ in range(20):
        await asyncio.sleep(0)
    await wait_until_idle()
    assert len(stage.receivers) == accepted
    assert not asked.done()
    return asked


async def _receive(channel: Channel) -> object:
    return bytes(await channel.receive())


@pytest.mark.parametrize("of", ["the broker", "the listener"])
def test_beyond_the_limit_a_connection_waits_until_another_ends(perform: Perform, of: str) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        if of == "the broker":
            stage.limits.max_connections = 2
        else:
            stage.limits.by_listener["PLAINTEXT"] = 2
        await stage.listen()
        first, _ = await stage.connect_and_accept()
        second, _ = await stage.connect_and_accept()
        asked = await is_still_waiting(stage, await stage.connect())
        assert await is_served(second)
        assert not asked.done()
        await first.close()
        assert await asked == b"!"

    perform(story)


def test_a_raised_limit_lets_in_who_waits(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.max_connections = 1
        await stage.listen()
        await stage.connect_and_accept()
        asked = await is_still_waiting(stage, await stage.connect())
        stage.limits.max_connections = 2
        await stage.clock.advance(1)
        assert await asked == b"!"

    perform(story)


def test_a_full_listener_leaves_the_others_alone(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.by_listener["PLAINTEXT"] = 1
        await stage.listen()
        other = await stage.listen_as("OTHER")
        await stage.connect_and_accept()
        await is_still_waiting(stage, await stage.connect())
        assert await is_served(await stage.connect(other))

    perform(story)


def test_brokers_find_room_by_the_connection_that_was_not_used_for_longest(
    perform: Perform,
) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.max_connections = 3
        stage.limits.protected = "INNER"
        await stage.listen()
        inner = await stage.listen_as("INNER")
        used, of_used = await stage.connect_and_accept()
        _, of_idle = await stage.connect_and_accept()
        assert await is_served(await stage.connect(inner))
        await stage.clock.advance(15)
        assert await is_served(used)
        assert await is_served(await stage.connect(inner))
        assert (of_used.closed, of_idle.closed) == (0, 1)
        assert await is_served(await stage.connect(inner))
        assert of_used.closed == 1
        assert await is_served(await stage.connect(inner)), "there is always room for a broker"
        await is_still_waiting(stage, await stage.connect())

    perform(story)


def test_a_lowered_limit_closes_connections(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        used, _ = await stage.connect_and_accept()
        for _ in range(3):
            await stage.connect_and_accept()
        await stage.clock.advance(10)
        assert await is_served(used)
        stage.limits.max_connections = 1
        await stage.clock.advance(10)
        assert [one.closed for one in stage.receivers] == [0, 1, 1, 1]

    perform(story)


@pytest.mark.parametrize("of", ["the broker", "the listener"])
def test_connections_are_accepted_at_a_bounded_rate(perform: Perform, of: str) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        if of == "the broker":
            stage.limits.max_connection_creation_rate = 2
        else:
            stage.limits.rate_by_listener["PLAINTEXT"] = 2
        await stage.listen()
        await stage.connect_and_accept()
        await stage.connect_and_accept()
        asked = await is_still_waiting(stage, await stage.connect())
        await stage.clock.advance(0.5)
        assert await asked == b"!"
        await is_still_waiting(stage, await stage.connect())

    perform(story)


def test_the_rate_of_clients_does_not_hold_up_brokers(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.max_connection_creation_rate = 1
        stage.limits.protected = "INNER"
        await stage.listen()
        inner = await stage.listen_as("INNER")
        await stage.connect_and_accept()
        for _ in range(5):
            assert await is_served(await stage.connect(inner))
        await is_still_waiting(stage, await stage.connect())

    perform(story)


def test_connections_of_an_address_are_counted_over_all_listeners(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.max_connections_per_ip = 1
        await stage.listen()
        other = await stage.listen_as("OTHER")
        await stage.connect_and_accept()
        assert not await is_served(await stage.connect(other))

    perform(story)


def test_a_closed_connection_makes_room_for_another(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.max_connections_per_ip = 1
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        assert not await is_served(await stage.connect())
        await channel.close()
        await receiver.wait_until_closed()
        assert await is_served(await stage.connect())

    perform(story)


def test_a_host_may_have_its_own_limit_and_it_may_change(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.max_connections_per_ip = 1
        await stage.listen()
        _, receiver = await stage.connect_and_accept()
        assert not await is_served(await stage.connect())
        stage.limits.by_host[receiver.connection.peer_host] = 2
        assert await is_served(await stage.connect())
        assert not await is_served(await stage.connect())

    perform(story)


def test_an_idle_connection_is_closed(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.connections_max_idle_ms = 60_000
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        assert await is_served(channel)
        await stage.clock.advance(59)
        assert receiver.closed == 0
        await stage.clock.advance(60)
        assert receiver.closed == 1
        with pytest.raises(ConnectionError):
            await channel.receive()

    perform(story)


def test_a_connection_in_use_is_not_idle(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.connections_max_idle_ms = 60_000
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        for _ in range(10):
            assert await is_served(channel)
            await stage.clock.advance(50)
        assert receiver.closed == 0

    perform(story)


def test_a_connection_whose_request_is_worked_on_is_not_idle(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.limits.connections_max_idle_ms = 60_000
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"a long poll"))
        await receiver.wait_for_frames(1)
        await stage.clock.advance(300)
        receiver.answer(b"at last")
        assert await channel.receive() == b"at last"

    perform(story)


def test_connections_are_kept_for_ever_where_the_idle_time_is_off(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        stage.answer = echo
        stage.limits.connections_max_idle_ms = -1
        await stage.listen()
        channel, _ = await stage.connect_and_accept()
        await stage.clock.advance(24 * 3600)
        assert await is_served(channel)

    perform(story)


# Muted connections


def test_a_muted_connection_hands_over_nothing_and_answers_as_ever(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([*framed(b"1"), *framed(b"2"), *framed(b"3")])
        await receiver.wait_for_frames(1)
        receiver.connection.mute()
        receiver.answer(b"to 1")
        assert await channel.receive() == b"to 1"
        await channel.send(framed(b"4"))
        await wait_until_idle()
        assert receiver.frames == [b"1"]
        receiver.connection.unmute()
        for number in (b"2", b"3", b"4"):
            await receiver.wait_for_frames(int(number))
            receiver.answer(b"to " + number)
            assert await channel.receive() == b"to " + number
        receiver.connection.unmute()  # which it is

    perform(story)


def test_what_is_owed_leaves_a_muted_connection(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send([*framed(b"1"), *framed(b"2")])
        await receiver.wait_for_frames(1)
        receiver.connection.mute()
        receiver.owe()
        await wait_until_idle()
        assert receiver.frames == [b"1"]
        receiver.connection.send_owed(framed(b"to 1"))
        assert await channel.receive() == b"to 1"
        assert receiver.frames == [b"1"]
        receiver.connection.unmute()
        await receiver.wait_for_frames(2)
        receiver.answer(b"to 2")
        assert await channel.receive() == b"to 2"

    perform(story)


def test_a_client_that_fills_the_buffer_of_a_muted_connection_loses_nothing(
    perform: Perform,
) -> None:
    frames = [bytes([number]) * 50_000 for number in range(20)]

    async def story(stage: Stage) -> None:
        stage.answer = echo
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        receiver.connection.mute()
        sending = asyncio.create_task(channel.send([c for f in frames for c in framed(f)]))
        await wait_until_idle()
        assert not receiver.frames
        receiver.connection.unmute()
        assert [await channel.receive() for _ in frames] == frames
        await sending

    perform(story)


def test_frames_of_a_client_that_has_gone_come_when_it_is_unmuted(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        channel, receiver = await stage.connect_and_accept()
        await channel.send(framed(b"1"))
        await receiver.wait_for_frames(1)
        receiver.connection.mute()
        receiver.skip()
        await channel.send(framed(b"2"))
        await channel.close()
        await wait_until_idle()
        assert receiver.frames == [b"1"]
        assert not receiver.closed
        receiver.connection.unmute()
        await receiver.wait_for_frames(2)
        receiver.skip()
        await receiver.wait_until_closed()
        receiver.connection.unmute()  # a timer that comes too late

    perform(story)


def test_a_muted_connection_can_be_closed(perform: Perform) -> None:
    async def story(stage: Stage) -> None:
        await stage.listen()
        _, receiver = await stage.connect_and_accept()
        receiver.connection.mute()
        receiver.connection.close("enough")
        await receiver.wait_until_closed()
        receiver.connection.unmute()

    perform(story)
