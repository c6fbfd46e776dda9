"""The followers of a leader: which fetches count, what is committed by them, who is in sync."""

from dataclasses import replace

import pytest

from moldau.errors import FencedLeaderEpochError, NotEnoughReplicasError, UnknownLeaderEpochError
from moldau.replication.partition import FollowedRead
from moldau.replication.rules.replica import Acknowledgement
from replication.replica_bench import Bench, fetch, run_story


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
        leader.partition.state.forget_follower(2)
        fetch(bench, 1, 3, end)
        assert leader.partition.high_watermark == 0

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


def test_a_consumer_is_sent_to_the_follower_in_its_rack():
    async def story(bench: Bench) -> None:
        leader, *_ = await bench.open(1, 2, 3)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        racks = {1: "a", 2: "b", 3: "b"}
        assert leader.partition.state.find_read_replica("b", racks, 0) is None
        fetch(bench, 1, 2, end)
        assert leader.partition.state.find_read_replica("b", racks, 0) == 2
        assert leader.partition.state.find_read_replica("b", {1: "a"}, 0) is None
        assert leader.partition.state.find_read_replica("a", racks, 0) is None

    run_story(story)
