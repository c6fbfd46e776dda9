"""The shell around the machine: what is answered when, and that nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest
from streams_group_world import image_of

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.assignors import TASKS_AT_ONCE
from moldau.coordinators.groups.rules.events import (
    CommitOffsets,
    GroupAnswer,
    GroupProtocol,
    Heartbeat,
    Join,
    JoinAnswer,
    PartitionsAnswer,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    Sync,
    SyncAnswer,
)
from moldau.coordinators.groups.rules.groups import Groups
from moldau.coordinators.groups.rules.outcome import GroupLimits
from moldau.coordinators.groups.rules.records import (
    CommittedOffset,
    CoordinatorRecord,
    OffsetRecord,
)
from moldau.coordinators.groups.rules.streams_topology import Subtopology, Tasks, Topology
from moldau.coordinators.groups.shard import GroupShard
from moldau.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderError,
)
from moldau.simulation.manual_clock import ManualClock, wait_until_idle

COMMIT_TIMEOUT_MS = 5_000


class FakeLog:
    """A log whose replicas follow when the test says so."""

    def __init__(self, records: Sequence[CoordinatorRecord] = (), *, follows: bool = True) -> None:
        self.records = list(records)
        self.follows = follows
        self.committed_offset = len(self.records)
        self.is_safe = True
        self.on_commit: Callable[[], None] | None = None
        self.failure: KafkaError | None = None
        self.written_before_failing = 0  # of the records of one append

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append(self, records: Sequence[CoordinatorRecord], transaction: object = None) -> None:
        if self.failure is not None:
            self.records += records[: self.written_before_failing]
            raise self.failure
        self.records += records
        if self.follows:
            self.catch_up()

    def catch_up(self) -> None:
        self.committed_offset = len(self.records)
        if self.on_commit is not None:
            self.on_commit()

    def watch(self, on_commit: Callable[[], None]) -> None:
        self.on_commit = on_commit

    def close(self) -> None:
        self.on_commit = None

    async def load(self) -> AsyncGenerator[list[CoordinatorRecord], None]:
        for record in tuple(self.records):
            yield [record]


class Bench:
    """A shard with its log and clock."""

    def __init__(self, log: FakeLog | None = None) -> None:
        self.clock = ManualClock()
        self.log = log or FakeLog()
        self.shard = GroupShard(
            "__consumer_offsets-7",
            self.log,
            limits=GroupLimits(),
            clock=self.clock,
            image=lambda: MetadataImage(cluster_id="c"),
            commit_timeout_ms=lambda: COMMIT_TIMEOUT_MS,
        )

    def join(self, member_id: str, known: str = "", session_ms: int = 10_000) -> Join:
        return Join(
            group_id="g",
            member_id=known,
            instance_id=None,
            new_member_id=member_id,
            client_id="",
            client_host="",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(GroupProtocol("range", b""),),
            needs_member_id=False,
            can_skip_assignment=False,
        )

    async def stable(self, member_id: str = "a") -> None:
        """A group with one member at work."""
        await now(self.shard.submit(self.join(member_id)))
        sync = Sync(
            group_id="g", generation=1, member_id=member_id, assignments=((member_id, b"all"),)
        )
        await now(self.shard.submit(sync))


def heartbeat(member_id: str = "a", generation: int = 1) -> Heartbeat:
    return Heartbeat(group_id="g", generation=generation, member_id=member_id)


def commit(offset: int = 5) -> CommitOffsets:
    return CommitOffsets(
        group_id="h",
        generation=-1,
        member_id="",
        instance_id=None,
        offsets=(("t", 0, CommittedOffset(offset, -1, "", 0)),),
        knows_epochs=True,
    )


async def now(answer: GroupAnswer | Awaitable[GroupAnswer]) -> GroupAnswer:
    """An answer that has to be there."""
    if isinstance(answer, Awaitable):
        async with asyncio.timeout(1):
            return await answer
    return answer


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def test_what_needs_no_waiting_is_answered_at_once() -> None:
    async def story() -> None:
        bench = Bench()
        bench.shard.become_active()
        answer = bench.shard.submit(bench.join("a"))
        assert isinstance(answer, JoinAnswer)
        assert answer.generation == 1
        assert bench.shard.submit(commit()) == PartitionsAnswer(errors=(ErrorCode.none,))

    run(story())


def test_a_commit_is_answered_when_the_replicas_have_it() -> None:
    async def story() -> None:
        bench = Bench(FakeLog(follows=False))
        bench.shard.become_active()
        answer = bench.shard.submit(commit())
        assert isinstance(answer, asyncio.Future)
        await wait_until_idle()
        assert not answer.done()
        bench.log.catch_up()
        assert await now(answer) == PartitionsAnswer(errors=(ErrorCode.none,))

    run(story())


def test_a_commit_that_too_few_replicas_have_is_no_success() -> None:
    async def story() -> None:
        bench = Bench(FakeLog(follows=False))
        bench.shard.become_active()
        answer = bench.shard.submit(commit())
        asked = bench.shard.read_state(len)
        bench.log.is_safe = False  # the others have left the in-sync set meanwhile
        bench.log.catch_up()
        assert (await now(answer)).error is ErrorCode.coordinator_not_available
        assert isinstance(asked, asyncio.Future)
        assert await asked == 1

    run(story())


def test_nothing_overtakes_what_is_not_committed_yet() -> None:
    """Otherwise a reader could see a position that is lost with the leader."""

    async def story() -> None:
        bench = Bench()
        bench.shard.become_active()
        await bench.stable()
        bench.log.follows = False
        committed = bench.shard.submit(commit())
        beat = bench.shard.submit(heartbeat())
        asked = bench.shard.read_state(lambda groups: len(groups))
        await wait_until_idle()
        for one in (committed, beat, asked):
            assert isinstance(one, asyncio.Future)
            assert not one.done()
        bench.log.catch_up()
        assert (await now(beat)).error is ErrorCode.none
        assert isinstance(asked, asyncio.Future)
        assert await asked == 2

    run(story())


def test_a_client_is_told_to_ask_again_when_the_replicas_do_not_follow() -> None:
    async def story() -> None:
        bench = Bench(FakeLog(follows=False))
        bench.shard.become_active()
        first = bench.shard.submit(commit())
        await bench.clock.advance(3)
        second = bench.shard.submit(commit())
        asked = bench.shard.read_state(len)
        await bench.clock.advance(2)
        assert (await now(first)).error is ErrorCode.coordinator_not_available
        assert isinstance(second, asyncio.Future)
        assert not second.done()
        await bench.clock.advance(3)
        assert (await now(second)).error is ErrorCode.coordinator_not_available
        assert isinstance(asked, asyncio.Future)
        with pytest.raises(CoordinatorNotAvailableError):
            await asked
        assert not bench.clock.pending_timers

    run(story())


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NotLeaderError("x"), ErrorCode.not_coordinator),
        (NotEnoughReplicasError("x"), ErrorCode.coordinator_not_available),
    ],
)
def test_what_cannot_be_written_has_not_happened(failure: KafkaError, code: ErrorCode) -> None:
    async def story() -> None:
        bench = Bench()
        bench.shard.become_active()
        bench.log.failure = failure
        assert bench.shard.submit(commit()) == PartitionsAnswer(error=code)
        bench.log.failure = None
        assert bench.shard.read_state(lambda groups: groups.find("h")) is None

    run(story())


def test_an_assignment_that_cannot_be_written_sends_everyone_back() -> None:
    async def story() -> None:
        bench = Bench()
        bench.shard.become_active()
        bench.shard.submit(bench.join("a"))
        bench.log.failure = NotEnoughReplicasError("x")
        answer = bench.shard.submit(Sync(group_id="g", generation=1, member_id="a"))
        assert answer == SyncAnswer(error=ErrorCode.coordinator_not_available)
        beat = await now(bench.shard.submit(heartbeat()))
        assert beat.error is ErrorCode.rebalance_in_progress

    run(story())


def test_timers_fire_and_leave_nothing_behind() -> None:
    async def story() -> None:
        bench = Bench()
        bench.shard.become_active()
        await bench.stable()
        for _ in range(5):
            await bench.clock.advance(9)
            assert (await now(bench.shard.submit(heartbeat()))).error is ErrorCode.none
        assert bench.shard.timer_count == bench.clock.pending_timers == 1
        await bench.clock.advance(10)
        answer = await now(bench.shard.submit(heartbeat()))
        assert answer.error is ErrorCode.unknown_member_id
        assert bench.shard.timer_count == bench.clock.pending_timers == 0

    run(story())


def test_a_client_that_goes_away_while_it_waits_has_its_session_to_come_back() -> None:
    async def story() -> None:
        bench = Bench()
        bench.shard.become_active()
        await bench.stable()
        parked = bench.shard.submit(bench.join("b"))
        assert isinstance(parked, asyncio.Future)

        async def client() -> None:
            await parked

        task = asyncio.ensure_future(client())
        await wait_until_idle()
        assert bench.shard.waiting_count == 1
        await bench.clock.advance(8)  # longer ago than its session would last
        await now(bench.shard.submit(heartbeat()))
        await bench.clock.advance(8)
        await now(bench.shard.submit(heartbeat()))
        task.cancel()
        await wait_until_idle()
        assert bench.shard.waiting_count == 0
        assert bench.shard.read_state(members_of) == ["a", "b"]
        await bench.clock.advance(9)
        await now(bench.shard.submit(heartbeat()))
        assert bench.shard.read_state(members_of) == ["a", "b"]
        await bench.clock.advance(1)
        assert bench.shard.read_state(members_of) == ["a"]

    run(story())


def members_of(groups: Groups) -> list[str]:
    group = groups.find("g")
    return [] if group is None else [member.member_id for member in group.members]


def streams_shard(bench: Bench) -> GroupShard:
    """One whose streams groups have more tasks than are assigned at once."""
    limits = GroupLimits(streams_initial_rebalance_delay_ms=0, streams_assignment_interval_ms=0)
    return GroupShard(
        "__consumer_offsets-7",
        bench.log,
        limits=limits,
        clock=bench.clock,
        image=lambda: image_of({"words": 3 * TASKS_AT_ONCE}),
        commit_timeout_ms=lambda: COMMIT_TIMEOUT_MS,
    )


JOINING_STREAMS = StreamsHeartbeat(
    group_id="s",
    member_id="a",
    epoch=0,
    rebalance_timeout_ms=60_000,
    topology=Topology(1, (Subtopology("0", source_topics=("words",)),)),
    active={},
    standby={},
    warmup={},
)


def test_others_have_the_loop_while_many_tasks_are_assigned() -> None:
    async def story() -> None:
        bench = Bench()
        shard = streams_shard(bench)
        shard.become_active()
        joined = await now(shard.submit(JOINING_STREAMS))
        assert isinstance(joined, StreamsHeartbeatAnswer)
        assert joined.tasks == Tasks()
        beat = StreamsHeartbeat(group_id="s", member_id="a", epoch=joined.epoch)
        turns = 0
        while (answer := await now(shard.submit(beat))).epoch == joined.epoch:  # type: ignore[union-attr]
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 3
        assert isinstance(answer, StreamsHeartbeatAnswer)
        assert answer.tasks == Tasks({"0": frozenset(range(3 * TASKS_AT_ONCE))})

    run(story())


def test_a_shard_that_is_closed_assigns_nothing_any_more() -> None:
    async def story() -> None:
        bench = Bench()
        shard = streams_shard(bench)
        shard.become_active()
        await now(shard.submit(JOINING_STREAMS))
        await asyncio.sleep(0)
        written = len(bench.log.records)
        shard.close()
        await wait_until_idle()
        assert len(bench.log.records) == written

    run(story())


def test_everyone_is_sent_away_when_another_broker_leads() -> None:
    async def story() -> None:
        bench = Bench()
        bench.shard.become_active()
        await bench.stable()
        parked = bench.shard.submit(bench.join("b"))
        bench.log.follows = False
        held = bench.shard.submit(commit())
        asked = bench.shard.read_state(len)
        bench.shard.close()
        for one in (parked, held, asked):
            assert isinstance(one, asyncio.Future)
            with pytest.raises((NotCoordinatorError, CoordinatorNotAvailableError)):
                await one
        with pytest.raises(NotCoordinatorError):
            bench.shard.submit(heartbeat())
        with pytest.raises(NotCoordinatorError):
            bench.shard.read_state(len)
        assert not bench.clock.pending_timers
        assert bench.log.on_commit is None

    run(story())


def a_position(number: int) -> OffsetRecord:
    return OffsetRecord(f"group-{number}", "t", 0, CommittedOffset(number, -1, "", 0))


def test_requests_wait_for_the_log_to_be_loaded() -> None:
    async def story() -> None:
        bench = Bench(FakeLog([a_position(number) for number in range(2_000)]))
        with pytest.raises(CoordinatorLoadInProgressError):
            bench.shard.submit(commit())
        with pytest.raises(CoordinatorLoadInProgressError):
            bench.shard.read_state(len)
        loading = asyncio.ensure_future(bench.shard.load())
        await asyncio.sleep(0)
        assert not loading.done(), "the loop had no turn while the log was applied"
        await loading
        assert bench.shard.read_state(len) == 2_000
        assert len(bench.shard.group_ids) == 2_000

    run(story())


def test_a_shard_that_is_closed_while_it_loads_stays_closed() -> None:
    async def story() -> None:
        bench = Bench(FakeLog([a_position(number) for number in range(2_000)]))
        loading = asyncio.ensure_future(bench.shard.load())
        await asyncio.sleep(0)
        bench.shard.close()
        await loading
        with pytest.raises(NotCoordinatorError):
            bench.shard.submit(commit())

    run(story())


def test_members_that_were_loaded_are_awaited() -> None:
    async def story() -> None:
        first = Bench()
        first.shard.become_active()
        await first.stable()
        second = Bench(FakeLog(first.log.records))
        await second.shard.load()
        assert (await now(second.shard.submit(heartbeat()))).error is ErrorCode.none
        await second.clock.advance(10)
        assert second.shard.read_state(members_of) == []

    run(story())


def test_a_shard_that_was_written_in_part_is_closed_since_only_its_log_can_tell() -> None:
    async def story() -> None:
        bench = Bench()
        torn: list[bool] = []
        bench.shard.on_torn = lambda: torn.append(True)
        await bench.shard.load()
        await bench.stable()
        bench.log.failure = NotLeaderError("the disk is full")
        bench.log.written_before_failing = 1
        answer = bench.shard.submit(commit())
        assert answer == PartitionsAnswer(error=ErrorCode.not_coordinator)
        assert torn == [True]
        with pytest.raises(NotCoordinatorError):
            bench.shard.submit(heartbeat())

    run(story())


def test_a_shard_of_which_nothing_was_written_goes_on() -> None:
    async def story() -> None:
        bench = Bench()
        torn: list[bool] = []
        bench.shard.on_torn = lambda: torn.append(True)
        await bench.shard.load()
        await bench.stable()
        bench.log.failure = NotLeaderError("the disk is full")
        bench.shard.submit(commit())
        bench.log.failure = None
        assert bench.shard.submit(commit()) == PartitionsAnswer(errors=(ErrorCode.none,))
        assert not torn

    run(story())
