"""Stories of batches: what is sent, what comes back, how it ends."""

from __future__ import annotations

import pytest

from client.rules.producer_story import (
    PARTITION,
    ProducerStory,
    make_cluster,
    refuse_for_good,
    refuse_for_now,
    take_and_complain,
)
from moldau.client.producer.rules.record_accumulator import Delivered, NotDelivered
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.errors import (
    BatchTooLargeError,
    ClosedClientError,
    DeliveryTimeoutError,
    InvalidRecordError,
    NotEnoughReplicasError,
    TopicAuthorizationError,
)


def test_records_are_delivered_with_their_offsets() -> None:
    story = ProducerStory(records_per_batch=2)
    story.send(5)
    story.finish()
    assert story.numbers() == [0, 1, 2, 3, 4]
    assert story.outcomes() == [Delivered(0)] * 2 + [Delivered(2)] * 2 + [Delivered(4)]


def test_the_first_batch_goes_alone_and_the_next_five_together() -> None:
    story = ProducerStory(records_per_batch=1)
    story.send(10)
    assert story.pump() == 1
    story.answer()
    assert story.pump() == 5


def test_batches_behind_one_that_failed_wait_for_it() -> None:
    story = ProducerStory(records_per_batch=1)
    story.send(4)
    story.pump()
    story.answer()
    story.pump()
    story.answer(mishap=refuse_for_now)
    story.answer()
    story.answer()
    assert story.numbers() == [0]
    story.wait(1.0)
    story.finish()
    assert story.numbers() == [0, 1, 2, 3]
    assert story.delivered() == [0, 1, 2, 3]


def test_what_waits_for_a_topic_that_may_not_be_described_is_refused_at_once() -> None:
    story = ProducerStory(records_per_batch=1)
    story.send(2)
    story.pump()
    story.cut(arrived=1)  # written, and nobody knows
    denied = TopicMetadata(name=PARTITION.topic, error=TopicAuthorizationError("no"))
    story.machine.topics_refreshed([denied], story.now)
    story.pump()
    assert all(
        isinstance(outcome, NotDelivered) and isinstance(outcome.error, TopicAuthorizationError)
        for outcome in story.outcomes()
    )
    story.wait(1.0)
    story.send(2)  # it is allowed again
    story.finish()
    assert story.delivered() == [2, 3]
    assert story.numbers() == [0, 2, 3]


def test_a_lost_answer_is_given_again_when_the_batch_comes_again() -> None:
    story = ProducerStory(records_per_batch=1)
    story.send(3)
    story.pump()
    story.answer()
    story.pump()
    story.cut(arrived=2)
    story.finish()
    assert story.numbers() == [0, 1, 2]
    assert story.outcomes() == [Delivered(0), Delivered(1), Delivered(2)]


def test_what_was_overtaken_is_still_recognised_when_answers_get_lost_again() -> None:
    story = ProducerStory(records_per_batch=1)
    story.send(12)
    story.pump()
    story.answer()
    story.pump()
    story.cut(arrived=2, unsent=3)  # the last three leave over the next connection
    for _ in range(3):
        story.answer()
    assert story.numbers() == [0, 1, 2, 3, 4, 5]
    story.wait(1.0)
    # Two are in doubt, and three behind them are confirmed: brokers remember no more than that.
    story.pump()
    story.cut(arrived=5)
    story.finish()
    assert story.numbers() == list(range(12))
    assert story.delivered() == list(range(12))


def test_a_complaint_after_the_writing_of_one_does_not_let_the_others_run_ahead() -> None:
    story = ProducerStory(records_per_batch=1)
    story.send(12)
    story.pump()
    story.answer()
    story.pump()
    story.answer(mishap=take_and_complain)
    story.answer()
    story.answer(mishap=take_and_complain)
    story.answer()
    story.answer()
    story.wait(1.0)
    story.pump()
    story.cut(arrived=5)
    story.finish()
    assert story.numbers() == list(range(12))
    assert story.outcomes() == [Delivered(number) for number in range(12)]


def test_a_batch_refused_for_good_does_not_hold_up_those_behind_it() -> None:
    story = ProducerStory(records_per_batch=1)
    story.send(4)
    story.pump()
    story.answer()
    story.pump()
    story.answer(mishap=refuse_for_good)
    story.finish()
    assert story.numbers() == [0, 2, 3]
    outcome = story.outcomes()[1]
    assert isinstance(outcome, NotDelivered)
    assert isinstance(outcome.error, InvalidRecordError)


def test_time_counts_from_the_first_record_and_names_the_last_failure() -> None:
    story = ProducerStory(delivery_seconds=10.0)
    story.send(1)
    story.pump()
    story.answer(mishap=refuse_for_now)
    story.wait(9.9)
    assert not story.machine.is_empty
    story.wait(0.1)
    (outcome,) = story.outcomes()
    assert isinstance(outcome, NotDelivered)
    assert isinstance(outcome.error, DeliveryTimeoutError)
    assert isinstance(outcome.error.__cause__, NotEnoughReplicasError)
    assert "1 record for rivers-0 were not confirmed within 10 seconds" in str(outcome.error)
    assert "for now" in str(outcome.error)


@pytest.mark.parametrize("arrived", [0, 1])
def test_one_whose_time_is_over_on_the_wire_is_told_so_and_those_behind_it_go_on(
    arrived: int,
) -> None:
    story = ProducerStory(records_per_batch=1, delivery_seconds=10.0)
    story.send(1)
    story.finish()
    story.send(1)
    story.pump()
    story.wait(6.0)
    story.send(2)
    story.pump()
    story.wait(6.0)  # the second record is too late, the others are not
    story.cut(arrived=arrived)
    story.finish()
    told = story.outcomes()
    assert isinstance(told[1], NotDelivered)
    assert "not known whether" in str(told[1].error)
    assert story.delivered() == [0, 2, 3]
    assert story.numbers() == ([0, 1, 2, 3] if arrived else [0, 2, 3])


def test_a_batch_that_is_too_large_goes_in_parts() -> None:
    story = ProducerStory(records_per_batch=8)
    story.logs[next(iter(story.logs))].largest_batch = 3
    story.send(8)
    story.finish()
    assert story.numbers() == list(range(8))
    assert story.delivered() == list(range(8))


def test_a_record_that_is_too_large_by_itself_is_refused_and_says_so() -> None:
    story = ProducerStory(records_per_batch=2)
    story.logs[next(iter(story.logs))].largest_batch = 0
    story.send(2)
    story.finish()
    for outcome in story.outcomes():
        assert isinstance(outcome, NotDelivered)
        assert isinstance(outcome.error, BatchTooLargeError)
        assert "max.message.bytes" in str(outcome.error)


def test_without_retries_the_first_failure_is_the_last() -> None:
    story = ProducerStory(is_idempotent=False, retries=0)
    story.send(1)
    story.pump()
    story.answer(mishap=refuse_for_now)
    (outcome,) = story.outcomes()
    assert isinstance(outcome, NotDelivered)
    assert isinstance(outcome.error, NotEnoughReplicasError)


def test_a_complaint_after_the_writing_does_not_write_twice() -> None:
    story = ProducerStory(records_per_batch=1)
    story.send(2)
    story.pump()
    story.answer(mishap=take_and_complain)
    story.wait(1.0)
    story.finish()
    assert story.numbers() == [0, 1]


def test_a_moved_leader_asks_for_new_metadata_and_gets_the_batch() -> None:
    story = ProducerStory()
    story.send(1)
    story.pump()
    story.move_leader()
    story.answer(1)
    story.pump()
    assert story.refresh_count == 1
    story.wait(1.0)
    assert len(story.wires[2]) == 1
    story.answer(2)
    assert story.outcomes() == [Delivered(0)]


def test_after_a_fatal_error_everybody_who_waits_hears_it() -> None:
    story = ProducerStory(records_per_batch=1)
    story.send(3)
    story.pump()
    error = ClosedClientError("it is over")
    story.machine.fail_all(error)
    assert story.outcomes() == [NotDelivered(error)] * 3
    assert story.machine.used_bytes == 0
    story.answer()  # a late answer changes nothing
    assert story.outcomes() == [NotDelivered(error)] * 3


def test_pauses_between_attempts_grow() -> None:
    story = ProducerStory()
    story.send(1)
    pauses = []
    for _ in range(5):
        story.pump()
        story.answer(mishap=refuse_for_now)
        wake_at = story.machine.end_turn(story.now, make_cluster(story.leaders)).wake_at
        pauses.append(round(wake_at - story.now, 3))
        story.now = wake_at
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0]
