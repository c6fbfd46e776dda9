"""A replica as leader and as follower: who may write, what counts, what is taken back."""

import pytest

from moldau.errors import (
    BatchTooLargeError,
    InvalidTxnStateError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
)
from moldau.model import LATEST_TIMESTAMP
from moldau.records.batch_header import read_header
from moldau.records.compression import Codec
from moldau.records.record_batch import ControlType, EndTransactionMarker, build_batch
from moldau.replication.rules.replica import Acknowledgement
from replication.replica_bench import ALL, CLICKS, Bench, fetch, run_story


def test_what_one_replica_alone_appends_is_committed_at_once():
    async def story(bench: Bench) -> None:
        (alone,) = await bench.open(1)
        bench.elect(1, 0)
        end = alone.produce(b"a")
        assert alone.partition.high_watermark == end == 1
        assert alone.observer.appended == 1
        assert alone.observer.replicable == 0

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


@pytest.mark.parametrize("change", ["the lease ends", "another leads", "the session ends"])
def test_a_leader_that_ceases_while_a_worker_unpacks_a_batch_appends_nothing(change: str):
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0)
        leader.lease_end = bench.clock.monotonic() + 5
        assert await leader.produce_in_worker(b"a") == 1
        leader.workers.meanwhile = {
            "the lease ends": lambda: setattr(leader, "lease_end", bench.clock.monotonic()),
            "another leads": lambda: bench.elect(2, 1),
            "the session ends": leader.partition.suspend,
        }[change]
        with pytest.raises(NotLeaderError):
            await leader.produce_in_worker(b"b", acks=1)
        assert leader.values == [b"a"]
        assert follower.values == []

    run_story(story, compression_type="gzip")


def test_a_batch_that_recompression_makes_too_large_is_refused():
    async def story(bench: Bench) -> None:
        (leader,) = await bench.open(1)
        bench.elect(1, 0)
        small = build_batch([(1, None, bytes(100_000), ())], codec=Codec.ZSTD)
        assert len(small) < 300
        assert leader.partition.append_as_leader(memoryview(small), 1) is None
        with pytest.raises(BatchTooLargeError):
            await leader.partition.append_in_worker(memoryview(small), 1)
        assert leader.values == []

    run_story(story, compression_type="uncompressed", max_message_bytes="1000")


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_a_transactional_batch_that_a_worker_unpacks_needs_its_transaction(is_confirmed: bool):
    async def story(bench: Bench) -> None:
        (leader,) = await bench.open(1)
        bench.elect(1, 0)
        batch = build_batch(
            [(1, None, b"a", ())],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        partition = leader.partition
        number = partition.begin_verification(read_header(batch), bumps_epochs=False)
        if not is_confirmed:  # its end came while the worker was busy
            leader.workers.meanwhile = lambda: partition.end_verification(7, number)
        append = partition.append_in_worker(memoryview(batch), ALL, number)
        if is_confirmed:
            await append
        else:
            with pytest.raises(InvalidTxnStateError):
                await append
        assert leader.values == ([b"a"] if is_confirmed else [])

    run_story(story, compression_type="gzip")


def test_a_marker_needs_as_many_in_sync_as_a_record():
    async def story(bench: Bench) -> None:
        leader, _ = await bench.open(1, 2)
        bench.elect(1, 0, isr=(1,))
        with pytest.raises(NotEnoughReplicasError):
            leader.partition.append_marker(EndTransactionMarker(ControlType.COMMIT, 0), 7, 0, 2)
        assert leader.partition.log.log_end_offset == 0

    run_story(story, min_insync_replicas="2")


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
        follower.partition.apply_leader_offsets(high_watermark=1, log_start_offset=2)
        assert follower.partition.log.log_start_offset == 1

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

        leader.partition.add_commit_listener(hear)
        bench.elect(1, 0)
        end = leader.produce(b"a")
        assert heard == []
        fetch(bench, 1, 2, end)
        fetch(bench, 1, 2, end)
        assert heard == [1]
        bench.elect(2, 1)
        leader.partition.apply_leader_offsets(1, 0)
        assert heard == [1]
        leader.partition.remove_commit_listener(hear)
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
        alone.partition.add_commit_listener(lambda: heard.append(alone.partition.high_watermark))
        alone.produce(b"a")
        alone.produce(b"b", b"c")
        assert heard == [1, 3]

    run_story(story)
