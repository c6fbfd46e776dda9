"""A replica as leader and as follower: who may write, what counts, what is taken back."""

from dataclasses import replace

import pytest

from moldau.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from moldau.model.protocol_numbers import LATEST_TIMESTAMP
from moldau.replication.partition import FollowedRead
from moldau.replication.rules.acknowledgement import Acknowledgement
from replication.replica_bench import CLICKS, Bench, run_story


def fetch(bench: Bench, leader: int, follower: int, offset: int, **changes: int):
    """A follower's fetch, as its leader sees it."""
    wanted = FollowedRead(
        follower,
        bench.broker_epochs[follower],
        bench.replicas[leader].partition.leader_epoch,
        offset,
        -1,
        0,
    )._replace(**changes)
    return bench.replicas[leader].partition.read_for_follower(wanted, 1 << 20, min_one=True)


def test_what_one_replica_alone_appends_is_committed_at_once():
    async def story(bench: Bench) -> None:
        (alone,) = await bench.open(1)
        bench.elect(1, 0)
        end = alone.produce(b"a")
        assert alone.partition.high_watermark == end == 1
        assert alone.observer.appended == 1
        assert alone.observer.replicable == 0

    run_story(story)


def test_a_record_is_committed_when_every_in_sync_replica_has_fetched_behind_it():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        partition = leader.partition
        fetch(bench, 1, 2, end)
        assert partition.high_watermark == 0
        assert partition.state.acknowledgement(0, end) is Acknowledgement.PENDING
        fetch(bench, 1, 3, end)
        assert partition.high_watermark == end
        assert partition.state.acknowledgement(0, end) is Acknowledgement.COMMITTED
        assert leader.observer.commits == [end]

    run_story(story, min_insync_replicas="2")


def test_a_fetch_of_a_broker_from_before_its_restart_does_not_count():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        former = bench.broker_epochs[2]
        bench.broker_epochs[2] = former + 10
        fetch(bench, 1, 2, end, broker_epoch=former)
        assert leader.partition.high_watermark == 0
        fetch(bench, 1, 2, end, broker_epoch=-1)
        assert leader.partition.high_watermark == 0
        fetch(bench, 1, 2, end)
        assert leader.partition.high_watermark == end

    run_story(story)


def test_a_fetch_that_looks_again_while_it_waits_does_not_count():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        wanted = FollowedRead(2, bench.broker_epochs[2], 0, end, -1, 0)
        leader.partition.read_for_follower(wanted, 1 << 20, min_one=True, counts=False)
        assert leader.partition.high_watermark == 0

    run_story(story)


def test_a_fetch_under_another_leader_epoch_is_refused():
    async def story(bench: Bench) -> None:
        await bench.open(1, 2)
        bench.elect(1, 5)
        with pytest.raises(FencedLeaderEpochError):
            fetch(bench, 1, 2, 0, current_leader_epoch=4)
        with pytest.raises(FencedLeaderEpochError):
            fetch(bench, 1, 2, 0, current_leader_epoch=-1)
        with pytest.raises(UnknownLeaderEpochError):
            fetch(bench, 1, 2, 0, current_leader_epoch=6)
        with pytest.raises(UnknownLeaderEpochError):
            fetch(bench, 1, 3, 0)

    run_story(story)


def test_a_fetch_from_another_history_does_not_count_and_says_where_it_parts():
    async def story(bench: Bench) -> None:
        leader, other = await bench.open(1, 2)
        bench.elect(1, 0)
        leader.produce(b"a")
        fetch(bench, 1, 2, 1)
        bench.elect(2, 1)
        bench.elect(1, 2)
        leader.produce(b"b")
        read = fetch(bench, 1, 2, 2, last_fetched_epoch=1)
        assert read.diverging_epoch == (0, 1)
        assert leader.partition.high_watermark == 1
        assert other.partition.high_watermark == 0

    run_story(story)


def test_what_is_known_of_a_follower_is_forgotten_with_the_epoch():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        leader.produce(b"a")
        bench.elect(1, 1)
        leader.produce(b"b")
        assert leader.partition.high_watermark == 0
        fetch(bench, 1, 2, 1)
        assert leader.partition.high_watermark == 1

    run_story(story)


def test_what_is_known_of_a_follower_is_forgotten_when_its_broker_goes():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        fetch(bench, 1, 2, end)
        leader.partition.forget_follower(2)
        fetch(bench, 1, 3, end)
        assert leader.partition.high_watermark == 0

    run_story(story)


# Who may write


def test_nobody_appends_after_the_end_of_its_lease():
    async def story(bench: Bench) -> None:
        (leader,) = await bench.open(1)
        bench.elect(1, 0)
        leader.lease_end = bench.clock.monotonic() + 5
        leader.produce(b"a")
        await bench.clock.advance(5)
        with pytest.raises(NotLeaderError):
            leader.produce(b"b", acks=1)
        assert not leader.partition.holds_lease
        leader.lease_end = float("-inf")
        with pytest.raises(NotLeaderError):
            leader.produce(b"b", acks=0)
        assert leader.values == [b"a"]

    run_story(story)


def test_a_follower_takes_no_records():
    async def story(bench: Bench) -> None:
        _, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        with pytest.raises(NotLeaderError):
            follower.produce(b"a")

    run_story(story)


def test_an_older_state_changes_nothing():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        old = bench.state(2, 0)
        bench.elect(1, 1)
        assert not leader.partition.apply_state(old)
        assert leader.partition.is_leader
        assert leader.partition.leader_epoch == 1

    run_story(story)


def test_a_suspended_leader_does_nothing_until_a_state_is_read_again():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        state = bench.elect(1, 0)
        end = leader.produce(b"a")
        leader.partition.suspend()
        with pytest.raises(NotLeaderError):
            leader.produce(b"b")
        with pytest.raises(NotLeaderError):
            fetch(bench, 1, 2, 1, current_leader_epoch=0)
        assert leader.partition.state.acknowledgement(0, end) is Acknowledgement.LEADER_CHANGED
        assert leader.partition.apply_state(state)
        leader.produce(b"b")
        assert leader.values == [b"a", b"b"]

    run_story(story)


def test_a_suspended_follower_follows_nobody():
    async def story(bench: Bench) -> None:
        _, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        assert follower.partition.is_following
        follower.partition.suspend()
        assert not follower.partition.is_following

    run_story(story)


def test_a_leader_that_hands_over_takes_no_records_and_is_still_read_from():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        assert leader.partition.holds_lease
        leader.partition.stop_accepting()
        assert not leader.partition.holds_lease  # the next one may be leading already
        with pytest.raises(NotLeaderError):
            leader.produce(b"b")
        assert leader.partition.caught_up_followers() == ()
        fetch(bench, 1, 2, end)
        assert leader.partition.caught_up_followers() == (2,)
        assert leader.partition.state.acknowledgement(0, end) is Acknowledgement.COMMITTED

    run_story(story)


# The in-sync set


def test_writing_needs_the_smallest_set_that_may_be_in_force():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        leader.produce(b"a")
        await bench.clock.advance(31)
        former, proposed = leader.partition.propose_isr(30.0)
        assert former.isr == (1, 2)
        assert proposed.isr == (1,)
        with pytest.raises(NotEnoughReplicasError):
            leader.produce(b"b")
        assert leader.partition.high_watermark == 0  # it may be in still

    run_story(story, min_insync_replicas="2")


def test_what_a_shrunken_set_has_is_committed_when_the_store_says_so():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        await bench.clock.advance(31)
        leader.partition.propose_isr(30.0)
        assert leader.partition.high_watermark == 0
        bench.elect(1, 0, isr=(1,))
        assert leader.partition.high_watermark == end

    run_story(story)


def test_a_batch_committed_by_too_few_is_no_success():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        fetch(bench, 1, 2, end)
        bench.elect(1, 0, isr=(1,))
        assert leader.partition.state.acknowledgement(0, end) is Acknowledgement.TOO_FEW

    run_story(story, min_insync_replicas="2")


def test_nothing_is_committed_while_too_few_are_in_sync():
    """ELR-1: whoever has left since then still has all that is committed."""

    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        bench.elect(1, 0, isr=(1,))
        leader.produce(b"b", acks=1)
        assert leader.partition.high_watermark == 0
        assert leader.partition.state.acknowledgement(0, end) is Acknowledgement.PENDING
        bench.elect(1, 0, isr=(1, 2))
        fetch(bench, 1, 2, end)
        assert leader.partition.high_watermark == end
        assert leader.partition.state.acknowledgement(0, end) is Acknowledgement.COMMITTED

    run_story(story, min_insync_replicas="2")


def test_who_does_not_keep_up_stays_out_although_the_high_watermark_stands_still():
    """It would be let go at once, and taken in, and let go."""

    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0, isr=(1,))
        for _ in range(3):
            leader.produce(b"a", acks=1)
        await bench.clock.advance(31)
        fetch(bench, 1, 2, 1)
        assert leader.partition.high_watermark == 0
        assert leader.partition.propose_isr(30.0) is None
        leader.produce(b"b", acks=1)
        fetch(bench, 1, 2, 3)  # all that was there when it asked before
        _, proposed = leader.partition.propose_isr(30.0)
        assert proposed.isr == (1, 2)

    run_story(story, min_insync_replicas="2")


def test_who_is_let_go_while_too_few_stay_is_eligible():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0)
        leader.produce(b"a")
        await bench.clock.advance(31)
        _, proposed = leader.partition.propose_isr(30.0)
        assert (proposed.isr, proposed.elr) == ((1,), (2, 3))
        leader.partition.apply_state(replace(proposed, version=proposed.version + 1))
        fetch(bench, 1, 3, 1)
        _, proposed = leader.partition.propose_isr(30.0)
        assert (proposed.isr, proposed.elr) == ((1, 3), ())
        assert leader.partition.high_watermark == 0  # the store may not have taken it yet

    run_story(story, min_insync_replicas="2")


def test_an_eligible_follower_that_has_everything_may_be_handed_over_to():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        leader.partition.apply_state(replace(bench.elect(1, 0, isr=(1,)), elr=(2,), version=7))
        end = leader.produce(b"a", acks=1)
        assert leader.partition.caught_up_followers() == ()
        fetch(bench, 1, 2, end)
        fetch(bench, 1, 3, end)
        assert leader.partition.caught_up_followers() == (2,)

    run_story(story, min_insync_replicas="2")


def test_nothing_is_committed_behind_those_who_are_eligible_when_fewer_are_enough():
    """`min.insync.replicas` is lowered: first they lose their promise, then it goes on (ELR-1)."""

    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        partition = leader.partition
        state = replace(bench.elect(1, 0, isr=(1,)), elr=(2,), version=7)
        partition.apply_state(state)
        end = leader.produce(b"a", acks=1)
        partition.update_options(partition.log.options.replace(min_insync_replicas=1))
        assert leader.observer.caught_up == 1
        assert partition.high_watermark == 0
        former, proposed = partition.propose_isr(30.0)
        assert (former, proposed) == (state, replace(state, elr=()))
        assert partition.high_watermark == 0
        partition.apply_state(replace(proposed, version=8))
        assert partition.high_watermark == end
        assert partition.propose_isr(30.0) is None

    run_story(story, min_insync_replicas="2")


def test_no_more_replicas_are_asked_for_than_there_are():
    async def story(bench: Bench) -> None:
        (alone,) = await bench.open(1)
        bench.elect(1, 0)
        end = alone.produce(b"a")
        assert alone.partition.state.has_enough_in_sync
        assert alone.partition.state.acknowledgement(0, end) is Acknowledgement.COMMITTED

    run_story(story, min_insync_replicas="2")


def test_a_replica_tells_where_its_log_ends_whoever_leads():
    async def story(bench: Bench) -> None:
        leader, other = await bench.open(1, 2)
        bench.elect(1, 3)
        assert leader.partition.find_log_end()[::2] == (0, 3)
        leader.produce(b"a")
        bench.elect(2, 4, isr=(2,))
        assert leader.partition.find_log_end()[::2] == (1, 3)
        assert other.partition.find_log_end()[::2] == (0, 4)

    run_story(story)


def test_a_follower_that_may_be_in_holds_the_high_watermark_back():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0, isr=(1, 2))
        end = leader.produce(b"a")
        fetch(bench, 1, 3, 0)
        assert leader.observer.caught_up == 1
        _, proposed = leader.partition.propose_isr(30.0)
        assert proposed.isr == (1, 2, 3)
        fetch(bench, 1, 2, end)
        assert leader.partition.high_watermark == 0
        fetch(bench, 1, 3, end)
        assert leader.partition.high_watermark == end

    run_story(story)


def test_a_proposal_that_was_overtaken_is_withdrawn():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0, isr=(1, 2))
        end = leader.produce(b"a")
        fetch(bench, 1, 3, 0)
        former, _ = leader.partition.propose_isr(30.0)
        leader.partition.withdraw_isr(former)
        fetch(bench, 1, 2, end)
        assert leader.partition.high_watermark == end

    run_story(story)


def test_who_was_taken_out_has_to_fetch_again_before_it_comes_in():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        fetch(bench, 1, 2, 0)
        bench.elect(1, 0, isr=(1,))
        assert leader.partition.propose_isr(30.0) is None
        fetch(bench, 1, 2, 0)
        _, proposed = leader.partition.propose_isr(30.0)
        assert proposed.isr == (1, 2)

    run_story(story)


def test_who_may_have_been_no_replica_for_a_while_has_to_fetch_again_before_it_comes_in():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0, isr=(1, 2))
        leader.produce(b"a")
        fetch(bench, 1, 2, 1)
        fetch(bench, 1, 3, 1)  # and then it is taken away and given back, with an empty log
        leader.partition.apply_state(bench.state(1, 0, isr=(1, 2)))
        assert leader.partition.propose_isr(30.0) is None
        fetch(bench, 1, 3, 0)
        assert leader.partition.propose_isr(30.0) is None
        fetch(bench, 1, 3, 1)
        assert leader.partition.propose_isr(30.0) is not None

    run_story(story)


def grow(bench: Bench, step: int) -> None:
    """A record comes, and broker 2, which is near, has it before broker 3 asks again."""
    end = bench.replicas[1].produce(b"%d" % step)
    fetch(bench, 1, 2, end)


def test_a_follower_on_a_longer_way_is_waited_for_when_it_is_close_behind():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0, isr=(1, 2))
        grow(bench, 0)
        fetch(bench, 1, 3, 0)
        grow(bench, 1)
        fetch(bench, 1, 3, 1)  # it has what was committed when it asked before
        assert leader.partition.high_watermark == 2
        grow(bench, 2)
        assert leader.partition.high_watermark == 2  # held for it
        fetch(bench, 1, 3, 2)
        assert leader.observer.caught_up == 1
        _, proposed = leader.partition.propose_isr(30.0)
        assert proposed.isr == (1, 2, 3)
        fetch(bench, 1, 3, 3)
        assert leader.partition.high_watermark == 3

    run_story(story)


def test_nobody_is_waited_for_any_longer_than_a_moment():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0, isr=(1, 2))
        grow(bench, 0)
        fetch(bench, 1, 3, 0)
        grow(bench, 1)
        fetch(bench, 1, 3, 1)
        grow(bench, 2)
        assert leader.partition.high_watermark == 2
        await bench.clock.advance(1)
        assert leader.partition.high_watermark == 3
        grow(bench, 3)
        fetch(bench, 1, 3, 2)
        grow(bench, 4)
        fetch(bench, 1, 3, 4)
        grow(bench, 5)
        assert leader.partition.high_watermark == 6  # and not again so soon

    run_story(story)


def test_a_former_lifes_epoch_is_not_led_again():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        leader.partition.state._refused_epoch = 4
        bench.elect(1, 4)
        assert not leader.partition.is_leader
        assert not leader.partition.is_following
        bench.elect(1, 5)
        assert leader.partition.is_leader

    run_story(story)


# What is shown


def test_a_new_leader_does_not_say_where_the_log_ends_before_it_knows():
    async def story(bench: Bench) -> None:
        leader, other = await bench.open(1, 2)
        bench.elect(1, 0)
        leader.produce(b"a")
        bench.elect(1, 2)  # somebody else may have led epoch 1
        assert not leader.partition.state.is_settled
        with pytest.raises(OffsetNotAvailableError):
            await leader.partition.find_offset(LATEST_TIMESTAMP, read_committed=False)
        found = await leader.partition.find_offset(
            LATEST_TIMESTAMP, read_committed=False, for_replica=True
        )
        assert found.offset == 1
        former = leader.observer.changes
        fetch(bench, 1, 2, 1)
        assert leader.partition.state.is_settled
        assert leader.observer.changes > former
        found = await leader.partition.find_offset(LATEST_TIMESTAMP, read_committed=False)
        assert found.offset == 1
        assert other.partition.topic_partition == CLICKS

    run_story(story)


def test_consumers_of_a_follower_see_what_is_committed_there():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        leader.produce(b"a")
        leader.produce(b"b")
        bench.copy(2, 1)
        await bench.settle()
        follower.partition.state.high_watermark = 1
        read = follower.partition.read(0, 1 << 20, read_committed=False, min_one=True)
        assert read.records is not None
        assert read.high_watermark == 1
        assert read.records.length < follower.partition.log.size_bytes
        with pytest.raises(OffsetNotAvailableError):
            follower.partition.read(2, 1 << 20, read_committed=False, min_one=True)

    run_story(story)


def test_a_leader_whose_lease_is_over_does_not_say_that_nothing_is_behind_its_end():
    """Another one may lead and have more: a consumer would go back to the beginning."""

    async def story(bench: Bench) -> None:
        (leader,) = await bench.open(1)
        bench.elect(1, 0)
        leader.produce(b"a")
        leader.lease_end = bench.clock.monotonic() + 5
        with pytest.raises(OffsetOutOfRangeError):
            leader.partition.read(2, 1 << 20, read_committed=False, min_one=True)
        await bench.clock.advance(5)
        with pytest.raises(OffsetNotAvailableError):
            leader.partition.read(2, 1 << 20, read_committed=False, min_one=True)
        read = leader.partition.read(0, 1 << 20, read_committed=False, min_one=True)
        assert read.records is not None

    run_story(story)


def test_a_follower_does_not_say_that_nothing_is_behind_its_end():
    """It may be late, or made anew: a consumer that was told so would leave its position."""

    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0, isr=(1,))
        leader.produce(b"a")
        with pytest.raises(OffsetNotAvailableError):
            follower.partition.read(1, 1 << 20, read_committed=False, min_one=True)
        with pytest.raises(OffsetOutOfRangeError):
            leader.partition.read(2, 1 << 20, read_committed=False, min_one=True)

    run_story(story)


def test_records_are_deleted_when_every_living_replica_has_deleted_them():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        fetch(bench, 1, 2, end)
        leader.partition.delete_records(1)
        assert leader.partition.low_watermark == 0
        fetch(bench, 1, 2, end, log_start_offset=1)
        assert leader.partition.low_watermark == 1
        fetch(bench, 1, 2, end, log_start_offset=0)
        del bench.broker_epochs[2]
        assert leader.partition.low_watermark == 1

    run_story(story)


def test_deleted_records_leave_a_line_that_says_who_asked(caplog: pytest.LogCaptureFixture):
    async def story(bench: Bench) -> None:
        [leader] = await bench.open(1)
        bench.elect(1, 0)
        for value in (b"a", b"b", b"c"):
            leader.produce(value)
        caplog.set_level("INFO")
        leader.partition.delete_records(2)
        leader.partition.delete_records(2)
        lines = [each.getMessage() for each in caplog.records if "DeleteRecords" in each.message]
        [line] = lines
        assert line.endswith(
            ": records with offsets 0 to 1 are deleted: DeleteRecords asked for it"
        )

    run_story(story)


def test_what_is_not_committed_is_not_deleted():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        leader.produce(b"a")
        leader.produce(b"b")
        fetch(bench, 1, 2, 1)
        with pytest.raises(OffsetOutOfRangeError):
            leader.partition.delete_records(2)
        assert leader.partition.delete_records(-1) == 1
        bench.copy(2, 1)
        await bench.settle()
        follower.partition.state.high_watermark = 1
        follower.partition.follower.take_offsets(high_watermark=1, log_start_offset=2)
        assert follower.partition.log.log_start_offset == 1

    run_story(story)


def test_a_consumer_is_sent_to_the_follower_in_its_rack():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        racks = {1: "a", 2: "b", 3: "b"}
        assert leader.partition.find_read_replica("b", racks, 0) is None
        fetch(bench, 1, 2, end)
        assert leader.partition.find_read_replica("b", racks, 0) == 2
        assert leader.partition.find_read_replica("b", {1: "a"}, 0) is None
        assert leader.partition.find_read_replica("a", racks, 0) is None

    run_story(story)


def test_a_batch_of_a_former_epoch_is_not_acknowledged_in_a_later_one():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        bench.elect(1, 2)
        fetch(bench, 1, 2, end)
        assert leader.partition.high_watermark == end
        assert leader.partition.state.acknowledgement(0, end) is Acknowledgement.LEADER_CHANGED

    run_story(story)


def test_who_watches_hears_of_what_is_committed_alone_and_with_followers():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        heard: list[int] = []

        def hear() -> None:
            heard.append(leader.partition.high_watermark)

        leader.partition.listeners.add(hear)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        assert heard == []
        fetch(bench, 1, 2, end)
        fetch(bench, 1, 2, end)
        assert heard == [1]
        bench.elect(2, 1)
        leader.partition.follower.take_offsets(1, 0)
        assert heard == [1]
        leader.partition.listeners.remove(hear)
        bench.elect(1, 2)
        fetch(bench, 1, 2, leader.produce(b"b"))
        assert leader.partition.high_watermark == 2
        assert heard == [1]

    run_story(story)


def test_who_watches_a_leader_alone_hears_of_every_append():
    async def story(bench: Bench) -> None:
        (alone,) = await bench.open(1)
        bench.elect(1, 0)
        heard: list[int] = []
        alone.partition.listeners.add(lambda: heard.append(alone.partition.high_watermark))
        alone.produce(b"a")
        alone.produce(b"b", b"c")
        assert heard == [1, 3]

    run_story(story)
