"""One transactional id, step by step."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from moldau.coordinators.transactions.rules.transaction_metadata import (
    MAX_EPOCH,
    MOVES,
    NO_TIMEOUT_MS,
    IdAndEpoch,
    TransactionMetadata,
    TransactionState,
    begin_id,
    check_move,
    complete,
    print_table,
)
from moldau.coordinators.transactions.rules.transactions import (
    AbortTimedOut,
    AddPartitions,
    EndTransaction,
    ExpireId,
    InitProducer,
    MarkersWritten,
    TransactionAnswer,
    TransactionEvent,
    TransactionRecord,
    Transactions,
)
from moldau.errors import ErrorCode, InvariantViolation
from moldau.model import TopicPartition

ID = "orders"
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Stage:
    """A machine whose records are applied at once."""

    def __init__(self) -> None:
        self.machine = Transactions()
        self.now_ms = 1_000

    def do(self, event: TransactionEvent) -> TransactionAnswer | None:
        outcome = self.machine.handle(event, self.now_ms)
        for record in outcome.records:
            self.machine.apply(record, is_live=True)
        return outcome.answer

    def ask(self, event: TransactionEvent) -> TransactionAnswer:
        answer = self.do(event)
        assert answer is not None
        return answer

    @property
    def found(self) -> TransactionMetadata:
        found = self.machine.find(ID)
        assert found is not None
        return found

    def init(self, **values: object) -> TransactionAnswer:
        given: dict[str, object] = {"timeout_ms": 1000, "spare_id": 7, **values}
        return self.ask(InitProducer(transactional_id=ID, **given))  # type: ignore[arg-type]

    def add(self, *partitions: TopicPartition, version: int = 2) -> ErrorCode:
        event = AddPartitions(
            transactional_id=ID,
            producer=self.found.client,
            partitions=frozenset(partitions),
            version=version,
        )
        return self.ask(event).error

    def end(
        self, producer: IdAndEpoch, *, commit: bool = True, version: int = 2, spare: int = 8
    ) -> TransactionAnswer:
        event = EndTransaction(
            transactional_id=ID, producer=producer, commit=commit, version=version, spare_id=spare
        )
        return self.ask(event)

    def records_of(self, event: TransactionEvent) -> tuple[TransactionRecord, ...]:
        return self.machine.handle(event, self.now_ms).records

    def write_markers(self, *partitions: TopicPartition) -> None:
        producer = IdAndEpoch(self.found.producer_id, self.found.producer_epoch)
        self.do(
            MarkersWritten(transactional_id=ID, producer=producer, partitions=frozenset(partitions))
        )

    def at_epoch(self, epoch: int) -> IdAndEpoch:
        self.machine.apply(TransactionRecord(ID, replace(self.found, producer_epoch=epoch)))
        return self.found.client


def test_every_state_has_its_moves_and_the_others_are_refused() -> None:
    assert set(MOVES) == set(TransactionState)
    for former in TransactionState:
        for new in set(TransactionState) - MOVES[former]:
            with pytest.raises(InvariantViolation, match="TXN-1"):
                check_move(ID, former, new)
    assert "PrepareCommit      CompleteCommit" in print_table()


def test_a_transaction_is_complete_when_its_last_partition_has_its_marker() -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.add(FIRST, SECOND)
    stage.end(producer)
    stage.write_markers(FIRST)
    assert stage.found.state is TransactionState.PREPARE_COMMIT
    stage.write_markers(FIRST)  # it is told again
    assert stage.found.state is TransactionState.PREPARE_COMMIT
    stage.write_markers(SECOND)
    assert stage.found.state is TransactionState.COMPLETE_COMMIT
    assert not stage.found.partitions


def test_a_late_answer_about_markers_of_the_last_transaction_completes_nothing() -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.add(FIRST)
    former = MarkersWritten(
        transactional_id=ID,
        producer=IdAndEpoch(producer.producer_id, producer.producer_epoch + 1),
        partitions=frozenset({FIRST}),
    )
    stage.end(producer)
    stage.do(former)
    stage.add(FIRST)
    stage.end(stage.found.client)
    stage.do(former)
    assert stage.found.state is TransactionState.PREPARE_COMMIT


def test_a_transaction_that_was_begun_by_a_clock_ahead_times_out_all_the_same() -> None:
    stage = Stage()
    stage.now_ms = 3_600_000
    stage.init(timeout_ms=1_000)
    stage.add(FIRST)
    stage.now_ms = 0  # the clock was set back, or another coordinator has another one
    assert not stage.machine.find_timed_out(stage.now_ms, 50.0)
    assert not stage.machine.find_timed_out(stage.now_ms, 51.0)
    (abort,) = stage.machine.find_timed_out(stage.now_ms, 51.1)
    stage.do(abort)
    assert stage.found.state is TransactionState.PREPARE_ABORT


def test_a_transaction_is_open_since_it_began_and_not_since_the_one_before_it_did() -> None:
    stage = Stage()
    producer = stage.init(timeout_ms=1_000).producer
    stage.add(FIRST)
    stage.machine.find_timed_out(stage.now_ms, 50.0)
    stage.end(producer)
    stage.write_markers(FIRST)
    stage.add(FIRST)
    assert not stage.machine.find_timed_out(stage.now_ms, 51.1)
    assert stage.machine.find_timed_out(stage.now_ms, 52.2)


def test_a_hundred_thousand_ids_need_little_memory_and_none_once_they_have_expired() -> None:
    machine, count = Transactions(), 20_000
    tracemalloc.start()
    try:
        for number in range(count):
            transactional_id = f"orders-{number:06d}"
            first = begin_id(transactional_id, number, 1_000, 0)
            machine.apply(TransactionRecord(transactional_id, first))
        size_bytes, _ = tracemalloc.get_traced_memory()
        assert size_bytes / count * 100_000 < 50_000_000
        assert not machine.find_timed_out(10_000, 10.0)
        for transactional_id in machine.expired(1_000, 1_000):
            machine.apply(TransactionRecord(transactional_id, None))
        assert len(machine) == 0
        machine.find_timed_out(10_000, 10.0)
        assert sum(map(len, vars(machine).values())) == 0
    finally:
        tracemalloc.stop()


def test_a_time_out_that_is_told_late_aborts_no_later_transaction() -> None:
    stage = Stage()
    producer = stage.init(timeout_ms=1_000).producer
    stage.add(FIRST, version=1)
    (abort,) = stage.machine.find_timed_out(stage.now_ms + 1_001, 0.0)
    stage.end(producer, version=1)
    stage.write_markers(FIRST)
    stage.now_ms += 1_001
    stage.add(FIRST, version=1)
    stage.do(abort)
    assert stage.found.state is TransactionState.ONGOING


def test_epochs_that_are_exhausted_lead_to_another_producer_id() -> None:
    stage = Stage()
    stage.init()
    last = stage.at_epoch(MAX_EPOCH - 1)
    stage.add(FIRST)
    ended = stage.end(last, spare=99)
    assert ended.producer == (99, 0)
    assert stage.found.producer_epoch == MAX_EPOCH  # of the markers alone
    stage.write_markers(FIRST)
    assert stage.found.client == (99, 0)
    again = stage.end(last, spare=100)
    assert again == TransactionAnswer(producer=IdAndEpoch(99, 0))
    assert stage.init(expected=IdAndEpoch(5, 0)).error is ErrorCode.producer_fenced


def test_nobody_is_handed_the_last_epoch_after_fencing() -> None:
    stage = Stage()
    stage.init()
    stage.at_epoch(MAX_EPOCH - 1)
    stage.add(FIRST)
    assert stage.init().error is ErrorCode.concurrent_transactions
    stage.write_markers(FIRST)
    assert stage.found.producer_epoch == MAX_EPOCH
    assert stage.init(spare_id=50).producer == (50, 0)


def test_who_asks_again_for_an_epoch_gets_the_same_one() -> None:
    stage = Stage()
    first = stage.init().producer
    second = stage.init(expected=first).producer
    assert second == (first.producer_id, first.producer_epoch + 1)
    assert stage.init(expected=first).producer == second
    stage.init()  # another process
    assert stage.init(expected=first).error is ErrorCode.producer_fenced
    assert stage.init(expected=second).error is ErrorCode.producer_fenced


def test_a_zombie_that_goes_on_does_not_abort_the_transaction_of_the_other() -> None:
    stage = Stage()
    zombie = stage.init().producer
    stage.init()
    stage.add(FIRST)
    assert stage.init(expected=zombie).error is ErrorCode.producer_fenced
    assert stage.found.state is TransactionState.ONGOING


def test_the_producer_itself_may_give_up_what_is_open_and_go_on() -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.add(FIRST)
    assert stage.init(expected=producer).error is ErrorCode.concurrent_transactions
    stage.write_markers(FIRST)
    assert stage.found.state is TransactionState.COMPLETE_ABORT
    answer = stage.init(expected=producer)
    assert answer.error is ErrorCode.none
    assert answer.producer.producer_epoch > producer.producer_epoch


def test_an_end_of_a_producer_that_was_fenced_is_no_repetition() -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.add(FIRST)
    stage.init()
    stage.write_markers(FIRST)
    assert stage.end(producer, commit=False).error is ErrorCode.producer_fenced


def test_a_prepared_transaction_is_handed_on_from_process_to_process() -> None:
    stage = Stage()
    first = stage.init(timeout_ms=NO_TIMEOUT_MS).producer
    stage.add(FIRST)
    second = stage.init(timeout_ms=NO_TIMEOUT_MS, keeps_prepared=True)
    third = stage.init(timeout_ms=NO_TIMEOUT_MS, keeps_prepared=True)
    assert second.prepared == third.prepared == first
    assert second.producer.producer_epoch == first.producer_epoch + 1
    assert third.producer.producer_epoch == first.producer_epoch + 2
    assert stage.end(second.producer).error is ErrorCode.producer_fenced
    ended = stage.end(third.producer, commit=False)
    assert ended.error is ErrorCode.none
    assert stage.found.producer_epoch == first.producer_epoch + 1  # of the markers
    stage.write_markers(FIRST)
    assert stage.found.state is TransactionState.COMPLETE_ABORT
    assert stage.found.client == ended.producer
    assert ended.producer.producer_epoch == third.producer.producer_epoch + 1


def test_who_does_not_keep_what_is_prepared_aborts_it() -> None:
    stage = Stage()
    stage.init(timeout_ms=NO_TIMEOUT_MS)
    stage.add(FIRST)
    assert stage.init().error is ErrorCode.concurrent_transactions
    assert stage.found.state is TransactionState.PREPARE_ABORT


def test_verification_accepts_only_partitions_of_the_open_transaction() -> None:
    stage = Stage()
    stage.init()
    producer = stage.found.client
    absent = ErrorCode.transaction_abortable
    assert stage.machine.verify(ID, producer, frozenset({FIRST})) == {FIRST: absent}
    assert stage.add(FIRST, version=0) is ErrorCode.none
    verified = stage.machine.verify(ID, producer, frozenset({FIRST, SECOND}))
    assert verified == {FIRST: ErrorCode.none, SECOND: absent}


def test_a_transactional_id_expires_only_while_no_transaction_is_open_or_undelivered() -> None:
    stage = Stage()
    expire = ExpireId(transactional_id=ID, expiration_ms=60_000)

    def stays() -> bool:
        stage.now_ms += 10 * 60_000
        listed = stage.machine.expired(60_000, stage.now_ms)
        stage.do(expire)  # also when it was listed before the transaction began
        return not listed and stage.machine.find(ID) is not None

    producer = stage.init(timeout_ms=NO_TIMEOUT_MS).producer
    for commit in (True, False):
        stage.add(FIRST)
        assert stays()
        producer = stage.end(producer, commit=commit).producer
        assert stage.found.state.is_prepared
        assert stays()
        stage.write_markers(FIRST)
    stage.now_ms += 59_999
    assert not stage.machine.expired(60_000, stage.now_ms)
    stage.do(expire)
    assert stage.found.state is TransactionState.COMPLETE_ABORT
    stage.now_ms += 1
    assert stage.machine.expired(60_000, stage.now_ms) == [ID]
    stage.do(expire)
    assert stage.machine.find(ID) is None


@pytest.mark.parametrize(("version", "step"), [(1, 1), (2, 2), (3, 2)])
def test_fencing_raises_the_epoch_by_one_more_than_an_end_would(version: int, step: int) -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.add(FIRST, version=version)
    assert stage.init().error is ErrorCode.concurrent_transactions
    assert stage.found.state is TransactionState.PREPARE_ABORT
    assert stage.found.producer_epoch == producer.producer_epoch + step


def test_a_record_that_takes_a_decision_back_is_refused_while_the_id_is_served() -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.add(FIRST)
    stage.end(producer)
    undone = replace(stage.found, state=TransactionState.ONGOING)
    with pytest.raises(InvariantViolation, match="TXN-1"):
        stage.machine.apply(TransactionRecord(ID, undone), is_live=True)
    stage.machine.apply(TransactionRecord(ID, undone))  # of a log, in which there are gaps
    assert stage.found.state is TransactionState.ONGOING


def test_only_a_prepared_transaction_can_be_completed() -> None:
    stage = Stage()
    stage.init()
    stage.add(FIRST)
    with pytest.raises(InvariantViolation, match="TXN-1"):
        complete(stage.found, stage.now_ms)


def test_a_transaction_times_out_after_its_time_and_not_with_it() -> None:
    stage = Stage()
    stage.init(timeout_ms=1_000)
    stage.add(FIRST)
    assert not stage.machine.find_timed_out(stage.now_ms + 1_000, 0.0)
    assert stage.machine.find_timed_out(stage.now_ms + 1_001, 0.0)


def test_a_producer_whose_transaction_timed_out_is_fenced_for_good() -> None:
    stage = Stage()
    producer = stage.init(timeout_ms=1_000).producer
    stage.add(FIRST)
    (abort,) = stage.machine.find_timed_out(stage.now_ms + 1_001, 0.0)
    stage.do(abort)
    stage.write_markers(FIRST)
    assert stage.init(expected=producer).error is ErrorCode.producer_fenced


def test_a_time_out_is_about_one_epoch_and_one_start() -> None:
    stage = Stage()
    assert not stage.records_of(
        AbortTimedOut(transactional_id=ID, producer_epoch=0, started_ms=1_000)
    )
    stage.init()
    stage.add(FIRST)
    epoch, started_ms = stage.found.producer_epoch, stage.found.started_ms
    for meant in ((epoch + 1, started_ms), (epoch, started_ms + 1), (epoch + 1, started_ms + 1)):
        abort = AbortTimedOut(transactional_id=ID, producer_epoch=meant[0], started_ms=meant[1])
        assert not stage.records_of(abort)


def test_partitions_that_are_in_the_transaction_already_are_not_logged_again() -> None:
    stage = Stage()
    producer = stage.init().producer

    def logged(*partitions: TopicPartition) -> int:
        outcome = stage.machine.handle(
            AddPartitions(
                transactional_id=ID, producer=producer, partitions=frozenset(partitions), version=2
            ),
            stage.now_ms,
        )
        assert outcome.answer == TransactionAnswer()
        return len(outcome.records)

    assert logged() == 0
    stage.add(FIRST)
    assert logged() == logged(FIRST) == 0
    assert logged(SECOND) == logged(FIRST, SECOND) == 1


def test_a_transaction_keeps_its_start_while_partitions_are_added() -> None:
    stage = Stage()
    stage.init()
    stage.add(FIRST)
    stage.now_ms += 10
    stage.add(SECOND)
    assert (stage.found.started_ms, stage.found.updated_ms) == (1_000, 1_010)
    assert stage.found.partitions == {FIRST, SECOND}


def test_who_asks_while_markers_are_written_has_to_ask_again() -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.add(FIRST)
    ended = stage.end(producer)
    concurrent = ErrorCode.concurrent_transactions
    assert ended.error is ErrorCode.none
    assert stage.machine.is_prepared(ID)
    assert stage.end(producer).error is concurrent
    assert stage.end(ended.producer).error is concurrent
    assert stage.add(SECOND) is concurrent
    assert stage.init().error is concurrent
    stage.write_markers(FIRST)
    assert not stage.machine.is_prepared(ID)
    assert stage.end(producer) == ended


@pytest.mark.parametrize("version", [1, 2])
def test_an_end_that_asks_for_the_opposite_of_what_was_decided_is_refused(version: int) -> None:
    for commit in (True, False):
        stage = Stage()
        producer = stage.init().producer
        stage.add(FIRST, version=version)
        stage.end(producer, commit=commit, version=version)
        for _ in range(2):
            opposite = stage.end(producer, commit=not commit, version=version)
            assert opposite.error is ErrorCode.invalid_txn_state
            stage.write_markers(FIRST)
        assert stage.end(producer, commit=commit, version=version).error is ErrorCode.none


def test_nothing_can_be_aborted_under_version_2_alone_and_never_committed() -> None:
    stage = Stage()
    producer = stage.init().producer
    invalid = ErrorCode.invalid_txn_state
    assert stage.end(producer, commit=True, version=1).error is invalid
    assert stage.end(producer, commit=False, version=1).error is invalid
    assert stage.end(producer, commit=True, version=2).error is invalid
    raised = stage.end(producer, commit=False, version=2)
    assert raised.producer == (producer.producer_id, producer.producer_epoch + 1)
    assert stage.found.state is TransactionState.COMPLETE_ABORT
    again = stage.end(raised.producer, commit=False, version=2)
    assert again.producer == (producer.producer_id, producer.producer_epoch + 2)
    assert stage.end(again.producer, commit=True, version=2).error is invalid


def test_an_unknown_producer_id_is_told_from_an_epoch_that_is_over() -> None:
    stage = Stage()
    unknown, fenced = ErrorCode.invalid_producer_id_mapping, ErrorCode.producer_fenced
    nobody = IdAndEpoch(4, 0)
    assert stage.end(nobody).error is unknown
    adding = AddPartitions(transactional_id=ID, producer=nobody, partitions=frozenset({FIRST}))
    assert stage.ask(adding).error is unknown
    assert stage.machine.verify(ID, nobody, frozenset({FIRST})) == {FIRST: unknown}
    producer = stage.init().producer
    late = producer._replace(producer_epoch=producer.producer_epoch + 1)
    assert stage.end(nobody).error is unknown
    assert stage.end(late).error is fenced
    assert stage.ask(adding).error is unknown
    assert stage.ask(replace(adding, producer=late)).error is fenced
    assert stage.machine.verify(ID, nobody, frozenset({FIRST})) == {FIRST: unknown}
    assert stage.machine.verify(ID, late, frozenset({FIRST})) == {FIRST: fenced}


def test_without_a_spare_producer_id_who_needs_one_has_to_ask_again() -> None:
    stage = Stage()
    concurrent = ErrorCode.concurrent_transactions
    assert stage.machine.wants_producer_id(ID)
    assert stage.init(spare_id=None).error is concurrent
    stage.init()
    assert not stage.machine.wants_producer_id(ID)
    assert stage.init(spare_id=None).error is ErrorCode.none
    last = stage.at_epoch(MAX_EPOCH - 1)
    assert stage.machine.wants_producer_id(ID)
    assert stage.init(spare_id=None).error is concurrent
    stage.add(FIRST)
    event = EndTransaction(transactional_id=ID, producer=last, commit=True, version=2)
    assert stage.ask(event).error is concurrent
    assert stage.ask(replace(event, version=1)).error is ErrorCode.none
    stage.write_markers(FIRST)
    assert stage.found.client == last


def test_what_is_open_is_fenced_without_a_spare_producer_id() -> None:
    stage = Stage()
    stage.init()
    stage.at_epoch(MAX_EPOCH - 1)
    stage.add(FIRST)
    assert stage.init(spare_id=None, keeps_prepared=True).error is ErrorCode.concurrent_transactions
    assert stage.found.state is TransactionState.ONGOING
    assert stage.init(spare_id=None).error is ErrorCode.concurrent_transactions
    assert stage.found.state is TransactionState.PREPARE_ABORT


def test_a_prepared_transaction_is_handed_on_under_another_id_when_epochs_are_exhausted() -> None:
    stage = Stage()
    stage.init(timeout_ms=NO_TIMEOUT_MS)
    last = stage.at_epoch(MAX_EPOCH - 1)
    stage.add(FIRST)
    kept = stage.init(timeout_ms=NO_TIMEOUT_MS, keeps_prepared=True, spare_id=60)
    assert kept == TransactionAnswer(producer=IdAndEpoch(60, 0), prepared=last)
    assert stage.found.last_producer_epoch == -1
    ended = stage.end(kept.producer)
    assert ended.producer == (60, 1)
    stage.write_markers(FIRST)
    assert stage.found.client == (60, 1)
    assert stage.found.previous_producer_id == last.producer_id


def test_a_transaction_that_was_handed_on_can_only_be_ended() -> None:
    stage = Stage()
    stage.init(timeout_ms=NO_TIMEOUT_MS)
    stage.add(FIRST)
    assert not stage.found.is_kept
    kept = stage.init(timeout_ms=NO_TIMEOUT_MS, keeps_prepared=True)
    assert stage.found.is_kept
    assert stage.add(SECOND) is ErrorCode.invalid_txn_state
    verified = stage.machine.verify(ID, kept.producer, frozenset({FIRST}))
    assert verified == {FIRST: ErrorCode.invalid_txn_state}


def test_a_producer_that_goes_on_is_recognised_when_it_asks_again_for_what_was_kept() -> None:
    stage = Stage()
    first = stage.init(timeout_ms=NO_TIMEOUT_MS).producer
    stage.add(FIRST)
    stage.init(timeout_ms=NO_TIMEOUT_MS, keeps_prepared=True, expected=first)
    assert stage.found.last_producer_epoch == first.producer_epoch


def test_a_transaction_that_was_handed_on_is_aborted_above_the_epoch_of_its_producer() -> None:
    stage = Stage()
    first = stage.init(timeout_ms=NO_TIMEOUT_MS).producer
    stage.add(FIRST)
    second = stage.init(timeout_ms=NO_TIMEOUT_MS, keeps_prepared=True).producer
    assert stage.init(timeout_ms=NO_TIMEOUT_MS).error is ErrorCode.concurrent_transactions
    assert stage.found.producer_epoch == first.producer_epoch + 2
    assert stage.found.client == (first.producer_id, second.producer_epoch + 2)
    stage.write_markers(FIRST)
    assert stage.found.client == (first.producer_id, second.producer_epoch + 2)
    assert stage.found.next_producer_id == -1


def test_only_two_phases_can_be_kept() -> None:
    stage = Stage()
    stage.init(timeout_ms=NO_TIMEOUT_MS - 1)
    stage.add(FIRST)
    assert stage.init(keeps_prepared=True).error is ErrorCode.concurrent_transactions
    assert stage.found.state is TransactionState.PREPARE_ABORT


def test_the_last_epoch_but_one_is_exhausted() -> None:
    assert not IdAndEpoch(1, MAX_EPOCH - 2).is_exhausted
    assert IdAndEpoch(1, MAX_EPOCH - 1).is_exhausted


def test_the_log_of_kafka_tells_a_repeated_end_by_the_raised_epoch_alone() -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.add(FIRST)
    ended = stage.end(producer)
    stage.write_markers(FIRST)
    stage.machine.apply(TransactionRecord(ID, replace(stage.found, last_producer_epoch=-1)))
    assert stage.end(producer) == ended
    other = producer._replace(producer_id=producer.producer_id + 1)
    assert stage.end(other).error is ErrorCode.invalid_producer_id_mapping
    before = producer._replace(producer_epoch=producer.producer_epoch - 1)
    assert stage.end(before).error is ErrorCode.producer_fenced
    version_1 = replace(stage.found, client_version=1)
    stage.machine.apply(TransactionRecord(ID, version_1))
    assert stage.end(producer).error is ErrorCode.producer_fenced


def test_an_epoch_of_zero_before_is_known() -> None:
    stage = Stage()
    first = stage.init().producer
    assert first.producer_epoch == 0
    second = stage.init(expected=first).producer
    assert stage.found.last_producer_epoch == 0
    assert stage.init(expected=first).producer == second
    assert stage.init(expected=first._replace(producer_id=99)).error is ErrorCode.producer_fenced


def test_markers_are_those_of_what_is_prepared_and_not_of_what_is_open() -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.add(FIRST)
    assert list(stage.machine.markers()) == []
    stage.end(producer)
    (markers,) = stage.machine.markers()
    assert (markers.commit, markers.partitions) == (True, {FIRST})
    assert markers.producer == (producer.producer_id, producer.producer_epoch + 1)
    stage.write_markers(FIRST)
    assert list(stage.machine.markers()) == []
    assert len(stage.machine) == len(list(stage.machine)) == 1


def test_an_end_of_nothing_begins_when_it_is_asked_for() -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.now_ms = 5_000
    stage.end(producer, commit=False)
    assert stage.found.started_ms == 5_000


def test_markers_of_an_abort_are_no_commits() -> None:
    stage = Stage()
    producer = stage.init().producer
    stage.add(FIRST)
    stage.end(producer, commit=False)
    assert [markers.commit for markers in stage.machine.markers()] == [False]


def test_the_last_epoch_is_of_a_fenced_end_unless_another_id_follows() -> None:
    stage = Stage()
    stage.init()
    assert not stage.found.is_fenced_end()
    stage.at_epoch(MAX_EPOCH)
    assert stage.found.is_fenced_end()
    followed = replace(stage.found, next_producer_id=9, next_producer_epoch=0)
    assert not followed.is_fenced_end()
    assert not replace(stage.found, producer_epoch=MAX_EPOCH - 1).is_fenced_end()


def test_who_asks_again_after_the_last_epoch_gets_another_producer_id() -> None:
    stage = Stage()
    stage.init()
    last = stage.at_epoch(MAX_EPOCH - 1)
    stage.add(FIRST)
    assert stage.init(expected=last).error is ErrorCode.concurrent_transactions
    stage.write_markers(FIRST)
    assert stage.found.producer_epoch == MAX_EPOCH
    assert stage.end(last, commit=False).error is ErrorCode.producer_fenced
    assert stage.init(expected=last, spare_id=50).producer == (50, 0)


def test_the_last_epoch_of_another_producer_id_is_not_the_one_before() -> None:
    stage = Stage()
    stage.init()
    last = stage.at_epoch(MAX_EPOCH - 1)
    stage.add(FIRST)
    stage.end(last, spare=99)
    stage.write_markers(FIRST)
    other = last._replace(producer_id=5)
    assert stage.init(expected=other).error is ErrorCode.producer_fenced
    assert stage.init(expected=last).producer == (99, 0)


def test_an_end_in_the_epoch_before_an_initialization_is_fenced() -> None:
    stage = Stage()
    first = stage.init().producer
    stage.init(expected=first)
    for commit in (True, False):
        assert stage.end(first, commit=commit).error is ErrorCode.producer_fenced


def test_an_abort_is_answered_that_its_producer_asked_for_before_it_gave_up() -> None:
    stage = Stage()
    producer = stage.init().producer
    assert producer.producer_epoch == 0
    stage.add(FIRST)
    stage.init(expected=producer)  # aborts what is open
    stage.write_markers(FIRST)
    assert stage.end(producer, commit=True).error is ErrorCode.invalid_txn_state
    assert stage.end(producer, commit=False).error is ErrorCode.none
