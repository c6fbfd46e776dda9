"""The purgatory: who is woken by what, and that nobody is forgotten in it."""

import asyncio
from itertools import count

import pytest

from moldau.broker.fetch import FetchSessions, Terms
from moldau.broker.purgatory import Purgatory
from moldau.model import TopicPartition
from moldau.simulation.manual_clock import wait_until_idle
from moldau.testing import ManualClock
from moldau.wire.fetch_frame import FetchPartition

CLICKS, ORDERS = TopicPartition("clicks", 0), TopicPartition("orders", 0)


class Stage:
    """A room, and sessions that hear what happens."""

    def __init__(self):
        self.clock = ManualClock()
        self.room = Purgatory(self.clock)
        ids = count(1)
        self.sessions = FetchSessions(lambda: 10, lambda: next(ids))

    def fetch(
        self, partitions, missing_bytes=100, max_wait_ms=500, replica_id=-1, hears_commits=True
    ):
        """A fetch that waits."""
        session = self.sessions.open(0)
        rows = [(one.topic, FetchPartition(one.partition, -1, 0, -1, -1, 1)) for one in partitions]
        session.begin_round(Terms(replica_id=replica_id), rows, (), 0.0)
        for each in tuple(session.news):
            self.sessions.rest(each, TopicPartition(each.topic, each.request.partition))
        waiting = self.room.wait_for_news(
            session, missing_bytes, max_wait_ms, hears_commits=hears_commits
        )
        return asyncio.ensure_future(waiting)


def run(story):
    async def tell():
        stage = Stage()
        await story(stage)
        assert len(stage.room) == 0
        assert not stage.clock.pending_timers

    asyncio.run(tell())


def test_a_fetch_leaves_when_enough_bytes_came():
    async def story(stage):
        waiting = stage.fetch([CLICKS, ORDERS])
        await wait_until_idle()
        stage.sessions.on_append(CLICKS, 60)
        await wait_until_idle()
        assert not waiting.done()
        stage.sessions.on_append(ORDERS, 40)
        await waiting

    run(story)


def test_appends_elsewhere_do_not_count():
    async def story(stage):
        waiting = stage.fetch([CLICKS])
        await wait_until_idle()
        stage.sessions.on_append(ORDERS, 1000)
        await wait_until_idle()
        assert not waiting.done()
        await stage.clock.advance(0.5)
        await waiting

    run(story)


def test_a_fetch_leaves_when_its_time_is_over_and_not_before():
    async def story(stage):
        waiting = stage.fetch([CLICKS], max_wait_ms=500)
        await wait_until_idle()
        await stage.clock.advance(0.499)
        assert not waiting.done()
        await stage.clock.advance(0.001)
        await waiting

    run(story)


def test_a_change_of_the_partition_wakes_whoever_waits_for_it():
    async def story(stage):
        waiting = stage.fetch([CLICKS, CLICKS])
        await wait_until_idle()
        stage.sessions.on_change(CLICKS)
        await waiting

    run(story)


def test_a_cancelled_fetch_leaves_nothing_behind():
    async def story(stage):
        waiting = stage.fetch([CLICKS])
        await wait_until_idle()
        assert len(stage.room) == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(story)


def test_followers_leave_with_what_was_appended_and_consumers_with_what_is_committed():
    async def story(stage):
        consumer = stage.fetch([CLICKS], missing_bytes=1)
        follower = stage.fetch([CLICKS], 1, replica_id=2, hears_commits=False)
        await wait_until_idle()
        stage.sessions.on_replicable(CLICKS, 60)
        await wait_until_idle()
        assert follower.done()
        assert not consumer.done()
        stage.sessions.on_commit(CLICKS)
        await consumer

    run(story)


@pytest.mark.parametrize("is_read_from", [True, False])
def test_a_follower_that_is_read_from_hears_at_once_that_the_high_watermark_moved(is_read_from):
    async def story(stage):
        follower = stage.fetch([CLICKS], 1, replica_id=2, hears_commits=is_read_from)
        await wait_until_idle()
        stage.sessions.on_commit(CLICKS)
        await wait_until_idle()
        assert follower.done() == is_read_from
        await stage.clock.advance(0.5)
        await follower

    run(story)


def test_a_produce_leaves_when_all_of_its_batches_are_committed():
    async def story(stage):
        waiting = asyncio.ensure_future(
            stage.room.wait_until_committed({CLICKS: 5, ORDERS: 9}, 500)
        )
        await wait_until_idle()
        stage.room.on_commit(CLICKS, 4)
        stage.room.on_commit(ORDERS, 12)
        await wait_until_idle()
        assert not waiting.done()
        stage.room.on_commit(CLICKS, 5)
        await waiting

    run(story)


def test_a_produce_leaves_when_its_leader_changes_or_its_time_is_over():
    async def story(stage):
        changed = asyncio.ensure_future(stage.room.wait_until_committed({CLICKS: 5}, 500))
        late = asyncio.ensure_future(stage.room.wait_until_committed({ORDERS: 5}, 500))
        await wait_until_idle()
        stage.room.on_change(CLICKS)
        await changed
        assert not late.done()
        await stage.clock.advance(0.5)
        await late

    run(story)


def test_whoever_waits_for_a_change_is_not_woken_by_records():
    async def story(stage):
        waiting = asyncio.ensure_future(stage.room.wait_for_change(CLICKS, 500))
        await wait_until_idle()
        stage.room.on_commit(CLICKS, 1)
        await wait_until_idle()
        assert not waiting.done()
        stage.room.on_change(CLICKS)
        await waiting

    run(story)
