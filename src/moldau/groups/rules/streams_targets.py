"""What each member of a streams group is to get (KIP-1071): when its epoch has grown, tasks are
assigned anew, and logged as targets. A rule.

Few tasks are assigned at once, and many in slices between which others are served (an effect): the
group hears of the end of that, and its members of their tasks with their next heartbeats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.groups.rules.events import TasksAssigned
from moldau.groups.rules.limits import GroupLimits
from moldau.groups.rules.outcome import GroupTurn
from moldau.groups.rules.streams_assignor import StreamsWorker, TaskAssignment
from moldau.groups.rules.streams_group import StreamsGroup, process_of
from moldau.groups.rules.streams_group_records import (
    StreamsGroupRecord,
    StreamsMember,
    StreamsTargetEpoch,
    StreamsTargetEpochRecord,
    StreamsTargetRecord,
)
from moldau.groups.rules.streams_tasks import Tasks
from moldau.groups.rules.streams_topics import ConfiguredTopology

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
