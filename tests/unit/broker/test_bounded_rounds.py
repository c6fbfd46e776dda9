"""Replication costs what moved: partitions that nothing happens to are not touched.

What is counted is which replicas a round looks at, on the leader and on its followers, in a cluster
of the production code on virtual time.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from broker.cluster_stage import Cluster, Machine, play
from moldau.errors import ErrorCode
from moldau.records.record_batch import build_batch
from moldau.replication.partition import FollowPosition, Partition

PRODUCE = 0
OTHERS = 30
BUSY = OTHERS // 2


class Touched:
    """Which partitions were looked at, and how often."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def watch_reads(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Those of followers, at their leader."""
        former = Partition.read_for_follower

        def counted(followers: Partition, *args: Any, **options: Any) -> Any:
            self.counts[followers.topic_partition.partition] += 1
            return former(followers, *args, **options)

        monkeypatch.setattr(Partition, "read_for_follower", counted)

    def watch_followers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        former = Partition.fetch_position

        def counted(follower: Partition) -> FollowPosition:
            self.counts[follower.topic_partition.partition] += 1
            return former(follower)

        monkeypatch.setattr(Partition, "fetch_position", counted)


def is_in_sync(machine: Machine) -> bool:
    return all(len(machine.state("t", number).isr) == 3 for number in range(OTHERS))


async def produce(cluster: Cluster, number: int) -> None:
    batch = build_batch([(cluster.clock.now_ms(), None, b"x", ())])
    row = {"index": number, "records": bytes(batch)}
    answer = await cluster.ask(
        cluster.machines[1],
        PRODUCE,
        11,
        transactional_id=None,
        acks=-1,
        timeout=1500,
        topic_data=[{"name": "t", "partition_data": [row]}],
    )
    assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none


def test_records_touch_their_partition_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, followers = Touched(), Touched()

    async def story(cluster: Cluster) -> None:
        machines = await cluster.start(1, 2, 3)
        assert await cluster.create(machines[0], "t", *[[1, 2, 3]] * OTHERS) is ErrorCode.none
        await cluster.until(lambda: all(map(is_in_sync, machines)))
        await produce(cluster, BUSY)
        await cluster.clock.advance(5.0)
        leader.watch_reads(monkeypatch)
        followers.watch_followers(monkeypatch)
        for _ in range(10):
            await produce(cluster, BUSY)
        await cluster.clock.advance(5.0)
        assert set(leader.counts) == set(followers.counts) == {BUSY}
        assert followers.counts[BUSY] <= 2 * 2 * 10 + 10
        assert leader.counts[BUSY] <= 2 * 3 * 10 + 20

    play(story)


def test_nothing_is_touched_where_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    touched = Touched()

    async def story(cluster: Cluster) -> None:
        machines = await cluster.start(1, 2, 3)
        assert await cluster.create(machines[0], "t", *[[1, 2, 3]] * OTHERS) is ErrorCode.none
        await produce(cluster, BUSY)
        await cluster.clock.advance(10.0)
        touched.watch_reads(monkeypatch)
        touched.watch_followers(monkeypatch)
        await cluster.clock.advance(20.0)
        assert not touched.counts

    play(story)
