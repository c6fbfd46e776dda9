"""What is fetched from whom, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from client.rules.consumer_story import ONE, TWO, ZERO, Story, answer, batch, describe_cluster
from moldau.client.consumer.rules.fetch_buffer import Position
from moldau.client.consumer.rules.instructions import Fetch, TimerKind, Validate
from moldau.client.consumer.rules.offset_manager import LeaderEpochEnd
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.errors import ErrorCode, KafkaError, LogTruncatedError, NoOffsetError
from moldau.wire.fetch_exchange import AnsweredTopic


def assigned(*leaders: int, begin_at: int | None = None, **options: Any) -> Story:
    """A consumer without a group that is about to fetch a partition of each leader."""
    story = Story(group_id=None, **options)
    story.cluster = describe_cluster(leaders)
    partitions = [ZERO, ONE, TWO][: len(leaders)]
    story.happen(lambda machine: machine.assign(partitions))
    if begin_at is not None:
        story.happen(lambda machine: machine.seek(ZERO, Position(begin_at)))
    story.wait_for_records()
    story.go_on()
    story.refresh()
    story.answer_look_ups()
    return story


def offsets_of(fetch: Fetch) -> dict[int, int]:
    return {index: row.fetch_offset for (_, index), row in fetch.wanted.items()}


def test_each_leader_is_asked_once_for_all_of_its_partitions() -> None:
    story = assigned(1, 2, 1)
    found = {fetch.broker_id: offsets_of(fetch) for fetch in story.take(Fetch)}
    assert found == {1: {0: 0, 2: 0}, 2: {1: 0}}


def test_a_broker_is_asked_again_when_what_it_gave_was_taken() -> None:
    story = assigned(1, 1)
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 2))
    assert not story.take(Fetch)
    assert story.poll() == [0, 1]
    assert offsets_of(story.take_one(Fetch)) == {0: 2, 1: 0}


def test_streams_do_not_wait_for_each_other() -> None:
    story = assigned(1, 1)
    story.happen(lambda machine: machine.split_streams(2))
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 2))  # void: the positions moved
    fetch = story.take_one(Fetch)
    story.answer_fetch(fetch, p0=batch(0, 2))
    again = story.take_one(Fetch)
    assert (offsets_of(again), again.max_wait_ms) == ({1: 0}, 50)


def test_what_was_fetched_for_another_position_does_not_count() -> None:
    story = assigned(1)
    fetch = story.take_one(Fetch)
    story.happen(lambda machine: machine.seek(ZERO, Position(40)))
    story.answer_fetch(fetch, p0=batch(0, 2))
    assert story.poll() == []
    assert offsets_of(story.take_one(Fetch)) == {0: 40}


@pytest.mark.parametrize("topics", [{}, {"t": TopicMetadata(name="t", partitions=())}])
def test_a_near_replica_is_not_asked_while_its_topic_is_missing(
    topics: dict[str, TopicMetadata],
) -> None:
    story = assigned(1)
    told = answer({"p0": 0})
    (row,) = told.topics[0].partitions
    elsewhere = AnsweredTopic("t", None, [row._replace(preferred_read_replica=2)])
    fetch = story.take_one(Fetch)
    story.happen(
        lambda machine: machine.fetch_plan.fetched(fetch, told._replace(topics=[elsewhere]))
    )
    fetch = story.take_one(Fetch)
    assert fetch.broker_id == 2
    whole, story.cluster = story.cluster, replace(story.cluster, topics=topics)
    story.answer_fetch(fetch, p0=0)
    assert not story.take(Fetch)
    story.cluster = whole
    story.fire(TimerKind.METADATA_PAUSE)
    story.refresh()
    assert story.take_one(Fetch).broker_id == 2


def test_a_paused_partition_is_not_fetched_and_what_came_of_it_waits() -> None:
    story = assigned(1)
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 2))
    story.happen(lambda machine: machine.pause([ZERO], is_paused=True))
    assert story.poll() == []
    story.happen(lambda machine: machine.pause([ZERO], is_paused=False))
    assert story.poll() == [0, 1]


def test_a_broker_that_fails_is_left_alone_for_longer_and_longer() -> None:
    story = assigned(1)
    pauses = []
    for _ in range(3):
        fetch = story.take_one(Fetch)
        story.happen(lambda machine, f=fetch: machine.fetch_plan.fetch_failed(f.broker_id))
        assert not story.take(Fetch)
        before = story.now
        story.fire(TimerKind.BROKER)
        pauses.append(round(story.now - before, 3))
    assert pauses == [0.1, 0.2, 0.4]


def test_a_broker_that_asks_for_a_pause_gets_it() -> None:
    story = assigned(1)
    fetch = story.take_one(Fetch)
    story.happen(
        lambda machine: machine.fetch_plan.fetched(fetch, answer({}, throttle_time_ms=500))
    )
    assert not story.take(Fetch)
    story.fire(TimerKind.BROKER)
    assert story.take(Fetch)


def test_an_error_that_passes_leaves_out_that_partition_for_a_while() -> None:
    story = assigned(1, 1)
    story.answer_fetch(story.take_one(Fetch), p0=ErrorCode.not_leader_or_follower.value)
    assert offsets_of(story.take_one(Fetch)) == {1: 0}
    story.fire(TimerKind.PARTITION)
    assert not story.take(Fetch)  # the other one is under way


def test_an_error_that_stays_is_raised_when_the_program_has_read_up_to_it() -> None:
    story = assigned(1)
    story.answer_fetch(story.take_one(Fetch), p0=ErrorCode.topic_authorization_failed.value)
    with pytest.raises(KafkaError, match="may not do this to the topic"):
        story.wait_for_records()
    story.go_on()
    assert story.take(Fetch)  # it is tried again


def test_an_offset_that_is_gone_is_looked_up_anew() -> None:
    story = assigned(1)
    story.answer_fetch(story.take_one(Fetch), p0=ErrorCode.offset_out_of_range.value)
    story.wait_for_records()
    story.answer_look_ups(offset=7)
    assert offsets_of(story.take_one(Fetch)) == {0: 7}


def test_without_an_offset_and_a_policy_the_program_is_told() -> None:
    story = assigned(1, auto_offset_reset="none")
    with pytest.raises(NoOffsetError):
        story.wait_for_records()
    assert not story.take(Fetch)


class TestNewLeader:
    """KIP-320: what was read of the old leader may be gone with it."""

    def read_then_change(self, **options: Any) -> tuple[Story, Validate]:
        story = assigned(1, begin_at=0, **options)
        story.answer_fetch(story.take_one(Fetch), p0=batch(0, 4))
        assert story.poll() == [0, 1, 2, 3]
        assert story.poll() == []
        story.take(Fetch)
        story.cluster = describe_cluster([2], leader_epoch=1)
        story.happen(lambda machine: machine.fetch_plan.on_broker_free(1))
        assert not story.take(Fetch)
        return story, story.take_one(Validate)

    def test_is_asked_for_the_end_of_the_epoch_before_it_is_fetched_from(self) -> None:
        story, asked = self.read_then_change()
        assert asked.fetch_epochs == {ZERO: 0}
        story.happen(lambda m: m.validated(asked, [LeaderEpochEnd(ZERO, 1, Position(4, 0))]))
        fetch = story.take_one(Fetch)
        assert (fetch.broker_id, offsets_of(fetch)) == (2, {0: 4})

    def test_takes_the_consumer_back_to_where_the_logs_part(self) -> None:
        story, asked = self.read_then_change()
        story.happen(lambda m: m.validated(asked, [LeaderEpochEnd(ZERO, 1, Position(2, 0))]))
        assert story.machine.attention  # what the program was given is gone
        asked = story.take_one(Validate)
        story.happen(lambda m: m.validated(asked, [LeaderEpochEnd(ZERO, 1, Position(2, 0))]))
        assert offsets_of(story.take_one(Fetch)) == {0: 2}

    def test_is_not_followed_silently_when_the_policy_is_to_raise(self) -> None:
        story, asked = self.read_then_change(auto_offset_reset="none")
        story.happen(lambda m: m.validated(asked, [LeaderEpochEnd(ZERO, 1, Position(2, 0))]))
        with pytest.raises(LogTruncatedError):
            story.wait_for_records()


class TestOlderLeader:
    """A committed offset may know of a newer leader than the metadata at hand."""

    def seek_behind_a_newer_leader(self) -> Story:
        story = assigned(1)
        story.answer_fetch(story.take_one(Fetch))
        story.take(Fetch)
        story.happen(lambda machine: machine.seek(ZERO, Position(7, leader_epoch=3)))
        story.happen(lambda machine: machine.fetch_plan.on_broker_free(1))
        return story

    def refresh(self, story: Story) -> None:
        story.fire(TimerKind.METADATA_PAUSE)
        story.refresh()

    def test_is_not_asked_for_the_offset(self) -> None:
        story = self.seek_behind_a_newer_leader()
        assert not story.take(Fetch)
        self.refresh(story)  # by a broker that has not heard of it either
        assert not story.take(Fetch)
        story.cluster = describe_cluster([2], leader_epoch=3)
        self.refresh(story)
        fetch = story.take_one(Fetch)
        assert (fetch.broker_id, offsets_of(fetch)) == (2, {0: 7})

    def test_is_asked_when_no_newer_one_comes_for_a_while(self) -> None:
        story = self.seek_behind_a_newer_leader()
        story.now += 60.0
        self.refresh(story)
        assert offsets_of(story.take_one(Fetch)) == {0: 7}

    def test_is_forgotten_with_the_position(self) -> None:
        story = self.seek_behind_a_newer_leader()
        story.happen(lambda machine: machine.seek(ZERO, Position(7, leader_epoch=0)))
        assert offsets_of(story.take_one(Fetch)) == {0: 7}


def test_after_an_offset_was_gone_what_was_read_before_it_says_nothing_of_the_position() -> None:
    story = assigned(1)
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 3))
    assert story.poll(limit=3) == [0, 1, 2]
    for offset in (40, 90):  # a second time as well
        story.answer_fetch(story.take_one(Fetch), p0=ErrorCode.offset_out_of_range.value)
        assert story.poll() == []
        story.answer_look_ups(offset)
        assert story.poll() == []
        assert story.machine.streams.position(ZERO) == Position(offset)
        assert story.machine.subscriptions.processed_positions == {ZERO: Position(offset)}


def test_a_failure_behind_records_does_not_call_the_program_away_from_them() -> None:
    story = assigned(1)
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 3))
    assert story.poll(limit=1) == [0]
    story.answer_fetch(story.take_one(Fetch), p0=ErrorCode.topic_authorization_failed.value)
    assert not story.machine.attention
    assert story.poll() == [1, 2]
    with pytest.raises(KafkaError):
        story.poll()
