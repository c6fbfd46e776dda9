"""A leader whose partition is reassigned goes on under a new epoch (CTL-3): what it may keep."""

import pytest

from moldau.errors import FencedLeaderEpochError, NotLeaderError
from moldau.replication.rules.replica import Acknowledgement
from replication.replica_bench import Bench, run_story

from .test_partition import fetch


def test_a_batch_on_its_way_is_acknowledged_under_the_next_epoch_of_the_same_leader():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        bench.elect(1, 1)
        assert leader.partition.state.acknowledgement(0, end) is Acknowledgement.PENDING
        fetch(bench, 1, 2, end)
        assert leader.partition.state.acknowledgement(0, end) is Acknowledgement.COMMITTED
        bench.elect(1, 2)
        assert leader.partition.state.acknowledgement(0, end) is Acknowledgement.COMMITTED

    run_story(story)


def test_a_batch_is_in_doubt_when_somebody_else_may_have_led_in_between():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        bench.elect(1, 2)  # who led epoch 1 is not known here
        fetch(bench, 1, 2, end)
        assert leader.partition.state.acknowledgement(0, end) is Acknowledgement.LEADER_CHANGED

    run_story(story)


def test_a_fetch_from_before_a_replica_was_taken_away_does_not_count_when_it_is_back():
    """It was sent under the old epoch; the log that it speaks of may be deleted."""

    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        fetch(bench, 1, 2, end)
        bench.elect(1, 1, isr=(1,))
        bench.elect(1, 2, isr=(1,))
        with pytest.raises(FencedLeaderEpochError):
            fetch(bench, 1, 2, end, current_leader_epoch=0)
        assert leader.partition.propose_isr(10.0) is None
        fetch(bench, 1, 2, 0)  # an empty log
        assert leader.partition.propose_isr(10.0) is None
        fetch(bench, 1, 2, end)
        assert leader.partition.propose_isr(10.0) is not None

    run_story(story)


def test_a_leader_that_is_about_to_hand_over_takes_no_records_under_the_next_epoch():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        leader.partition.stop_accepting()
        bench.elect(1, 1)
        with pytest.raises(NotLeaderError):
            leader.produce(b"a")

    run_story(story)


def test_a_leader_that_goes_on_still_knows_what_is_committed():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        fetch(bench, 1, 2, end)
        assert leader.partition.state.is_settled
        leader.produce(b"b")
        bench.elect(1, 1)
        assert leader.partition.state.is_settled
        assert leader.partition.high_watermark == end

    run_story(story)


def test_a_state_that_is_older_changes_nothing():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        old = bench.state(1, 0)
        bench.elect(1, 1)
        replicas = leader.partition.state.replicas
        bench.replicas.pop(2)
        assert not leader.partition.apply_state(old)
        assert not leader.partition.apply_state(bench.state(1, 0, version=1))
        assert leader.partition.state.replicas == replicas

    run_story(story)
