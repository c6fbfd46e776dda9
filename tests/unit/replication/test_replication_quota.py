"""Copying is slowed down where a throttle names the replica, and only while it is not in sync."""

from types import SimpleNamespace

from moldau.config.option import MAX_LONG
from moldau.model import TopicPartition
from moldau.replication.replication_quota import ReplicationQuota
from moldau.testing import ManualClock
from replication.replica_bench import Bench, run_story


class Side:
    """Broker 1, with a throttle of a kilobyte per second."""

    def __init__(self, rate: int = 1000, named: tuple[str, ...] = ("0:1",)) -> None:
        self.rate = rate
        self.clock = ManualClock()
        self.quota = ReplicationQuota(self.clock, 1, lambda: self.rate, lambda options: named)
        self.partition = SimpleNamespace(
            topic_partition=TopicPartition("clicks", 0),
            log=SimpleNamespace(options=None),
            state=SimpleNamespace(in_sync=(1, 2)),
        )


def test_a_follower_out_of_sync_has_to_wait_when_too_much_was_sent():
    side = Side()
    side.quota.record(side.partition, 5000, 3)
    assert side.quota.holds_back(side.partition, 3)


def test_a_replica_in_sync_is_never_held_up():
    side = Side()
    side.quota.record(side.partition, 5000, 3)
    assert not side.quota.holds_back(side.partition, 2)
    assert not side.quota.holds_back(side.partition)


def test_a_follower_asks_for_itself():
    side = Side()
    side.partition.state.in_sync = (2,)
    side.quota.record(side.partition, 5000)
    assert side.quota.holds_back(side.partition)


def test_a_replica_that_is_not_named_goes_on():
    side = Side(named=("1:1", "0:2"))
    side.quota.record(side.partition, 5000, 3)
    assert not side.quota.holds_back(side.partition, 3)


def test_without_a_rate_nothing_is_counted():
    side = Side(rate=MAX_LONG)
    side.quota.record(side.partition, 5000, 3)
    side.rate = 1000
    assert not side.quota.holds_back(side.partition, 3)


def test_a_throttled_follower_catches_up_at_the_rate_it_was_given():
    async def story(bench: Bench) -> None:
        leader, follower = await bench.open(1, 2)
        bench.options = type(bench.options).resolve({"replica.fetch.max.bytes": "1000"})
        bench.elect(1, 0, isr=(1,))
        for _ in range(20):
            leader.produce(b"x" * 930)  # about a kilobyte with what is around it
        bench.copy(2, 1)
        bench._fetchers[2]._quota = ReplicationQuota(
            bench.clock, 2, lambda: 2000, lambda options: ("*",)
        )
        await bench.clock.advance(3)
        assert 5 <= len(follower.values) <= 12
        await bench.clock.advance(10)
        assert len(follower.values) == 20

    run_story(story)
