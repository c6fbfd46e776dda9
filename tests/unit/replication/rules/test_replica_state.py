"""What a broker knows of its replica: the part it plays, and how far the log is committed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.rules.metadata_image import PartitionState
from moldau.errors import (
    FencedLeaderEpochError,
    InvariantViolation,
    NotEnoughReplicasError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from moldau.model import NO_BROKER, TopicPartition
from moldau.replication.rules.isr import FollowerFetch
from moldau.replication.rules.replica import (
    ALL_IN_SYNC,
    JOINING_SECONDS,
    Acknowledgement,
    FetchNews,
    Part,
    ReplicaState,
)

CLICKS = TopicPartition("clicks", 0)
US, SECOND, THIRD = 1, 2, 3
EPOCH_OF_BROKER = 77


def a_replica(*, start: int = 0, end: int = 0, **changes: int) -> ReplicaState:
    return ReplicaState(CLICKS, US, log_start=start, log_end=end, **changes)


def a_state(version: int = 0, **changes: object) -> PartitionState:
    led = PartitionState(
        leader=US, leader_epoch=5, isr=(US, SECOND), replicas=(US, SECOND, THIRD), version=version
    )
    return replace(led, **changes)


def apply(replica: ReplicaState, state: PartitionState, epoch_start: int = 0) -> Part:
    part = replica.part_in(state)
    replica.apply(state, part, epoch_start=epoch_start, now=100.0)
    return part


def a_leader(*, end: int = 0, **changes: object) -> ReplicaState:
    replica = a_replica(end=end)
    apply(replica, a_state(**changes), epoch_start=end)
    return replica


def fetch(
    replica: ReplicaState,
    follower: int,
    offset: int,
    *,
    end: int,
    at: float = 100.0,
    start: int = 0,
) -> FetchNews | None:
    made = FollowerFetch(offset, start, EPOCH_OF_BROKER, end, replica.high_watermark, at)
    return replica.note_fetch(follower, made, EPOCH_OF_BROKER, 0)


# The high watermark


def test_the_high_watermark_outside_of_the_log_is_raised():
    replica = a_replica(start=5, end=9, known_high_watermark=7)
    for offset in (4, 10):
        with pytest.raises(InvariantViolation, match="HW-1"):
            replica.set_high_watermark(offset, 5, 9)
    assert replica.high_watermark == 7


def test_a_leader_whose_high_watermark_goes_back_is_raised():
    replica = a_leader(end=9)
    replica.set_high_watermark(8, 0, 9)
    with pytest.raises(InvariantViolation, match="HW-2"):
        replica.set_high_watermark(7, 0, 9)
    assert replica.high_watermark == 8


def test_a_follower_goes_back_with_its_log():
    replica = a_replica(end=9, known_high_watermark=9)
    apply(replica, a_state(leader=SECOND))
    assert replica.restore(0, 4)
    assert replica.high_watermark == 4


@given(
    start=st.integers(0, 20),
    length=st.integers(0, 20),
    known=st.integers(-5, 60),
    said=st.lists(st.integers(-1, 60), max_size=6),
)
def test_a_follower_stays_within_its_log_whatever_it_is_told(
    start: int, length: int, known: int, said: list[int]
):
    end = start + length
    replica = a_replica(start=start, end=end, known_high_watermark=known)
    former = replica.high_watermark
    for high_watermark in said:
        has_moved = replica.follow(high_watermark, start, end)
        assert start <= former <= replica.high_watermark <= end
        assert has_moved == (replica.high_watermark != former)
        former = replica.high_watermark


@given(
    fetches=st.lists(
        st.tuples(st.sampled_from((SECOND, THIRD)), st.integers(0, 3), st.integers(0, 5)),
        max_size=30,
    )
)
def test_a_leader_commits_what_the_slowest_in_sync_has_and_takes_nothing_back(
    fetches: list[tuple[int, int, int]],
):
    replica = a_leader(isr=(US, SECOND, THIRD))
    end = 0
    reached = {SECOND: -1, THIRD: -1}
    for follower, appended, behind in fetches:
        end += appended
        former = replica.high_watermark
        offset = max(end - behind, 0)
        news = fetch(replica, follower, offset, end=end)
        reached[follower] = offset
        assert replica.high_watermark == max(former, min(reached.values()))
        assert news is not None
        assert news.has_committed == (replica.high_watermark != former)


# Parts


def test_an_older_state_changes_nothing():
    replica = a_leader()
    apply(replica, a_state(version=3))
    for epoch in (4, 5):
        assert apply(replica, a_state(version=2, leader=SECOND, leader_epoch=epoch)) is Part.OLDER
    assert replica.is_leader
    assert replica.leader_epoch == 5


@pytest.mark.parametrize("version", [1, 3])
def test_a_later_epoch_counts_also_where_versions_began_anew(version: int):
    """Somebody has removed the state's node and put it back, unseen by who was cut off."""
    replica = a_leader()
    apply(replica, a_state(version=3))
    later = a_state(version=version, leader=SECOND, leader_epoch=7)
    assert not replica.is_in_force(later)
    assert apply(replica, later) is Part.FOLLOW
    assert (replica.is_leader, replica.leader_epoch) == (False, 7)


def test_the_state_in_force_may_come_with_other_replicas():
    replica = a_leader(replicas=(US, SECOND))
    assert apply(replica, a_state()) is Part.SAME
    assert replica.replicas == (US, SECOND, THIRD)
    assert replica.is_leader
    assert fetch(replica, THIRD, 0, end=0) is not None


def test_a_state_is_in_force_when_to_apply_it_changes_nothing():
    replica = a_replica()
    assert not replica.is_in_force(a_state())
    for state in (a_state(), a_state(version=1, leader=SECOND, leader_epoch=6)):
        apply(replica, state)
        assert replica.is_in_force(state)
        assert not replica.is_in_force(replace(state, replicas=(US, THIRD)))
        assert not replica.is_in_force(replace(state, version=state.version + 1))
        former = {name: getattr(replica, name) for name in ReplicaState.__slots__}
        assert apply(replica, state) is Part.SAME
        assert {name: getattr(replica, name) for name in ReplicaState.__slots__} == former
    replica.suspend()
    assert not replica.is_in_force(a_state(version=1, leader=SECOND, leader_epoch=6))


def test_another_set_under_the_same_epoch_is_led_on():
    replica = a_leader(end=9)
    assert apply(replica, a_state(version=1, isr=(US,))) is Part.LEAD_ON
    assert replica.in_sync == (US,)


def test_who_leads_without_a_break_still_leads_what_it_appended_before():
    replica = a_leader()
    assert apply(replica, a_state(version=1, leader_epoch=6)) is Part.LEAD
    assert replica.has_led_since(5)
    assert apply(replica, a_state(version=2, leader_epoch=8)) is Part.LEAD
    assert not replica.has_led_since(6)
    assert replica.has_led_since(8)


def test_an_epoch_of_a_former_life_is_not_led():
    replica = a_replica(refused_epoch=5)
    assert apply(replica, a_state()) is Part.FOLLOW
    assert not replica.is_leader
    assert not replica.is_following
    assert apply(replica, a_state(version=1, leader_epoch=6)) is Part.LEAD


def test_who_is_suspended_neither_leads_nor_follows_and_takes_up_what_comes():
    replica = a_leader()
    replica.suspend()
    assert replica.leader_id == NO_BROKER
    assert not replica.is_leader
    assert not replica.is_following
    with pytest.raises(NotLeaderError):
        replica.require_writable(1, True)
    assert apply(replica, a_state()) is Part.LEAD
    assert not replica.has_led_since(4)


# Writing


def test_who_may_append_and_why_not():
    replica = a_replica(min_insync_replicas=2)
    with pytest.raises(NotLeaderError, match="led by broker"):
        replica.require_writable(1, True)
    apply(replica, a_state())
    replica.require_writable(ALL_IN_SYNC, True)
    with pytest.raises(NotLeaderError, match="lease"):
        replica.require_writable(ALL_IN_SYNC, False)
    apply(replica, a_state(version=1, isr=(US,)))
    replica.require_writable(1, True)
    with pytest.raises(NotEnoughReplicasError):
        replica.require_writable(ALL_IN_SYNC, True)


def test_fewer_may_be_enough_when_the_option_is_lowered():
    replica = a_replica(end=3, min_insync_replicas=2)
    apply(replica, a_state(isr=(US,), elr=(SECOND,)))
    assert not replica.advance(0, 3)
    assert replica.set_min_insync_replicas(1)
    assert not replica.set_min_insync_replicas(1)
    assert replica.has_enough_in_sync
    assert replica.acknowledgement(5, 3) is Acknowledgement.PENDING


def test_a_leader_is_settled_when_all_that_it_began_with_is_committed():
    replica = a_leader(end=9)
    replica.advance(0, 9)
    assert not replica.is_settled
    fetch(replica, SECOND, 8, end=9)
    assert not replica.is_settled
    fetch(replica, SECOND, 9, end=9)
    assert replica.is_settled


# Followers


def test_a_fetch_says_what_follows_from_it():
    replica = a_leader()
    assert fetch(replica, SECOND, 3, end=3) == FetchNews(True, True, False, None)
    assert fetch(replica, SECOND, 3, end=3) == FetchNews(False, False, False, None)
    assert fetch(replica, THIRD, 3, end=3) == FetchNews(False, True, True, None)


def test_a_fetch_that_does_not_count_changes_nothing():
    replica = a_leader()
    made = FollowerFetch(3, 0, EPOCH_OF_BROKER, 3, 0, 100.0)
    assert replica.note_fetch(SECOND, made, EPOCH_OF_BROKER + 1, 0) is None
    assert replica.high_watermark == 0
    assert replica.broker_epoch_at_fetch(SECOND) == -1


def test_the_high_watermark_waits_for_a_follower_one_fetch_behind_and_not_for_ever():
    replica = a_leader()
    fetch(replica, SECOND, 3, end=3)
    fetch(replica, THIRD, 1, end=3)
    fetch(replica, SECOND, 6, end=6)
    news = fetch(replica, THIRD, 3, end=6, at=101.0)
    assert news is not None
    assert news.waits_until == 101.0 + JOINING_SECONDS
    fetch(replica, SECOND, 8, end=8, at=101.5)
    assert replica.high_watermark == 6
    replica.give_up_joining(news.waits_until)
    assert replica.advance(0, 8)
    assert replica.high_watermark == 8


# Before a state, and after it


def test_before_any_state_a_replica_neither_leads_nor_follows():
    replica = a_replica(start=2, end=9, known_high_watermark=5)
    assert (replica.leader_id, replica.leader_epoch, replica.led_since) == (NO_BROKER, -1, -1)
    assert not replica.is_leader
    assert not replica.is_following
    assert not replica.is_accepting
    assert not replica.is_settled
    assert not replica.is_suspended
    assert not replica.has_followers
    assert (replica.replicas, replica.isr, replica.in_sync) == ((), (), ())
    assert (replica.smallest_isr_size, replica.min_in_sync) == (0, 1)
    assert not replica.has_enough_in_sync
    assert replica.damaged_from is None
    assert not replica.advance(2, 9)
    assert not replica.set_min_insync_replicas(2)
    assert replica.high_watermark == 5
    assert replica.part_in(a_state(leader_epoch=-1)) is Part.FOLLOW


def test_without_leading_nothing_is_known_of_followers():
    replica = a_replica(end=9)
    apply(replica, a_state(leader=SECOND))
    assert replica.is_following
    assert replica.in_sync == (US, SECOND)
    assert replica.propose_isr(9, 100.0, 10.0, lambda broker: EPOCH_OF_BROKER) is None
    assert fetch(replica, THIRD, 0, end=9) is None
    assert not replica.is_at_rest(THIRD, 9, 0, EPOCH_OF_BROKER, 9)
    assert replica.broker_epoch_at_fetch(THIRD) == -1
    assert replica.caught_up_followers(0) == ()
    assert replica.low_watermark(4, lambda broker: EPOCH_OF_BROKER) == 4
    assert replica.find_read_replica("a", {SECOND: "a"}, 0) is None
    replica.note_idle(THIRD, 1.0)
    replica.give_up_joining(1.0)
    replica.forget_follower(THIRD)
    replica.withdraw_isr(a_state())


@pytest.mark.parametrize("is_suspended", [False, True])
def test_who_leads_no_longer_has_no_followers(is_suspended: bool):
    replica = a_leader(end=3)
    fetch(replica, SECOND, 3, end=3)
    assert (replica.has_followers, replica.smallest_isr_size) == (True, 2)
    assert (replica.is_settled, replica.is_accepting) == (True, True)
    if is_suspended:
        replica.suspend()
    else:
        apply(replica, a_state(version=1, leader=SECOND, leader_epoch=6))
    assert replica.leadership is None
    assert (replica.has_followers, replica.smallest_isr_size) == (False, 0)
    assert (replica.is_settled, replica.is_accepting) == (False, False)
    assert replica.is_suspended is is_suspended


def test_another_epoch_is_settled_anew_and_one_that_goes_on_stays_settled():
    replica = a_leader(end=3)
    fetch(replica, SECOND, 3, end=3)
    replica.damaged_from = 2
    replica.apply(
        a_state(version=1, leader_epoch=6),
        replica.part_in(a_state(version=1, leader_epoch=6)),
        epoch_start=5,
        now=100.0,
    )
    assert replica.is_settled
    assert replica.damaged_from == 2
    apply(replica, a_state(version=2, leader_epoch=8), epoch_start=5)
    assert not replica.is_settled
    assert replica.damaged_from is None
    assert replica.led_since == 8


def test_a_high_watermark_that_stays_is_no_news():
    replica = a_replica(end=9, known_high_watermark=5)
    assert not replica.set_high_watermark(5, 0, 9)
    assert replica.set_high_watermark(4, 0, 9)
    for offset in (0, 9):
        assert replica.set_high_watermark(offset, 0, 9)


def test_who_led_since_an_epoch_leads_it_and_those_after_it():
    replica = a_leader()
    assert [epoch for epoch in range(8) if replica.has_led_since(epoch)] == [5]
    apply(replica, a_state(version=1, leader_epoch=6))
    assert [epoch for epoch in range(8) if replica.has_led_since(epoch)] == [5, 6]
    replica.suspend()
    assert not replica.has_led_since(6)


# Requests


def test_the_epoch_of_a_client_is_compared_unless_it_names_none():
    replica = a_leader()
    for epoch in (-1, 5):
        replica.check_epoch(epoch)
    for epoch in (0, 4):
        with pytest.raises(FencedLeaderEpochError):
            replica.check_epoch(epoch)
    with pytest.raises(UnknownLeaderEpochError):
        replica.check_epoch(6)


def test_a_fetch_of_a_follower_needs_a_leader_an_epoch_and_a_replica():
    with pytest.raises(NotLeaderError):
        a_replica().require_leadership(SECOND, 5)
    replica = a_leader()
    assert replica.require_leadership(SECOND, 5) is replica.leadership
    with pytest.raises(FencedLeaderEpochError, match="named no epoch"):
        replica.require_leadership(SECOND, -1)
    with pytest.raises(FencedLeaderEpochError):
        replica.require_leadership(SECOND, 0)
    with pytest.raises(UnknownLeaderEpochError, match="has no replica"):
        replica.require_leadership(9, 5)


def test_enough_are_in_sync_with_as_many_as_the_option_asks_for():
    replica = a_replica(min_insync_replicas=2)
    apply(replica, a_state())
    assert replica.has_enough_in_sync
    replica.require_writable(ALL_IN_SYNC, True)
    assert not replica.set_min_insync_replicas(3)
    assert replica.min_in_sync == 3
    assert not replica.has_enough_in_sync
    replica.set_min_insync_replicas(4)
    assert replica.min_in_sync == 3  # no more than there are replicas


def test_eligible_leaders_are_asked_for_only_by_who_leads():
    replica = a_replica(min_insync_replicas=2)
    apply(replica, a_state(leader=SECOND, elr=(THIRD,)))
    assert not replica.set_min_insync_replicas(1)
    leader = a_leader()
    assert not leader.set_min_insync_replicas(2)


# Followers of a leader


def test_a_follower_at_the_end_is_at_rest_until_something_happens():
    replica = a_leader()
    fetch(replica, SECOND, 3, end=3)
    fetch(replica, THIRD, 3, end=3)
    assert replica.is_at_rest(SECOND, 3, 0, EPOCH_OF_BROKER, 3)
    assert not replica.is_at_rest(SECOND, 3, 0, EPOCH_OF_BROKER, 4)
    assert not replica.is_at_rest(SECOND, 4, 0, EPOCH_OF_BROKER, 4)
    assert not replica.is_at_rest(SECOND, 3, 1, EPOCH_OF_BROKER, 3)
    assert not replica.is_at_rest(THIRD, 3, 0, EPOCH_OF_BROKER, 3)


def test_a_follower_is_known_under_the_epoch_of_its_fetch_until_it_is_forgotten():
    replica = a_leader()
    fetch(replica, SECOND, 3, end=3)
    assert replica.broker_epoch_at_fetch(SECOND) == EPOCH_OF_BROKER
    assert replica.broker_epoch_at_fetch(9) == -1
    assert replica.caught_up_followers(3) == (SECOND,)
    assert replica.caught_up_followers(4) == ()
    replica.forget_follower(SECOND)
    assert replica.broker_epoch_at_fetch(SECOND) == -1
    assert replica.caught_up_followers(3) == ()


def test_a_follower_that_lags_is_proposed_to_leave_and_counts_no_more():
    replica = a_leader()
    former, proposed = replica.propose_isr(3, 111.0, 10.0, lambda broker: EPOCH_OF_BROKER) or (
        None,
        None,
    )
    assert former == a_state()
    assert proposed is not None
    assert proposed.isr == (US,)
    assert (replica.in_sync, replica.smallest_isr_size) == ((US,), 1)
    replica.withdraw_isr(former)
    assert (replica.in_sync, replica.smallest_isr_size) == ((US, SECOND), 2)


def test_without_a_reason_nothing_is_proposed():
    replica = a_leader()
    assert replica.propose_isr(3, 110.0, 10.0, lambda broker: EPOCH_OF_BROKER) is None


def test_idle_followers_are_caught_up_until_they_were_heard_of():
    replica = a_leader()
    fetch(replica, SECOND, 3, end=3)
    replica.note_idle(SECOND, 150.0)
    assert replica.propose_isr(5, 155.0, 10.0, lambda broker: EPOCH_OF_BROKER) is None


def test_a_consumer_reads_from_a_follower_in_its_rack():
    replica = a_leader()
    fetch(replica, SECOND, 3, end=3)
    racks = {US: "a", SECOND: "b", THIRD: "b"}
    assert replica.find_read_replica("b", racks, 3) == SECOND
    assert replica.find_read_replica("b", racks, 4) is None
    assert replica.find_read_replica("a", racks, 3) is None
    assert replica.find_read_replica("b", {US: "b", SECOND: "b"}, 3) is None


def test_the_low_watermark_is_the_smallest_start_of_the_living():
    replica = a_leader()
    fetch(replica, SECOND, 3, end=3, start=1)
    assert replica.low_watermark(2, lambda broker: 7 if broker == SECOND else -1) == 1


def test_a_suspension_is_over_with_the_next_state():
    replica = a_leader(version=3)
    replica.suspend()
    assert apply(replica, a_state(version=3)) is Part.LEAD
    assert not replica.is_suspended
    assert apply(replica, a_state(version=2)) is Part.OLDER
