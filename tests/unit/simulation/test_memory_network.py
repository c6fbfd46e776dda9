"""Cuts, delays and drops of `MemoryNetwork`. What every network does is in tests/contract."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from random import Random

import pytest

from moldau.errors import InvariantViolation
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.port import Channel, Connection
from moldau.simulation.manual_clock import ManualClock, PausableClock, wait_until_idle
from moldau.simulation.memory_network import MemoryNetwork, MemoryServer
from support.connection_limits import Limits

Story = Coroutine[object, object, None]


class Echo:
    """Sends back what it gets, or waits to be told to."""

    def __init__(self, connection: Connection, *, at_once: bool = True) -> None:
        self.connection = connection
        self.frames: list[bytes] = []
        self.views: list[memoryview] = []
        self.closed = 0
        self._at_once = at_once

    def on_frame(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.views.append(frame)
        if self._at_once:
            self.connection.send(framed(bytes(frame)))

    def on_client_gone(self) -> None:
        self.connection.close("nobody waits for an answer")

    def on_closed(self) -> None:
        self.closed += 1


class Stage:
    """Brokers `b1` and `b2` that echo, and a host `c` that talks to them."""

    def __init__(self, random: Random | None = None, drop_chance: float = 0.0) -> None:
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock, random=random, drop_chance=drop_chance)
        self.accepted: dict[str, list[Echo]] = {}
        self.at_once = True

    async def listen(self, name: str) -> MemoryServer:
        def accept(connection: Connection) -> Echo:
            echo = Echo(connection, at_once=self.at_once)
            self.accepted.setdefault(name, []).append(echo)
            return echo

        return await self.network.host(name).listen(
            "0.0.0.0",
            9092,
            accept,
            listener_name="PLAINTEXT",
            quotas=ConnectionQuotas(Limits(), self.clock),
        )

    async def connect(self, name: str = "b1", source: str = "c") -> Channel:
        connecting = self.network.host(source).connect(name, 9092, timeout=30)
        return await self.clock.run_until_done(connecting)

    async def ask(self, channel: Channel, data: bytes = b"?") -> bytes:
        await channel.send(framed(data))
        return await self.clock.run_until_done(channel.receive())


def framed(data: bytes) -> list[bytes]:
    return [struct.pack(">i", len(data)), data]


def perform(story: Callable[[Stage], Story], stage: Stage | None = None) -> None:
    async def play() -> None:
        it = stage or Stage()
        await it.listen("b1")
        await it.listen("b2")
        await story(it)

    asyncio.run(play())


# Hosts


def test_each_host_has_its_own_ports() -> None:
    async def story(stage: Stage) -> None:
        assert await stage.ask(await stage.connect("b1")) == b"?"
        assert await stage.ask(await stage.connect("b2")) == b"?"
        assert len(stage.accepted["b1"]) == len(stage.accepted["b2"]) == 1

    perform(story)


def test_a_connection_comes_from_the_host_that_made_it() -> None:
    async def story(stage: Stage) -> None:
        await stage.connect("b1", source="b2")
        connection = stage.accepted["b1"][0].connection
        assert connection.peer_host == "b2"
        assert connection.id == "b1:9092-b2-1"

    perform(story)


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_host_reaches_itself_by_the_usual_names(name: str) -> None:
    async def story(stage: Stage) -> None:
        await stage.connect(name, source="b1")
        assert len(stage.accepted["b1"]) == 1
        with pytest.raises(ConnectionRefusedError):
            await stage.connect(name, source="c")

    perform(story)


def test_an_unknown_host_refuses() -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(ConnectionRefusedError, match="nowhere"):
            await stage.connect("nowhere")

    perform(story)


def test_a_server_on_all_addresses_says_its_hosts_name() -> None:
    async def story(stage: Stage) -> None:
        assert (await stage.listen("b3")).host == "b3"

    perform(story)


# Delay


def test_a_round_trip_takes_the_delay_of_both_ways() -> None:
    async def story(stage: Stage) -> None:
        stage.network.set_delay("c", "b1", 0.050)
        channel = await stage.connect()
        assert stage.clock.monotonic() == pytest.approx(0.1)
        assert await stage.ask(channel) == b"?"
        assert stage.clock.monotonic() == pytest.approx(0.2)
        await stage.ask(await stage.connect("b2"))
        assert stage.clock.monotonic() == pytest.approx(0.2)

    perform(story)


def test_frames_stay_in_order_when_the_delay_shrinks() -> None:
    async def story(stage: Stage) -> None:
        channel = await stage.connect()
        stage.network.set_delay("c", "b1", 5.0)
        await channel.send(framed(b"first"))
        stage.network.set_delay("c", "b1", 0.0)
        await channel.send(framed(b"second"))
        await stage.clock.advance(4.9)
        assert stage.accepted["b1"][0].frames == []
        await stage.clock.advance(0.2)
        assert stage.accepted["b1"][0].frames == [b"first", b"second"]

    perform(story)


def test_jitter_reorders_connections_and_is_the_same_for_the_same_seed() -> None:
    def arrivals(seed: int) -> list[bytes]:
        order: list[bytes] = []

        async def story(stage: Stage) -> None:
            channels = [await stage.connect() for _ in range(10)]
            stage.network.set_delay("c", "b1", 0.010, jitter_seconds=0.100)
            for number, channel in enumerate(channels):
                await channel.send(framed(b"%d" % number))
            for _ in range(200):
                await stage.clock.advance(0.001)
                arrived = [frame for echo in stage.accepted["b1"] for frame in echo.frames]
                order.extend(frame for frame in arrived if frame not in order)

        perform(story, Stage(Random(seed)))
        return order

    assert arrivals(1) == arrivals(1)
    assert arrivals(1) != arrivals(2)
    assert sorted(arrivals(1)) == [b"%d" % number for number in range(10)] != arrivals(1)


# Cuts


def test_nothing_passes_a_cut_and_nothing_is_lost_by_it() -> None:
    async def story(stage: Stage) -> None:
        channel = await stage.connect()
        echo = stage.accepted["b1"][0]
        stage.network.cut("c", "b1")
        await channel.send([*framed(b"1"), *framed(b"2")])
        await channel.send(framed(b"3"))
        await stage.clock.advance(300)
        assert (echo.frames, echo.closed) == ([], 0)
        stage.network.heal("b1", "c")
        assert [await channel.receive() for _ in range(3)] == [b"1", b"2", b"3"]

    perform(story)


def test_a_one_way_cut_lets_the_request_through_and_not_the_answer() -> None:
    async def story(stage: Stage) -> None:
        channel = await stage.connect()
        stage.network.cut("b1", "c", one_way=True)
        await channel.send(framed(b"?"))
        answer = asyncio.ensure_future(channel.receive())
        await stage.clock.advance(60)
        assert stage.accepted["b1"][0].frames == [b"?"]
        assert not answer.done()
        stage.network.heal("b1", "c")
        assert await answer == b"?"

    perform(story)


def test_a_cut_concerns_its_two_hosts_only() -> None:
    async def story(stage: Stage) -> None:
        stage.network.cut("c", "b1")
        assert await stage.ask(await stage.connect("b2")) == b"?"
        assert await stage.ask(await stage.connect("b1", source="b2")) == b"?"

    perform(story)


def test_what_is_under_way_does_not_arrive_after_the_cut() -> None:
    async def story(stage: Stage) -> None:
        channel = await stage.connect()
        stage.network.set_delay("c", "b1", 1.0)
        await channel.send(framed(b"?"))
        await stage.clock.advance(0.5)
        stage.network.cut("c", "b1")
        await stage.clock.advance(5)
        assert stage.accepted["b1"][0].frames == []

    perform(story)


def test_connecting_through_a_cut_times_out() -> None:
    async def story(stage: Stage) -> None:
        stage.network.cut("c", "b1")
        with pytest.raises(TimeoutError):
            await stage.connect()
        assert stage.clock.monotonic() == 30.0
        stage.network.heal("c", "b1")
        await wait_until_idle()
        assert all(echo.closed == 1 for echo in stage.accepted.get("b1", []))
        assert await stage.ask(await stage.connect()) == b"?"

    perform(story)


def test_connecting_succeeds_when_the_cut_heals_in_time() -> None:
    async def story(stage: Stage) -> None:
        stage.network.cut("c", "b1")
        stage.clock.call_later(10, lambda: stage.network.heal("c", "b1"))
        assert await stage.ask(await stage.connect()) == b"?"
        assert stage.clock.monotonic() == 10.0

    perform(story)


def test_the_end_of_a_connection_is_not_seen_through_a_cut() -> None:
    async def story(stage: Stage) -> None:
        channel = await stage.connect()
        stage.network.cut("c", "b1")
        await channel.close()
        await wait_until_idle()
        assert stage.accepted["b1"][0].closed == 0
        stage.network.heal("c", "b1")
        await wait_until_idle()
        assert stage.accepted["b1"][0].closed == 1

    perform(story)


def test_an_isolated_host_reaches_nobody_but_itself() -> None:
    async def story(stage: Stage) -> None:
        stage.network.isolate("b1")
        for name, source in (("b1", "c"), ("b1", "b2"), ("b2", "b1"), ("b1", "came later")):
            with pytest.raises(TimeoutError):
                await stage.connect(name, source)
        assert await stage.ask(await stage.connect("b1", source="b1")) == b"?"
        assert await stage.ask(await stage.connect("b2")) == b"?"
        stage.network.rejoin("b1")
        assert await stage.ask(await stage.connect("b1")) == b"?"

    perform(story)


def test_healing_everything_undoes_cuts_and_isolation() -> None:
    async def story(stage: Stage) -> None:
        stage.network.isolate("b1")
        stage.network.cut("c", "b2")
        stage.network.heal_all()
        assert await stage.ask(await stage.connect("b1")) == b"?"
        assert await stage.ask(await stage.connect("b2")) == b"?"

    perform(story)


# Drops and crashes


def test_dropped_connections_end_at_both_ends() -> None:
    async def story(stage: Stage) -> None:
        dropped, kept = await stage.connect("b1"), await stage.connect("b2")
        stage.network.drop_connections("c", "b1")
        with pytest.raises(ConnectionError):
            await dropped.receive()
        with pytest.raises(ConnectionError):
            await dropped.send(framed(b"?"))
        assert stage.accepted["b1"][0].closed == 1
        assert await stage.ask(kept) == b"?"
        stage.network.drop_connections()
        with pytest.raises(ConnectionError):
            await kept.receive()

    perform(story)


def test_a_drop_while_connecting_is_an_error() -> None:
    async def story(stage: Stage) -> None:
        stage.network.cut("c", "b1")
        connecting = asyncio.ensure_future(stage.network.host("c").connect("b1", 9092, timeout=30))
        await wait_until_idle()
        stage.network.drop_connections("b1")
        with pytest.raises(ConnectionError):
            await connecting

    perform(story)


def test_connections_are_dropped_by_chance_and_by_the_seed() -> None:
    def count_answers(seed: int) -> int:
        answers = 0

        async def story(stage: Stage) -> None:
            nonlocal answers
            channel = await stage.connect()
            stage.network.drop_chance = 0.02
            try:
                while True:
                    await stage.ask(channel)
                    answers += 1
            except ConnectionError:
                await wait_until_idle()
            assert stage.accepted["b1"][0].closed == 1

        perform(story, Stage(Random(seed)))
        return answers

    counts = [count_answers(seed) for seed in range(10)]
    assert counts == [count_answers(seed) for seed in range(10)]
    assert len(set(counts)) > 1


def test_a_crashed_host_is_noticed_by_its_peers_and_hears_nothing_itself() -> None:
    async def story(stage: Stage) -> None:
        channel = await stage.connect("b1")
        outgoing = await stage.connect("b2", source="b1")
        stage.network.crash("b1")
        with pytest.raises(ConnectionError):
            await channel.receive()
        await wait_until_idle()
        assert stage.accepted["b2"][0].closed == 1
        assert stage.accepted["b1"][0].closed == 0
        with pytest.raises(ConnectionError):
            await outgoing.send(framed(b"from beyond"))
        with pytest.raises(ConnectionRefusedError):
            await stage.connect("b1")

    perform(story)


def test_a_crashed_host_can_listen_again() -> None:
    async def story(stage: Stage) -> None:
        await stage.connect("b1")
        stage.network.crash("b1")
        await stage.listen("b1")
        assert await stage.ask(await stage.connect("b1")) == b"?"

    perform(story)


def test_the_crash_of_an_isolated_host_is_silence() -> None:
    async def story(stage: Stage) -> None:
        channel = await stage.connect("b1")
        stage.network.isolate("b1")
        stage.network.crash("b1")
        receiving = asyncio.ensure_future(channel.receive())
        await stage.clock.advance(300)
        assert not receiving.done()
        stage.network.rejoin("b1")
        with pytest.raises(ConnectionError):
            await receiving

    perform(story)


def test_a_paused_host_hears_what_came_meanwhile_when_it_resumes() -> None:
    async def story(stage: Stage) -> None:
        paused = PausableClock(stage.clock)
        stage.network.host("b3", clock=paused)
        await stage.listen("b3")
        channel = await stage.connect("b3")
        paused.pause()
        await channel.send(framed(b"?"))
        await stage.clock.advance(20)
        assert stage.accepted["b3"][0].frames == []
        paused.resume()
        assert await channel.receive() == b"?"

    perform(story)


# Stricter than sockets


def test_a_frame_is_overwritten_once_it_was_answered() -> None:
    async def story(stage: Stage) -> None:
        channel = await stage.connect()
        await stage.ask(channel, b"secret")
        assert stage.accepted["b1"][0].views[0] == b"\xdd" * 6

    perform(story)


def test_an_answer_without_a_request_is_a_bug() -> None:
    async def story(stage: Stage) -> None:
        await stage.connect()
        connection = stage.accepted["b1"][0].connection
        with pytest.raises(InvariantViolation):
            connection.send(framed(b"?"))
        with pytest.raises(InvariantViolation):
            connection.skip_answer()

    perform(story)


def test_what_is_under_way_is_bounded_in_both_directions() -> None:
    async def story(stage: Stage) -> None:
        stage.at_once = False
        channel = await stage.connect()
        await channel.send(framed(b"x" * 100_000))
        await wait_until_idle()
        assert len(stage.accepted["b1"][0].frames) == 1
        flood = asyncio.ensure_future(channel.send(framed(b"y" * 300_000)))
        await wait_until_idle()
        assert not flood.done()
        stage.accepted["b1"][0].connection.skip_answer()
        await flood
        await wait_until_idle()
        assert len(stage.accepted["b1"][0].frames) == 2

    perform(story)


def test_nothing_is_remembered_of_connections_that_are_over() -> None:
    async def story(stage: Stage) -> None:
        for _ in range(5):
            channel = await stage.connect()
            await stage.ask(channel)
            await channel.close()
        with pytest.raises(ConnectionRefusedError):
            await stage.network.host("c").connect("b1", 1, timeout=1)
        await wait_until_idle()
        assert stage.network.open_connections == 0

    perform(story)
