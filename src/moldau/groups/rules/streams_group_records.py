"""What the offsets log says about streams groups (KIP-1071): the values in its records.

As with consumer groups: an epoch, who each member is, what each is to get, and what each has by
now; beside them the topology of the application. How they look in bytes is
`groups.streams_group_log`'s business. A rule: values only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from moldau.groups.rules.streams_tasks import NO_TASKS, TaskId, Tasks
from moldau.groups.rules.streams_topology import Topology

NO_TOPOLOGY_EPOCH: Final = -1


class StreamsMemberState(IntEnum):
    """How far a member has come on the way to its target; Kafka's numbers."""

    STABLE = 1
    """It has the whole target of its epoch.

    Moves: to any state when the target changes.
    """

    UNREVOKED_TASKS = 2
    """It has to give tasks up first, and stays in its epoch until it says that it has.

    Moves: on towards the target when it no longer owns them; out of the group when that takes
    longer than its rebalance time-out.
    """

    UNRELEASED_TASKS = 3
    """It has what is free of the target; others still hold the rest.

    Moves: to any state, with each heartbeat that finds something released or another target.
    """


class StreamsEndpoint(NamedTuple):
    """Where an instance answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """Who a member is: one thread of an instance of the application."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = NO_TOPOLOGY_EPOCH
    process_id: str = ""  # of the instance, which may have several members
    endpoint: StreamsEndpoint | None = None
    tags: tuple[tuple[str, str], ...] = ()  # in the order of their names


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsAssignment:
    """What a member has, and since when."""

    epoch: int = 0
    previous_epoch: int = 0
    """It may not have heard of its epoch yet, and speak in this one."""
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: Tasks = NO_TASKS
    revoking: Tasks = NO_TASKS
    """Nobody else gets these before it has given them up."""
    since: Mapping[TaskId, int] = field(default_factory=dict)
    """The epoch in which each of its active tasks, also of those it gives up, was given to it: who
    commits in an older one has had the task before (STG-4)."""

    def is_at(self, target_epoch: int) -> bool:
        """Whether nothing is left to do for the target of this epoch."""
        return self.state is StreamsMemberState.STABLE and self.epoch == target_epoch


class StreamsEpoch(NamedTuple):
    """Grows when the members, the topology, its topics, or the settings of assignments change."""

    epoch: int
    metadata_hash: int  # of the topics of the topology
    validated_topology_epoch: int = NO_TOPOLOGY_EPOCH  # whose topics are all there, as they must be
    assignment_configs: tuple[tuple[str, str], ...] = ()  # that the epoch was begun with


class StreamsEpochRecord(NamedTuple):
    """A new epoch, or the end of the group (None)."""

    group_id: str
    value: StreamsEpoch | None


class StreamsMemberRecord(NamedTuple):
    """A member comes or is another by now, or has gone (None)."""

    group_id: str
    member_id: str
    value: StreamsMember | None


class StreamsTargetEpoch(NamedTuple):
    """Of which epoch the targets are, and since when."""

    epoch: int
    timestamp_ms: int = 0  # 0: not known


class StreamsTargetEpochRecord(NamedTuple):
    """The targets of all members are those of this epoch of the group."""

    group_id: str
    value: StreamsTargetEpoch | None


class StreamsTargetRecord(NamedTuple):
    """What a member is to get."""

    group_id: str
    member_id: str
    value: Tasks | None


class StreamsAssignmentRecord(NamedTuple):
    """What a member has."""

    group_id: str
    member_id: str
    value: StreamsAssignment | None


class TopologyRecord(NamedTuple):
    """The application that the group runs."""

    group_id: str
    value: Topology | None


StreamsGroupRecord: TypeAlias = (
    StreamsEpochRecord
    | StreamsMemberRecord
    | StreamsTargetEpochRecord
    | StreamsTargetRecord
    | StreamsAssignmentRecord
    | TopologyRecord
)

STREAMS_RECORDS: Final = (
    StreamsEpochRecord,
    StreamsMemberRecord,
    StreamsTargetEpochRecord,
    StreamsTargetRecord,
    StreamsAssignmentRecord,
    TopologyRecord,
)


def removal_of_streams_member(group_id: str, member_id: str) -> tuple[StreamsGroupRecord, ...]:
    """Together, so that nothing of a member outlives its membership (STG-3)."""
    return (
        StreamsAssignmentRecord(group_id, member_id, None),
        StreamsTargetRecord(group_id, member_id, None),
        StreamsMemberRecord(group_id, member_id, None),
    )
