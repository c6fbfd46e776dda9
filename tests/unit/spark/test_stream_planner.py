"""An idle query asks all the time; the cluster is asked now and then."""

from __future__ import annotations

import logging
from typing import cast
from uuid import uuid4

import pytest

from moldau.clock import Clock
from moldau.errors import GroupNotEmptyError, UnknownTopicError
from moldau.model import TopicPartition
from moldau.spark.offset_reader import FoundPartitions, OffsetReader
from moldau.spark.rules.offsets import Offsets
from moldau.spark.stream_planner import LatestOffsets, OffsetCommitter

ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


class CountingView:
    """A cluster that counts questions."""

    def __init__(self) -> None:
        self.ends = {ZERO: 5}
        self.partitions = [ZERO]
        self.topic_id = uuid4()
        self.recreated_ends: dict[TopicPartition, int] = {}  # of a topic that is about to be
        self.asked_for_offsets = 0
        self.asked_for_partitions = 0

    def find_partitions(self) -> FoundPartitions:
        self.asked_for_partitions += 1
        found = FoundPartitions(list(self.partitions), {"clicks": self.topic_id})
        if self.recreated_ends:
            self.ends, self.topic_id, self.recreated_ends = self.recreated_ends, uuid4(), {}
        return found

    def find_latest(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked_for_offsets += 1
        if not set(partitions) <= self.ends.keys():
            raise UnknownTopicError("it is gone")
        return {one: self.ends[one] for one in partitions}


class StoppedClock:
    """Moves when it is told to; nobody sleeps by it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def make(view: CountingView) -> tuple[LatestOffsets, StoppedClock]:
    clock = StoppedClock()
    return LatestOffsets(cast("OffsetReader", view), cast("Clock", clock)), clock


def test_many_questions_in_a_moment_are_one_for_the_cluster() -> None:
    view = CountingView()
    latest, _ = make(view)
    assert [latest.current().offsets for _ in range(50)] == [{ZERO: 5}] * 50
    assert (view.asked_for_offsets, view.asked_for_partitions) == (1, 2)


def test_offsets_get_old_in_a_tenth_of_a_second() -> None:
    view = CountingView()
    latest, clock = make(view)
    latest.current()
    view.ends = {ZERO: 9}
    clock.advance(0.09)
    assert latest.current().offsets == {ZERO: 5}
    clock.advance(0.02)
    assert latest.current().offsets == {ZERO: 9}
    assert view.asked_for_partitions == 3


def test_who_cannot_wait_gets_the_newest() -> None:
    view = CountingView()
    latest, _ = make(view)
    latest.current()
    view.ends = {ZERO: 9}
    assert latest.current(max_age_seconds=0).offsets == {ZERO: 9}


def test_new_partitions_are_found_within_a_second() -> None:
    view = CountingView()
    latest, clock = make(view)
    latest.current()
    view.ends, view.partitions = {ZERO: 5, ONE: 1}, [ZERO, ONE]
    clock.advance(0.5)
    assert latest.current().offsets == {ZERO: 5}
    clock.advance(0.6)
    assert latest.current().offsets == {ZERO: 5, ONE: 1}


def test_a_topic_that_went_meanwhile_is_noticed_at_once() -> None:
    view = CountingView()
    view.ends, view.partitions = {ZERO: 5, ONE: 1}, [ZERO, ONE]
    latest, clock = make(view)
    latest.current()
    view.ends, view.partitions = {ZERO: 5}, [ZERO]
    clock.advance(0.2)
    assert latest.current().offsets == {ZERO: 5}


def test_offsets_that_stay_the_same_stay_the_same_object() -> None:
    latest, clock = make(CountingView())
    first = latest.current()
    clock.advance(5)
    assert latest.current() is first


def test_offsets_are_of_the_topic_whose_id_comes_with_them() -> None:
    view = CountingView()
    latest, _ = make(view)
    old = latest.current()
    view.recreated_ends = {ZERO: 9}  # after the partitions are listed, before the offsets are
    new = latest.current(max_age_seconds=0)
    assert new == ({ZERO: 9}, {"clicks": view.topic_id})
    assert new.topic_ids != old.topic_ids


def test_a_recreated_topic_is_noticed_although_it_ends_where_the_old_one_did() -> None:
    view = CountingView()
    latest, clock = make(view)
    first = latest.current()
    view.topic_id = uuid4()
    clock.advance(1.1)
    assert latest.current() is not first
    assert latest.current() == ({ZERO: 5}, {"clicks": view.topic_id})


class Group:
    """Takes commits, or refuses them."""

    def __init__(self) -> None:
        self.commits: list[Offsets] = []
        self.refuses = False

    def commit(self, offsets: Offsets) -> None:
        if self.refuses:
            raise GroupNotEmptyError("it has members")
        self.commits.append(offsets)


def test_only_what_is_new_is_committed() -> None:
    group = Group()
    progress = OffsetCommitter(group.commit)
    progress.commit_completed({ZERO: 3, ONE: 4})
    progress.commit_completed({ZERO: 3, ONE: 4})
    progress.commit_completed({ZERO: 5, ONE: 4})
    assert group.commits == [{ZERO: 3, ONE: 4}, {ZERO: 5}]


def test_what_is_said_late_takes_nothing_back() -> None:
    group = Group()
    progress = OffsetCommitter(group.commit)
    progress.commit_completed({ZERO: 8, ONE: 4})
    progress.commit_at_least({ZERO: 5, ONE: 6})
    assert group.commits == [{ZERO: 8, ONE: 4}, {ONE: 6}]


def test_a_topic_made_again_takes_its_progress_back() -> None:
    group = Group()
    progress = OffsetCommitter(group.commit)
    progress.commit_completed({ZERO: 8})
    progress.commit_completed({ZERO: 2})
    assert group.commits == [{ZERO: 8}, {ZERO: 2}]


def test_a_recreated_topic_begins_with_no_progress() -> None:
    group = Group()
    progress = OffsetCommitter(group.commit)
    progress.commit_completed({ZERO: 8})
    progress.forget_topics({"clicks"})
    progress.commit_at_least({ZERO: 2})
    assert group.commits == [{ZERO: 8}, {ZERO: 2}]


def test_where_a_query_begins_is_not_committed() -> None:
    group = Group()
    progress = OffsetCommitter(group.commit)
    progress.start_at({ZERO: 3})
    progress.commit_completed({ZERO: 3})
    assert group.commits == []


def test_a_group_that_refuses_does_not_stop_the_query_and_is_told_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group, now = Group(), [100.0]
    group.refuses = True
    progress = OffsetCommitter(group.commit, lambda: now[0])
    with caplog.at_level(logging.WARNING, "moldau.spark"):
        progress.commit_completed({ZERO: 3})
        progress.commit_completed({ZERO: 4})
    assert len(caplog.records) == 1
    assert "it has members" in caplog.text
    group.refuses = False
    progress.commit_completed({ZERO: 4})
    progress.retry_refused()
    assert group.commits == []
    now[0] += 10
    progress.retry_refused()
    assert group.commits == [{ZERO: 4}]
    progress.retry_refused()
    assert group.commits == [{ZERO: 4}]


def test_further_progress_does_not_wait_for_what_was_refused() -> None:
    group = Group()
    group.refuses = True
    progress = OffsetCommitter(group.commit)
    progress.commit_completed({ZERO: 3})
    group.refuses = False
    progress.commit_completed({ZERO: 5, ONE: 1})
    assert group.commits == [{ZERO: 5, ONE: 1}]
