"""The machine of one shard with its log and timers, and share coordinators that are asked, for
tests of share groups."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from uuid import UUID

from consumer_group_world import IDS, image_of

from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    AppendFailed,
    ConsumerHeartbeatAnswer,
    GroupEvent,
    GroupTimer,
    ShareHeartbeat,
    StatesInitialized,
    TimerFired,
    refusal_like,
)
from moldau.coordinators.groups.rules.groups import Groups
from moldau.coordinators.groups.rules.outcome import Arm, Disarm, GroupLimits, InitializeStates
from moldau.coordinators.groups.rules.records import CoordinatorRecord, decode, encode
from moldau.coordinators.groups.rules.share_group import ShareGroup
from moldau.errors import ErrorCode

GROUP = "takers"
CLICKS, ORDERS = IDS["clicks"], IDS["orders"]


class ShareWorld:
    """`kept` is what share coordinators have a state of, by the epoch of the group."""

    def __init__(self, **limits: object) -> None:
        self.limits = GroupLimits(**limits)  # type: ignore[arg-type]
        self.groups = Groups(self.limits)
        self.image = image_of({"clicks": 4})
        self.log: list[CoordinatorRecord] = []
        self.timers: dict[GroupTimer, int] = {}
        self.orders: list[InitializeStates] = []  # share coordinators have not answered yet
        self.kept: dict[tuple[UUID, int], int] = {}
        self.starts: dict[tuple[UUID, int], int] = {}
        self.now_ms = 1_000_000
        self.writes_fail = False

    def do(self, event: GroupEvent) -> object:
        """Handle it as the shard does; the answer if there is one."""
        outcome = self.groups.handle(event, self.now_ms, 1, self.image)
        has_failed = self.writes_fail and bool(outcome.records)
        for effect in outcome.effects:
            if isinstance(effect, Arm):
                self.timers[effect.timer] = self.now_ms + effect.delay_ms
            elif isinstance(effect, Disarm):
                self.timers.pop(effect.timer, None)
            elif isinstance(effect, InitializeStates) and not has_failed:
                self.orders.append(effect)
        if not has_failed:
            self.log += outcome.records
            for record in outcome.records:
                self.groups.apply(record)
        if has_failed and outcome.must_be_logged:
            self.do(AppendFailed(group_id=event.group_id))
        self.check()
        for _, answer in outcome.replies:
            if has_failed:
                return refusal_like(answer, ErrorCode.coordinator_not_available)
            return answer
        return None

    def beat(self, member_id: str, epoch: int, **values: object) -> ConsumerHeartbeatAnswer:
        event = ShareHeartbeat(group_id=GROUP, member_id=member_id, epoch=epoch)
        answer = self.do(replace(event, **values))  # type: ignore[arg-type]
        assert isinstance(answer, ConsumerHeartbeatAnswer)
        return answer

    def join(self, member_id: str, *topics: str, **values: object) -> ConsumerHeartbeatAnswer:
        wanted: dict[str, object] = {"topics": frozenset(topics or ("clicks",))}
        return self.beat(member_id, JOINING_EPOCH, **(wanted | values))

    def join_at_once(self, member_id: str, *topics: str) -> ConsumerHeartbeatAnswer:
        """As the shell does it: the states of its partitions are waited for."""
        answer = self.join(member_id, *topics)
        if not self.orders:
            return answer
        self.answer_orders()
        return self.beat(member_id, answer.epoch)

    def answer_orders(self, *, succeed: bool = True, but_not: Set[int] = frozenset()) -> None:
        """Share coordinators do what they were asked for, or could not be reached, some or all."""
        orders, self.orders = self.orders, []
        for order in orders:
            asked = frozenset((one.topic_id, one.partition) for one in order.states)
            done = frozenset(key for key in asked if succeed and key[1] not in but_not)
            for one in order.states:
                key = (one.topic_id, one.partition)
                if key in done:
                    self.kept[key] = order.state_epoch
                    self.starts[key] = one.start_offset
            self.do(StatesInitialized(group_id=GROUP, asked=asked, done=done))

    def wait(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while due := [one for one, at_ms in self.timers.items() if at_ms <= end_ms]:
            timer = min(due, key=lambda one: self.timers[one])
            self.now_ms = max(self.now_ms, self.timers.pop(timer))
            self.do(TimerFired(timer=timer))
        self.now_ms = end_ms

    def restart(self) -> None:
        """Another coordinator takes over, with what is in the log; answers to the former one are
        lost."""
        self.groups = Groups(self.limits)
        for record in self.log:
            read = decode(*encode(record))
            assert read is not None
            self.groups.apply(read)
        self.orders.clear()
        self.timers.clear()
        for effect in self.groups.start_timers(self.image).effects:
            assert isinstance(effect, Arm)
            self.timers[effect.timer] = self.now_ms + effect.delay_ms

    @property
    def group(self) -> ShareGroup:
        group = self.groups.find(GROUP)
        assert isinstance(group, ShareGroup)
        return group

    def assigned(self, member_id: str) -> AssignedPartitions:
        return self.group.assignment_of(member_id).assigned

    def check(self) -> None:
        """SHG-1 and SHG-2, and the order of epochs."""
        group = self.groups.find(GROUP)
        if not isinstance(group, ShareGroup):
            return
        states = group.state_topics
        for topic_id, topic in states.initialized.items():
            both = states.initializing.get(topic_id)
            assert both is None or not both.partitions & topic.partitions, "SHG-2"
            for partition in topic.partitions:
                assert (topic_id, partition) in self.kept, "SHG-1"
        assert group.target_epoch <= group.epoch
        for some in (group.targets, group.assignments):
            assert some.keys() <= group.subscriptions.keys()
        for member_id in group.subscriptions:
            assert group.assignment_of(member_id).epoch <= group.target_epoch
            for topic_id, partitions in group.target_of(member_id).items():
                for partition in partitions:
                    assert (topic_id, partition) in self.kept, "SHG-1"
        sessions = {timer.member_id for timer in self.timers if timer.group_id == GROUP}
        assert group.subscriptions.keys() <= sessions  # nobody is waited for without an end
