"""Partitions that come and go, while the program is at work or not."""

from __future__ import annotations

import pytest

from client.rules.consumer_story import ALL_EVENTS, ONE, ZERO, Story, batch
from moldau.client.consumer.rules.instructions import (
    Fetch,
    LookUpCommitted,
    SendCommit,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    TimerKind,
)
from moldau.client.consumer.rules.offset_manager import CommitMode
from moldau.client.consumer.rules.rebalance_listener import (
    REVOCATION_MOVES,
    RebalanceEvent,
    Revocation,
    RevocationStep,
)
from moldau.client.rules.broker_errors import error_for
from moldau.errors import ErrorCode, InvariantViolation


def rebalance(story: Story, code: ErrorCode = ErrorCode.rebalance_in_progress) -> None:
    story.fire(TimerKind.HEARTBEAT)
    beat = story.take_one(SendHeartbeat)
    story.happen(
        lambda machine: machine.require_classic_membership().heartbeat_failed(
            beat.heart, error_for(code, None)
        )
    )


def read_some(story: Story) -> None:
    """The program is given the records 0 to 2 of partition 0, and works on them."""
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 3))
    assert story.poll() == [0, 1, 2]


def test_a_hand_over_takes_its_steps_in_order() -> None:
    assert REVOCATION_MOVES.keys() == set(RevocationStep)
    going = Revocation(frozenset({ZERO}), is_lost=False)
    with pytest.raises(InvariantViolation):
        going.move(RevocationStep.AWAITING_IDLE)


def test_partitions_go_when_the_program_rests_offsets_are_committed_and_it_was_told() -> None:
    story = Story(listened_to={RebalanceEvent.REVOKED})
    story.join(ZERO)
    read_some(story)
    rebalance(story)
    assert not story.take(SendCommit)  # the program is at work
    assert story.machine.attention
    assert story.wait_for_records() is False
    commit = story.take_one(SendCommit)
    assert {p: at.offset for p, at in commit.offsets.items()} == {ZERO: 3}
    assert story.machine.next_listener_call() is None
    story.happen(lambda machine: machine.require_commits().committed())
    assert story.make_call() == (RebalanceEvent.REVOKED, {ZERO})
    assert not story.machine.subscriptions.partitions
    assert story.take(SendJoin)


def test_a_commit_that_fails_does_not_keep_the_partitions() -> None:
    story = Story()
    story.join(ZERO)
    read_some(story)
    rebalance(story)
    story.wait_for_records()
    story.take_one(SendCommit)
    refused = error_for(ErrorCode.unknown_member_id, None)
    story.happen(lambda machine: machine.require_commits().failed(refused))
    assert story.take(SendJoin)


@pytest.mark.parametrize(
    ("listened_to", "told"),
    [(ALL_EVENTS, RebalanceEvent.LOST), ({RebalanceEvent.REVOKED}, RebalanceEvent.REVOKED)],
)
def test_what_others_have_already_is_not_committed(
    listened_to: frozenset[RebalanceEvent], told: RebalanceEvent
) -> None:
    story = Story(listened_to=listened_to)
    story.join(ZERO)
    if RebalanceEvent.ASSIGNED in listened_to:
        assert story.make_call() == (RebalanceEvent.ASSIGNED, {ZERO})
        story.answer_look_ups()
    read_some(story)
    rebalance(story, ErrorCode.unknown_member_id)
    story.wait_for_records()
    assert story.make_call() == (told, {ZERO})
    assert not story.take(SendCommit)


def test_a_loss_during_a_hand_over_is_told_as_a_loss() -> None:
    story = Story(listened_to={RebalanceEvent.REVOKED, RebalanceEvent.LOST})
    story.join(ZERO)
    read_some(story)
    rebalance(story)
    rebalance(story, ErrorCode.unknown_member_id)
    story.wait_for_records()
    assert story.make_call() == (RebalanceEvent.LOST, {ZERO})


def test_nothing_is_fetched_before_the_program_was_told() -> None:
    story = Story(listened_to={RebalanceEvent.ASSIGNED})
    story.join(ZERO)
    assert not story.take(Fetch)
    assert not story.take(LookUpCommitted)
    assert story.make_call() == (RebalanceEvent.ASSIGNED, {ZERO})
    story.answer_look_ups()
    assert story.take(Fetch)


def test_what_the_program_never_heard_of_leaves_without_a_word() -> None:
    story = Story(listened_to=ALL_EVENTS)
    story.join(ZERO)
    rebalance(story, ErrorCode.unknown_member_id)
    assert story.machine.next_listener_call() is None
    assert not story.machine.subscriptions.partitions
    assert story.take(SendJoin)


def test_a_call_that_was_begun_is_not_called_off() -> None:
    story = Story(listened_to=ALL_EVENTS)
    story.join(ZERO)
    story.wait_for_records()
    call = story.machine.next_listener_call()
    assert call is not None
    story.happen(lambda machine: machine.mark_call_begun(call))
    rebalance(story, ErrorCode.unknown_member_id)
    story.happen(lambda machine: machine.listener_called(call))
    assert story.make_call() == (RebalanceEvent.LOST, {ZERO})


def test_what_leaves_is_not_given_any_more_but_the_rest_is() -> None:
    story = Story(assignor="cooperative-sticky", commit_mode=CommitMode.MANUAL)
    story.join(ZERO, ONE)
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 2), p1=batch(10, 2))
    rebalance(story)
    story.answer_join(generation_id=2)
    story.answer_sync(ONE)
    assert story.poll() == [10, 11]
    assert story.machine.subscriptions.partitions == {ONE}


def test_leaving_gives_everything_up_as_a_member_still() -> None:
    story = Story(listened_to={RebalanceEvent.REVOKED})
    story.join(ZERO)
    read_some(story)
    story.happen(lambda machine: machine.close(has_failed=False))
    story.happen(lambda machine: machine.leave("closed"))
    assert story.take_one(SendCommit).identity.generation_id == 1
    story.happen(lambda machine: machine.require_commits().committed())
    assert not story.take(SendLeave)
    assert story.make_call() == (RebalanceEvent.REVOKED, {ZERO})
    assert story.take_one(SendLeave).member_id == "m"


def test_a_record_whose_work_failed_is_not_committed_when_the_consumer_is_closed() -> None:
    story = Story()
    story.join(ZERO)
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 3))
    assert story.poll(limit=2) == [0, 1]
    story.happen(lambda machine: machine.close(has_failed=True))
    story.happen(lambda machine: machine.leave("closed"))
    (offset,) = story.take_one(SendCommit).offsets.values()
    assert offset.offset == 0


def test_manual_commits_are_left_to_the_program() -> None:
    story = Story(commit_mode=CommitMode.MANUAL)
    story.join(ZERO)
    read_some(story)
    rebalance(story)
    story.wait_for_records()
    assert not story.take(SendCommit)
    assert story.take(SendJoin)


def test_what_was_read_of_a_topic_that_is_not_wanted_any_more_is_committed() -> None:
    story = Story()
    story.join(ZERO)
    read_some(story)
    story.subscribe("u")
    story.wait_for_records()
    commit = story.take_one(SendCommit)
    assert {p: at.offset for p, at in commit.offsets.items()} == {ZERO: 3}


def test_a_topic_that_is_wanted_again_before_it_has_gone_is_read_on() -> None:
    story = Story(assignor="cooperative-sticky")
    story.join(ZERO)
    story.answer_fetch(story.take_one(Fetch), p0=batch(0, 3))
    assert story.poll(limit=2) == [0, 1]
    rebalance(story)
    story.subscribe("u")  # while the join is under way
    story.subscribe("t")
    story.answer_join(generation_id=2)
    story.answer_sync(ZERO)
    story.answer_join(generation_id=3)
    story.answer_sync(ZERO)
    story.answer_fetch(story.take_one(Fetch), p0=batch(3, 2))  # of before
    (again,) = story.take_one(Fetch).wanted.values()
    assert again.fetch_offset == 2  # what was fetched and not given is fetched again
