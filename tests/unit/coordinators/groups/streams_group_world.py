"""The machine of one shard with its log and timers, and members that run tasks, for tests of
streams groups."""

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
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    AppendFailed,
    GroupEvent,
    GroupTimer,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    TasksAssigned,
    TimerFired,
    refusal_like,
)
from moldau.coordinators.groups.rules.groups import Groups
from moldau.coordinators.groups.rules.outcome import Arm, AssignTasks, Disarm, GroupLimits
from moldau.coordinators.groups.rules.records import CoordinatorRecord, decode, encode
from moldau.coordinators.groups.rules.streams_group import StreamsGroup, process_of
from moldau.coordinators.groups.rules.streams_records import StreamsMemberState
from moldau.coordinators.groups.rules.streams_topology import (
    NO_TASKS,
    Subtopology,
    TaskId,
    TaskKind,
    Tasks,
    TopicInfo,
    Topology,
)
from moldau.errors import ErrorCode
from moldau.model import BrokerId, LeaderEpoch, TopicId

GROUP = "counters"
TOPOLOGY = Topology(
    1,
    (
        Subtopology("0", source_topics=("words",), repartition_sinks=("by-word",)),
        Subtopology(
            "1",
            changelog_topics=(TopicInfo("changelog"),),
            repartition_sources=(TopicInfo("by-word"),),
        ),
    ),
)
TOPICS = {"words": 2, "by-word": 2, "changelog": 2}
BROKER = BrokerId(1)


def image_of(counts: Mapping[str, int]) -> MetadataImage:
    state = PartitionState(
        leader=BROKER, leader_epoch=LeaderEpoch(0), isr=(BROKER,), replicas=(BROKER,)
    )
    image = MetadataImage(
        cluster_id="c", brokers={BROKER: BrokerState(id=BROKER, endpoints=(), rack=None)}
    )
    return image.with_topics(
        TopicState(
            name=name,
            topic_id=TopicId(UUID(bytes=name.encode().ljust(16)[:16])),
            partitions=(state,) * count,
        )
        for name, count in counts.items()
    )


class StreamsWorld:
    """Time between assignments is not asked for here, unless limits say so."""

    def __init__(self, **limits: object) -> None:
        usual: dict[str, object] = {
            "streams_initial_rebalance_delay_ms": 0,
            "streams_assignment_interval_ms": 0,
        }
        self.limits = GroupLimits(**usual | limits)  # type: ignore[arg-type]
        self.groups = Groups(self.limits)
        self.image = image_of(TOPICS)
        self.log: list[CoordinatorRecord] = []
        self.timers: dict[GroupTimer, int] = {}
        self.now_ms = 1_000_000
        self.writes_fail = False
        self.order: AssignTasks | None = None  # what is being assigned in slices

    def do(self, event: GroupEvent) -> object:
        """Handle it as the shard does; the answer if there is one."""
        outcome = self.groups.handle(event, self.now_ms, 1, self.image)
        has_failed = self.writes_fail and bool(outcome.records)
        for effect in outcome.effects:
            if isinstance(effect, Arm):
                self.timers[effect.timer] = self.now_ms + effect.delay_ms
            elif isinstance(effect, Disarm):
                self.timers.pop(effect.timer, None)
            elif isinstance(effect, AssignTasks) and not has_failed:
                self.order = effect
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

    def beat(self, member_id: str, epoch: int, **values: object) -> StreamsHeartbeatAnswer:
        event = StreamsHeartbeat(group_id=GROUP, member_id=member_id, epoch=epoch)
        answer = self.do(replace(event, **values))  # type: ignore[arg-type]
        assert isinstance(answer, StreamsHeartbeatAnswer)
        return answer

    def join(self, member_id: str, **values: object) -> StreamsHeartbeatAnswer:
        said: dict[str, object] = {
            "rebalance_timeout_ms": 300_000,
            "topology": TOPOLOGY,
            "active": {},
            "standby": {},
            "warmup": {},
            "process_id": f"process of {member_id}",
        }
        return self.beat(member_id, JOINING_EPOCH, **(said | values))

    def finish_assigning(self) -> None:
        """The last slice of an assignment is done."""
        order, self.order = self.order, None
        if order is not None:
            targets = order.assignment.at_once()
            self.do(TasksAssigned(group_id=GROUP, epoch=order.epoch, targets=targets))

    def wait(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        self.finish_assigning()
        while due := [one for one, at_ms in self.timers.items() if at_ms <= end_ms]:
            timer = min(due, key=lambda one: self.timers[one])
            self.now_ms = max(self.now_ms, self.timers.pop(timer))
            self.do(TimerFired(timer=timer))
            self.finish_assigning()
        self.now_ms = end_ms

    def restart(self) -> None:
        """Another coordinator takes over, with what is in the log."""
        self.groups = Groups(self.limits)
        for record in self.log:
            read = decode(*encode(record))  # type: ignore[arg-type]
            assert read == record
            self.groups.apply(record)
        self.timers.clear()
        self.order = None
        for effect in self.groups.start_timers(self.image).effects:
            assert isinstance(effect, Arm)
            self.timers[effect.timer] = self.now_ms + effect.delay_ms
        self.check()

    @property
    def group(self) -> StreamsGroup:
        group = self.groups.find(GROUP)
        assert isinstance(group, StreamsGroup)
        return group

    def tasks(self, member_id: str) -> Tasks:
        return self.group.assignment_of(member_id).assigned

    def check(self) -> None:
        """STG-1 to STG-4, and that nobody is waited for without an end."""
        group = self.groups.find(GROUP)
        if not isinstance(group, StreamsGroup):
            return
        active: dict[TaskId, str] = {}
        for member_id, assignment in group.assignments.items():
            held = (*assignment.assigned.each(), *assignment.revoking.each())
            for kind, task in held:
                if kind is TaskKind.ACTIVE:
                    assert active.setdefault(task, member_id) == member_id, "STG-1"
            assert {task for kind, task in held if kind is TaskKind.ACTIVE} == set(assignment.since)
            assert assignment.epoch <= group.epoch, "STG-2"
            assert all(since <= assignment.epoch for since in assignment.since.values()), "STG-4"
            if assignment.state is StreamsMemberState.UNREVOKED_TASKS:
                assert group.revocation_timer(member_id) in self.timers
        in_process: dict[tuple[str, TaskId], str] = {}
        for member_id, member in group.members.items():
            assert group.session_timer(member_id) in self.timers
            for _, task in group.assignment_of(member_id).assigned.each():
                key = process_of(member), task
                assert in_process.setdefault(key, member_id) == member_id, "STG-1"
        assert group.target_epoch <= group.epoch, "STG-2"
        for some in (group.targets, group.assignments):
            assert some.keys() <= group.members.keys(), "STG-3"


class Worker:
    """A member as Kafka Streams is one: it gives up what it is no longer given, and says so."""

    def __init__(self, world: StreamsWorld, member_id: str, **said: object) -> None:
        self.world = world
        self.member_id = member_id
        self.said = said
        self.epoch = JOINING_EPOCH
        self.tasks = NO_TASKS
        self.answer = StreamsHeartbeatAnswer()

    def beat(self) -> StreamsHeartbeatAnswer:
        if self.epoch == JOINING_EPOCH:
            answer = self.world.join(self.member_id, **self.said)
        else:
            answer = self.world.beat(
                self.member_id,
                self.epoch,
                active=self.tasks.active,
                standby=self.tasks.standby,
                warmup=self.tasks.warmup,
            )
        self._take(answer)
        return answer

    def leave(self) -> StreamsHeartbeatAnswer:
        answer = self.world.beat(self.member_id, LEAVING_EPOCH)
        self.epoch, self.tasks = JOINING_EPOCH, NO_TASKS
        return answer

    def _take(self, answer: StreamsHeartbeatAnswer) -> None:
        self.answer = answer
        if answer.error in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id):
            self.epoch, self.tasks = JOINING_EPOCH, NO_TASKS
        elif answer.error is ErrorCode.none:
            self.epoch = answer.epoch
            if answer.tasks is not None:
                self.tasks = answer.tasks


def settle(*workers: Worker) -> None:
    """Until everybody has what it is to get."""
    for _ in range(10):
        before = [(one.epoch, one.tasks) for one in workers]
        for one in workers:
            one.beat()
            if one.world.order is not None:
                one.world.finish_assigning()
                before = []
        if before == [(one.epoch, one.tasks) for one in workers]:
            return
    raise AssertionError("the group does not come to rest")
