"""A queue's client: membership, requests, locks and acknowledgements, event by event."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.rules.queue_story import LOCK_MS, ONE, TOPIC, ZERO, QueueStory, came, share_cluster
from moldau.client.consumer.rules.consumer_membership import HeartbeatAnswer
from moldau.client.consumer.rules.instructions import Refresh, WriteLog
from moldau.client.queue.rules.in_flight import (
    AcknowledgedOffsets,
    AcquireMode,
    FinishAcknowledgement,
    InFlightRecord,
    InFlightState,
    SendShareAcknowledge,
    SendShareFetch,
    SendShareHeartbeat,
    SendShareLeave,
    SharePartitionAnswer,
    ShareTimerKind,
)
from moldau.client.queue.rules.share_membership import ShareMemberState
from moldau.client.rules.broker_errors import error_for
from moldau.errors import (
    AcknowledgementError,
    ClientError,
    ConnectionLostError,
    ErrorCode,
    UnsupportedByBrokerError,
)
from moldau.model import AcknowledgeType

ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW
LOCK = LOCK_MS / 1000


def refuse(code: ErrorCode) -> SharePartitionAnswer:
    return SharePartitionAnswer(ZERO, acknowledge_failure=error_for(code, None))


def offsets(records: list[InFlightRecord]) -> list[int]:
    return [one.record.offset for one in records]


# Membership


def test_a_member_joins_with_its_topics_and_then_says_what_has_changed() -> None:
    story = QueueStory(client_rack="r")
    story.happen(lambda machine: machine.start())
    first = story.take_one(SendShareHeartbeat)
    assert (first.epoch, first.topics, first.rack) == (0, frozenset({"t"}), "r")
    answer = HeartbeatAnswer(3, 5000, {TOPIC: frozenset({0})})
    story.happen(lambda machine: machine.membership.heartbeat_answered(first.beat, answer))
    story.fire(ShareTimerKind.HEARTBEAT)
    second = story.take_one(SendShareHeartbeat)
    assert (second.epoch, second.topics, second.rack) == (3, None, None)


@pytest.mark.parametrize("code", [ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id])
def test_a_member_that_was_forgotten_joins_again(code: ErrorCode) -> None:
    story = QueueStory()
    story.begin()
    story.fire(ShareTimerKind.HEARTBEAT)
    beat = story.take_one(SendShareHeartbeat)
    lost = error_for(code, None)
    story.happen(lambda machine: machine.membership.heartbeat_failed(beat.beat, lost))
    again = story.take_one(SendShareHeartbeat)
    assert (again.epoch, again.topics) == (0, frozenset({"t"}))
    assert story.machine.membership.state is ShareMemberState.JOINING


def test_after_a_failure_everything_is_said_again_after_a_pause() -> None:
    story = QueueStory()
    story.begin()
    story.fire(ShareTimerKind.HEARTBEAT)
    beat = story.take_one(SendShareHeartbeat)
    gone = ConnectionLostError("gone")
    story.happen(lambda machine: machine.membership.heartbeat_failed(beat.beat, gone))
    assert story.take(SendShareHeartbeat) == []
    story.fire(ShareTimerKind.HEARTBEAT)
    assert story.take_one(SendShareHeartbeat).topics == frozenset({"t"})


def test_what_nothing_helps_against_is_raised() -> None:
    story = QueueStory()
    story.happen(lambda machine: machine.start())
    beat = story.take_one(SendShareHeartbeat)
    refused = error_for(ErrorCode.group_authorization_failed, None)
    story.happen(lambda machine: machine.membership.heartbeat_failed(beat.beat, refused))
    for _ in range(2):
        with pytest.raises(type(refused)):
            story.machine.raise_failures()


# Records and acknowledgements


def test_records_are_asked_for_given_and_acknowledged_with_the_next_request() -> None:
    story = QueueStory()
    story.begin()
    asked = story.take_one(SendShareFetch)
    assert (asked.session_epoch, asked.added, asked.acknowledged) == (0, [ZERO], {})
    story.answer(asked, came(10, 3))
    first, second, third = story.machine.take_ready_records(3, story.now)
    assert [one.delivery_count for one in (first, second, third)] == [1, 1, 1]
    story.machine.acknowledge_record(first, ACCEPT)
    story.machine.acknowledge_record(second, ACCEPT)
    story.machine.acknowledge_record(third, RELEASE)
    story.maybe_wake()
    told = story.take_one(SendShareFetch)
    assert told.session_epoch == 1
    assert told.acknowledged == {
        ZERO: [AcknowledgedOffsets(10, 11, ACCEPT), AcknowledgedOffsets(12, 12, RELEASE)]
    }
    story.answer(told, SharePartitionAnswer(ZERO))
    assert {one.state for one in (first, second, third)} == {InFlightState.OVER}
    assert story.take(FinishAcknowledgement) == []


def test_without_a_wish_for_records_acknowledgements_go_alone() -> None:
    story = QueueStory(max_poll_records=1)
    story.begin()
    story.receive(10, 1)
    (record,) = story.take_records()
    assert story.take(SendShareFetch) == []
    record.is_watched = True
    story.machine.acknowledge_record(record, ACCEPT)
    story.maybe_wake()
    told = story.take_one(SendShareAcknowledge)
    assert (told.session_epoch, told.has_renewals) == (1, False)
    story.answer(told)
    assert story.take_one(FinishAcknowledgement) == (record, False, None)


def test_what_comes_up_while_a_request_is_under_way_waits_for_the_next_one() -> None:
    story = QueueStory()
    story.begin()
    story.answer(story.take_one(SendShareFetch), came(10, 2))
    first, second = story.machine.take_ready_records(2, story.now)
    story.machine.acknowledge_record(first, ACCEPT)
    story.maybe_wake()
    under_way = story.take_one(SendShareFetch)
    story.machine.acknowledge_record(second, ACCEPT)
    assert not story.machine.is_idle_with_work
    story.answer(under_way)
    assert story.take_one(SendShareFetch).acknowledged == {
        ZERO: [AcknowledgedOffsets(11, 11, ACCEPT)]
    }


def test_a_record_is_finished_once() -> None:
    story = QueueStory()
    story.begin()
    story.answer(story.take_one(SendShareFetch), came(10, 1))
    (record,) = story.take_records()
    story.machine.acknowledge_record(record, ACCEPT)
    with pytest.raises(ClientError, match="accept"):
        story.machine.acknowledge_record(record, RELEASE)


def test_gaps_are_told_and_never_given() -> None:
    story = QueueStory()
    story.begin()
    row = came(10, 2)
    wider = row._replace(acquired=[row.acquired[0]._replace(first_offset=8)])
    story.answer(story.take_one(SendShareFetch), wider)
    assert offsets(story.take_records(5)) == [10, 11]
    told = story.take_one(SendShareAcknowledge).acknowledged
    assert told == {ZERO: [AcknowledgedOffsets(8, 9, AcknowledgeType.GAP)]}


def test_one_lock_that_has_run_out_does_not_fail_the_others() -> None:
    story = QueueStory(max_poll_records=1)
    story.begin()
    story.receive(0, 8)
    records = story.take_records(8)
    for record in records:
        story.machine.acknowledge_record(record, ACCEPT)
    story.maybe_wake()
    lost, told = {5}, set[int]()
    while pending := story.take(SendShareAcknowledge):
        (asked,) = pending
        (ranges,) = asked.acknowledged.values()
        named = {n for one in ranges for n in range(one.first_offset, one.last_offset + 1)}
        if named & lost:
            story.answer(asked, refuse(ErrorCode.invalid_record_state))
        else:
            told |= named
            story.answer(asked, SharePartitionAnswer(ZERO))
    assert told == set(range(8)) - lost
    (failed,) = story.take(FinishAcknowledgement)
    assert failed.record.record.offset == 5
    assert isinstance(failed.failure, AcknowledgementError)


def test_another_leader_fails_what_was_told_and_metadata_is_asked_for() -> None:
    story = QueueStory(max_poll_records=1)
    story.begin()
    story.receive(0, 1)
    (record,) = story.take_records()
    story.machine.acknowledge_record(record, ACCEPT)
    story.maybe_wake()
    story.fire(ShareTimerKind.METADATA_PAUSE)
    story.answer(story.take_one(SendShareAcknowledge), refuse(ErrorCode.not_leader_or_follower))
    assert record.state is InFlightState.LOST
    story.take_one(FinishAcknowledgement)
    story.take_one(Refresh)


# Sessions


def test_a_lost_session_is_opened_anew_and_what_was_told_is_told_again() -> None:
    story = QueueStory()
    story.begin()
    story.answer(story.take_one(SendShareFetch), came(10, 1))
    (record,) = story.take_records()
    story.machine.acknowledge_record(record, ACCEPT)
    story.maybe_wake()
    told = story.take_one(SendShareFetch)
    story.answer(told._replace(), SharePartitionAnswer(ZERO))  # accepted: the session goes on
    under_way = story.take_one(SendShareFetch)
    assert under_way.session_epoch == 2
    story.fail(under_way, error_for(ErrorCode.share_session_not_found, None))
    opened = story.take_one(SendShareFetch)
    assert (opened.session_epoch, opened.added, opened.acknowledged) == (0, [ZERO], {})


def test_what_was_under_way_with_a_lost_connection_is_told_in_the_next_session() -> None:
    story = QueueStory(max_poll_records=1)
    story.begin()
    story.receive(10, 1)
    (record,) = story.take_records()
    story.machine.acknowledge_record(record, ACCEPT)
    story.maybe_wake()
    story.happen(
        lambda machine: machine.failed(
            story.take_one(SendShareAcknowledge), ConnectionLostError("gone")
        )
    )
    assert story.take(SendShareFetch) == []
    story.fire(ShareTimerKind.BROKER)
    opened = story.take_one(SendShareFetch)
    assert (opened.session_epoch, opened.acknowledged) == (0, {})
    story.answer(opened)
    told = story.take_one(SendShareAcknowledge)
    assert told.acknowledged == {ZERO: [AcknowledgedOffsets(10, 10, ACCEPT)]}


@pytest.mark.parametrize("is_under_way", [False, True])
def test_what_nobody_has_taken_is_lost_with_its_session(is_under_way: bool) -> None:
    """The broker has released it, and others may have it."""
    story = QueueStory()
    story.begin()
    story.receive(10, 3)
    gone = ConnectionLostError("gone")
    if is_under_way:
        for _ in range(5):
            story.machine.wait_for_records(story.now)
        story.maybe_wake()
        asked = story.take_one(SendShareFetch)
        story.happen(lambda machine: machine.failed(asked, gone))
    else:
        story.happen(lambda machine: machine.disconnected(1, gone))
    assert not story.machine.has_ready
    assert story.take_records(3) == []
    assert story.take(FinishAcknowledgement) == []


def test_a_lost_connection_of_another_broker_takes_nothing() -> None:
    story = QueueStory()
    story.begin()
    story.receive(10, 3)
    story.happen(lambda machine: machine.disconnected(2, ConnectionLostError("gone")))
    assert offsets(story.take_records(3)) == [10, 11, 12]


def test_what_the_program_has_is_not_given_again_when_it_comes_in_the_next_session() -> None:
    story = QueueStory()
    story.begin()
    story.receive(10, 2)
    running, finished = story.machine.take_ready_records(2, story.now)
    story.happen(lambda machine: machine.disconnected(1, ConnectionLostError("gone")))
    story.now += LOCK / 3
    story.machine.acknowledge_record(finished, ACCEPT)
    story.machine.wait_for_records(story.now)
    story.maybe_wake()
    opened = story.take_one(SendShareFetch)
    assert (opened.session_epoch, opened.acknowledged) == (0, {})
    story.answer(opened, came(10, 3, deliveries=2))
    assert offsets(story.take_records(3)) == [12]
    assert running.deadline == story.now + LOCK
    told = story.take_one(SendShareAcknowledge)
    assert told.acknowledged == {ZERO: [AcknowledgedOffsets(11, 11, ACCEPT)]}
    story.answer(told, SharePartitionAnswer(ZERO))
    assert finished.state is InFlightState.OVER
    story.machine.acknowledge_record(running, ACCEPT)  # its lock is known to hold


def test_what_the_program_has_had_for_too_long_is_given_again() -> None:
    story = QueueStory()
    story.begin()
    story.receive(10, 1)
    story.take_records()
    story.happen(lambda machine: machine.disconnected(1, ConnectionLostError("gone")))
    story.now += LOCK
    story.machine.wait_for_records(story.now)
    story.maybe_wake()
    for asked in story.take(SendShareFetch):
        story.answer(asked, came(10, 1, deliveries=2))
    assert offsets(story.take_records()) == [10]


def test_what_nobody_has_taken_is_given_back_when_the_member_has_lost_its_place() -> None:
    story = QueueStory()
    story.begin()
    story.receive(10, 3)
    story.fire(ShareTimerKind.HEARTBEAT)
    beat = story.take_one(SendShareHeartbeat)
    lost = error_for(ErrorCode.unknown_member_id, None)
    story.happen(lambda machine: machine.membership.heartbeat_failed(beat.beat, lost))
    assert story.take_records(3) == []
    told = story.take_one(SendShareAcknowledge)
    assert told.acknowledged == {ZERO: [AcknowledgedOffsets(10, 12, RELEASE)]}


def test_what_nobody_has_taken_is_given_back_when_the_partition_is_not_assigned_any_more() -> None:
    story = QueueStory()
    story.begin(0, 1)
    story.receive(10, 3)
    story.fire(ShareTimerKind.HEARTBEAT)
    beat = story.take_one(SendShareHeartbeat)
    answer = HeartbeatAnswer(2, 5000, {TOPIC: frozenset({1})})
    story.happen(lambda machine: machine.membership.heartbeat_answered(beat.beat, answer))
    assert story.take_records(3) == []
    told = story.take_one(SendShareAcknowledge)
    assert told.acknowledged == {ZERO: [AcknowledgedOffsets(10, 12, RELEASE)]}


def test_what_nobody_has_taken_is_lost_when_its_broker_does_not_lead_any_more() -> None:
    story = QueueStory()
    story.begin(0, 1)
    story.machine.stop_waiting()
    asked = story.take_one(SendShareFetch)
    story.answer(asked, came(10, 1), came(20, 1, partition=ONE))
    for _ in range(3):
        story.machine.wait_for_records(story.now)
    story.maybe_wake()
    moved = SharePartitionAnswer(ZERO, failure=error_for(ErrorCode.not_leader_or_follower, None))
    story.answer(story.take_one(SendShareFetch), moved)
    assert offsets(story.take_records(3)) == [20]


def test_when_the_lock_is_over_it_is_not_told_again() -> None:
    story = QueueStory(max_poll_records=1)
    story.begin()
    story.receive(10, 1)
    (record,) = story.take_records()
    story.machine.acknowledge_record(record, ACCEPT)
    story.maybe_wake()
    asked = story.take_one(SendShareAcknowledge)
    story.now += LOCK
    story.happen(lambda machine: machine.failed(asked, ConnectionLostError("gone")))
    failed = story.take_one(FinishAcknowledgement)
    assert failed.record is record
    assert isinstance(failed.failure, AcknowledgementError)


def test_a_partition_that_moves_is_asked_for_at_its_new_leader() -> None:
    story = QueueStory()
    story.begin(0, 1)
    asked = story.take_one(SendShareFetch)
    assert asked.added == [ZERO, ONE]
    story.fire(ShareTimerKind.METADATA_PAUSE)
    moved = error_for(ErrorCode.not_leader_or_follower, None)
    story.answer(asked, SharePartitionAnswer(ZERO), SharePartitionAnswer(ONE, failure=moved))
    assert story.take_one(SendShareFetch).forgotten == [ONE]
    story.take_one(Refresh)
    story.cluster = share_cluster((1, 2))
    story.happen(lambda machine: machine.refreshed())
    other = story.take_one(SendShareFetch)
    assert (other.broker_id, other.session_epoch, other.added) == (2, 0, [ONE])


# Locks


def test_the_lock_of_a_running_block_is_renewed_when_half_of_it_is_over() -> None:
    story = QueueStory(max_poll_records=1)
    story.begin()
    story.receive(10, 1)
    (record,) = story.take_records()
    record.is_kept = True
    deadline = record.deadline
    while not (asked := story.take(SendShareAcknowledge)):
        story.fire(ShareTimerKind.LOCKS)
        assert story.now < deadline
    assert asked[0].has_renewals
    assert asked[0].acknowledged == {ZERO: [AcknowledgedOffsets(10, 10, RENEW)]}
    story.answer(asked[0])
    assert record.deadline == story.now + LOCK
    assert record.state is InFlightState.RUNNING


def test_where_locks_cannot_be_renewed_that_is_told_once() -> None:
    story = QueueStory(max_poll_records=1, can_renew=False)
    story.begin()
    story.receive(10, 1)
    (record,) = story.take_records()
    record.is_kept = True
    story.take(WriteLog)
    for _ in range(8):
        story.fire(ShareTimerKind.LOCKS)
    (told,) = [one for one in story.take(WriteLog) if one.is_warning]
    assert "share.record.lock.duration.ms" in told.message
    with pytest.raises(UnsupportedByBrokerError, match=r"4\.2"):
        story.machine.renew_lock(record)


def test_a_record_whose_lock_is_over_is_not_given() -> None:
    story = QueueStory()
    story.begin()
    story.receive(10, 3)
    story.now += LOCK
    assert story.take_records(3) == []


def test_somebody_who_waits_for_a_word_to_arrive_does_not_wait_for_records() -> None:
    story = QueueStory()
    story.begin()
    story.answer(story.take_one(SendShareFetch), came(10, 1))
    (record,) = story.machine.take_ready_records(1, story.now)
    record.is_watched = True
    story.machine.acknowledge_record(record, ACCEPT)
    story.maybe_wake()
    told = story.take_one(SendShareAcknowledge)
    assert story.take(SendShareFetch) == []
    story.answer(told)
    assert story.take_one(FinishAcknowledgement).failure is None
    story.take_one(SendShareFetch)


def test_what_waits_is_renewed_for_quick_takers_and_given_back_when_nobody_comes() -> None:
    story = QueueStory()
    story.begin()
    story.receive(10, 3)
    while not (asked := story.take(SendShareAcknowledge)):
        story.fire(ShareTimerKind.LOCKS)
    while asked[0].has_renewals:
        story.answer(asked[0])
        while not (asked := story.take(SendShareAcknowledge)):
            story.fire(ShareTimerKind.LOCKS)
    assert story.now - 1000 > LOCK
    assert asked[0].acknowledged == {ZERO: [AcknowledgedOffsets(10, 12, RELEASE)]}
    story.answer(asked[0])
    # Nobody comes: nothing is taken again, which would count as a delivery each time.
    assert story.take(SendShareFetch) == []


def test_what_was_lost_while_it_waited_is_not_given_back() -> None:
    """Its renewal was refused; then the partition went to another member."""
    story = QueueStory()
    story.begin(0, 1)
    story.receive(10, 1)
    while not (asked := story.take(SendShareAcknowledge)):
        story.fire(ShareTimerKind.LOCKS)
    assert asked[0].has_renewals
    story.answer(asked[0], refuse(ErrorCode.invalid_record_state))
    story.fire(ShareTimerKind.HEARTBEAT)
    (*_, beat) = story.take(SendShareHeartbeat)
    answer = HeartbeatAnswer(2, 5000, {TOPIC: frozenset({1})})
    story.happen(lambda machine: machine.membership.heartbeat_answered(beat.beat, answer))
    assert story.take_records(3) == []
    assert story.take(SendShareAcknowledge) == []


# How much is asked for


def test_a_broker_may_keep_a_request_for_less_time_while_jobs_run() -> None:
    story = QueueStory()
    story.begin()
    asked = story.take_one(SendShareFetch)
    assert (asked.max_wait_ms, asked.max_records, asked.mode) == (500, 1, AcquireMode.RECORD_LIMIT)
    story.answer(asked, came(10, 1))
    story.machine.take_ready_records(1, story.now)
    story.maybe_wake()
    assert story.take_one(SendShareFetch).max_wait_ms == 100


def test_in_advance_a_broker_is_asked_without_waiting_and_only_while_it_has_something() -> None:
    story = QueueStory()
    story.begin()
    story.receive(0, 1)
    for offset in range(1, 4):
        story.take_records()
        story.now += 0.01
        story.machine.wait_for_records(story.now)
        story.maybe_wake()
        story.receive(offset, 1)
    story.take_records()
    asked = story.take_one(SendShareFetch)
    assert asked.max_wait_ms == 0
    assert asked.max_records > 1
    story.answer(asked)
    assert story.take(SendShareFetch) == []
    story.machine.wait_for_records(story.now)
    story.maybe_wake()
    assert story.take_one(SendShareFetch).max_wait_ms == 100


def test_quick_takers_get_whole_batches() -> None:
    story = QueueStory(max_poll_records=50)
    story.begin()
    story.machine.stop_waiting()
    last = story.take_one(SendShareFetch)
    for first in range(0, 40, 4):
        story.answer(last, came(first, 4))
        for _ in range(4):
            (record,) = story.machine.take_ready_records(1, story.now)
            story.now += 0.001
            story.machine.acknowledge_record(record, ACCEPT)
        story.maybe_wake()
        last = story.take_one(SendShareFetch)
    assert (last.max_records, last.mode) == (46, AcquireMode.BATCH_OPTIMIZED)  # 4 came already


# Leaving


def test_leaving_tells_all_releases_what_runs_ends_sessions_and_then_the_membership() -> None:
    story = QueueStory(max_poll_records=3)
    story.begin()
    story.receive(10, 3)
    accepted, running = story.machine.take_ready_records(2, story.now)
    story.machine.acknowledge_record(accepted, ACCEPT)
    story.maybe_wake()
    under_way = story.take_one(SendShareAcknowledge)
    story.happen(lambda machine: machine.leave())
    story.answer(under_way)
    told = story.take_one(SendShareAcknowledge)
    assert told.acknowledged == {ZERO: [AcknowledgedOffsets(11, 11, RELEASE)]}
    story.answer(told)
    closing = story.take_one(SendShareAcknowledge)
    assert (closing.session_epoch, closing.acknowledged) == (-1, {})
    assert story.take(SendShareLeave) == []
    story.answer(closing)
    assert story.take_one(SendShareLeave).is_told
    assert running.kind is RELEASE
    assert accepted.state is InFlightState.OVER


def test_what_came_while_the_member_was_leaving_is_not_given_back_after_its_session() -> None:
    """The end of the session has released it."""
    story = QueueStory()
    story.begin(0, 1)
    story.machine.wait_for_records(story.now)
    story.maybe_wake()
    asked = story.take_one(SendShareFetch)
    story.happen(lambda machine: machine.leave())
    story.answer(asked, came(10, 1))
    story.answer(story.take_one(SendShareAcknowledge))  # the end of the session
    story.cluster = share_cluster((2, 2))
    story.happen(lambda machine: machine.refreshed())
    assert story.take(SendShareAcknowledge) == []


def test_leaving_with_a_job_whose_lock_is_gone_releases_the_others() -> None:
    story = QueueStory(max_poll_records=1)
    story.begin()
    story.receive(10, 1)
    (record,) = story.take_records()
    story.machine.renew_lock(record)
    story.maybe_wake()
    story.answer(story.take_one(SendShareAcknowledge), refuse(ErrorCode.invalid_record_state))
    assert record.state is InFlightState.LOST
    story.happen(lambda machine: machine.leave())
    assert story.take_one(SendShareAcknowledge).session_epoch == -1


def test_leaving_without_ever_having_joined_tells_nobody() -> None:
    story = QueueStory()
    story.happen(lambda machine: machine.leave())
    assert not story.take_one(SendShareLeave).is_told


def test_a_renewal_that_was_refused_together_with_others_does_not_travel_with_a_fetch() -> None:
    """A broker takes no renewals with a request for records: it would refuse the whole half, and
    with it what was accepted."""
    story = QueueStory(max_poll_records=4)
    story.begin()
    story.receive(10, 4)
    records = story.machine.take_ready_records(4, story.now)
    for record in records[:2]:
        story.machine.acknowledge_record(record, ACCEPT)
    for record in records[2:]:
        story.machine.renew_lock(record)
    story.maybe_wake()
    together = story.take_one(SendShareAcknowledge)
    story.machine.wait_for_records(story.now)
    story.answer(together, refuse(ErrorCode.invalid_record_state))
    assert story.take(SendShareFetch) == []
    half = story.take_one(SendShareAcknowledge)
    assert half.acknowledged == {ZERO: [AcknowledgedOffsets(10, 11, ACCEPT)]}
    story.answer(half)
    assert story.take(SendShareFetch) == []
    half = story.take_one(SendShareAcknowledge)
    assert half.acknowledged == {ZERO: [AcknowledgedOffsets(12, 13, RENEW)]}
    assert half.has_renewals


# Whatever happens


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_word_reaches_the_broker_or_is_reported(data: st.DataObject) -> None:
    """Records come, are taken, accepted or released; requests fail and are refused: in the end the
    broker was told of each record that was accepted, or the program was."""
    story = QueueStory(max_poll_records=data.draw(st.sampled_from([1, 5, 100])))
    story.begin()
    next_offset = 0
    running: list[InFlightRecord] = []
    accepted: dict[int, InFlightRecord] = {}
    known: set[int] = set()

    def answer(asked: SendShareFetch | SendShareAcknowledge) -> None:
        nonlocal next_offset
        fate = data.draw(st.sampled_from(["good", "good", "refused", "lost", "session"]))
        if fate == "lost":
            story.happen(lambda machine: machine.failed(asked, ConnectionLostError("gone")))
        elif fate == "session":
            story.fail(asked, error_for(ErrorCode.share_session_not_found, None))
        elif fate == "refused" and asked.acknowledged:
            story.answer(asked, refuse(ErrorCode.invalid_record_state))
        else:
            for one in asked.acknowledged.get(ZERO, ()):
                if one.kind is ACCEPT:
                    known.update(range(one.first_offset, one.last_offset + 1))
            count = data.draw(st.integers(0, 4)) if isinstance(asked, SendShareFetch) else 0
            if count:
                story.answer(asked, came(next_offset, count))
                next_offset += count
            else:
                story.answer(asked)

    def settle() -> None:
        story.maybe_wake()
        story.fire(ShareTimerKind.BROKER)
        for asked in [*story.take(SendShareFetch), *story.take(SendShareAcknowledge)]:
            answer(asked)

    for _ in range(data.draw(st.integers(1, 25))):
        match data.draw(st.sampled_from(["settle", "settle", "take", "finish", "locks"])):
            case "settle":
                settle()
            case "take":
                running += story.take_records(data.draw(st.integers(1, 3)))
            case "finish" if running:
                record = running.pop(data.draw(st.integers(0, len(running) - 1)))
                kind = data.draw(st.sampled_from([ACCEPT, RELEASE]))
                try:
                    story.machine.acknowledge_record(record, kind)
                except AcknowledgementError:
                    continue  # the program knows
                if kind is ACCEPT:
                    accepted[record.record.offset] = record
            case "locks":
                story.fire(ShareTimerKind.LOCKS)
            case _:
                pass
    story.happen(lambda machine: machine.leave())
    for _ in range(2000):
        if story.machine.has_left:
            break
        settle()
    assert story.machine.has_left
    reported = {one.record.record.offset for one in story.take(FinishAcknowledgement)}
    assert accepted.keys() <= known | reported
