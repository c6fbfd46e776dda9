"""Followers whose logs are not their leader's: how far they go back, and what they begin with."""

import errno

import pytest

from moldau.model import Offset
from moldau.records.record_batch import build_batch
from moldau.storage.checkpoint_files import read_checkpoints
from moldau.storage.log import Log
from moldau.storage.log_cleaner import LogCleaner
from replication.replica_bench import CLICKS, FOLDER, Bench, Replica, fetch, run_story


def test_a_former_leader_goes_back_to_where_its_history_parts():
    async def story(bench: Bench) -> None:
        first, second = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        first.produce(b"common")
        await bench.settle()
        bench.links[2].is_cut = True
        await bench.settle()
        first.produce(b"lost", acks=1)
        first.produce(b"lost too", acks=1)
        bench.elect(2, 1, isr=(2,))
        second.produce(b"new")
        bench.copy(1, 2)
        await bench.settle()
        assert first.values == second.values == [b"common", b"new"]
        assert first.partition.log.latest_epoch == 1
        assert bench.checkpoints[0] == 1

    run_story(story)


def test_records_that_are_committed_are_kept_by_a_follower_that_knows_less():
    """Truncating to the high watermark, as Kafka once did, would lose the record here."""

    async def story(bench: Bench) -> None:
        first, second = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        first.produce(b"acknowledged")
        await bench.settle()
        second.partition.state.high_watermark = 0  # it has not heard yet
        bench.elect(1, 1)
        bench.copy(2, 1)
        await bench.settle()
        bench.elect(2, 2, isr=(2,))
        assert second.values == [b"acknowledged"]

    run_story(story)


def test_histories_that_part_twice_meet_again():
    async def story(bench: Bench) -> None:
        first, second = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        first.produce(b"common")
        await bench.settle()
        bench.links[2].is_cut = True
        await bench.settle()
        for epoch in (2, 4):
            bench.elect(1, epoch, isr=(1,))
            first.produce(b"ours %d" % epoch)
        for epoch in (5, 7):
            bench.elect(2, epoch, isr=(2,))
            second.produce(b"theirs %d" % epoch)
        bench.copy(1, 2)
        await bench.settle()
        assert first.values == second.values == [b"common", b"theirs 5", b"theirs 7"]

    run_story(story)


def test_a_follower_behind_the_leaders_start_begins_anew_there():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.elect(1, 0, isr=(1,))
        bench.copy(2, 1)
        leader.produce(b"old")
        await bench.settle()
        bench.links[2].is_cut = True
        await bench.settle()
        leader.produce(b"gone")
        leader.produce(b"kept")
        leader.partition.delete_records(2)
        bench.links[2].is_cut = False
        await bench.settle(5)
        assert follower.partition.log.log_start_offset == 2
        assert follower.values == [b"kept"]
        assert bench.checkpoints == [2]

    run_story(story)


def test_a_follower_behind_the_end_of_an_unclean_leader_goes_back_to_it():
    async def story(bench: Bench) -> None:
        first, second = await bench.open(1, 2)
        bench.elect(1, 0, isr=(1,))
        first.produce(b"a")
        first.produce(b"b")
        bench.elect(2, 1, isr=(2,))
        bench.copy(1, 2)
        await bench.settle()
        assert first.values == second.values == []
        assert first.partition.high_watermark == 0

    run_story(story)


def test_damaged_records_of_a_former_leader_are_copied_again():
    async def story(bench: Bench) -> None:
        first, second = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        first.produce(b"a")
        first.produce(b"b")
        await bench.settle()
        first.partition.state.damaged_from = 1
        bench.elect(2, 1, isr=(2,))
        bench.copy(1, 2)
        await bench.settle()
        assert bench.checkpoints == [1]
        assert first.values == second.values == [b"a", b"b"]
        assert first.partition.state.damaged_from is None

    run_story(story)


def test_damaged_records_that_could_not_be_cut_off_are_not_forgotten():
    """Too many open files refuse a truncation for a moment, and the disk is well."""

    async def story(bench: Bench) -> None:
        first, second = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        first.produce(b"a")
        first.produce(b"b")
        await bench.settle()
        first.partition.state.damaged_from = 1
        fault = first.files.fail_next("open", errno.EMFILE, count=None)
        bench.elect(2, 1, isr=(2,))
        bench.copy(1, 2)
        await bench.settle()
        assert fault.times_met > 0
        assert bench.checkpoints == []
        first.files.clear_faults()
        await bench.settle(5.0)
        assert bench.checkpoints == [1]
        assert first.values == second.values == [b"a", b"b"]
        assert first.partition.state.damaged_from is None

    run_story(story)


def test_a_replica_in_sync_keeps_its_records_damaged_or_not():
    async def story(bench: Bench) -> None:
        first, _ = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        first.produce(b"a")
        await bench.settle()
        first.partition.state.damaged_from = 0
        bench.elect(2, 1, isr=(2, 1))
        bench.copy(1, 2)
        await bench.settle()
        assert bench.checkpoints == []
        assert first.values == [b"a"]

    run_story(story)


def test_a_replica_begins_with_a_batch_of_which_the_leader_has_deleted_the_beginning():
    """DeleteRecords knows offsets, a log knows batches: the leader's begins inside of one."""

    async def story(bench: Bench) -> None:
        leader, _, late = await bench.open(1, 2, 3)
        bench.elect(1, 0, isr=(1, 2))
        bench.copy(2, 1)
        leader.produce(b"a", b"b", b"c", b"d")
        leader.produce(b"e")
        await bench.settle()
        leader.partition.delete_records(2)
        bench.copy(3, 1)
        await bench.settle(5.0)
        leader.produce(b"f")
        await bench.settle(5.0)
        log = late.partition.log
        assert (log.log_start_offset, log.log_end_offset) == (2, 6)
        ours, theirs = (
            one.partition.log.read(2, 1 << 20, end_offset=6, min_one=True).slice.read()
            for one in (leader, late)
        )
        assert ours == theirs
        assert late.partition.high_watermark == 6
        assert late.partition.log.recovery_point <= 6

    run_story(story)


def put(replica: Replica, key: bytes, value: bytes | None) -> None:
    """Into a segment of its own."""
    timestamp_ms = 1_000 * (replica.partition.log.log_end_offset + 1)
    batch = build_batch([(timestamp_ms, key, value, ())])
    replica.partition.append_as_leader(memoryview(batch), 1)


def test_a_compacted_log_that_is_cut_below_what_was_compared_is_copied_again():
    """An unclean election brings back values that others had replaced, and those go (REP-8)."""

    async def story(bench: Bench) -> None:
        first, second = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        put(first, b"k", b"old")
        put(first, b"other", b"other")
        await bench.settle()
        bench.links[2].is_cut = True
        await bench.settle()
        bench.elect(1, 1, isr=(1,))
        for number in range(4):
            put(first, b"k", b"new %d" % number)
        log = first.partition.log
        await log.flush()
        cleaner = LogCleaner(bench.clock, lambda: bench.options)
        assert await cleaner.clean_dirtiest({CLICKS: log}, {CLICKS: log.log_end_offset})
        assert first.values == [b"other", b"new 2", b"new 3"]
        bench.elect(2, 2, isr=(2,))
        put(second, b"z", b"later")
        bench.copy(1, 2)
        await bench.settle()
        assert first.values == second.values == [b"old", b"other", b"later"]

    run_story(story, cleanup_policy="compact", segment_ms="500", min_cleanable_dirty_ratio="0.1")


def test_no_checkpoint_vouches_for_what_goes_because_compaction_got_further_meanwhile():
    """Else a power loss in the middle leaves a log with a hole that nobody looks for (LOG-9)."""

    async def story(bench: Bench) -> None:
        first, second = await bench.open(1, 2)
        bench.elect(1, 0)
        bench.copy(2, 1)
        put(first, b"common", b"common")
        await bench.settle()
        bench.links[2].is_cut = True
        await bench.settle()
        bench.elect(1, 1, isr=(1,))
        for number in range(4):
            put(first, b"k", b"new %d" % number)
        log, checkpoints = first.partition.log, first.store.checkpoints
        await log.flush()
        prepare, vouched = checkpoints.prepare_truncation, []

        async def prepare_slowly(log: Log, offset: int) -> None:
            await prepare(log, offset)
            vouched.append(log.recovery_point)
            log.compared_offset = Offset(4)  # a round puts a segment in its place

        checkpoints.prepare_truncation = prepare_slowly
        bench.elect(2, 2, isr=(2,))
        put(second, b"z", b"later")
        bench.copy(1, 2)
        await bench.settle()
        assert vouched == [1, 0]
        assert first.values == second.values == [b"common", b"later"]

    run_story(story, cleanup_policy="compact", segment_ms="500")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_who_was_away_for_longer_than_tombstones_are_kept_copies_everything_again(
    is_restarted: bool,
):
    """Else a key that was deleted meanwhile is there again when it leads (REP-9)."""

    async def story(bench: Bench) -> None:
        leader, follower, near = await bench.open(1, 2, 3)
        bench.elect(1, 0)
        bench.copy(2, 1)
        bench.copy(3, 1)
        put(leader, b"k", b"deleted later")
        put(leader, b"other", b"other")
        await bench.settle()
        bench.links[2].is_cut = True
        await bench.settle()
        bench.elect(1, 1, isr=(1, 3))
        put(leader, b"k", None)
        put(leader, b"a", b"a")
        put(leader, b"b", b"b")
        await bench.settle()
        log = leader.partition.log
        for _ in range(2):  # the first round marks the tombstone, the second drops it
            put(leader, b"c", b"c")
            await bench.settle()
            await log.flush()
            cleaner = LogCleaner(bench.clock, lambda: bench.options)
            assert await cleaner.clean_dirtiest({CLICKS: log}, {CLICKS: log.log_end_offset})
            await bench.settle(100)
        assert b"deleted later" not in leader.values
        assert log.dropped_offset == 3
        if is_restarted:
            await leader.store.checkpoints.write_all()
            offsets = read_checkpoints(leader.files, FOLDER)
            assert offsets.dropped_offsets == {CLICKS: 3}
        ends = near.partition.log.log_end_offset
        bench.links[2].is_cut = False
        await bench.settle(5)
        assert follower.values == leader.values
        assert follower.partition.log.log_end_offset == ends == log.log_end_offset
        assert bench.checkpoints == [0]  # once, and nobody else

    run_story(
        story,
        cleanup_policy="compact",
        segment_ms="500",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="60000",
    )


async def open_log_with_dropped_tombstones(bench: Bench) -> Replica:
    """A leader with a segment for each record, and a follower that is not in sync."""
    leader, _ = await bench.open(1, 2)
    bench.elect(1, 0, isr=(1,))
    for number in range(20):
        put(leader, b"%d" % number, b"value")
    leader.partition.log.dropped_offset = Offset(15)  # as compaction leaves it
    return leader


def test_who_copies_a_log_from_its_start_gets_through_its_dropped_tombstones():
    """It takes many fetches, and each ends before tombstones that are gone (REP-9)."""

    async def story(bench: Bench) -> None:
        leader = await open_log_with_dropped_tombstones(bench)
        link = bench.copy(2, 1)
        await bench.settle(2)
        assert bench.replicas[2].values == leader.values
        assert len(link.requests) >= 20
        assert bench.checkpoints == []  # it was never sent back

    run_story(story, cleanup_policy="compact", segment_ms="500")


def test_who_was_away_in_the_middle_of_a_copy_begins_again():
    async def story(bench: Bench) -> None:
        leader = await open_log_with_dropped_tombstones(bench)

        def is_sent_back(offset: int) -> bool:
            read = fetch(bench, 1, 2, offset, last_fetched_epoch=0)
            return read.diverging_epoch == (0, 0)

        assert is_sent_back(5)
        assert not is_sent_back(0)
        assert not is_sent_back(5)
        bench.broker_epochs[2] += 1  # restarted, or its session has ended
        assert is_sent_back(6)
        assert not is_sent_back(0)
        assert not is_sent_back(7)
        assert not is_sent_back(leader.partition.log.log_end_offset)
        assert is_sent_back(8)  # it was in sync once, and its copy of then is not this one

    run_story(story, cleanup_policy="compact", segment_ms="500")
