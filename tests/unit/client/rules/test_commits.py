"""Commits: one after the other, again while it may help, and never for somebody else."""

from __future__ import annotations

import pytest

from client.rules.consumer_story import ONE, ZERO, Story, batch
from moldau.client.admin.values import GroupOffset
from moldau.client.consumer.rules.instructions import (
    Fetch,
    FinishCommit,
    SendCommit,
    SendHeartbeat,
    SendLeave,
    TimerKind,
)
from moldau.client.consumer.rules.offset_manager import CommitMode
from moldau.client.rules.broker_errors import error_for
from moldau.errors import (
    CommitFailedError,
    ConfigurationError,
    ErrorCode,
    OperationTimeoutError,
    UnknownTopicError,
)

FIVE = {ZERO: GroupOffset(offset=5)}
SIX = {ZERO: GroupOffset(offset=6)}


def commit(story: Story, commit_id: int, offsets: dict, timeout: float | None = None) -> None:  # type: ignore[type-arg]
    story.happen(lambda machine: machine.require_commits().commit(commit_id, offsets, timeout))


def fail(story: Story, code: ErrorCode) -> None:
    story.happen(lambda machine: machine.require_commits().failed(error_for(code, None)))


def succeed(story: Story) -> None:
    story.happen(lambda machine: machine.require_commits().committed())


def joined(assignor: str = "cooperative-sticky") -> Story:
    story = Story(assignor=assignor)
    story.join(ZERO, ONE)
    return story


def test_the_words_for_modes_are_checked() -> None:
    assert CommitMode.parse("before") is CommitMode.BEFORE
    with pytest.raises(ConfigurationError, match="at least once"):
        CommitMode.parse("sometimes")


def test_a_younger_commit_waits_for_the_older_one() -> None:
    story = joined()
    commit(story, 1, FIVE)
    commit(story, 2, SIX)
    assert story.take_one(SendCommit).offsets == FIVE
    succeed(story)
    assert story.take_one(FinishCommit) == FinishCommit(1, None)
    assert story.take_one(SendCommit).offsets == SIX


def test_nothing_to_commit_is_committed_at_once() -> None:
    story = joined()
    commit(story, 1, {})
    assert story.take_one(FinishCommit) == FinishCommit(1, None)
    assert not story.take(SendCommit)


def test_a_coordinator_that_loads_is_asked_again_until_the_time_is_over() -> None:
    story = joined()
    commit(story, 1, FIVE, timeout=0.25)
    for _ in range(2):
        story.take_one(SendCommit)
        fail(story, ErrorCode.coordinator_load_in_progress)
        if not story.take(FinishCommit):
            story.fire(TimerKind.COMMIT)
    story.take(SendCommit)
    commit(story, 2, FIVE, timeout=0.05)
    fail(story, ErrorCode.coordinator_load_in_progress)
    (ended,) = story.take(FinishCommit)
    assert isinstance(ended.failure, OperationTimeoutError)


def test_in_a_rebalance_a_member_that_keeps_its_partitions_waits() -> None:
    story = joined()
    commit(story, 1, FIVE)
    story.take_one(SendCommit)
    fail(story, ErrorCode.rebalance_in_progress)
    assert not story.take(FinishCommit)
    story.fire(TimerKind.COMMIT)
    assert story.take(SendCommit)


def test_partitions_of_others_are_not_waited_for() -> None:
    story = joined()
    elsewhere = {ZERO._replace(partition=2): GroupOffset(offset=1)}
    commit(story, 1, elsewhere)
    fail(story, ErrorCode.rebalance_in_progress)
    assert isinstance(story.take_one(FinishCommit).failure, CommitFailedError)


def test_a_partition_that_has_gone_and_come_back_is_not_waited_for() -> None:
    story = joined()
    commit(story, 1, FIVE)
    story.take_one(SendCommit)
    story.happen(lambda machine: machine.owned_partitions.remove_partitions(frozenset({ZERO})))
    story.happen(lambda machine: machine.owned_partitions.add_partitions({ZERO}))
    fail(story, ErrorCode.rebalance_in_progress)
    assert isinstance(story.take_one(FinishCommit).failure, CommitFailedError)


def test_a_member_that_is_lost_between_two_attempts_does_not_try_again() -> None:
    story = joined()
    commit(story, 1, FIVE)
    story.take_one(SendCommit)
    fail(story, ErrorCode.coordinator_load_in_progress)
    story.now += 3.0
    beat_due = story.membership._heart
    story.happen(lambda machine: machine.require_classic_membership().on_heartbeat_due(beat_due))
    beat = story.take_one(SendHeartbeat)
    forgotten = error_for(ErrorCode.unknown_member_id, None)
    story.happen(
        lambda machine: machine.require_classic_membership().heartbeat_failed(beat.heart, forgotten)
    )
    story.happen(lambda machine: machine.require_commits().on_retry())
    assert not story.take(SendCommit)
    assert isinstance(story.take_one(FinishCommit).failure, CommitFailedError)


def test_what_will_not_pass_is_raised_as_it_is() -> None:
    story = joined()
    commit(story, 1, FIVE)
    fail(story, ErrorCode.unknown_topic_or_partition)
    assert isinstance(story.take_one(FinishCommit).failure, UnknownTopicError)


def test_offsets_are_committed_when_it_is_time_and_only_what_has_moved() -> None:
    story = Story(auto_commit_interval_ms=1000)
    story.join(ZERO)
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 3))
    assert story.poll() == [0, 1, 2]
    story.wait_for_records()
    assert not story.take(SendCommit)
    story.now += 1.5
    story.wait_for_records()
    (sent,) = story.take(SendCommit)
    assert sent.offsets == {ZERO: GroupOffset(offset=3, leader_epoch=0)}
    succeed(story)
    story.now += 1.5
    story.wait_for_records()
    assert not story.take(SendCommit)


def lose_and_come_back(story: Story) -> None:
    """The group forgets the member, whose partitions others read, and it joins again."""
    beat_due = story.membership._heart
    story.now += 3.0
    story.happen(lambda machine: machine.require_classic_membership().on_heartbeat_due(beat_due))
    beat = story.take_one(SendHeartbeat)
    forgotten = error_for(ErrorCode.unknown_member_id, None)
    story.happen(
        lambda machine: machine.require_classic_membership().heartbeat_failed(beat.heart, forgotten)
    )
    story.wait_for_records()
    story.go_on()
    story.answer_join(generation_id=7, member_id="n")
    story.answer_sync(ZERO, ONE)


def test_a_commit_that_waits_for_a_coordinator_is_not_made_by_a_member_that_came_back() -> None:
    story = joined()
    commit(story, 1, FIVE)
    story.take_one(SendCommit)
    fail(story, ErrorCode.not_coordinator)
    lose_and_come_back(story)
    story.happen(lambda machine: machine.require_commits().on_retry())
    assert not story.take(SendCommit)  # others may have committed more meanwhile
    assert isinstance(story.take_one(FinishCommit).failure, CommitFailedError)


def test_a_commit_that_waits_for_its_turn_is_not_made_for_a_partition_that_has_gone() -> None:
    story = joined()
    commit(story, 1, {ONE: GroupOffset(offset=5)})
    commit(story, 2, FIVE)
    story.take_one(SendCommit)
    story.happen(lambda machine: machine.owned_partitions.remove_partitions(frozenset({ZERO})))
    succeed(story)
    assert not story.take(SendCommit)
    first, second = story.take(FinishCommit)
    assert first == FinishCommit(1, None)
    assert isinstance(second.failure, CommitFailedError)


def test_without_a_membership_commits_wait_for_their_turn_whatever_is_read_by_then() -> None:
    story = Story()
    story.happen(lambda machine: machine.assign([ZERO, ONE]))
    commit(story, 1, {ONE: GroupOffset(offset=5)})
    commit(story, 2, FIVE)
    story.take_one(SendCommit)
    story.happen(lambda machine: machine.assign([ONE]))
    succeed(story)
    assert story.take_one(SendCommit).offsets == FIVE


def test_what_was_read_of_a_partition_that_is_not_assigned_any_more_is_committed() -> None:
    story = Story()
    story.happen(lambda machine: machine.assign([ZERO, ONE]))
    story.wait_for_records()
    story.refresh()
    story.answer_look_ups()
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 3))
    assert story.poll() == [0, 1, 2]
    story.happen(lambda machine: machine.assign([ONE]))
    sent = story.take_one(SendCommit)
    assert sent.offsets == {ZERO: GroupOffset(offset=3, leader_epoch=0)}


def test_a_member_leaves_when_the_commits_that_the_program_asked_for_have_ended() -> None:
    story = Story(commit_mode=CommitMode.MANUAL)
    story.join(ZERO)
    commit(story, 1, FIVE)
    story.take_one(SendCommit)
    story.happen(lambda machine: machine.close(has_failed=False))
    story.happen(lambda machine: machine.leave("the consumer was closed"))
    assert not story.take(SendLeave)
    succeed(story)
    assert story.take_one(FinishCommit) == FinishCommit(1, None)
    assert story.take(SendLeave)
