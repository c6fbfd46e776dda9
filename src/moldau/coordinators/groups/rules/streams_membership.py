"""StreamsGroupHeartbeat: how members of a streams group come, live, and go (KIP-1071). A rule.

As with consumer groups, one request does all of it and becomes records. The first one brings the
topology of the application, and with it the internal topics that have to be made; until all topics
are as they must be, nobody has tasks. Tasks are assigned when the group's epoch has grown: not
before more members had the time to come, and not too often.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from moldau.coordinators.groups.rules.assignors import StreamsWorker, TaskAssignment
from moldau.coordinators.groups.rules.epoch_group import (
    Refused,
    unknown_member,
    was_assigned_just_now,
)
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    GroupTimerKind,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    TasksAssigned,
)
from moldau.coordinators.groups.rules.outcome import GroupLimits, GroupTurn, Outcome
from moldau.coordinators.groups.rules.streams_group import StreamsGroup, process_of
from moldau.coordinators.groups.rules.streams_records import (
    NO_TOPOLOGY_EPOCH,
    StreamsAssignment,
    StreamsAssignmentRecord,
    StreamsEpoch,
    StreamsEpochRecord,
    StreamsGroupRecord,
    StreamsMember,
    StreamsMemberRecord,
    StreamsMemberState,
    StreamsTargetEpoch,
    StreamsTargetEpochRecord,
    StreamsTargetRecord,
    TopologyRecord,
    removal_of_streams_member,
)
from moldau.coordinators.groups.rules.streams_topology import (
    NO_TASKS,
    ConfiguredTopology,
    InvalidTopologyError,
    StatusNote,
    StreamsStatus,
    TaskId,
    TaskKind,
    Tasks,
    TaskSet,
    Topology,
    find_topology_fault,
)
from moldau.errors import ErrorCode


def heartbeat(group: StreamsGroup, event: StreamsHeartbeat, turn: GroupTurn) -> None:
    """`group` may be one that is not there yet: it is, once the records are applied."""
    if refuse_if_invalid(event, turn):
        return
    try:
        if event.epoch == LEAVING_EPOCH:
            _leave(group, event, turn)
        else:
            _StreamsMemberStep(group, event, turn).advance()
    except Refused as refused:
        turn.answer(StreamsHeartbeatAnswer(error=refused.error, message=refused.message))
    except InvalidTopologyError as error:
        invalid = ErrorCode.streams_invalid_topology
        turn.answer(StreamsHeartbeatAnswer(error=invalid, message=str(error)))


def refuse_if_invalid(event: StreamsHeartbeat, turn: GroupTurn) -> bool:
    """Answer a request that makes no sense whatever the group looks like."""
    error = ErrorCode.invalid_request
    fault = _find_unserved(event) or _find_request_fault(event, turn.limits)
    if fault is None and event.topology is not None:
        error = ErrorCode.streams_invalid_topology
        fault = find_topology_fault(event.topology)
    if fault is not None:
        turn.answer(StreamsHeartbeatAnswer(error=error, message=fault))
    return fault is not None


def _find_unserved(event: StreamsHeartbeat) -> str | None:
    """What the protocol has room for, and Kafka does not serve either."""
    if event.instance_id is not None:
        return "Static membership is not supported in streams groups"
    if event.tells_offsets:
        return "TaskOffsets and TaskEndOffsets are not supported"
    if event.warmup:
        return "WarmupTasks are not supported"
    if event.topology and any(one.source_regexes for one in event.topology.subtopologies):
        return "Regular expressions for source topics are not supported"
    return None


def _find_request_fault(event: StreamsHeartbeat, limits: GroupLimits) -> str | None:
    fault = None
    said = (event.active, event.standby, event.warmup)
    is_joining = event.epoch == JOINING_EPOCH
    topology = event.topology
    if not event.group_id or not event.member_id:
        fault = "GroupId and MemberId must not be empty"
    elif event.rack_id == "":
        fault = "RackId is null where there is none, not empty"
    elif event.epoch <= STATIC_LEAVING_EPOCH:
        fault = f"MemberEpoch {event.epoch} means nothing here"
    elif is_joining and event.rebalance_timeout_ms < 0:
        fault = "RebalanceTimeoutMs must be given when joining"
    elif is_joining and any(said):
        fault = "ActiveTasks, StandbyTasks and WarmupTasks must be empty when joining"
    elif is_joining != (topology is not None):
        fault = "Topology must be given when joining, and only then"
    elif None in said and said != (None, None, None):
        fault = "ActiveTasks, StandbyTasks and WarmupTasks are given together or not at all"
    elif topology is not None and topology.epoch < 0:
        fault = f"the epoch {topology.epoch} of the topology is below 0"
    elif topology is not None and _text_of(topology) > limits.member_metadata_max_bytes:
        fault = "the topology is larger than what could be logged"
    return fault


def _text_of(topology: Topology) -> int:
    names = sum(len(name) for one in topology.subtopologies for name in one.all_topics)
    configs = sum(
        len(name) + len(value)
        for one in topology.subtopologies
        for topic in one.internal_topics
        for name, value in topic.configs
    )
    return names + configs


class _StreamsMemberStep:
    """One step of a member that is there or comes."""

    def __init__(self, group: StreamsGroup, event: StreamsHeartbeat, turn: GroupTurn) -> None:
        self._group = group
        self._event = event
        self._turn = turn
        self._records: list[StreamsGroupRecord] = []
        self._statuses: list[StatusNote] = []
        self._member = StreamsMember(member_id=event.member_id)
        self._target = group.target_of(event.member_id)
        self._target_epoch = group.target_epoch

    def advance(self) -> None:
        group, event, turn = self._group, self._event, self._turn
        self._check_member()
        former = group.members.get(event.member_id)
        current = group.assignment_of(event.member_id)
        self._member = self._become(former)
        topology = self._find_topology()
        topics, configured = group.see_topics(topology, turn.image)
        self._check_owned(current, configured)
        epoch = self._find_epoch(
            StreamsEpoch(
                group.epoch + 1,
                topics.metadata_hash,
                topology.epoch if configured.is_ready else NO_TOPOLOGY_EPOCH,
                assignment_configs(turn.limits),
            ),
            has_changed=former != self._member,
        )
        self._find_target(epoch, configured)
        reached = reconcile_tasks(
            current, self._target_epoch, self._target, self._is_free, event.owned
        )
        if reached != current or event.member_id not in group.assignments:
            record = StreamsAssignmentRecord(group.group_id, event.member_id, reached)
            self._records.append(record)
        turn.outcome.records += self._records
        self._arm(current, reached)
        self._answer(current, reached, configured)

    # Who it is

    def _check_member(self) -> None:
        group, event = self._group, self._event
        is_known = event.member_id in group.members
        if event.epoch == JOINING_EPOCH:
            if not is_known and len(group.members) >= self._turn.limits.streams_max_size:
                raise Refused(
                    ErrorCode.group_max_size_reached,
                    f"group {group.group_id!r} has {len(group.members)} members, as many as "
                    "group.streams.max.size allows",
                )
        elif not is_known:
            raise unknown_member(event.member_id, group.group_id)
        else:
            _check_epoch(group.assignment_of(event.member_id), event)

    def _become(self, former: StreamsMember | None) -> StreamsMember:
        event, topology = self._event, self._event.topology
        before = former or StreamsMember(member_id=event.member_id)
        timeout_ms = event.rebalance_timeout_ms
        member = StreamsMember(
            member_id=event.member_id,
            rack_id=event.rack_id or before.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            topology_epoch=before.topology_epoch if topology is None else topology.epoch,
            process_id=before.process_id if event.process_id is None else event.process_id,
            endpoint=event.endpoint or before.endpoint,
            tags=before.tags if event.tags is None else event.tags,
        )
        if member != former:
            record = StreamsMemberRecord(self._group.group_id, event.member_id, member)
            self._records.append(record)
        return member

    # What it runs

    def _find_topology(self) -> Topology:
        """The group's, which the first member brings."""
        group, told = self._group, self._event.topology
        known = group.topology
        if known is None:
            if told is None:
                raise Refused(
                    ErrorCode.fenced_member_epoch,
                    f"group {group.group_id!r} has no topology; the member must join again",
                )
            self._records.append(TopologyRecord(group.group_id, told))
            return told
        if self._member.topology_epoch < known.epoch:
            detail = (
                f"The member's topology epoch {self._member.topology_epoch} is behind the group's "
                f"topology epoch {known.epoch}."
            )
            self._statuses.append(StatusNote(StreamsStatus.STALE_TOPOLOGY, detail))
        elif told is not None and told != known:
            raise Refused(
                ErrorCode.invalid_request,
                f"the topology differs from that of group {group.group_id!r}, and topology updates "
                "are not supported; delete the group, or take another application id",
            )
        return known

    def _check_owned(self, current: StreamsAssignment, configured: ConfiguredTopology) -> None:
        """What it was given it may have, though topics were made anew with fewer partitions."""
        owned = self._event.owned
        if owned is None or not configured.is_ready:
            return
        strange = owned.without(current.assigned).without(current.revoking)
        for _, (subtopology_id, partition) in strange.each():
            count = configured.task_counts.get(subtopology_id)
            if count is None or not 0 <= partition < count:
                raise Refused(
                    ErrorCode.invalid_request,
                    f"there is no task {partition} of subtopology {subtopology_id!r}",
                )

    def _find_epoch(self, value: StreamsEpoch, *, has_changed: bool) -> int:
        """The group's, or the next one if something has changed that assignments depend on."""
        group = self._group
        if not has_changed and value[1:] == group.state_of_epoch[1:]:
            return group.epoch
        self._records.append(StreamsEpochRecord(group.group_id, value))
        return value.epoch

    def _find_target(self, epoch: int, configured: ConfiguredTopology) -> None:
        group, turn = self._group, self._turn
        delay_ms = turn.limits.streams_initial_rebalance_delay_ms
        if not group.members and delay_ms and not group.awaits_members:
            group.awaits_members = True
            turn.outcome.arm(group.first_assignment_timer, delay_ms)
        if group.awaits_members:
            self._target = NO_TASKS
            self._delay("the configured initial rebalance delay")
        elif epoch > group.target_epoch:
            assigned_ms = group.last_target.timestamp_ms
            interval_ms = turn.limits.streams_assignment_interval_ms
            if was_assigned_just_now(assigned_ms, turn.now_ms, interval_ms):
                self._delay("the configured assignment interval")
                return
            members = {**group.members, self._member.member_id: self._member}
            targets = assign(group, members, epoch, configured, turn, self._records)
            if targets is None:
                self._delay("the number of tasks")
            else:
                self._target, self._target_epoch = targets[self._member.member_id], epoch

    def _delay(self, reason: str) -> None:
        detail = f"Assignment delayed due to {reason}."
        self._statuses.append(StatusNote(StreamsStatus.ASSIGNMENT_DELAYED, detail))

    def _is_free(self, kind: TaskKind, task: TaskId) -> bool:
        return self._group.is_free(kind, task, self._member)

    # What it hears

    def _arm(self, current: StreamsAssignment, reached: StreamsAssignment) -> None:
        group, member_id, outcome = self._group, self._member.member_id, self._turn.outcome
        outcome.arm(group.session_timer(member_id), self._turn.limits.streams_session_timeout_ms)
        timer = group.revocation_timer(member_id)
        if reached.state is not StreamsMemberState.UNREVOKED_TASKS:
            outcome.disarm(timer)
        elif reached.revoking != current.revoking:
            outcome.arm(timer, self._member.rebalance_timeout_ms)

    def _answer(
        self,
        current: StreamsAssignment,
        reached: StreamsAssignment,
        configured: ConfiguredTopology,
    ) -> None:
        group, event, turn = self._group, self._event, self._turn
        has_moved = event.epoch == JOINING_EPOCH or reached.assigned != current.assigned
        if has_moved and self._member.endpoint is not None:
            group.endpoint_epoch += 1
        # One that is behind, or says all that it has, may not have heard the answer before.
        is_news = has_moved or event.epoch != current.epoch or event.owned is not None
        if configured.fault is not None:
            self._statuses.append(configured.fault)
        if event.shuts_down:
            group.shutdown_by = group.shutdown_by or event.member_id
        self._statuses += _shutdown_status(group)
        endpoints = None
        if group.endpoint_epoch != event.endpoint_epoch:
            endpoints = group.endpoints(self._member, reached, turn.image)
        turn.answer(
            StreamsHeartbeatAnswer(
                member_id=event.member_id,
                epoch=reached.epoch,
                heartbeat_interval_ms=turn.limits.streams_heartbeat_interval_ms,
                statuses=tuple(self._statuses),
                tasks=reached.assigned if is_news else None,
                endpoint_epoch=group.endpoint_epoch,
                endpoints=endpoints,
                missing=configured.missing,
            )
        )


def _shutdown_status(group: StreamsGroup) -> tuple[StatusNote, ...]:
    if group.shutdown_by is None:
        return ()
    detail = (
        f"Streams group member {group.shutdown_by} encountered a fatal error and requested a "
        "shutdown for the entire application."
    )
    return (StatusNote(StreamsStatus.SHUTDOWN_APPLICATION, detail),)


# Time


def time_is_over(
    group: StreamsGroup, kind: GroupTimerKind, member_id: str, turn: GroupTurn
) -> None:
    match kind:
        case GroupTimerKind.FIRST_ASSIGNMENT:
            _assign_to_those_who_came(group, turn)
        case GroupTimerKind.SESSION if member_id in group.members:
            _lose(group, member_id, "has given no sign of life", turn)
        case GroupTimerKind.REVOCATION if _is_revoking(group, member_id):
            _lose(group, member_id, "has not given tasks up within its time-out", turn)
        case _:
            pass  # it has gone since


def _assign_to_those_who_came(group: StreamsGroup, turn: GroupTurn) -> None:
    group.awaits_members = False
    if not group.members or group.topology is None or group.epoch <= group.target_epoch:
        return
    try:
        _, configured = group.see_topics(group.topology, turn.image)
    except InvalidTopologyError:
        return
    records: list[StreamsGroupRecord] = []
    assign(group, group.members, group.epoch, configured, turn, records)
    turn.outcome.records += records


def _is_revoking(group: StreamsGroup, member_id: str) -> bool:
    return group.assignment_of(member_id).state is StreamsMemberState.UNREVOKED_TASKS


def await_signs_of_life(group: StreamsGroup, limits: GroupLimits, outcome: Outcome) -> None:
    """After loading: as if every member had just been heard."""
    for member_id, member in group.members.items():
        outcome.arm(group.session_timer(member_id), limits.streams_session_timeout_ms)
        if _is_revoking(group, member_id):
            outcome.arm(group.revocation_timer(member_id), member.rebalance_timeout_ms)


# Going


def _leave(group: StreamsGroup, event: StreamsHeartbeat, turn: GroupTurn) -> None:
    if event.member_id not in group.members:
        raise unknown_member(event.member_id, group.group_id)
    if event.shuts_down:
        group.shutdown_by = group.shutdown_by or event.member_id
    turn.outcome.log(group.group_id, f"member {event.member_id} leaves", is_rebalance=True)
    _remove(group, (event.member_id,), turn)
    turn.answer(StreamsHeartbeatAnswer(member_id=event.member_id, epoch=event.epoch))


def _lose(group: StreamsGroup, member_id: str, why: str, turn: GroupTurn) -> None:
    turn.outcome.log(group.group_id, f"member {member_id} {why}", is_rebalance=True)
    _remove(group, (member_id,), turn)


def _remove(group: StreamsGroup, member_ids: Collection[str], turn: GroupTurn) -> None:
    """Others get their tasks with their next heartbeats."""
    outcome = turn.outcome
    for member_id in member_ids:
        outcome.disarm(group.session_timer(member_id))
        outcome.disarm(group.revocation_timer(member_id))
        outcome.records += removal_of_streams_member(group.group_id, member_id)
        if group.members[member_id].endpoint is not None:
            group.endpoint_epoch += 1
    value = group.state_of_epoch._replace(epoch=group.epoch + 1)
    outcome.records.append(StreamsEpochRecord(group.group_id, value))


# Checks


def _check_epoch(current: StreamsAssignment, event: StreamsHeartbeat) -> None:
    """Its own epoch, or the one before, if it owns nothing that it was not given since: the answer
    that told it of the new one was lost."""
    if event.epoch == current.epoch:
        return
    owned = event.owned
    is_late = (
        event.epoch == current.previous_epoch
        and owned is not None
        and owned.is_within(current.assigned)
    )
    if not is_late:
        raise Refused(
            ErrorCode.fenced_member_epoch,
            f"member {event.member_id} is in epoch {current.epoch} and not in {event.epoch}; it "
            "must give up its tasks and join again",
        )


# Few tasks are assigned at once, and many in slices between which others are served (an effect):
# the group hears of the end of that, and its members of their tasks with their next heartbeats.


_STANDBYS: Final = "num.standby.replicas"
"""Kafka's name for the setting, where it is logged with an epoch."""


def assignment_configs(limits: GroupLimits) -> tuple[tuple[str, str], ...]:
    """The settings that assignments depend on, as they are logged with an epoch."""
    return ((_STANDBYS, str(limits.streams_num_standby_replicas)),)


def assign(
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    epoch: int,
    configured: ConfiguredTopology,
    turn: GroupTurn,
    records: list[StreamsGroupRecord],
) -> Mapping[str, Tasks] | None:
    """New targets for everybody; no tasks while topics are missing. None when there are so many
    tasks that others are served meanwhile: members hear of them later."""
    if group.is_assigning:
        return None
    assignment = TaskAssignment(
        [StreamsWorker(one, process_of(members[one]), group.target_of(one)) for one in members],
        configured.task_counts if configured.is_ready else {},
        configured.stateful,
        turn.limits.streams_num_standby_replicas,
    )
    if assignment.is_large:
        group.is_assigning = True
        turn.outcome.assign_tasks(group.group_id, epoch, assignment)
        return None
    targets = assignment.at_once()
    records += _target_records(group, epoch, targets, turn)
    return targets


def _target_records(
    group: StreamsGroup, epoch: int, targets: Mapping[str, Tasks], turn: GroupTurn
) -> list[StreamsGroupRecord]:
    return [
        *(
            StreamsTargetRecord(group.group_id, member_id, targets[member_id])
            for member_id in sorted(targets)
            if targets[member_id] != group.targets.get(member_id)
        ),
        StreamsTargetEpochRecord(group.group_id, StreamsTargetEpoch(epoch, turn.now_ms)),
    ]


def tasks_assigned(group: StreamsGroup, event: TasksAssigned, turn: GroupTurn) -> None:
    """Those who are in it still get what was computed, also when the group has changed meanwhile:
    one in which somebody always comes or goes would never have tasks otherwise. Then the next
    heartbeat has them assigned anew. What nobody waits for was computed for a group of this id that
    was deleted since, and says nothing of this one's epochs."""
    if not group.is_assigning:
        return
    group.is_assigning = False
    if group.target_epoch < event.epoch <= group.epoch:
        targets = {one: event.targets[one] for one in event.targets if one in group.members}
        turn.outcome.records += _target_records(group, event.epoch, targets, turn)


# A step never gives a member an active task that somebody else may still run, nor any task whose
# state another member of its own process still has open: the state of a task is one folder of the
# process (STG-1). First the one who loses a task says that it has given it up, then the other gets
# it. The model is Kafka's `CurrentAssignmentBuilder`. A rule.


IsTaskFree = Callable[[TaskKind, TaskId], bool]
"""Whether nobody else has a task, or is still giving it up, in a way that hinders this one."""


def reconcile_tasks(
    current: StreamsAssignment,
    target_epoch: int,
    target: Tasks,
    is_free: IsTaskFree,
    owned: Tasks | None,
) -> StreamsAssignment:
    """The next step; the same value when there is none to take.

    `owned` is what the member says it owns; None when it said nothing, so that it may own all that
    it was given.
    """
    match current.state:
        case StreamsMemberState.STABLE:
            if current.epoch == target_epoch:
                return current
            epoch = current.epoch
        case StreamsMemberState.UNREVOKED_TASKS:
            if owned is None or owned.overlaps(current.revoking):
                return current
            epoch = current.epoch + 1
        case StreamsMemberState.UNRELEASED_TASKS:
            epoch = current.epoch
    kept = current.assigned.common_with(target)
    leaving = current.assigned.without(kept)
    if not leaving.is_empty and (owned is None or owned.overlaps(leaving)):
        return _reach(
            current,
            epoch,
            StreamsMemberState.UNREVOKED_TASKS,
            assigned=kept,
            revoking=leaving,
        )
    coming = target.without(kept)
    free = _free_of(coming, is_free)
    is_complete = free == coming
    return _reach(
        current,
        target_epoch,
        StreamsMemberState.STABLE if is_complete else StreamsMemberState.UNRELEASED_TASKS,
        assigned=kept.together_with(free),
        revoking=NO_TASKS,
    )


def _free_of(coming: Tasks, is_free: IsTaskFree) -> Tasks:
    return Tasks(*(_free_tasks(kind, coming.of_kind(kind), is_free) for kind in TaskKind))


def _free_tasks(kind: TaskKind, coming: TaskSet, is_free: IsTaskFree) -> TaskSet:
    return {
        one: free
        for one, numbers in coming.items()
        if (free := frozenset(number for number in numbers if is_free(kind, (one, number))))
    }


def _reach(
    current: StreamsAssignment,
    epoch: int,
    state: StreamsMemberState,
    *,
    assigned: Tasks,
    revoking: Tasks,
) -> StreamsAssignment:
    """What is new to it is so since this epoch, which is its own or later (STG-2)."""
    had = current.assigned.active
    since: dict[TaskId, int] = {}
    for one, numbers in (*assigned.active.items(), *revoking.active.items()):
        known = had.get(one, frozenset())
        since.update(
            ((one, number), current.since.get((one, number), epoch) if number in known else epoch)
            for number in numbers
        )
    reached = replace(current, state=state, assigned=assigned, revoking=revoking, since=since)
    if epoch == current.epoch:
        return reached
    return replace(reached, epoch=epoch, previous_epoch=current.epoch)
