"""Corners of the machine that are not stories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.coordinators.groups.rules.classic_group import ClassicGroup, ClassicGroupState
from moldau.coordinators.groups.rules.events import (
    AppendFailed,
    CommitOffsets,
    CommitTransactionOffsets,
    DeleteGroup,
    DeleteOffsets,
    ExpireOffsets,
    GroupProtocol,
    GroupTimer,
    GroupTimerKind,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    LeavingMember,
    PartitionsAnswer,
    TimerFired,
)
from moldau.coordinators.groups.rules.groups import Groups
from moldau.coordinators.groups.rules.outcome import Arm, Disarm, GroupLimits, Outcome
from moldau.coordinators.groups.rules.records import (
    CommittedOffset,
    GroupMetadata,
    GroupRecord,
    OffsetRecord,
    StoredMember,
)
from moldau.errors import ErrorCode

NOW_MS = 1_000_000
HOUR_MS = 3_600_000

JOIN = Join(
    group_id="g",
    member_id="",
    instance_id=None,
    new_member_id="new-1",
    client_id="client",
    client_host="/127.0.0.1",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    protocols=(GroupProtocol("range", b""),),
    needs_member_id=True,
    can_skip_assignment=True,
)


def groups(**limits: int) -> Groups:
    return Groups(replace(GroupLimits(), **limits))


def play(machine: Groups, outcome: Outcome) -> Outcome:
    """What the shell does with the records."""
    for record in outcome.records:
        machine.apply(record)
    return outcome


def commit(text: str = "", generation: int = -1, *, knows: bool = True) -> CommitOffsets:
    return CommitOffsets(
        group_id="g",
        generation=generation,
        member_id="",
        instance_id=None,
        offsets=(("t", 0, CommittedOffset(5, -1, text, NOW_MS)),),
        knows_epochs=knows,
    )


def generation(*member_ids: str, subscription: bytes = b"", since_ms: int = NOW_MS) -> GroupRecord:
    members = tuple(
        StoredMember(
            member_id=member_id,
            instance_id=None,
            client_id="",
            client_host="",
            rebalance_timeout_ms=1_000,
            session_timeout_ms=10_000,
            subscription=subscription,
            assignment=b"",
        )
        for member_id in member_ids
    )
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation=3,
        protocol="range" if members else None,
        leader=member_ids[0] if members else None,
        state_timestamp_ms=since_ms,
        members=members,
    )
    return GroupRecord("g", metadata)


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_time_out_outside_of_the_brokers_bounds_is_refused(session_ms: int) -> None:
    machine = groups()
    outcome = machine.handle(replace(JOIN, session_timeout_ms=session_ms), NOW_MS, 1)
    (reply,) = outcome.replies
    assert reply.answer.error is ErrorCode.invalid_session_timeout
    assert not len(machine)


def test_a_group_needs_a_name() -> None:
    (reply,) = groups().handle(replace(JOIN, group_id=""), NOW_MS, 1).replies
    assert reply.answer.error is ErrorCode.invalid_group_id


def test_a_member_needs_something_to_speak() -> None:
    machine = groups()
    for change in ({"protocols": ()}, {"protocol_type": ""}):
        (reply,) = machine.handle(replace(JOIN, **change), NOW_MS, 1).replies
        assert reply.answer.error is ErrorCode.inconsistent_group_protocol
        assert not len(machine), "a group is left of somebody who was refused"


def test_a_newcomer_that_never_comes_back_leaves_nothing() -> None:
    machine = groups()
    outcome = machine.handle(JOIN, NOW_MS, 1)
    assert [one.answer.error for one in outcome.replies] == [ErrorCode.member_id_required]
    session = GroupTimer(GroupTimerKind.SESSION, "g", "new-1")
    assert outcome.effects == [Arm(session, 10_000)]
    assert len(machine) == 1

    machine.handle(TimerFired(timer=session), NOW_MS)

    assert not len(machine)


def test_a_pending_member_is_no_static_one() -> None:
    machine = groups()
    machine.handle(JOIN, NOW_MS, 1)
    strange = replace(JOIN, member_id="new-1", instance_id="one")
    (reply,) = machine.handle(strange, NOW_MS, 2).replies
    assert reply.answer == JoinAnswer(error=ErrorCode.unknown_member_id, member_id="new-1")


def test_deleting_a_group_forgets_its_pending_members() -> None:
    machine = groups()
    play(machine, machine.handle(commit(), NOW_MS, 1))
    machine.handle(JOIN, NOW_MS, 2)
    outcome = play(machine, machine.handle(DeleteGroup(group_id="g"), NOW_MS, 3))
    assert Disarm(GroupTimer(GroupTimerKind.SESSION, "g", "new-1")) in outcome.effects
    assert machine.find("g") is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x" * 10, ErrorCode.none),
        ("x" * 11, ErrorCode.offset_metadata_too_large),
        ("ö" * 10, ErrorCode.none),
        ("🌊" * 5, ErrorCode.none),
        ("🌊" * 6, ErrorCode.offset_metadata_too_large),
    ],
)
def test_the_text_beside_a_position_is_counted_as_java_counts(text: str, error: ErrorCode) -> None:
    outcome = groups(offset_metadata_max_bytes=10).handle(commit(text), NOW_MS, 1)
    assert outcome.replies[0].answer == PartitionsAnswer(errors=(error,))
    assert bool(outcome.records) is (error is ErrorCode.none)


def test_old_clients_know_no_word_for_a_group_that_is_not_there() -> None:
    for knows, error in (
        (True, ErrorCode.group_id_not_found),
        (False, ErrorCode.illegal_generation),
    ):
        (reply,) = groups().handle(commit(generation=1, knows=knows), NOW_MS, 1).replies
        assert reply.answer.error is error


def test_a_member_commits_in_no_generation_whose_assignment_is_still_awaited() -> None:
    """As in Kafka, a transaction does, and so does a member while others have still to join."""
    machine = groups()
    machine.apply(generation("a", "b"))

    def errors(epoch: int) -> tuple[ErrorCode, ErrorCode]:
        found = []
        plain = replace(commit(generation=epoch), member_id="a")
        in_transaction = CommitTransactionOffsets(
            group_id="g",
            producer_id=9,
            producer_epoch=0,
            verification=0,
            generation=epoch,
            member_id="a",
            instance_id=None,
            offsets=plain.offsets,
        )
        for event in (plain, in_transaction):
            (reply,) = machine.handle(event, NOW_MS, 1).replies
            found.append(reply.answer.error)
        return found[0], found[1]

    for request, member_id in enumerate("ab", start=2):
        assert errors(3) == (ErrorCode.none, ErrorCode.none)
        play(machine, machine.handle(replace(JOIN, member_id=member_id), NOW_MS, request))
    group = machine.find("g")
    assert isinstance(group, ClassicGroup)
    assert group.state is ClassicGroupState.COMPLETING_REBALANCE
    assert errors(4) == (ErrorCode.rebalance_in_progress, ErrorCode.none)
    assert errors(3) == (ErrorCode.illegal_generation, ErrorCode.illegal_generation)


def test_positions_of_a_group_that_is_not_there_cannot_be_deleted() -> None:
    event = DeleteOffsets(group_id="g", partitions=(("t", 0),))
    (reply,) = groups().handle(event, NOW_MS, 1).replies
    assert reply.answer.error is ErrorCode.group_id_not_found


def test_a_position_that_is_not_there_is_deleted_without_a_trace() -> None:
    machine = groups()
    play(machine, machine.handle(commit(), NOW_MS, 1))
    event = DeleteOffsets(group_id="g", partitions=(("t", 7),))
    outcome = machine.handle(event, NOW_MS, 1)
    assert not outcome.records
    assert outcome.replies[0].answer == PartitionsAnswer(errors=(ErrorCode.none,))


def test_members_leave_one_by_one_and_each_gets_its_own_code() -> None:
    machine = groups()
    machine.apply(generation("a", "b"))
    leaving = (LeavingMember("a"), LeavingMember("stranger"), LeavingMember("", "no instance"))
    outcome = machine.handle(Leave(group_id="g", members=leaving), NOW_MS, 1)
    answer = next(one.answer for one in outcome.replies if one.request == 1)
    assert isinstance(answer, LeaveAnswer)
    assert [one.error for one in answer.members] == [
        ErrorCode.none,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]


def test_subscriptions_that_are_not_understood_keep_all_positions() -> None:
    machine = groups(offsets_retention_ms=HOUR_MS)
    machine.apply(OffsetRecord("g", "t", 0, CommittedOffset(5, -1, "", NOW_MS)))
    machine.apply(generation("a", subscription=b"no consumer protocol"))
    outcome = machine.handle(ExpireOffsets(group_id="g"), NOW_MS + 2 * HOUR_MS)
    assert not outcome.records


def test_an_empty_group_of_an_old_broker_ages_from_its_commits() -> None:
    """Records before Kafka 2.1 do not say since when the group is empty."""
    machine = groups(offsets_retention_ms=HOUR_MS)
    machine.apply(generation(since_ms=-1))
    machine.apply(OffsetRecord("g", "t", 0, CommittedOffset(5, -1, "", NOW_MS)))
    assert not machine.handle(ExpireOffsets(group_id="g"), NOW_MS + HOUR_MS - 1).records
    assert machine.handle(ExpireOffsets(group_id="g"), NOW_MS + HOUR_MS).records == [
        OffsetRecord("g", "t", 0, None),
        GroupRecord("g", None),
    ]


def test_a_group_that_somebody_is_about_to_join_is_not_deleted() -> None:
    machine = groups()
    machine.apply(generation())
    machine.handle(JOIN, NOW_MS, 1)
    assert not machine.handle(ExpireOffsets(group_id="g"), NOW_MS).records


def test_positions_outlive_the_end_of_their_group_when_nobody_deleted_them() -> None:
    machine = groups()
    machine.apply(OffsetRecord("g", "t", 0, CommittedOffset(5, -1, "", NOW_MS)))
    machine.apply(generation("a"))
    machine.apply(GroupRecord("g", None))
    group = machine.find("g")
    assert group is not None
    assert group.offsets.find("t", 0) is not None
    assert not len(group.members)
    machine.apply(OffsetRecord("g", "t", 0, None))
    assert machine.find("g") is None


def test_the_end_of_a_group_is_nothing_that_members_depend_on() -> None:
    machine = groups()
    machine.apply(generation())
    outcome = machine.handle(DeleteGroup(group_id="g"), NOW_MS, 1)
    assert outcome.records
    assert not outcome.must_be_logged


def test_what_could_not_be_logged_of_an_empty_group_changes_nothing() -> None:
    machine = groups()
    machine.apply(generation())
    outcome = machine.handle(AppendFailed(group_id="g"), NOW_MS)
    assert (outcome.replies, outcome.records, outcome.effects) == ([], [], [])


def test_timers_of_groups_that_have_gone_do_nothing() -> None:
    for kind in GroupTimerKind:
        outcome = groups().handle(TimerFired(timer=GroupTimer(kind, "g", "a")), NOW_MS)
        assert (outcome.replies, outcome.records, outcome.effects) == ([], [], [])


def test_members_that_came_with_the_log_have_to_give_signs_of_life() -> None:
    machine = groups()
    machine.apply(generation("a", "b"))
    assert machine.start_timers().effects == [
        Arm(GroupTimer(GroupTimerKind.SESSION, "g", "a"), 10_000),
        Arm(GroupTimer(GroupTimerKind.SESSION, "g", "b"), 10_000),
    ]
