"""A member of a group: from state to state, and what it asks for on the way."""

from __future__ import annotations

import pytest

from client.rules.consumer_story import ONE, TWO, ZERO, Story
from moldau.client.consumer.rules.assignors import RangeAssignor
from moldau.client.consumer.rules.classic_membership import (
    CLASSIC_ENDS,
    CLASSIC_MOVES,
    ClassicMemberState,
    Joined,
)
from moldau.client.consumer.rules.instructions import (
    LearnTopics,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    TimerKind,
)
from moldau.client.consumer.rules.offset_manager import CommitMode
from moldau.client.rules.broker_errors import error_for
from moldau.errors import ErrorCode, InvariantViolation, KafkaError
from moldau.wire.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_subscription,
)


def failure(code: ErrorCode) -> KafkaError:
    return error_for(code, None)


def fail_request(story: Story, code: ErrorCode) -> None:
    story.happen(lambda machine: machine.require_classic_membership().request_failed(failure(code)))


def fail_heartbeat(story: Story, code: ErrorCode) -> None:
    beat = story.take_one(SendHeartbeat)
    story.happen(
        lambda machine: machine.require_classic_membership().heartbeat_failed(
            beat.heart, failure(code)
        )
    )


def test_every_state_can_be_reached_and_left() -> None:
    assert CLASSIC_MOVES.keys() == set(ClassicMemberState)
    reached = {ClassicMemberState.UNJOINED}
    for _ in ClassicMemberState:
        reached |= {to for state in reached for to in CLASSIC_MOVES[state]}
    assert reached | CLASSIC_ENDS == set(ClassicMemberState)


def test_a_move_that_is_not_in_the_table_is_refused() -> None:
    story = Story()
    story.join(ZERO)
    with pytest.raises(InvariantViolation, match="cannot move"):
        story.membership._move(ClassicMemberState.COMPLETING_REBALANCE)
    assert story.membership.state is ClassicMemberState.STABLE


def test_a_follower_joins_syncs_and_reads() -> None:
    story = Story()
    story.subscribe("t")
    assert story.membership.state is ClassicMemberState.UNJOINED
    story.wait_for_records()
    asked = story.take_one(SendJoin)
    assert (asked.member_id, [name for name, _ in asked.protocols]) == ("", ["range"])
    story.wanted.append(asked)
    story.answer_join(generation_id=7)
    assert story.membership.state is ClassicMemberState.COMPLETING_REBALANCE
    sync = story.take_one(SendSync)
    assert (sync.generation_id, sync.member_id, sync.assignments) == (7, "m", {})
    story.wanted.append(sync)
    story.answer_sync(ZERO, TWO)
    assert story.membership.state is ClassicMemberState.STABLE
    assert story.machine.subscriptions.partitions == {ZERO, TWO}


def test_the_leader_asks_for_topics_and_assigns_them() -> None:
    story = Story()
    story.subscribe("t")
    story.wait_for_records()
    story.take_one(SendJoin)
    data = encode_subscription(Subscription(topics=("t",)))
    joined = Joined(1, "a", "a", "range", members=[("a", None, data), ("b", None, data)])
    story.happen(lambda machine: machine.require_classic_membership().joined(joined))
    asked = story.take_one(LearnTopics)
    assert (story.membership.state, asked.topics) == (ClassicMemberState.ASSIGNING, ["t"])
    story.happen(lambda machine: machine.require_classic_membership().topics_learned(asked))
    found = {
        m: decode_assignment(a).partitions for m, a in story.take_one(SendSync).assignments.items()
    }
    assert found == {"a": (ZERO, ONE), "b": (TWO,)}


def test_an_assignor_that_fails_is_told_to_the_program_which_joins_again() -> None:
    class Broken(RangeAssignor):
        def assign(self, counts: object, members: object) -> dict[str, list[object]]:
            raise ZeroDivisionError("no partitions")

    story = Story(assignor=Broken())  # type: ignore[arg-type]
    story.subscribe("t")
    story.wait_for_records()
    story.take_one(SendJoin)
    data = encode_subscription(Subscription(topics=("t",)))
    joined = Joined(1, "a", "a", "range", members=[("a", None, data)])
    story.happen(lambda machine: machine.require_classic_membership().joined(joined))
    asked = story.take_one(LearnTopics)
    story.happen(lambda machine: machine.require_classic_membership().topics_learned(asked))
    with pytest.raises(ZeroDivisionError):
        story.wait_for_records()
    assert story.membership.state is ClassicMemberState.PREPARING_REBALANCE


def test_a_new_member_id_is_joined_with_at_once() -> None:
    story = Story()
    story.subscribe("t")
    story.wait_for_records()
    story.take_one(SendJoin)
    story.happen(lambda machine: machine.require_classic_membership().member_id_given("mine"))
    fail_request(story, ErrorCode.member_id_required)
    assert story.take_one(SendJoin).member_id == "mine"


def test_a_coordinator_that_moves_is_asked_again_after_longer_and_longer_pauses() -> None:
    story = Story()
    story.subscribe("t")
    story.wait_for_records()
    pauses: list[float] = []
    for _ in range(3):
        story.take_one(SendJoin)
        fail_request(story, ErrorCode.not_coordinator)
        assert story.membership.state is ClassicMemberState.BACKING_OFF
        before = story.now
        story.fire(TimerKind.JOIN)
        pauses.append(round(story.now - before, 3))
    assert pauses == [0.1, 0.2, 0.4]


def test_a_rebalance_takes_everything_from_an_eager_member_before_it_joins() -> None:
    story = Story(commit_mode=CommitMode.MANUAL)
    story.join(ZERO, ONE)
    story.fire(TimerKind.HEARTBEAT)
    fail_heartbeat(story, ErrorCode.rebalance_in_progress)
    assert story.membership.state is ClassicMemberState.REVOKING
    assert not story.take(SendJoin)  # the program works on records
    story.wait_for_records()
    assert story.membership.state is ClassicMemberState.PREPARING_REBALANCE
    assert not story.machine.subscriptions.partitions


def test_a_cooperative_member_keeps_what_it_has_and_joins_again_for_what_it_gave_up() -> None:
    story = Story(assignor="cooperative-sticky", commit_mode=CommitMode.MANUAL)
    story.join(ZERO, ONE)
    story.fire(TimerKind.HEARTBEAT)
    fail_heartbeat(story, ErrorCode.rebalance_in_progress)
    (asked,) = story.take(SendJoin)
    owned = decode_subscription(asked.protocols[0][1]).owned_partitions
    assert set(owned) == {ZERO, ONE}
    story.wanted.append(asked)
    story.answer_join(generation_id=2)
    story.answer_sync(ZERO)
    assert story.membership.state is ClassicMemberState.RECONCILING
    assert story.machine.subscriptions.partitions == {ZERO, ONE}
    story.wait_for_records()
    assert story.machine.subscriptions.partitions == {ZERO}
    assert (
        story.membership.state is ClassicMemberState.PREPARING_REBALANCE
    )  # so that somebody else gets the other one


def test_who_was_forgotten_loses_everything_and_joins_as_somebody_new() -> None:
    story = Story()
    story.join(ZERO)
    story.fire(TimerKind.HEARTBEAT)
    fail_heartbeat(story, ErrorCode.unknown_member_id)
    assert story.membership.is_lost
    story.wait_for_records()
    assert not story.machine.subscriptions.partitions
    assert story.take_one(SendJoin).member_id == ""


def test_an_old_generation_joins_again_under_its_id() -> None:
    story = Story()
    story.join(ZERO)
    story.fire(TimerKind.HEARTBEAT)
    fail_heartbeat(story, ErrorCode.illegal_generation)
    story.wait_for_records()
    assert story.take_one(SendJoin).member_id == "m"


def test_an_assignment_of_a_lost_place_is_not_taken_over() -> None:
    story = Story(assignor="cooperative-sticky")
    story.join(ZERO)
    story.fire(TimerKind.HEARTBEAT)
    fail_heartbeat(story, ErrorCode.rebalance_in_progress)
    story.answer_join(generation_id=2)
    story.fire(TimerKind.HEARTBEAT)
    fail_heartbeat(story, ErrorCode.unknown_member_id)
    story.wait_for_records()
    assert not story.machine.subscriptions.partitions
    assert not story.take(SendJoin)  # SyncGroup is under way still
    story.answer_sync(ONE)
    assert not story.machine.subscriptions.partitions
    assert story.take_one(SendJoin).member_id == ""


def test_a_program_that_asks_for_nothing_leaves_until_it_does() -> None:
    story = Story(max_poll_interval_ms=60_000)
    story.join(ZERO)
    story.now += 61.0
    story.fire(TimerKind.HEARTBEAT)
    assert not story.take(SendHeartbeat)
    leave = story.take_one(SendLeave)
    assert (leave.member_id, leave.is_last) == ("m", False)
    assert not story.take(SendJoin)
    story.wait_for_records()
    assert story.take_one(SendJoin).member_id == ""


def test_a_heartbeat_of_an_older_series_means_nothing() -> None:
    story = Story()
    story.join(ZERO)
    story.fire(TimerKind.HEARTBEAT)
    beat = story.take_one(SendHeartbeat)
    story.happen(
        lambda machine: machine.require_classic_membership().heartbeat_answered(beat.heart)
    )
    story.happen(
        lambda machine: machine.require_classic_membership().heartbeat_failed(
            beat.heart - 1, failure(ErrorCode.unknown_member_id)
        )
    )
    assert story.membership.state is ClassicMemberState.STABLE


def test_what_cannot_be_helped_is_raised_by_every_call_when_all_is_given_back() -> None:
    story = Story()
    story.join(ZERO)
    story.fire(TimerKind.HEARTBEAT)
    fail_heartbeat(story, ErrorCode.group_authorization_failed)
    assert story.had_news, "a call that waits is woken"
    assert story.membership.state is ClassicMemberState.FATAL
    for _ in range(2):
        with pytest.raises(KafkaError, match="may not do this to the group"):
            story.wait_for_records()
    assert story.membership.state is ClassicMemberState.UNJOINED
    assert not story.machine.subscriptions.partitions


def test_who_leaves_in_the_middle_of_a_join_drops_the_connection() -> None:
    story = Story()
    story.subscribe("t")
    story.wait_for_records()
    story.happen(lambda machine: machine.leave("closed"))
    leave = story.take_one(SendLeave)
    assert (leave.is_last, leave.drops_connection) == (True, True)
    assert not story.machine.has_left
    story.happen(lambda machine: machine.left())
    assert story.machine.has_left


def test_a_static_member_says_nothing_when_it_leaves() -> None:
    story = Story(group_instance_id="rack-1", commit_mode=CommitMode.MANUAL)
    story.join(ZERO)
    story.wait_for_records()
    story.happen(lambda machine: machine.leave("closed"))
    assert story.take_one(SendLeave).member_id == ""
