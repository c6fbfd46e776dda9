"""The machine of one shard with its log, timers and clock, for tests of consumer groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from moldau.cluster.rules.metadata_image import (
    BrokerState,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.coordinators.groups.rules.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    overlap,
    partitions_of,
)
from moldau.coordinators.groups.rules.consumer_group import ConsumerGroup
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    AppendFailed,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    GroupEvent,
    GroupTimer,
    TimerFired,
    refusal_like,
)
from moldau.coordinators.groups.rules.groups import Groups
from moldau.coordinators.groups.rules.outcome import Arm, Disarm, GroupLimits
from moldau.coordinators.groups.rules.records import CoordinatorRecord, decode, encode
from moldau.errors import ErrorCode
from moldau.model import BrokerId, LeaderEpoch, TopicId

GROUP = "readers"
CLICKS, ORDERS = UUID(int=1), UUID(int=2)
IDS = {"clicks": CLICKS, "orders": ORDERS, "others": UUID(int=3), "__consumer_offsets": UUID(int=4)}
BROKER = BrokerId(1)


def image_of(counts: Mapping[str, int], rack: str | None = None) -> MetadataImage:
    state = PartitionState(
        leader=BROKER, leader_epoch=LeaderEpoch(0), isr=(BROKER,), replicas=(BROKER,)
    )
    image = MetadataImage(
        cluster_id="c", brokers={BROKER: BrokerState(id=BROKER, endpoints=(), rack=rack)}
    )
    return image.with_topics(
        TopicState(
            name=name,
            topic_id=TopicId(IDS[name]),
            partitions=(state,) * count,
        )
        for name, count in counts.items()
    )


class World:
    """The machine of one shard with its log, timers and clock."""

    def __init__(self, **limits: object) -> None:
        self.limits = GroupLimits(**limits)  # type: ignore[arg-type]
        self.groups = Groups(self.limits)
        self.image = image_of({"clicks": 4})
        self.log: list[CoordinatorRecord] = []
        self.timers: dict[GroupTimer, int] = {}
        self.now_ms = 1_000_000
        self.writes_fail = False

    def do(self, event: GroupEvent) -> object:
        """Handle it as the shard does; the answer if there is one."""
        outcome = self.groups.handle(event, self.now_ms, 1, self.image)
        for effect in outcome.effects:
            if isinstance(effect, Arm):
                self.timers[effect.timer] = self.now_ms + effect.delay_ms
            elif isinstance(effect, Disarm):
                self.timers.pop(effect.timer, None)
        has_failed = self.writes_fail and bool(outcome.records)
        if not has_failed:
            self.log += outcome.records
            for record in outcome.records:
                self.groups.apply(record)
        self.check()
        if has_failed and outcome.must_be_logged:
            self.do(AppendFailed(group_id=event.group_id))
        for _, answer in outcome.replies:
            if has_failed:
                return refusal_like(answer, ErrorCode.coordinator_not_available)
            return answer
        return None

    def beat(self, member_id: str, epoch: int, **values: object) -> ConsumerHeartbeatAnswer:
        event = ConsumerHeartbeat(group_id=GROUP, member_id=member_id, epoch=epoch)
        answer = self.do(replace(event, **values))  # type: ignore[arg-type]
        assert isinstance(answer, ConsumerHeartbeatAnswer)
        return answer

    def join(self, member_id: str, *topics: str, **values: object) -> ConsumerHeartbeatAnswer:
        wanted: dict[str, object] = {
            "topics": frozenset(topics or ("clicks",)),
            "rebalance_timeout_ms": 60_000,
            "owned": NO_PARTITIONS,
        }
        return self.beat(member_id, JOINING_EPOCH, **(wanted | values))

    def wait(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while due := [one for one, at_ms in self.timers.items() if at_ms <= end_ms]:
            timer = min(due, key=lambda one: self.timers[one])
            self.now_ms = max(self.now_ms, self.timers.pop(timer))
            self.do(TimerFired(timer=timer))
        self.now_ms = end_ms

    def restart(self) -> None:
        """Another coordinator takes over, with what is in the log."""
        self.groups = Groups(self.limits)
        for record in self.log:
            read = decode(*encode(record))
            assert read is not None
            self.groups.apply(read)
        self.timers.clear()
        for effect in self.groups.start_timers(self.image).effects:
            assert isinstance(effect, Arm)
            self.timers[effect.timer] = self.now_ms + effect.delay_ms

    @property
    def group(self) -> ConsumerGroup:
        group = self.groups.find(GROUP)
        assert isinstance(group, ConsumerGroup)
        return group

    def check(self) -> None:
        """CGR-1 to CGR-3."""
        group = self.groups.find(GROUP)
        if not isinstance(group, ConsumerGroup):
            return
        held: AssignedPartitions = NO_PARTITIONS
        for member_id in group.subscriptions:
            assignment = group.assignment_of(member_id)
            for some in (assignment.assigned, assignment.revoking):
                assert not overlap(held, some), f"CGR-1: {member_id} shares {some}"
                held = partitions_of(
                    (topic, one) for part in (held, some) for topic in part for one in part[topic]
                )
            assert assignment.epoch <= group.target_epoch, "CGR-2"
        assert group.target_epoch <= group.epoch, "CGR-2"
        assert group.targets.keys() <= group.subscriptions.keys(), "CGR-3"
        assert group.assignments.keys() <= group.subscriptions.keys(), "CGR-3"
