"""The lag of groups: ends that are here, ends that others tell, and what nobody tells."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import UUID

from moldau.broker.monitoring.group_lag import GroupLags, Lag
from moldau.cluster.rules.leader_election import LogEnd
from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState, TopicState
from moldau.coordinators.groups.rules.records import CommittedOffset
from moldau.model import BrokerId, LeaderEpoch, TopicId, TopicPartition
from moldau.testing import ManualClock

HERE, ELSEWHERE, LOST = (TopicPartition(name, 0) for name in ("here", "elsewhere", "lost"))


def topic(name: str, number: int, leader: int) -> TopicState:
    state = PartitionState(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(0),
        isr=(BrokerId(leader),),
        replicas=(BrokerId(leader),),
    )
    return TopicState(name=name, topic_id=TopicId(UUID(int=number)), partitions=(state,))


class Stage:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ends = {HERE: 100, ELSEWHERE: 50}
        self.committed = {HERE: 90, ELSEWHERE: 20, LOST: 5}
        self.asked: list[object] = []
        image = MetadataImage(cluster_id="c").with_topics(
            [topic("here", 1, 1), topic("elsewhere", 2, 2), topic("lost", 3, -1)]
        )
        self.lags = GroupLags(
            broker_id=BrokerId(1),
            groups=self._groups,
            partitions=SimpleNamespace(find=self._find),
            image=lambda: image,
            ask_ends=self._ask,
            clock=self.clock,
        )

    def _groups(self) -> list[object]:
        offsets = [
            (key.topic, key.partition, CommittedOffset(offset, -1, "", 0))
            for key, offset in self.committed.items()
        ]
        return [SimpleNamespace(group_id="g", offsets=offsets)]

    def _find(self, name: str, number: int) -> object:
        if name != "here":
            return None
        return SimpleNamespace(is_leader=True, is_following=False, high_watermark=self.ends[HERE])

    async def _ask(self, questions: object) -> dict[TopicPartition, dict[BrokerId, LogEnd]]:
        self.asked.append(questions)
        return {ELSEWHERE: {BrokerId(2): LogEnd(0, self.ends[ELSEWHERE])}}

    def look(self) -> None:
        asyncio.run(self.lags.look())


def test_ends_come_from_here_or_from_their_leaders() -> None:
    stage = Stage()
    stage.look()
    assert stage.lags.lags == {("g", "here"): Lag(10, 0.0), ("g", "elsewhere"): Lag(30, 0.0)}
    assert stage.asked == [{BrokerId(2): [ELSEWHERE]}]


def test_seconds_grow_while_nobody_reads_and_end_with_the_lag() -> None:
    stage = Stage()
    stage.look()
    asyncio.run(stage.clock.advance(60))
    stage.look()
    assert stage.lags.lags["g", "here"] == Lag(10, 60.0)
    stage.committed[HERE] = 100
    stage.look()
    assert stage.lags.lags["g", "here"] == Lag(0, 0.0)
