"""A share partition at its leader: what is read, delivered, stored and told, in which order."""

from __future__ import annotations

import asyncio

import pytest
from share_bench import GROUP, ShareBench, share_story

from moldau.config.option import OffsetReset, ResetTo
from moldau.coordinators.shares.dead_letters import DeadLetterSettings
from moldau.coordinators.shares.rules.in_flight import (
    AcknowledgedRange,
    AcknowledgeType,
    DeadRange,
    Wanted,
)
from moldau.coordinators.shares.rules.records import NO_START_OFFSET, DeliveryState
from moldau.coordinators.shares.share_partition import SharePartition, ShareRead
from moldau.errors import (
    CoordinatorNotAvailableError,
    FencedStateEpochError,
    InvalidRecordStateError,
    NotEnoughReplicasError,
    NotLeaderError,
    UnknownTopicError,
)
from moldau.records.batch_header import walk_headers
from moldau.records.record_batch import ControlType, EndTransactionMarker, build_batch
from moldau.simulation.manual_clock import wait_until_idle

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def offsets_sent(read: ShareRead) -> list[int]:
    """The base offsets of the batches that leave."""
    return [
        header.base_offset
        for one in read.slices
        for _, header in walk_headers(memoryview(one.read()))
    ]


def test_a_member_gets_records_and_the_bytes_of_their_batches_only():
    async def story(bench: ShareBench) -> None:
        for _ in range(3):
            bench.replica.produce(b"a", b"b")
        first = await bench.take(most=2)
        assert first.ranges == ((0, 1, 1),)
        assert offsets_sent(first) == [0]
        rest = await bench.take("bob")
        assert rest.ranges == ((2, 5, 1),)
        assert offsets_sent(rest) == [2, 4]
        assert len(rest.slices) == 1  # neighbours leave as one
        assert (await bench.take("eve")).ranges == ()

    share_story(story)


def test_what_lies_between_is_not_sent_again():
    async def story(bench: ShareBench) -> None:
        for _ in range(4):
            bench.replica.produce(b"a")
        await bench.take()
        await bench.say(0, 0, RELEASE)
        await bench.say(3, 3, RELEASE)
        again = await bench.take("bob")
        assert again.ranges == ((0, 0, 2), (3, 3, 2))
        assert offsets_sent(again) == [0, 3]

    share_story(story)


def test_no_more_bytes_than_wanted_but_a_batch_at_least():
    async def story(bench: ShareBench) -> None:
        for _ in range(4):
            bench.replica.produce(b"a" * 100)
        read = await bench.take(max_bytes=1)
        assert read.record_count == 1
        assert (await bench.take(max_bytes=2 * read.size_bytes)).record_count == 2

    share_story(story)


def test_nobody_is_told_before_it_is_stored():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a", b"b", b"c")
        await bench.take()
        bench.store.may_write.clear()
        stored = bench.say(0, 0, RELEASE)
        await wait_until_idle()
        assert not stored.done()
        assert (await bench.take("bob")).ranges == ()
        bench.store.may_write.set()
        await stored
        assert (await bench.take("bob")).ranges == ((0, 0, 2),)

    share_story(story)


def test_what_comes_while_something_is_stored_is_stored_together():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a", b"b", b"c", b"d")
        await bench.take()
        before = len(bench.store.writes)
        bench.store.may_write.clear()
        first = bench.say(0, 0, ACCEPT)
        await wait_until_idle()
        others = [bench.say(2, 2, ACCEPT), bench.say(1, 1, ACCEPT)]
        bench.store.may_write.set()
        await asyncio.gather(first, *others)
        assert [write.start_offset for write in bench.store.writes[before:]] == [1, 3]
        assert bench.store.states == {}

    share_story(story)


def test_what_could_not_be_stored_was_not_said():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a", b"b")
        await bench.take()
        bench.store.fails_with = CoordinatorNotAvailableError("away")
        with pytest.raises(CoordinatorNotAvailableError):
            await bench.say(0, 1, ACCEPT)
        bench.store.fails_with = None
        await bench.say(0, 1, ACCEPT)
        assert bench.store.start_offset == 2

    share_story(story)


def test_a_leader_whose_lease_is_over_delivers_nothing():
    """It may not have heard that another one leads, to whom takers have said what they did."""

    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a", b"b")
        await bench.load()
        bench.replica.lease_end = bench.bench.clock.monotonic()
        with pytest.raises(NotLeaderError, match="lease"):
            await bench.take()
        bench.replica.lease_end = bench.bench.clock.monotonic() + 1
        assert (await bench.take()).ranges == ((0, 1, 1),)

    share_story(story)


def test_where_the_group_begins_is_stored_before_anything_is_delivered():
    async def story(bench: ShareBench) -> None:
        bench.settings = bench.settings._replace(start=OffsetReset(ResetTo.LATEST))
        bench.replica.produce(b"old")
        bench.store.may_write.clear()
        assert (await bench.take()).ranges == ()
        bench.replica.produce(b"new")
        assert (await bench.take()).ranges == ()
        bench.store.may_write.set()
        assert (await bench.take()).ranges == ((1, 1, 1),)
        assert bench.store.start_offset == 1

    share_story(story)


def test_the_group_begins_by_a_setting_that_another_broker_has_confirmed():
    async def story(bench: ShareBench) -> None:
        bench.confirmed_settings = bench.settings
        bench.settings = bench.settings._replace(start=OffsetReset(ResetTo.LATEST))
        bench.replica.produce(b"a")
        assert (await bench.take()).ranges == ((0, 0, 1),)

    share_story(story)


def test_a_group_whose_settings_cannot_be_read_does_not_begin():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a")
        bench.settings_fail_with = CoordinatorNotAvailableError("the store is away")
        with pytest.raises(CoordinatorNotAvailableError, match="the store is away"):
            await bench.take()
        assert bench.store.start_offset == NO_START_OFFSET
        bench.settings_fail_with = None
        assert (await bench.take()).ranges == ((0, 0, 1),)

    share_story(story)


def test_a_group_can_begin_at_a_time():
    async def story(bench: ShareBench) -> None:
        now_ms = bench.bench.clock.now_ms()
        for age_ms in (90_000, 30_000):
            batch = build_batch([(now_ms - age_ms, None, b"a", ())])
            bench.replica.partition.append_as_leader(memoryview(batch), -1)
        bench.settings = bench.settings._replace(start=OffsetReset(ResetTo.DURATION, 60_000))
        assert (await bench.take()).ranges == ((1, 1, 1),)

    share_story(story)


def test_a_lock_that_is_over_is_counted_and_stored():
    async def story(bench: ShareBench) -> None:
        bench.limit(lock_seconds=30.0)
        bench.replica.produce(b"a", b"b")
        await bench.take()
        heard: list[str] = []
        bench.share.listen(lambda: heard.append("news"))
        await bench.bench.clock.advance(29)
        assert heard == []
        await bench.bench.clock.advance(1)
        assert heard
        assert bench.store.states == {0: (0, 1), 1: (0, 1)}
        assert (await bench.take("bob")).ranges == ((0, 1, 2),)

    share_story(story)


@pytest.mark.parametrize("renews", [False, True])
def test_a_lock_is_as_short_as_the_group_wants_it_by_now(renews: bool):
    """Others may last longer, from before."""

    async def story(bench: ShareBench) -> None:
        bench.limit(lock_seconds=60.0)
        bench.replica.produce(b"a")
        bench.replica.produce(b"b")
        await bench.take("ann", most=1)
        if renews:
            await bench.take("bob")
        bench.limit(lock_seconds=15.0)
        if renews:
            assert bench.say(1, 1, AcknowledgeType.RENEW, "bob") is None
        else:
            await bench.take("bob")
        await bench.bench.clock.advance(15)
        assert (await bench.take("eve")).ranges == ((1, 1, 2),)

    share_story(story)


def test_after_a_fault_of_ours_records_are_acquired_as_before_and_can_be_acknowledged():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a", b"b")
        await bench.take()
        bench.store.fails_with = RuntimeError("a fault")
        with pytest.raises(CoordinatorNotAvailableError):
            await bench.say(0, 0, ACCEPT)
        with pytest.raises(RuntimeError, match="a fault"):
            await bench.finish_tasks()
        bench.store.fails_with = None
        await bench.say(0, 1, ACCEPT)
        assert bench.store.start_offset == 2

    share_story(story)


def test_after_a_fault_of_ours_a_state_is_read_again():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a")
        bench.store.fails_with = RuntimeError("a fault")
        await bench.load()
        with pytest.raises(RuntimeError, match="a fault"):
            await bench.finish_tasks()
        bench.store.fails_with = None
        assert (await bench.take()).ranges == ((0, 0, 1),)

    share_story(story)


def test_what_was_delivered_too_often_is_not_given_up_before_that_is_stored():
    async def story(bench: ShareBench) -> None:
        bench.limit(lock_seconds=10.0, delivery_count_limit=1)
        bench.replica.produce(b"a")
        await bench.take()
        bench.store.fails_with = CoordinatorNotAvailableError("away")
        await bench.bench.clock.advance(20)
        assert bench.share.in_flight.start_offset == 0
        bench.store.fails_with = None
        await bench.bench.clock.advance(20)
        assert bench.share.in_flight.start_offset == 1
        assert bench.store.start_offset == 1

    share_story(story)


def test_an_end_that_could_not_be_stored_does_not_wait_for_the_locks_of_others():
    async def story(bench: ShareBench) -> None:
        bench.limit(delivery_count_limit=1)
        bench.replica.produce(b"a")
        bench.replica.produce(b"b")
        await bench.take(most=1)
        await bench.bench.clock.advance(20)
        await bench.take("bob")  # its lock ends twenty seconds after the other one
        bench.store.fails_with = CoordinatorNotAvailableError("nobody coordinates it")
        await bench.bench.clock.advance(10)
        await wait_until_idle()
        bench.store.fails_with = None
        await bench.bench.clock.advance(2)
        await wait_until_idle()
        assert bench.store.start_offset == 1

    share_story(story)


def test_the_next_leader_finds_what_was_stored():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a", b"b", b"c", b"d")
        await bench.take()
        await bench.say(0, 1, ACCEPT)
        await bench.say(3, 3, ACCEPT)
        old = bench.share
        bench.bench.elect(1, 1)
        partition = bench.replica.partition
        bench.partitions.on_partition_changed(partition.topic_partition, partition)
        with pytest.raises(NotLeaderError):
            old.acknowledge("ann", ())
        assert (await bench.take("bob")).ranges == ((2, 2, 1),)

    share_story(story)


def lose_session(bench: ShareBench) -> SharePartition:
    share = bench.share
    share.partition.suspend()
    bench.partitions.on_partition_changed(share.partition.topic_partition, share.partition)
    return share


def test_a_leader_that_has_a_new_session_in_the_same_epoch_knows_what_members_have():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a", b"b", b"c")
        await bench.take()
        share = lose_session(bench)
        await share.acknowledge("ann", (AcknowledgedRange(0, 1, ACCEPT),))
        assert bench.store.start_offset == 1
        with pytest.raises(NotLeaderError):
            share.acquire("bob", Wanted(10, 10), 1000, min_one=True)
        bench.bench.elect(1, 0)
        assert bench.share is share
        assert (await bench.take("bob")).ranges == ()
        await bench.say(1, 2, ACCEPT)
        assert bench.store.start_offset == 3

    share_story(story)


def test_a_lock_that_is_over_without_a_session_is_counted():
    async def story(bench: ShareBench) -> None:
        bench.limit(lock_seconds=10.0)
        bench.replica.produce(b"a")
        await bench.take()
        lose_session(bench)
        await bench.bench.clock.advance(20)
        bench.bench.elect(1, 0)
        assert (await bench.take("bob")).ranges == ((0, 0, 2),)

    share_story(story)


def test_a_session_that_is_lost_while_the_state_is_read_does_not_matter_in_the_same_epoch():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a")
        lose_session(bench)
        await wait_until_idle()
        bench.bench.elect(1, 0)
        assert (await bench.take()).ranges == ((0, 0, 1),)

    share_story(story)


def test_without_a_session_nothing_is_stored_once_another_leader_has_read_the_state():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a")
        await bench.take()
        share = lose_session(bench)
        bench.store.leader_epoch = 1
        with pytest.raises(NotLeaderError):
            await share.acknowledge("ann", (AcknowledgedRange(0, 1, ACCEPT),))
        assert bench.store.start_offset == 0

    share_story(story)


def test_a_partition_that_is_not_here_any_more_has_no_share_partition():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a")
        await bench.take()
        share = bench.share
        share.partition.suspend()
        bench.partitions.on_partition_changed(share.partition.topic_partition, None)
        assert len(bench.partitions) == 0
        assert isinstance(share.failure, NotLeaderError)

    share_story(story)


def test_a_leader_that_was_followed_by_another_one_stores_nothing_more():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a")
        await bench.take()
        bench.store.leader_epoch = 7
        with pytest.raises(NotLeaderError):
            await bench.say(0, 0, ACCEPT)
        with pytest.raises(NotLeaderError):
            await bench.load()  # told once
        assert bench.store.start_offset == 0

    share_story(story)


def test_a_state_that_was_made_anew_is_read_again():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a", b"b")
        await bench.take()
        bench.store.state_epoch, bench.store.start_offset = 9, 1
        with pytest.raises(FencedStateEpochError):
            await bench.say(0, 0, ACCEPT)
        assert (await bench.take()).ranges == ((1, 1, 1),)
        await bench.say(1, 1, ACCEPT)
        assert bench.store.start_offset == 2

    share_story(story)


def test_who_begins_is_given_nothing_of_a_state_that_was_altered():
    """The group was empty for a while; a member that was frozen has kept the old state here."""

    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a", b"b", b"c")
        await bench.take("frozen", most=1)
        bench.store.state_epoch, bench.store.start_offset = 9, 2
        bench.share.require_check()
        with pytest.raises(FencedStateEpochError):
            await bench.take("bob")
        assert (await bench.take("bob")).ranges == ((2, 2, 1),)

    share_story(story)


def test_who_begins_in_an_unaltered_state_takes_nothing_from_others():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a")
        bench.replica.produce(b"b")
        share = await bench.load()
        await bench.take(max_bytes=1)
        share.require_check()
        assert share.acquire("bob", Wanted(9, 9), 1 << 20, min_one=True).ranges == ()
        assert (await bench.take("bob")).ranges == ((1, 1, 1),)
        assert bench.share is share
        await bench.say(0, 0, ACCEPT)

    share_story(story)


def test_nothing_is_delivered_while_a_state_cannot_be_looked_at():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a")
        share = await bench.load()
        share.require_check()
        bench.store.fails_with = CoordinatorNotAvailableError("away")
        assert (await bench.take()).ranges == ()
        bench.store.fails_with = None
        assert (await bench.take()).ranges == ((0, 0, 1),)
        assert bench.share is share

    share_story(story)


def test_who_closes_gives_back_and_the_state_is_read_again_later():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a", b"b")
        await bench.take()
        bench.has_members = False
        bench.share.release("ann")
        bench.partitions.forget_idle(GROUP)
        assert len(bench.partitions) == 1  # until it is stored
        await wait_until_idle()
        assert len(bench.partitions) == 0
        bench.has_members = True
        bench.store.state_epoch = 8
        assert (await bench.take("bob")).ranges == ((0, 1, 2),)  # counted by the close
        await bench.say(0, 1, ACCEPT, "bob")

    share_story(story)


@pytest.mark.parametrize("fails", [True, False])
def test_what_was_still_being_read_when_the_last_member_went_is_not_kept(fails: bool):
    async def story(bench: ShareBench) -> None:
        if fails:
            bench.store.fails_with = UnknownTopicError("there is no such state")
        assert bench.share.in_flight is None
        bench.has_members = False
        bench.partitions.forget_idle(GROUP)
        await wait_until_idle()
        assert len(bench.partitions) == 0

    share_story(story)


def test_what_could_not_be_read_goes_with_the_last_member():
    async def story(bench: ShareBench) -> None:
        bench.store.fails_with = UnknownTopicError("there is no such state")
        await bench.load()
        assert len(bench.partitions) == 1
        bench.has_members = False
        bench.partitions.forget_idle(GROUP)
        assert len(bench.partitions) == 0

    share_story(story)


def test_what_comes_in_the_place_of_records_that_the_log_has_lost_is_delivered():
    async def story(bench: ShareBench) -> None:
        for _ in range(4):
            bench.replica.produce(b"a")
        bench.store.start_offset = 10
        await bench.load()
        assert bench.store.start_offset == 4
        bench.replica.produce(b"b")
        assert (await bench.take()).ranges == ((4, 4, 1),)

    share_story(story)


def test_what_was_done_with_records_that_the_log_has_lost_counts_for_nothing():
    async def story(bench: ShareBench) -> None:
        for _ in range(4):
            bench.replica.produce(b"a")
        done = (DeliveryState.ACKNOWLEDGED, 1)
        bench.store.start_offset = 1
        bench.store.states = {2: done, 3: done, 4: done, 6: (DeliveryState.AVAILABLE, 1)}
        await bench.load()
        assert bench.store.states[4] == (DeliveryState.AVAILABLE, 2)  # more than was stored
        (write,) = bench.store.writes
        assert (write.start_offset, write.delivery_complete_count) == (1, 2)
        for _ in range(3):
            bench.replica.produce(b"b")
        again = await bench.take("bob")
        assert again.ranges == ((1, 1, 1), (4, 4, 3), (5, 5, 1), (6, 6, 2))

    share_story(story)


def test_records_that_were_deleted_are_passed_over():
    async def story(bench: ShareBench) -> None:
        for _ in range(4):
            bench.replica.produce(b"a")
        await bench.load()
        bench.replica.partition.delete_records(2)
        assert (await bench.take()).ranges == ((2, 3, 1),)

    share_story(story)


def test_who_does_not_have_a_record_is_refused_at_once():
    async def story(bench: ShareBench) -> None:
        bench.replica.produce(b"a")
        await bench.take()
        with pytest.raises(InvalidRecordStateError):
            bench.say(0, 0, ACCEPT, "bob")

    share_story(story)


@pytest.mark.parametrize("read_committed", [True, False])
def test_records_of_transactions_as_the_group_wants_them(read_committed: bool):
    async def story(bench: ShareBench) -> None:
        bench.settings = bench.settings._replace(read_committed=read_committed)
        partition = bench.replica.partition
        for producer_id, marker in (
            (7, EndTransactionMarker(ControlType.ABORT, 0)),
            (8, EndTransactionMarker(ControlType.COMMIT, 0)),
        ):
            batch = build_batch(
                [(1, None, b"x", ()), (1, None, b"y", ())],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            partition.append_internal(batch)
            read = await bench.take()
            if read_committed:
                assert read.ranges == ()  # undecided
            partition.append_marker(marker, producer_id, 0, 0)
        read = await bench.take()
        assert read.ranges == (((3, 4, 1),) if read_committed else ())
        held = {
            (run.first, run.record_state.state)
            for run in bench.share.in_flight.runs
            if run.record_state.state is DeliveryState.ACQUIRED
        }
        both = {(0, DeliveryState.ACQUIRED), (3, DeliveryState.ACQUIRED)}
        assert held == ({(3, DeliveryState.ACQUIRED)} if read_committed else both)

    share_story(story)


def test_what_comes_to_its_end_is_written_down_first():
    async def story(bench: ShareBench) -> None:
        bench.settings = bench.settings._replace(dead_letters=DeadLetterSettings("dlq.clicks"))
        bench.replica.produce(b"a", b"b", b"c")
        await bench.take()
        bench.letters.fails_with = NotEnoughReplicasError("one is away")
        with pytest.raises(NotEnoughReplicasError):
            await bench.say(1, 1, REJECT)
        bench.letters.fails_with = None
        await bench.say(0, 0, ACCEPT)
        assert bench.letters.dead == []
        await bench.say(1, 1, REJECT)
        assert bench.letters.dead == [DeadRange(1, 2, 1, True)]
        assert bench.store.start_offset == 2

    share_story(story)


def test_what_was_delivered_too_often_waits_until_it_is_written_down():
    async def story(bench: ShareBench) -> None:
        bench.limit(lock_seconds=10.0, delivery_count_limit=1)
        bench.settings = bench.settings._replace(dead_letters=DeadLetterSettings("dlq.clicks"))
        bench.replica.produce(b"a")
        await bench.take()
        bench.letters.fails_with = NotEnoughReplicasError("one is away")
        await bench.bench.clock.advance(15)
        assert bench.share.in_flight.start_offset == 0
        bench.letters.fails_with = None
        await bench.bench.clock.advance(15)
        assert bench.share.in_flight.start_offset == 1
        assert bench.letters.dead == [DeadRange(0, 1, 1, False)]

    share_story(story)


def test_a_share_partition_stays_while_its_dead_letters_are_written():
    async def story(bench: ShareBench) -> None:
        bench.limit(delivery_count_limit=1)
        bench.settings = bench.settings._replace(dead_letters=DeadLetterSettings("dlq.clicks"))
        bench.replica.produce(b"a")
        await bench.take()
        bench.letters.may_send.clear()
        bench.has_members = False
        bench.share.release("ann")
        bench.partitions.forget_idle(GROUP)
        await wait_until_idle()
        assert len(bench.partitions) == 1
        bench.letters.may_send.set()
        await wait_until_idle()
        assert bench.letters.dead == [DeadRange(0, 1, 1, False)]
        assert bench.store.start_offset == 1
        assert len(bench.partitions) == 0

    share_story(story)
