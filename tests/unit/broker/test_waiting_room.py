"""The waiting room: who is woken by what, and that nobody is forgotten in it."""

import asyncio

import pytest

from moldau.broker.waiting_room import WaitingRoom
from moldau.model import TopicPartition
from moldau.testing import ManualClock
from moldau.testing.manual_clock import wait_until_idle

CLICKS, ORDERS = TopicPartition("clicks", 0), TopicPartition("orders", 0)


def run(story):
    async def tell():
        clock = ManualClock()
        room = WaitingRoom(clock)
        await story(clock, room)
        assert len(room) == 0
        assert not clock.pending_timers

    asyncio.run(tell())


def start(room, partitions, missing_bytes=100, max_wait_ms=500):
    return asyncio.ensure_future(room.wait_for_bytes(partitions, missing_bytes, max_wait_ms))


def test_a_fetch_leaves_when_enough_bytes_came():
    async def story(clock, room):
        waiting = start(room, [CLICKS, ORDERS])
        await wait_until_idle()
        room.on_append(CLICKS, 60)
        await wait_until_idle()
        assert not waiting.done()
        room.on_append(ORDERS, 40)
        await waiting

    run(story)


def test_appends_elsewhere_do_not_count():
    async def story(clock, room):
        waiting = start(room, [CLICKS])
        await wait_until_idle()
        room.on_append(ORDERS, 1000)
        await wait_until_idle()
        assert not waiting.done()
        await clock.advance(0.5)
        await waiting

    run(story)


def test_a_fetch_leaves_when_its_time_is_over_and_not_before():
    async def story(clock, room):
        waiting = start(room, [CLICKS], max_wait_ms=500)
        await wait_until_idle()
        await clock.advance(0.499)
        assert not waiting.done()
        await clock.advance(0.001)
        await waiting

    run(story)


def test_a_change_of_the_partition_wakes_whoever_waits_for_it():
    async def story(clock, room):
        waiting = start(room, [CLICKS, CLICKS])
        await wait_until_idle()
        room.on_change(CLICKS)
        await waiting

    run(story)


def test_a_cancelled_fetch_leaves_nothing_behind():
    async def story(clock, room):
        waiting = start(room, [CLICKS])
        await wait_until_idle()
        assert len(room) == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(story)


def test_followers_leave_with_what_was_appended_and_consumers_with_what_is_committed():
    async def story(clock, room):
        consumer = start(room, [CLICKS], missing_bytes=1)
        follower = asyncio.ensure_future(room.wait_for_bytes([CLICKS], 1, 500, uncommitted=True))
        await wait_until_idle()
        room.on_replicable(CLICKS, 60)
        await wait_until_idle()
        assert follower.done()
        assert not consumer.done()
        room.on_commit(CLICKS, 1)
        await consumer

    run(story)


def test_a_follower_hears_at_once_that_the_high_watermark_moved():
    async def story(clock, room):
        follower = asyncio.ensure_future(room.wait_for_bytes([CLICKS], 1, 500, uncommitted=True))
        await wait_until_idle()
        room.on_commit(CLICKS, 1)
        await follower

    run(story)


def test_a_produce_leaves_when_all_of_its_batches_are_committed():
    async def story(clock, room):
        waiting = asyncio.ensure_future(room.wait_until_committed({CLICKS: 5, ORDERS: 9}, 500))
        await wait_until_idle()
        room.on_commit(CLICKS, 4)
        room.on_commit(ORDERS, 12)
        await wait_until_idle()
        assert not waiting.done()
        room.on_commit(CLICKS, 5)
        await waiting

    run(story)


def test_a_produce_leaves_when_its_leader_changes_or_its_time_is_over():
    async def story(clock, room):
        changed = asyncio.ensure_future(room.wait_until_committed({CLICKS: 5}, 500))
        late = asyncio.ensure_future(room.wait_until_committed({ORDERS: 5}, 500))
        await wait_until_idle()
        room.on_change(CLICKS)
        await changed
        assert not late.done()
        await clock.advance(0.5)
        await late

    run(story)


def test_whoever_waits_for_a_change_is_not_woken_by_records():
    async def story(clock, room):
        waiting = asyncio.ensure_future(room.wait_for_change(CLICKS, 500))
        await wait_until_idle()
        room.on_append(CLICKS, 60)
        room.on_replicable(CLICKS, 60)
        room.on_commit(CLICKS, 1)
        await wait_until_idle()
        assert not waiting.done()
        room.on_change(CLICKS)
        await waiting

    run(story)
