"""Transactions of a producer: what is asked when, and what counts in the end."""

from __future__ import annotations

import pytest

from client.rules.producer_story import make_cluster
from moldau.client.admin.values import ConsumerGroupMetadata, GroupOffset
from moldau.client.producer.rules.built_in_partitioner import RoundRobinPartitioner
from moldau.client.producer.rules.record_accumulator import (
    AskCoordinator,
    AskProducerId,
    AskToAddOffsets,
    AskToAddPartitions,
    AskToCommitOffsets,
    AskToEnd,
    Finish,
    FinishCall,
    GroupOffsets,
    NotDelivered,
    PartitionAnswer,
    ProducerBatch,
    ProducerIdentity,
    Send,
    TransactionRequest,
)
from moldau.client.producer.rules.sender import ProducerMachine, ProducerSettings, RetryPolicy
from moldau.client.producer.rules.transaction_manager import (
    TRANSACTION_MOVES,
    PreparedTransaction,
    ProducerTransactionState,
    TransactionCall,
)
from moldau.client.rules.broker_errors import Backoff
from moldau.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    MoldauError,
    NoAnswerError,
    NotCoordinatorError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionStateError,
    UnsupportedByBrokerError,
)
from moldau.model import TopicPartition

NAME = "payments-0"
ME = ProducerIdentity(7, 3)
ONE, TWO = TopicPartition("rivers", 0), TopicPartition("rivers", 1)
OFFSETS = GroupOffsets(
    ConsumerGroupMetadata(group_id="g", generation_id=4, member_id="m"),
    {ONE: GroupOffset(offset=9)},
)
Batch = ProducerBatch[object]


class Story:
    """A producer with transactions, and what it was told to do since the last look."""

    def __init__(
        self, *, is_version_2: bool = False, linger: float = 0.0, name: str | None = NAME
    ) -> None:
        self.machine: ProducerMachine[object] = ProducerMachine(
            ProducerSettings(
                batch_bytes=1,
                linger_seconds=linger,
                delivery_seconds=100.0,
                memory_bytes=1_000,
                request_bytes=1_000,
                most_under_way=5,
                most_in_flight=5,
                metadata_max_age_seconds=1e9,
                is_idempotent=True,
                transactional_id=name,
            ),
            RetryPolicy(retries=100, is_idempotent=True, is_transactional=True),
            Backoff(first_seconds=1.0, max_seconds=8.0, jitter=0.0),
            lambda: 0.5,
            make_result=lambda partition: object(),
            make_partitioner=RoundRobinPartitioner,
        )
        self.now = 0.0
        self.is_version_2 = is_version_2
        self.asked: list[TransactionRequest] = []
        self.sent: list[Batch] = []
        self.finished: dict[Batch, object] = {}
        self.ended: list[MoldauError | None] = []
        self.wake_at = 0.0

    @property
    def state(self) -> ProducerTransactionState:
        assert self.machine.transactions is not None
        return self.machine.transactions.state

    def turn(self) -> None:
        turn = self.machine.end_turn(self.now, make_cluster({ONE: 1, TWO: 1}))
        self.wake_at = turn.wake_at
        for one in turn.instructions:
            match one:
                case AskCoordinator(request):
                    self.asked.append(request)
                case Send(_, batches):
                    self.sent += batches
                case Finish(batch, outcome):
                    self.finished[batch] = outcome
                case FinishCall(_, failure):
                    self.ended.append(failure)
                case _:
                    pass

    def call(self, call: TransactionCall) -> None:
        self.machine.begin_call(call)
        self.turn()

    def begin(self) -> None:
        """Until a transaction is open."""
        if self.machine.identity is None:
            self.call(TransactionCall.INITIALIZE)
            assert self.take_asked() == AskProducerId(NAME, None)
            self.machine.initialized(ME, is_version_2=self.is_version_2)
            self.turn()
            self.require_ended()
        self.machine.begin_transaction()
        self.turn()

    def take_asked(self) -> TransactionRequest:
        (asked,) = self.asked
        self.asked.clear()
        return asked

    def grant(self, identity: ProducerIdentity | None = None) -> None:
        self.machine.granted(identity)
        self.turn()

    def refuse(self, error: MoldauError) -> None:
        self.machine.refused(error, self.now)  # type: ignore[arg-type]
        self.turn()

    def require_ended(self) -> None:
        assert self.ended == [None]
        self.ended.clear()

    def take_failure(self) -> MoldauError:
        (failure,) = self.ended
        self.ended.clear()
        assert failure is not None
        return failure

    def send(self, partition: TopicPartition = ONE) -> Batch:
        queue = self.machine.queue_of(partition)
        batch = self.machine.open_batch(queue, self.now)
        batch.add((0, None, b"", ()), 1)
        self.machine.used_bytes += 1
        queue.close_batch()
        self.turn()
        return batch

    def answer(self, batch: Batch, error: MoldauError | None = None) -> None:
        self.machine.answered(1, [(batch, PartitionAnswer(error, 0))], self.now)
        self.turn()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.turn()


def test_every_state_has_its_moves_and_only_a_failed_one_is_the_end() -> None:
    assert set(TRANSACTION_MOVES) == set(ProducerTransactionState)
    ends = [state for state, moves in TRANSACTION_MOVES.items() if not moves]
    assert ends == [ProducerTransactionState.FAILED]


def test_nothing_can_be_sent_outside_a_transaction() -> None:
    story = Story()
    assert "send within a transaction" in str(story.machine.refusal)
    story.begin()
    assert story.machine.refusal is None


def test_a_batch_waits_until_its_partition_is_added_before_version_2() -> None:
    story = Story()
    story.begin()
    batch = story.send(ONE)
    assert (story.sent, story.take_asked()) == ([], AskToAddPartitions(NAME, ME, (ONE,)))
    story.grant()
    assert story.sent == [batch]
    assert (batch.identity, batch.base_sequence) == (ME, 0)


def test_from_version_2_on_leaders_add_partitions() -> None:
    story = Story(is_version_2=True)
    story.begin()
    batch = story.send(ONE)
    assert (story.sent, story.asked) == ([batch], [])


def test_a_commit_waits_for_all_batches_and_then_for_the_coordinator() -> None:
    story = Story(is_version_2=True)
    story.begin()
    batch = story.send(ONE)
    story.call(TransactionCall.COMMIT)
    assert story.asked == []
    assert story.machine.refusal is not None
    story.answer(batch)
    assert story.take_asked() == AskToEnd(NAME, ME, True)
    assert story.ended == []
    story.grant(ProducerIdentity(7, 4))
    story.require_ended()
    assert story.state is ProducerTransactionState.READY


def test_each_transaction_of_version_2_is_numbered_from_0_in_its_own_epoch() -> None:
    story = Story(is_version_2=True)
    for epoch in (3, 4, 5):
        story.begin()
        batch = story.send(ONE)
        assert (batch.identity, batch.base_sequence) == ((7, epoch), 0)
        story.answer(batch)
        story.call(TransactionCall.COMMIT)
        story.grant(ProducerIdentity(7, epoch + 1))
        story.require_ended()


def test_before_version_2_numbers_go_on_from_transaction_to_transaction() -> None:
    story = Story()
    for number in range(3):
        story.begin()
        batch = story.send(ONE)
        story.grant()
        assert (batch.identity, batch.base_sequence) == (ME, number)
        story.answer(batch)
        story.call(TransactionCall.COMMIT)
        story.grant()
        story.require_ended()


def test_nobody_is_asked_about_a_transaction_without_records() -> None:
    story = Story()
    story.begin()
    story.call(TransactionCall.COMMIT)
    story.require_ended()
    story.begin()
    story.call(TransactionCall.ABORT)
    story.require_ended()
    assert story.asked == []


def test_offsets_are_added_and_then_committed_by_the_group_before_version_2() -> None:
    story = Story()
    story.begin()
    story.machine.send_offsets(OFFSETS)
    story.turn()
    assert story.take_asked() == AskToAddOffsets(NAME, ME, "g")
    story.grant()
    assert story.take_asked() == AskToCommitOffsets(NAME, ME, OFFSETS)
    story.grant()
    story.require_ended()
    story.call(TransactionCall.COMMIT)
    assert story.take_asked() == AskToEnd(NAME, ME, True)


def test_from_version_2_on_the_group_adds_its_offsets() -> None:
    story = Story(is_version_2=True)
    story.begin()
    story.machine.send_offsets(OFFSETS)
    story.turn()
    assert story.take_asked() == AskToCommitOffsets(NAME, ME, OFFSETS)
    story.grant()
    story.require_ended()
    story.call(TransactionCall.COMMIT)
    assert story.take_asked() == AskToEnd(NAME, ME, True)


def test_what_may_pass_is_asked_again_after_a_pause() -> None:
    story = Story()
    story.begin()
    story.send(ONE)
    for pause in (1.0, 2.0, 4.0):
        asked = story.take_asked()
        story.refuse(NotCoordinatorError("not any more"))
        assert (story.asked, story.wake_at) == ([], story.now + pause)
        story.wait(pause)
        assert story.asked == [asked]
    story.take_asked()
    story.refuse(NoAnswerError("silence"))
    story.wait(8.0)
    story.grant()
    assert len(story.sent) == 1


def test_a_record_that_is_not_delivered_leaves_only_the_abort() -> None:
    story = Story(is_version_2=True)
    story.begin()
    good, bad = story.send(ONE), story.send(TWO)
    story.answer(bad, InvalidRecordError("nonsense"))
    assert story.state is ProducerTransactionState.ABORTABLE
    assert isinstance(story.machine.refusal, TransactionAbortedError)
    with pytest.raises(TransactionAbortedError, match="nonsense; abort it, and do its work again"):
        story.machine.begin_call(TransactionCall.COMMIT)
    story.call(TransactionCall.ABORT)
    assert story.asked == []  # what is under way could still come into it
    story.answer(good)
    assert story.take_asked() == AskToEnd(NAME, ME, False)
    story.grant(ProducerIdentity(7, 4))
    story.require_ended()
    story.begin()
    assert story.machine.refusal is None


def test_a_commit_that_is_waited_for_fails_with_the_record() -> None:
    story = Story(is_version_2=True)
    story.begin()
    batch = story.send(ONE)
    story.call(TransactionCall.COMMIT)
    story.answer(batch, InvalidRecordError("nonsense"))
    assert isinstance(story.take_failure(), TransactionAbortedError)
    assert story.machine.flusher_count == 0


def test_after_an_abort_with_a_gap_an_older_coordinator_gives_a_new_epoch() -> None:
    story = Story()
    story.begin()
    batch = story.send(ONE)
    story.asked.clear()
    story.grant()
    story.answer(batch, OutOfOrderSequenceError("a gap"))
    story.call(TransactionCall.ABORT)
    assert story.take_asked() == AskToEnd(NAME, ME, False)
    story.grant()
    assert story.take_asked() == AskProducerId(NAME, ME)
    assert story.ended == []
    story.machine.initialized(ProducerIdentity(7, 4), is_version_2=False)
    story.turn()
    story.require_ended()
    story.begin()
    story.send(ONE)
    story.asked.clear()
    story.grant()
    assert (story.sent[-1].identity, story.sent[-1].base_sequence) == ((7, 4), 0)


def test_one_out_of_order_behind_another_is_only_sent_again() -> None:
    story = Story(is_version_2=True)
    story.begin()
    story.answer(story.send(ONE))
    first, second = story.send(ONE), story.send(ONE)
    story.answer(second, OutOfOrderSequenceError("not yet"))
    assert story.state is ProducerTransactionState.OPEN
    story.answer(first)
    story.wait(10.0)
    assert story.sent[-1] is second


def test_an_abort_drops_what_was_not_sent() -> None:
    story = Story()
    story.begin()
    batch = story.send(ONE)
    story.call(TransactionCall.ABORT)
    outcome = story.finished[batch]
    assert isinstance(outcome, NotDelivered)
    assert isinstance(outcome.error, TransactionAbortedError)
    assert story.ended == []  # the coordinator has not said yet whether the partition was added
    story.asked.clear()
    story.grant()
    assert story.take_asked() == AskToEnd(NAME, ME, False)
    story.grant()
    story.require_ended()
    assert story.sent == []


@pytest.mark.parametrize("error", [ProducerFencedError("x"), InvalidProducerEpochError("x")])
def test_one_that_is_fenced_says_what_to_do_and_does_nothing_any_more(error: MoldauError) -> None:
    story = Story()
    story.begin()
    story.send(ONE)
    story.take_asked()
    story.refuse(error)
    assert story.state is ProducerTransactionState.FAILED
    fenced = story.machine.refusal
    assert isinstance(fenced, ProducerFencedError)
    assert "another producer has the transactional id 'payments-0' now" in str(fenced)
    assert "transactional id of its own" in str(fenced)
    assert story.machine.is_empty
    for call in (TransactionCall.ABORT, TransactionCall.COMMIT, TransactionCall.INITIALIZE):
        with pytest.raises(ProducerFencedError):
            story.machine.begin_call(call)


def test_a_leader_that_knows_a_later_epoch_leaves_the_abort_to_tell_why() -> None:
    story = Story(is_version_2=True)
    story.begin()
    batch = story.send(ONE)
    story.answer(batch, InvalidProducerEpochError("older"))
    assert story.state is ProducerTransactionState.ABORTABLE
    story.call(TransactionCall.ABORT)
    story.refuse(ProducerFencedError("x"))
    assert isinstance(story.take_failure(), ProducerFencedError)


def test_a_commit_that_the_coordinator_refuses_for_this_time_can_be_aborted() -> None:
    story = Story(is_version_2=True)
    story.begin()
    story.answer(story.send(ONE))
    story.call(TransactionCall.COMMIT)
    story.refuse(TransactionAbortableError("it took too long"))
    assert isinstance(story.take_failure(), TransactionAbortedError)
    story.asked.clear()
    story.call(TransactionCall.ABORT)
    assert story.take_asked() == AskToEnd(NAME, ME, False)


def test_transactions_do_not_nest_and_one_thing_is_done_at_a_time() -> None:
    story = Story(is_version_2=True)
    story.begin()
    with pytest.raises(TransactionStateError, match="open already"):
        story.machine.begin_call(TransactionCall.INITIALIZE)
    story.send(ONE)
    story.call(TransactionCall.COMMIT)
    with pytest.raises(TransactionStateError, match="being committed"):
        story.machine.begin_call(TransactionCall.ABORT)


# Prepared, for somebody else to decide (KIP-939)


def test_what_is_prepared_is_in_the_log_and_names_the_transaction() -> None:
    story = Story(is_version_2=True)
    story.begin()
    batch = story.send(ONE)
    story.call(TransactionCall.PREPARE)
    assert story.state is ProducerTransactionState.OPEN  # a batch is under way
    story.answer(batch)
    assert story.state is ProducerTransactionState.PREPARED
    assert story.ended == [None]
    transactions = story.machine.transactions
    assert transactions is not None
    assert transactions.find_prepared() == PreparedTransaction(
        transactional_id=NAME, producer_id=ME.id, producer_epoch=ME.epoch
    )
    assert not transactions.is_abortable  # by being closed


def test_behind_what_is_prepared_nothing_is_sent_and_nothing_begins() -> None:
    story = _prepared()
    assert isinstance(story.machine.refusal, TransactionStateError)
    with pytest.raises(TransactionStateError, match="is prepared"):
        story.machine.begin_call(TransactionCall.INITIALIZE)
    with pytest.raises(TransactionStateError, match="is prepared"):
        story.machine.begin_call(TransactionCall.PREPARE)


@pytest.mark.parametrize("call", [TransactionCall.COMMIT, TransactionCall.ABORT])
def test_a_producer_can_end_what_it_has_prepared(call: TransactionCall) -> None:
    story = _prepared()
    story.call(call)
    assert story.take_asked() == AskToEnd(NAME, ME, call is TransactionCall.COMMIT)
    story.grant(ProducerIdentity(ME.id, ME.epoch + 1))
    assert story.state is ProducerTransactionState.READY


def test_an_empty_transaction_is_over_when_it_is_prepared() -> None:
    story = Story(is_version_2=True)
    story.begin()
    story.call(TransactionCall.PREPARE)
    assert story.ended == [None]
    assert story.state is ProducerTransactionState.READY
    assert story.asked == []


def test_what_was_not_delivered_cannot_be_prepared() -> None:
    story = Story(is_version_2=True)
    story.begin()
    batch = story.send(ONE)
    story.call(TransactionCall.PREPARE)
    story.answer(batch, InvalidRecordError("x"))
    assert isinstance(story.take_failure(), TransactionAbortedError)
    assert story.state is ProducerTransactionState.ABORTABLE


def _prepared() -> Story:
    story = Story(is_version_2=True)
    story.begin()
    story.answer(story.send(ONE))
    story.call(TransactionCall.PREPARE)
    assert story.ended == [None]
    story.ended.clear()
    story.asked.clear()
    return story


def test_a_broker_that_has_no_transactions_is_not_asked_for_ever() -> None:
    story = Story()
    story.call(TransactionCall.INITIALIZE)
    story.refuse(UnsupportedByBrokerError("no such request"))
    assert isinstance(story.take_failure(), UnsupportedByBrokerError)


def test_a_producer_without_an_id_has_no_transactions() -> None:
    story = Story(name=None)
    with pytest.raises(TransactionStateError, match="give it a transactional_id"):
        story.machine.begin_call(TransactionCall.INITIALIZE)
