"""What a group is told of a query's progress."""

from __future__ import annotations

import logging

import pytest

from moldau.errors import GroupNotEmptyError
from moldau.model import TopicPartition
from moldau.spark.progress import ProgressCommits
from moldau.spark.rules.offset_maps import Offsets

ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


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
    progress = ProgressCommits(group.commit)
    progress.advance_to({ZERO: 3, ONE: 4})
    progress.advance_to({ZERO: 3, ONE: 4})
    progress.advance_to({ZERO: 5, ONE: 4})
    assert group.commits == [{ZERO: 3, ONE: 4}, {ZERO: 5}]


def test_what_is_said_late_takes_nothing_back() -> None:
    group = Group()
    progress = ProgressCommits(group.commit)
    progress.advance_to({ZERO: 8, ONE: 4})
    progress.advance_at_least_to({ZERO: 5, ONE: 6})
    assert group.commits == [{ZERO: 8, ONE: 4}, {ONE: 6}]


def test_a_topic_made_again_takes_its_progress_back() -> None:
    group = Group()
    progress = ProgressCommits(group.commit)
    progress.advance_to({ZERO: 8})
    progress.advance_to({ZERO: 2})
    assert group.commits == [{ZERO: 8}, {ZERO: 2}]


def test_a_recreated_topic_begins_with_no_progress() -> None:
    group = Group()
    progress = ProgressCommits(group.commit)
    progress.advance_to({ZERO: 8})
    progress.forget_topics({"clicks"})
    progress.advance_at_least_to({ZERO: 2})
    assert group.commits == [{ZERO: 8}, {ZERO: 2}]


def test_where_a_query_begins_is_not_committed() -> None:
    group = Group()
    progress = ProgressCommits(group.commit)
    progress.begin_at({ZERO: 3})
    progress.advance_to({ZERO: 3})
    assert group.commits == []


def test_a_group_that_refuses_does_not_stop_the_query_and_is_told_again_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group, now = Group(), [100.0]
    group.refuses = True
    progress = ProgressCommits(group.commit, lambda: now[0])
    with caplog.at_level(logging.WARNING, "moldau.spark"):
        progress.advance_to({ZERO: 3})
        progress.advance_to({ZERO: 4})
    assert len(caplog.records) == 1
    assert "it has members" in caplog.text
    group.refuses = False
    progress.advance_to({ZERO: 4})
    progress.maybe_repeat()
    assert group.commits == []
    now[0] += 10
    progress.maybe_repeat()
    assert group.commits == [{ZERO: 4}]
    progress.maybe_repeat()
    assert group.commits == [{ZERO: 4}]


def test_further_progress_does_not_wait_for_what_was_refused() -> None:
    group = Group()
    group.refuses = True
    progress = ProgressCommits(group.commit)
    progress.advance_to({ZERO: 3})
    group.refuses = False
    progress.advance_to({ZERO: 5, ONE: 1})
    assert group.commits == [{ZERO: 5, ONE: 1}]
