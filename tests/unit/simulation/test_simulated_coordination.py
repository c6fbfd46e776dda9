"""The simulated coordination service beyond its contract: time, links, losses, leases."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import pytest

from moldau.coordination.port import BadVersionError, SessionExpiredError, StoreLostError
from moldau.simulation.coordination_service import (
    CoordinationService,
    SimulatedSession,
    open_session,
)
from moldau.simulation.memory_network import MemoryNetwork
from moldau.simulation.virtual_loop import ProcessClock, SimulatedProcess, VirtualLoop

TIMEOUT = 6.0


class Stage:
    """A service and its clients on virtual time, a millisecond apart."""

    def __init__(self, loop: VirtualLoop, cleanup: AsyncExitStack) -> None:
        self.loop = loop
        self._cleanup = cleanup
        self.clock = ProcessClock(loop, SimulatedProcess("all", loop), start_ms=0)
        self.network = MemoryNetwork(self.clock)
        self.service = CoordinationService(self.network, self.clock)

    async def connect(self, host: str, clock: ProcessClock | None = None) -> SimulatedSession:
        self.network.set_delay(host, self.service.host, 0.001)
        session = open_session(
            self.service, host=host, clock=clock or self.clock, timeout_seconds=TIMEOUT
        )
        return await self._cleanup.enter_async_context(session)

    def cut(self, host: str) -> None:
        self.network.cut(host, self.service.host)

    def heal(self, host: str) -> None:
        self.network.heal(host, self.service.host)


Story = Callable[[Stage], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    loop = VirtualLoop()

    @asynccontextmanager
    async def staged() -> AsyncIterator[Stage]:
        async with AsyncExitStack() as cleanup:
            yield Stage(loop, cleanup)

    async def run() -> None:
        async with staged() as stage:
            await story(stage)

    try:
        loop.run(run())
    finally:
        loop.close()


def test_a_client_that_is_cut_off_loses_its_session_after_the_time_out_and_not_before() -> None:
    async def story(stage: Stage) -> None:
        one, other = await stage.connect("one"), await stage.connect("other")
        await one.create("/a", ephemeral=True)
        stage.cut("one")
        await asyncio.sleep(TIMEOUT * 0.8)
        assert await other.get("/a") is not None
        await asyncio.sleep(TIMEOUT * 0.25)
        assert await other.get("/a") is None

    play(story)


def test_it_hears_of_the_end_when_it_reaches_the_service_again_and_can_be_renewed() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect("one")
        ends: list[float] = []
        session.on_session_end(lambda: ends.append(stage.loop.time()))
        former = session.session_id
        stage.cut("one")
        await asyncio.sleep(2 * TIMEOUT)
        assert not ends
        stage.heal("one")
        await asyncio.sleep(TIMEOUT)
        assert len(ends) == 1
        with pytest.raises(SessionExpiredError):
            await session.get("/")
        await session.renew()
        assert session.session_id != former
        assert await session.get("/") is not None

    play(story)


def test_the_lease_ends_before_the_service_ends_the_session() -> None:
    async def story(stage: Stage) -> None:
        slow = ProcessClock(stage.loop, SimulatedProcess("slow", stage.loop), start_ms=0, rate=0.9)
        session = await stage.connect("one", slow)
        await asyncio.sleep(20)
        stage.cut("one")
        while slow.monotonic() < session.lease_end:
            assert stage.service.records_of("one")[0].ended == float("inf")
            await asyncio.sleep(0.01)
        assert stage.service.records_of("one")[0].ended == float("inf")
        await asyncio.sleep(TIMEOUT)
        assert stage.service.records_of("one")[0].ended < float("inf")

    play(story)


def test_the_lease_goes_on_while_the_service_answers() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect("one")
        for _ in range(100):
            await asyncio.sleep(0.37)
            assert session.lease_end > stage.clock.monotonic() + TIMEOUT * 0.4

    play(story)


def test_a_short_cut_costs_nothing_but_time() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect("one")
        stage.cut("one")
        asking = asyncio.ensure_future(session.create("/a"))
        await asyncio.sleep(TIMEOUT / 4)
        assert not asking.done()
        stage.heal("one")
        assert await asking == "/a"

    play(story)


def test_reading_no_nodes_asks_nothing() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect("one")
        stage.cut("one")
        before = stage.loop.time()
        assert not await session.get_many(())
        assert stage.loop.time() == before
        session.expire()
        with pytest.raises(SessionExpiredError):
            await session.get_many(())

    play(story)


def test_a_write_whose_answer_is_lost_has_happened_and_the_caller_cannot_know() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect("one")
        await session.create("/a")
        stage.network.cut(stage.service.host, "one", one_way=True)
        with pytest.raises(StoreLostError):
            await session.set("/a", b"1", version=0)
        stage.network.heal(stage.service.host, "one")
        with pytest.raises(BadVersionError):
            await session.set("/a", b"1", version=0)
        node = await session.get("/a")
        assert node is not None
        assert node.data == b"1"

    play(story)


def test_a_dropped_connection_loses_what_is_under_way_and_the_session_goes_on() -> None:
    async def story(stage: Stage) -> None:
        session, other = await stage.connect("one"), await stage.connect("other")
        writing = asyncio.ensure_future(session.create("/a", ephemeral=True))
        await asyncio.sleep(0)
        stage.service.drop("one")
        with pytest.raises(StoreLostError):
            await writing
        assert await other.get("/a") is None
        former = session.session_id
        assert await session.create("/a", ephemeral=True) == "/a"
        assert session.session_id == former

    play(story)


def test_a_change_that_was_missed_while_disconnected_is_told_on_coming_back() -> None:
    async def story(stage: Stage) -> None:
        session, other = await stage.connect("one"), await stage.connect("other")
        await other.create("/a")
        await other.create("/b")
        told: list[str] = []
        session.watch_data("/a", lambda: told.append("a"))
        session.watch_data("/b", lambda: told.append("b"))
        await session.get("/")
        stage.cut("one")
        await other.set("/a", b"1")
        await asyncio.sleep(TIMEOUT * 0.75)  # long enough to give the connection up
        stage.heal("one")
        await session.get("/")
        await asyncio.sleep(0.1)
        assert "a" in told
        assert "b" not in told

    play(story)


def test_a_request_of_a_former_connection_is_not_done_after_the_client_came_back() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect("one")
        await session.create("/a")
        stage.network.cut("one", stage.service.host, one_way=True)
        with pytest.raises(StoreLostError):
            await session.set("/a", b"late", version=0)
        stage.heal("one")
        await session.get("/")  # over the next connection
        node = await session.get("/a")
        await asyncio.sleep(TIMEOUT)
        assert await session.get("/a") == node

    play(story)


def test_what_one_session_asks_for_is_done_in_order() -> None:
    async def story(stage: Stage) -> None:
        session = await stage.connect("one")
        stage.network.set_delay("one", stage.service.host, 0.001, jitter_seconds=0.05)
        await session.create("/a")
        writes = [session.set("/a", b"%d" % number, version=number) for number in range(20)]
        assert await asyncio.gather(*writes) == list(range(1, 21))

    play(story)


def test_an_ensemble_that_lags_gives_old_answers_and_never_older_ones() -> None:
    async def story(stage: Stage) -> None:
        lags = iter([0.0, 0.5, 0.5] * 100)  # the first server hears of everything at once
        stage.service = CoordinationService(stage.network, stage.clock, draw_lag=lambda: next(lags))
        quick, slow = await stage.connect("quick"), await stage.connect("slow")
        told: list[float] = []
        slow.watch_data("/a", lambda: told.append(stage.loop.time()))
        await slow.get("/")
        began = stage.loop.time()
        await quick.create("/a", b"1")
        assert stage.loop.time() - began < 0.1
        assert await quick.get("/a") is not None
        assert await slow.get("/a") is None
        assert not told
        await asyncio.sleep(0.6)
        assert await slow.get("/a") is not None
        assert len(told) == 1

    play(story)


def test_a_session_of_a_server_that_lags_reads_what_it_has_written() -> None:
    async def story(stage: Stage) -> None:
        lags = iter([0.0, 0.5, 0.5] * 100)
        stage.service = CoordinationService(stage.network, stage.clock, draw_lag=lambda: next(lags))
        quick, slow = await stage.connect("quick"), await stage.connect("slow")
        writing, reading = slow.create("/a", b"1"), slow.get("/a")
        path, node = await asyncio.gather(writing, reading)
        assert path == "/a"
        assert node is not None
        with pytest.raises(BadVersionError):
            await quick.set("/a", b"2", version=7)

    play(story)


def ensemble(stage: Stage, lag: Callable[[], float] = lambda: 0.001) -> CoordinationService:
    stage.service = CoordinationService(stage.network, stage.clock, draw_lag=lag)
    return stage.service


def test_a_server_that_is_cut_off_reads_what_it_knows_and_writes_nothing() -> None:
    async def story(stage: Stage) -> None:
        service = ensemble(stage)
        one, other = await stage.connect("one"), await stage.connect("other")
        assert service.hosts_at(0) == {"one"}
        await other.create("/a", b"1")
        await asyncio.sleep(0.1)
        service.cut_off(0)
        assert not service.can_tell("one")
        assert await other.set("/a", b"2", version=0) == 1
        old = await one.get("/a")
        assert old is not None
        assert old.data == b"1"
        writing = asyncio.ensure_future(one.set("/a", b"3", version=1))
        await asyncio.sleep(TIMEOUT / 10)
        assert not writing.done()
        service.rejoin(0)
        assert await writing == 2

    play(story)


def test_the_sessions_of_a_server_that_is_cut_off_time_out_and_hear_of_it_later() -> None:
    async def story(stage: Stage) -> None:
        service = ensemble(stage)
        one, other = await stage.connect("one"), await stage.connect("other")
        await one.create("/a", ephemeral=True)
        for number in range(service.server_count):
            if "other" not in service.hosts_at(number):
                service.cut_off(number)
        await asyncio.sleep(TIMEOUT * 0.8)
        assert one.lease_end < stage.clock.monotonic()
        assert await other.get("/a") is not None
        await asyncio.sleep(TIMEOUT * 0.3)
        assert await other.get("/a") is None
        service.heal()
        with pytest.raises(SessionExpiredError):
            await one.get("/a")

    play(story)


def test_the_sessions_of_a_server_that_gives_up_go_elsewhere_and_miss_nothing() -> None:
    async def story(stage: Stage) -> None:
        service = ensemble(stage)
        one, other = await stage.connect("one"), await stage.connect("other")
        told: list[float] = []
        await other.create("/a")
        one.watch_data("/a", lambda: told.append(stage.loop.time()))
        await one.get("/")
        service.cut_off(0)
        await other.set("/a", b"1")
        await asyncio.sleep(0.1)
        assert not told
        writing = asyncio.ensure_future(one.create("/b"))
        await asyncio.sleep(0.1)
        service.close_connections(0)
        with pytest.raises(StoreLostError):
            await writing
        node = await one.get("/a")
        assert node is not None
        assert node.data == b"1"
        assert told
        assert await one.get("/b") is None
        assert service.hosts_at(0) == frozenset()

    play(story)


@pytest.mark.parametrize(("share", "done"), [(0.0, 0), (0.5, 2), (0.99, 4)])
def test_of_the_writes_under_way_when_the_leader_changes_the_first_ones_are_done(
    share: float, done: int
) -> None:
    async def story(stage: Stage) -> None:
        service = ensemble(stage)
        one, other = await stage.connect("one"), await stage.connect("other")
        stage.network.set_delay("one", service.host, 1.0)
        await asyncio.sleep(TIMEOUT / 6 - 0.1)
        writes = [asyncio.ensure_future(one.create(f"/{number}")) for number in range(4)]
        await asyncio.sleep(0.01)
        service.begin_election(share)
        results = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(result, StoreLostError) for result in results)
        service.end_election()
        await asyncio.sleep(TIMEOUT / 3)
        assert list(await other.children("/")) == [str(number) for number in range(done)]

    play(story)


def test_sessions_outlast_an_election_however_long_it_takes_and_leases_do_not() -> None:
    async def story(stage: Stage) -> None:
        service = ensemble(stage)
        one = await stage.connect("one")
        await one.create("/a", ephemeral=True)
        service.begin_election(0.0)
        await asyncio.sleep(3 * TIMEOUT)
        assert one.lease_end < stage.clock.monotonic()
        former = one.session_id
        service.end_election()
        await asyncio.sleep(TIMEOUT / 3)
        assert await one.get("/a") is not None
        assert one.session_id == former
        assert one.lease_end > stage.clock.monotonic()

    play(story)


@pytest.mark.parametrize("seed", range(20))
def test_no_session_reads_older_than_before_whatever_becomes_of_the_servers(seed: int) -> None:
    async def story(stage: Stage) -> None:
        random = Random(seed)
        service = ensemble(stage, lambda: random.choice((0.001, 0.5)))
        writer, reader = await stage.connect("writer"), await stage.connect("reader")
        await writer.create("/a")
        last, written = -1, 0
        for _ in range(60):
            number = random.randrange(service.server_count)
            accident = random.choice(
                (
                    lambda: None,
                    lambda number=number: service.cut_off(number),
                    lambda number=number: service.close_connections(number),
                    lambda number=number: service.rejoin(number),
                    lambda: service.begin_election(random.random()),
                    service.end_election,
                    lambda: service.drop("reader"),
                )
            )
            accident()
            with contextlib.suppress(StoreLostError, TimeoutError):
                written = await asyncio.wait_for(writer.set("/a", b""), 0.2)
            with contextlib.suppress(StoreLostError, TimeoutError):
                node = await asyncio.wait_for(reader.get("/a"), 0.2)
                assert node is not None or last < 0
                version = -1 if node is None else node.version
                assert version >= last
                last = version
            if random.random() < 0.3:
                service.heal()
        service.heal()
        await asyncio.sleep(TIMEOUT)
        node = await reader.get("/a")
        assert node is not None
        assert node.version >= written > 0

    play(story)


def test_a_service_that_cannot_be_reached_fails_the_opening() -> None:
    async def story(stage: Stage) -> None:
        stage.network.isolate(stage.service.host)
        with pytest.raises(StoreLostError):
            await stage.connect("one")

    play(story)
