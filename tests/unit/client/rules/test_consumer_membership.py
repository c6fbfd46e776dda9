"""A member by the consumer protocol: from state to state, and what it tells on the way."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from client.rules.consumer_story import ALL_EVENTS, ONE, TWO, ZERO, Story, describe_cluster
from moldau.client.admin.values import GroupOffset
from moldau.client.consumer.rules.consumer_membership import (
    CONSUMER_ENDS,
    CONSUMER_MOVES,
    ConsumerMembership,
    ConsumerMemberState,
    HeartbeatAnswer,
)
from moldau.client.consumer.rules.instructions import (
    FinishCommit,
    Refresh,
    SendCommit,
    SendConsumerHeartbeat,
    SendConsumerLeave,
    TimerKind,
)
from moldau.client.consumer.rules.machine import ConsumerMachine
from moldau.client.consumer.rules.offset_manager import CommitMode
from moldau.client.consumer.rules.rebalance_listener import RebalanceEvent
from moldau.client.consumer.rules.subscription_state import subscribe_to
from moldau.client.rules.broker_errors import error_for
from moldau.errors import ClientError, ErrorCode, InvariantViolation, KafkaError
from moldau.model import TopicPartition

A, B = UUID(int=1), UUID(int=2)
FENCED, UNKNOWN = ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id


class MemberStory(Story):
    """Topic t has the id A, if the client has heard of it."""

    def __init__(self, **options: object) -> None:
        super().__init__(group_protocol="consumer", **options)  # type: ignore[arg-type]
        self.know(A)

    def know(self, topic_id: UUID | None) -> None:
        cluster = describe_cluster()
        topics = {"t": replace(cluster.topics["t"], topic_id=topic_id)}
        self.cluster = replace(cluster, topics=topics)

    @property
    def member(self) -> ConsumerMembership:
        return self.machine.require_consumer_membership()

    def answer(self, epoch: int, *indexes: int, topic_id: UUID = A) -> SendConsumerHeartbeat:
        """The heartbeat that is under way is answered with an assignment."""
        beat = self.take_one(SendConsumerHeartbeat)
        found = HeartbeatAnswer(epoch, 5_000, {topic_id: frozenset(indexes)})
        self.happen(lambda _: self.member.heartbeat_answered(beat.beat, found))
        return beat

    def nod(self, epoch: int) -> SendConsumerHeartbeat:
        """It is answered, and nothing has changed."""
        beat = self.take_one(SendConsumerHeartbeat)
        found = HeartbeatAnswer(epoch, 5_000)
        self.happen(lambda _: self.member.heartbeat_answered(beat.beat, found))
        return beat

    def fail(self, code: ErrorCode) -> SendConsumerHeartbeat:
        beat = self.take_one(SendConsumerHeartbeat)
        self.happen(lambda _: self.member.heartbeat_failed(beat.beat, error_for(code, None)))
        return beat

    def begin(self, *indexes: int, epoch: int = 1) -> None:
        """From nothing to a member with these partitions, at rest with the program."""
        self.subscribe("t")
        self.wait_for_records()
        self.answer(epoch, *indexes)
        self.answer_look_ups()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.machine.subscriptions.partitions


def test_every_state_can_be_reached_and_left() -> None:
    assert CONSUMER_MOVES.keys() == set(ConsumerMemberState)
    reached = {ConsumerMemberState.UNSUBSCRIBED}
    for _ in ConsumerMemberState:
        reached |= {to for state in reached for to in CONSUMER_MOVES[state]}
    assert reached | CONSUMER_ENDS == set(ConsumerMemberState)


def test_a_move_that_is_not_in_the_table_is_refused() -> None:
    story = MemberStory()
    story.begin(0)
    with pytest.raises(InvariantViolation, match="cannot move"):
        story.member._move(ConsumerMemberState.JOINING)
    assert story.member.state is ConsumerMemberState.STABLE


@pytest.mark.parametrize("code", [ErrorCode.invalid_regular_expression, ErrorCode.invalid_request])
def test_a_pattern_is_the_brokers_to_match_until_it_refuses(code: ErrorCode) -> None:
    story = MemberStory()
    story.happen(
        lambda machine: machine.subscribe(subscribe_to(None, "t+", None, with_internal=False))
    )
    story.wait_for_records()
    refresh = story.take_one(Refresh)
    story.happen(lambda machine: machine.refreshed(refresh))
    story.wait_for_records()
    first = story.answer(3, 0, 1)
    assert (first.topics, first.pattern) == (frozenset(), "t+")
    assert story.owned == {ZERO, ONE}
    story.fire(TimerKind.HEARTBEAT)
    second = story.nod(3)
    assert (second.topics, second.pattern) == (None, None)
    story.fire(TimerKind.HEARTBEAT)
    story.fail(code)
    story.fire(TimerKind.HEARTBEAT)
    third = story.nod(3)
    assert (third.topics, third.pattern) == (frozenset({"t"}), "")
    assert story.owned == {ZERO, ONE}


def test_a_member_says_all_of_itself_first_and_then_only_what_has_changed() -> None:
    story = MemberStory(client_rack="r", group_remote_assignor="range", max_poll_interval_ms=9_000)
    story.subscribe("t")
    story.wait_for_records()
    assert story.member.state is ConsumerMemberState.JOINING
    first = story.answer(3, 0, 1)
    assert first == SendConsumerHeartbeat(
        first.beat, "mine", 0, None, "r", 9_000, "range", frozenset({"t"}), frozenset()
    )
    assert story.owned == {ZERO, ONE}
    assert story.member.state is ConsumerMemberState.STABLE
    story.fire(TimerKind.HEARTBEAT)
    second = story.nod(3)
    assert second[2:] == (3, None, None, None, None, None, frozenset({(A, 0), (A, 1)}), None)
    story.fire(TimerKind.HEARTBEAT)
    assert story.nod(3)[2:] == (3, None, None, None, None, None, None, None)


def test_what_is_not_assigned_any_more_is_committed_given_up_and_told_at_once() -> None:
    story = MemberStory(listened_to=ALL_EVENTS)
    story.begin(0, 1)
    assert story.make_call() == (RebalanceEvent.ASSIGNED, {ZERO, ONE})
    story.answer_look_ups(offset=7)
    story.fire(TimerKind.HEARTBEAT)
    story.answer(3, 0)
    assert story.member.state is ConsumerMemberState.RECONCILING
    commit = story.take_one(SendCommit)
    assert commit.offsets.keys() == {ONE}
    assert commit.identity[:2] == (3, "mine")
    assert not story.take(SendConsumerHeartbeat)
    story.happen(lambda machine: machine.require_commits().committed())
    assert story.make_call() == (RebalanceEvent.REVOKED, {ONE})
    assert story.answer(4, 0, 2).owned == {(A, 0)}
    assert story.make_call() == (RebalanceEvent.ASSIGNED, {TWO})
    assert story.member.state is ConsumerMemberState.STABLE
    assert story.owned == {ZERO, TWO}


def test_partitions_wait_for_the_program_while_heartbeats_go_on() -> None:
    story = MemberStory(commit_mode=CommitMode.MANUAL)
    story.begin(0, 1)
    story.go_on()  # the program works
    story.fire(TimerKind.HEARTBEAT)
    story.answer(3, 0)
    assert story.owned == {ZERO, ONE}
    story.fire(TimerKind.HEARTBEAT)
    assert story.nod(3).owned is None  # it still has both
    story.wait_for_records()
    assert story.owned == {ZERO}
    assert story.take_one(SendConsumerHeartbeat).owned == {(A, 0)}


def test_a_topic_whose_name_is_not_known_waits_for_metadata() -> None:
    story = MemberStory()
    story.know(None)
    story.begin(0)
    assert story.member.state is ConsumerMemberState.RECONCILING
    assert story.owned == frozenset()
    story.know(A)
    asked = story.take(Refresh)[-1]
    story.happen(lambda machine: machine.refreshed(asked))
    assert story.owned == {ZERO}
    assert story.member.state is ConsumerMemberState.STABLE


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    story = MemberStory(commit_mode=CommitMode.MANUAL, listened_to=ALL_EVENTS)
    story.begin(0)
    story.make_call()
    story.know(B)
    story.fire(TimerKind.HEARTBEAT)
    story.answer(2, 0, topic_id=B)
    assert story.make_call() == (RebalanceEvent.REVOKED, {ZERO})
    assert story.nod(2).owned == {(B, 0)}  # what it is about to take is its own already
    assert story.make_call() == (RebalanceEvent.ASSIGNED, {ZERO})
    story.fire(TimerKind.HEARTBEAT)
    assert story.take_one(SendConsumerHeartbeat).owned is None  # as it has said


def test_who_is_about_to_take_partitions_does_not_say_that_it_has_given_them_up() -> None:
    """The coordinator would give them away, and if its answer were lost there were two readers."""
    story = MemberStory(commit_mode=CommitMode.MANUAL, listened_to=ALL_EVENTS)
    story.begin(0)
    story.make_call()
    story.fire(TimerKind.HEARTBEAT)
    story.answer(2, 0, topic_id=B)  # of a topic that it does not know yet
    story.make_call()
    assert story.take_one(SendConsumerHeartbeat).owned == {(B, 0)}


@pytest.mark.parametrize("code", [FENCED, UNKNOWN])
def test_a_member_that_was_fenced_loses_its_partitions_and_joins_again(code: ErrorCode) -> None:
    story = MemberStory(listened_to=ALL_EVENTS)
    story.begin(0, epoch=5)
    story.make_call()
    story.go_on()
    story.fire(TimerKind.HEARTBEAT)
    story.fail(code)
    assert story.member.state is ConsumerMemberState.FENCED
    assert story.member.is_lost
    assert not story.take(SendConsumerHeartbeat)  # the program works on records still
    story.wait_for_records()
    assert not story.take(SendCommit)
    assert story.make_call() == (RebalanceEvent.LOST, {ZERO})
    again = story.answer(7, 0)
    assert (again.member_id, again.epoch, again.owned) == ("mine", 0, frozenset())
    assert again.topics == {"t"}


@pytest.mark.parametrize(
    "code", [ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator]
)
def test_after_a_failure_everything_is_said_again(code: ErrorCode) -> None:
    story = MemberStory()
    story.begin(0, epoch=2)
    for _ in range(2):
        story.fire(TimerKind.HEARTBEAT)
        story.fail(code)
        assert story.owned == {ZERO}
    story.fire(TimerKind.HEARTBEAT)
    again = story.nod(2)
    assert (again.epoch, again.topics, again.owned) == (2, {"t"}, {(A, 0)})
    assert again.rebalance_timeout_ms is not None


def test_a_join_that_fails_is_made_again_after_a_pause() -> None:
    story = MemberStory()
    story.subscribe("t")
    story.wait_for_records()
    for code in (ErrorCode.not_coordinator, UNKNOWN):
        assert story.fail(code).epoch == 0
        assert not story.take(SendConsumerHeartbeat)
        story.fire(TimerKind.HEARTBEAT)
    story.answer(1, 0)
    assert story.owned == {ZERO}


@pytest.mark.parametrize(
    "code", [ErrorCode.unreleased_instance_id, ErrorCode.group_authorization_failed]
)
def test_what_does_not_pass_is_the_programs_to_know(code: ErrorCode) -> None:
    story = MemberStory()
    story.begin(0)
    story.fire(TimerKind.HEARTBEAT)
    story.fail(code)
    assert story.had_news, "a call that waits is woken"
    assert story.member.state is ConsumerMemberState.UNSUBSCRIBED
    assert story.owned == frozenset()
    with pytest.raises(KafkaError):
        story.happen(ConsumerMachine.raise_failures)


def test_other_topics_are_told_at_once() -> None:
    story = MemberStory()
    story.begin(0)
    story.subscribe("t", "u")
    assert story.nod(2).topics == {"t", "u"}


def test_what_changes_while_a_heartbeat_is_under_way_is_told_after_its_answer() -> None:
    story = MemberStory()
    story.begin(0)
    story.fire(TimerKind.HEARTBEAT)
    story.subscribe("u")
    assert story.nod(2).topics is None
    assert story.nod(3).topics == {"u"}


def test_a_program_that_is_too_slow_leaves_until_it_asks_again() -> None:
    story = MemberStory(max_poll_interval_ms=4_000)
    story.begin(0)
    story.go_on()
    story.fire(TimerKind.HEARTBEAT)
    assert story.take_one(SendConsumerLeave) == SendConsumerLeave("mine", -1, None, is_last=False)
    assert not story.take(SendConsumerHeartbeat)
    story.wait_for_records()
    assert story.take_one(SendConsumerHeartbeat).epoch == 0


def test_a_slow_program_without_partitions_does_not_join_until_it_asks_again() -> None:
    story = MemberStory(max_poll_interval_ms=4_000)
    story.begin()
    story.go_on()
    story.fire(TimerKind.HEARTBEAT)
    assert story.take_one(SendConsumerLeave)
    assert story.member.state is ConsumerMemberState.STALE
    assert not story.take(SendConsumerHeartbeat)
    story.wait_for_records()
    assert story.member.state is ConsumerMemberState.JOINING


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("one", -2)])
def test_a_static_member_says_that_it_means_to_come_back(
    instance_id: str | None, epoch: int
) -> None:
    story = MemberStory(group_instance_id=instance_id, commit_mode=CommitMode.MANUAL)
    story.begin(0)
    story.happen(lambda machine: machine.close(has_failed=False))
    story.happen(lambda machine: machine.leave("closing"))
    left = story.take_one(SendConsumerLeave)
    assert left == SendConsumerLeave("mine", epoch, instance_id, is_last=True)
    assert story.owned == frozenset()


def test_answers_and_timers_of_former_heartbeats_mean_nothing() -> None:
    story = MemberStory()
    story.begin(0, epoch=4)
    late = HeartbeatAnswer(9, 5_000, {})
    story.happen(lambda _: story.member.heartbeat_answered(1, late))
    story.happen(lambda _: story.member.heartbeat_failed(1, ClientError("too late")))
    story.happen(lambda _: story.member.on_heartbeat_due(1))
    assert story.member.epoch == 4
    assert story.owned == {ZERO}
    assert not story.take(SendConsumerHeartbeat)


def test_a_commit_in_a_former_epoch_is_made_again_in_the_new_one() -> None:
    story = MemberStory(commit_mode=CommitMode.MANUAL)
    story.begin(0, epoch=1)
    offsets = {ZERO: GroupOffset(offset=5)}
    story.happen(lambda machine: machine.require_commits().commit(1, offsets, None))
    assert story.take_one(SendCommit).identity.generation_id == 1
    story.fire(TimerKind.HEARTBEAT)
    story.nod(2)
    stale = error_for(ErrorCode.stale_member_epoch, None)
    story.happen(lambda machine: machine.require_commits().failed(stale))
    story.fire(TimerKind.COMMIT)
    assert story.take_one(SendCommit).identity.generation_id == 2
    story.happen(lambda machine: machine.require_commits().committed())
    assert story.take_one(FinishCommit).failure is None


def test_who_is_no_member_commits_as_somebody_outside() -> None:
    story = MemberStory()
    assert story.member.identity == (-1, "", None)
    assert story.machine.find_epoch_member() is None
    story.begin(0, epoch=3)
    assert story.machine.find_epoch_member() == (3, "mine", None)
