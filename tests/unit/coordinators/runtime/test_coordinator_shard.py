"""What every coordinator's shard does, tried with a machine that only counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import pytest

from moldau.coordinators.runtime.log import AppendTransaction
from moldau.coordinators.runtime.shard import CoordinatorShard, wait_for_answer
from moldau.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    InvalidProducerEpochError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderError,
    StorageError,
)
from moldau.records.record_batch import EndTransactionMarker
from moldau.simulation.manual_clock import ManualClock


class Numbers:
    """The machine: a list of all that was applied."""

    def __init__(self) -> None:
        self.applied: list[int] = []

    def apply(self, record: int) -> None:
        self.applied.append(record)

    def __len__(self) -> int:
        return len(self.applied)


class Log:
    """Follows at once, unless a test holds it. A `ShardLog`."""

    def __init__(self, *records: int) -> None:
        self.records = list(records)
        self.committed_offset = len(records)
        self.is_safe = True
        self.is_held = False
        self.failure: KafkaError | None = None
        self.written_before_failing = 0
        self.on_commit: Callable[[], None] | None = None
        self.before_piece: Callable[[int], None] = lambda record: None

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def watch(self, on_commit: Callable[[], None]) -> None:
        self.on_commit = on_commit

    def close(self) -> None:
        self.on_commit = None

    def append(self, records: Sequence[int], transaction: AppendTransaction | None = None) -> None:
        if self.failure is not None:
            self.records += records[: self.written_before_failing]
            raise self.failure
        self.records += records
        if not self.is_held:
            self.catch_up()

    def append_marker(
        self,
        marker: EndTransactionMarker,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> None:
        self.append([])

    def catch_up(self) -> None:
        self.committed_offset = len(self.records)
        if self.on_commit is not None:
            self.on_commit()

    async def load(self) -> AsyncGenerator[list[int], None]:
        for record in tuple(self.records):
            self.before_piece(record)
            yield [record]


class Shard(CoordinatorShard[Numbers, int, int]):
    """The smallest there can be."""

    def __init__(self, log: Log) -> None:
        self.clock = ManualClock()
        self.begun = 0
        super().__init__(
            "shard-0", log, Numbers(), clock=self.clock, commit_timeout_ms=lambda: 5_000
        )

    def _make_machine(self) -> Numbers:
        return Numbers()

    def _on_loaded(self) -> None:
        self.begun += 1

    def report(self, event: object) -> None:
        raise AssertionError(event)

    def write(self, *records: int) -> ErrorCode | None:
        error = self._append(records)
        if error is None:
            for record in records:
                self._machine.apply(record)
        return error

    def fault(self) -> ErrorCode | None:
        return self._find_fault(None)


def numbers(machine: Numbers) -> list[int]:
    return list(machine.applied)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def play() -> None:
        await story()

    asyncio.run(play())


def test_a_shard_knows_what_its_log_holds_and_nothing_before_it_is_loaded() -> None:
    async def story() -> None:
        shard = Shard(Log(1, 2, 3))
        with pytest.raises(CoordinatorLoadInProgressError):
            shard.read_state(numbers)
        await shard.load()
        assert (shard.read_state(numbers), len(shard), shard.begun) == ([1, 2, 3], 3, 1)

    run(story)


def test_a_load_that_failed_begins_with_nothing_again() -> None:
    async def story() -> None:
        log = Log(1, 2)
        shard = Shard(log)

        def fail(record: int) -> None:
            if record == 2:
                raise StorageError("unreadable")

        log.before_piece = fail
        with pytest.raises(StorageError):
            await shard.load()
        log.before_piece = lambda record: None
        await shard.load()
        assert (shard.read_state(numbers), shard.begun) == ([1, 2], 1)

    run(story)


def test_a_shard_that_is_closed_while_it_is_loaded_does_not_begin() -> None:
    async def story() -> None:
        log = Log(1, 2)
        shard = Shard(log)
        log.before_piece = lambda record: shard.close()
        await shard.load()
        assert shard.begun == 0
        with pytest.raises(NotCoordinatorError):
            shard.read_state(numbers)

    run(story)


def test_an_answer_speaks_of_nothing_that_could_be_lost() -> None:
    async def story() -> None:
        log = Log()
        shard = Shard(log)
        shard.become_active()
        log.is_held = True
        assert shard.write(1) is None
        asked = shard.read_state(numbers)
        assert isinstance(asked, asyncio.Future)
        assert not asked.done()
        log.catch_up()
        assert await wait_for_answer(asked) == [1]
        assert shard.read_state(numbers) == [1]  # at once: all is committed

    run(story)


def test_who_waits_too_long_is_told_to_come_again() -> None:
    async def story() -> None:
        log = Log()
        shard = Shard(log)
        shard.become_active()
        log.is_held = True
        shard.write(1)
        asked = shard.read_state(numbers)
        await shard.clock.advance(5)
        with pytest.raises(CoordinatorNotAvailableError):
            await wait_for_answer(asked)

    run(story)


def test_the_end_sends_away_who_waits() -> None:
    async def story() -> None:
        log = Log()
        shard = Shard(log)
        shard.become_active()
        log.is_held = True
        shard.write(1)
        asked = shard.read_state(numbers)
        shard.close()
        with pytest.raises(NotCoordinatorError):
            await wait_for_answer(asked)
        assert log.on_commit is None
        assert shard.clock.pending_timers == 0

    run(story)


def test_what_too_few_replicas_have_is_no_success() -> None:
    async def story() -> None:
        log = Log()
        shard = Shard(log)
        assert shard.fault() is None
        log.is_safe = False
        assert shard.fault() is ErrorCode.coordinator_not_available

    run(story)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (NotLeaderError("x"), ErrorCode.not_coordinator),
        (StorageError("x"), ErrorCode.not_coordinator),
        (NotEnoughReplicasError("x"), ErrorCode.coordinator_not_available),
        (InvalidProducerEpochError("x"), ErrorCode.invalid_producer_epoch),
    ],
)
def test_what_cannot_be_written_is_said_in_the_words_for_coordinators(
    failure: KafkaError, told: ErrorCode
) -> None:
    async def story() -> None:
        log = Log()
        shard = Shard(log)
        shard.become_active()
        log.failure = failure
        assert shard.write(1) is told
        log.failure = None
        assert shard.write(2) is None
        assert shard.read_state(numbers) == [2]

    run(story)


def test_a_refusal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        log = Log()
        shard = Shard(log)
        shard.become_active()
        log.failure = NotEnoughReplicasError("too few")
        for _ in range(3):
            shard.write(1)
        assert len(caplog.records) == 1
        log.failure = None
        shard.write(1)
        log.failure = NotEnoughReplicasError("too few")
        shard.write(1)
        assert len(caplog.records) == 2

    run(story)


def test_a_shard_that_was_written_in_part_is_closed_and_to_be_loaded_again() -> None:
    async def story() -> None:
        log = Log()
        shard = Shard(log)
        shard.become_active()
        torn: list[int] = []
        shard.on_torn = lambda: torn.append(log.end_offset)
        log.failure, log.written_before_failing = StorageError("the disk is full"), 1
        assert shard.write(1, 2) is ErrorCode.not_coordinator
        assert torn == [1]
        with pytest.raises(NotCoordinatorError):
            shard.read_state(numbers)

    run(story)
