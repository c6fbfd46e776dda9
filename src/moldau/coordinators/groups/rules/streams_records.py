"""What `__consumer_offsets` says about streams groups (KIP-1071), as values and in bytes: Kafka's
own formats.

As with consumer groups: an epoch, who each member is, what each is to get, and what each has by
now; beside them the topology of the application.

    key, after its int16 number:
      17       group string                     the group's epoch
      19       group string, member string      who a member is
      20       group string                     the epoch of the targets
      21       group string, member string      a member's target
      22       group string, member string      what a member has
      23       group string                     the topology of the application

    value, after its int16 version 0; lengths are compact and tagged fields come last:
      17       epoch int32, hash int64; tag 0: validated topology epoch int32; tag 1: [name, value
               strings], the settings that the epoch was begun with
      19       instance id, rack id nullable strings, client id, client host strings, rebalance
               time-out int32, topology epoch int32, process id string, endpoint: present int8,
               host string, port uint16; tags [name, value strings]
      20       epoch int32; tag 0: timestamp int64
      21       active, standby, warm-up [subtopology string, partitions [int32]]
      22       epoch int32, previous epoch int32, state int8, assigned as in 21, revoking as in 21;
               in an active row, tag 0: [int32], since which epoch
      23       epoch int32, subtopologies [id string, source topics [string], regexes [string],
               changelog topics [topic], repartition sinks [string], repartition sources [topic],
               copartition groups [[int16], [int16], [int16]]]
               topic: name string, partitions int32, replication factor int16, configs [name, value]

Key 18, the topics' partitions before Kafka 4.1 had the hash, is left alone. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias, TypeVar

from moldau.coordinators.groups.rules.record_encoding import (
    NO_TAGS,
    VERSION,
    RecordReader,
    encode_key,
    encode_numbers,
    encode_ordered,
    encode_target_epoch,
)
from moldau.coordinators.groups.rules.streams_topology import (
    NO_TASKS,
    CopartitionGroup,
    Subtopology,
    TaskId,
    Tasks,
    TaskSet,
    TopicInfo,
    Topology,
)
from moldau.errors import InvalidRecordError
from moldau.wire.primitives import (
    encode_compact_count,
    encode_compact_string,
    encode_varint,
    read_legacy_string,
)

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


T = TypeVar("T")

_GROUP_EPOCH: Final = 17
_MEMBER: Final = 19
_TARGET_EPOCH: Final = 20
_TARGET: Final = 21
_ASSIGNMENT: Final = 22
_TOPOLOGY: Final = 23

STREAMS_KEYS: Final = frozenset(
    {_GROUP_EPOCH, _MEMBER, _TARGET_EPOCH, _TARGET, _ASSIGNMENT, _TOPOLOGY}
)
"""The numbers of keys that are read here."""

_OF_GROUPS: Final = (_GROUP_EPOCH, _TARGET_EPOCH, _TOPOLOGY)

_PRESENT: Final = b"\1"
_ABSENT: Final = b"\xff"
_IS_PRESENT: Final = 1

_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_TWO_INT32 = struct.Struct(">ii")
_EPOCH_AND_HASH = struct.Struct(">iq")
_EPOCHS_AND_STATE = struct.Struct(">iib")
_SIZES = struct.Struct(">ih")

Pairs = Iterable[tuple[str, str]]


# Writing


def encode_streams_group(record: StreamsGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    match record:
        case StreamsEpochRecord(group_id, epoch):
            return _pair(encode_key(_GROUP_EPOCH, group_id), epoch, _epoch)
        case StreamsMemberRecord(group_id, member_id, member):
            return _pair(encode_key(_MEMBER, group_id, member_id), member, _member)
        case StreamsTargetEpochRecord(group_id, target_epoch):
            key = encode_key(_TARGET_EPOCH, group_id)
            return _pair(key, target_epoch, lambda value: encode_target_epoch(*value))
        case StreamsTargetRecord(group_id, member_id, target):
            return _pair(encode_key(_TARGET, group_id, member_id), target, _target)
        case StreamsAssignmentRecord(group_id, member_id, assignment):
            return _pair(encode_key(_ASSIGNMENT, group_id, member_id), assignment, _assignment)
        case TopologyRecord(group_id, topology):
            return _pair(encode_key(_TOPOLOGY, group_id), topology, _topology)


def _pair(key: bytes, value: T | None, body: Callable[[T], bytes]) -> tuple[bytes, bytes | None]:
    return key, None if value is None else VERSION + body(value)


def _epoch(value: StreamsEpoch) -> bytes:
    tags = {}
    if value.validated_topology_epoch != NO_TOPOLOGY_EPOCH:
        tags[0] = _INT32.pack(value.validated_topology_epoch)
    if value.assignment_configs:
        tags[1] = _texts(value.assignment_configs)
    return _EPOCH_AND_HASH.pack(value.epoch, value.metadata_hash) + _tags(tags)


def _member(member: StreamsMember) -> bytes:
    parts = (
        encode_compact_string(None),  # instance ids are not served
        encode_compact_string(member.rack_id),
        encode_compact_string(member.client_id),
        encode_compact_string(member.client_host),
        _TWO_INT32.pack(member.rebalance_timeout_ms, member.topology_epoch),
        encode_compact_string(member.process_id),
        _endpoint(member.endpoint),
        _texts(member.tags),
        NO_TAGS,
    )
    return b"".join(parts)


def _endpoint(endpoint: StreamsEndpoint | None) -> bytes:
    if endpoint is None:
        return _ABSENT
    host, port = encode_compact_string(endpoint.host), _UINT16.pack(endpoint.port)
    return _PRESENT + host + port + NO_TAGS


def _target(tasks: Tasks) -> bytes:
    return b"".join(_tasks(some, {}) for some in tasks) + NO_TAGS


def _assignment(assignment: StreamsAssignment) -> bytes:
    parts = [_EPOCHS_AND_STATE.pack(assignment.epoch, assignment.previous_epoch, assignment.state)]
    for tasks in (assignment.assigned, assignment.revoking):
        parts += (
            _tasks(tasks.active, assignment.since),
            _tasks(tasks.standby, {}),
            _tasks(tasks.warmup, {}),
        )
    return b"".join(parts) + NO_TAGS


def _tasks(tasks: TaskSet, since: Mapping[TaskId, int]) -> bytes:
    parts = [encode_compact_count(len(tasks))]
    for subtopology_id in sorted(tasks):
        partitions = sorted(tasks[subtopology_id])
        ids = [(subtopology_id, one) for one in partitions]
        epochs = [since[task] for task in ids if task in since]
        tags = {0: encode_ordered(epochs)} if epochs else {}
        parts += (encode_compact_string(subtopology_id), encode_numbers(partitions), _tags(tags))
    return b"".join(parts)


def _topology(topology: Topology) -> bytes:
    parts = [_INT32.pack(topology.epoch), encode_compact_count(len(topology.subtopologies))]
    for one in topology.subtopologies:
        parts += (
            encode_compact_string(one.subtopology_id),
            _names(one.source_topics),
            _names(one.source_regexes),
            _topics(one.changelog_topics),
            _names(one.repartition_sinks),
            _topics(one.repartition_sources),
            encode_compact_count(len(one.copartition_groups)),
        )
        for group in one.copartition_groups:
            parts += (*map(_places, group), NO_TAGS)
        parts.append(NO_TAGS)
    return b"".join(parts) + NO_TAGS


def _names(names: tuple[str, ...]) -> bytes:
    """In their own order, by which copartition groups know them."""
    return encode_compact_count(len(names)) + b"".join(map(encode_compact_string, names))


def _places(places: tuple[int, ...]) -> bytes:
    return encode_compact_count(len(places)) + struct.pack(f">{len(places)}h", *places)


def _topics(topics: tuple[TopicInfo, ...]) -> bytes:
    parts = [encode_compact_count(len(topics))]
    for one in topics:
        parts += (
            encode_compact_string(one.name),
            _SIZES.pack(one.partition_count, one.replication_factor),
            _texts(one.configs),
            NO_TAGS,
        )
    return b"".join(parts)


def _texts(pairs: Pairs) -> bytes:
    rows = [encode_compact_string(name) + encode_compact_string(text) for name, text in pairs]
    return encode_compact_count(len(rows)) + b"".join(row + NO_TAGS for row in rows)


def _tags(fields: Mapping[int, bytes]) -> bytes:
    """By their numbers, which have to grow."""
    parts = [encode_varint(len(fields))]
    for number, body in fields.items():
        parts += (encode_varint(number), encode_varint(len(body)), body)
    return b"".join(parts)


# Reading


def decode_streams_group(number: int, key: memoryview, value: bytes | None) -> StreamsGroupRecord:
    """`number` is one of `STREAMS_KEYS`, and was read from the key."""
    first, position = read_legacy_string(key, _INT16.size)
    group_id = first or ""
    member_id = ""
    if number not in _OF_GROUPS:
        member_id = read_legacy_string(key, position)[0] or ""

    def read(how: Callable[[_Reader], T]) -> T | None:
        return None if value is None else how(_Reader(value))

    match number:
        case 17:
            return StreamsEpochRecord(group_id, read(_Reader.epoch))
        case 19:
            member = read(lambda reader: reader.member(member_id))
            return StreamsMemberRecord(group_id, member_id, member)
        case 20:
            target = read(lambda reader: StreamsTargetEpoch(*reader.target_epoch()))
            return StreamsTargetEpochRecord(group_id, target)
        case 21:
            return StreamsTargetRecord(group_id, member_id, read(_Reader.tasks))
        case 22:
            return StreamsAssignmentRecord(group_id, member_id, read(_Reader.assignment))
        case _:
            return TopologyRecord(group_id, read(_Reader.topology))


class _Reader(RecordReader):
    """Goes through a value of a streams group."""

    def epoch(self) -> StreamsEpoch:
        epoch, metadata_hash = self.int32(), self.int64()
        tags = self.tags()
        validated = _INT32.unpack(tags[0])[0] if 0 in tags else NO_TOPOLOGY_EPOCH
        configs = _Reader(VERSION + tags[1]).texts() if 1 in tags else ()
        return StreamsEpoch(epoch, metadata_hash, validated, configs)

    def member(self, member_id: str) -> StreamsMember:
        self.string()  # an instance id: not served
        return StreamsMember(
            member_id=member_id,
            rack_id=self.string(),
            client_id=self.string() or "",
            client_host=self.string() or "",
            rebalance_timeout_ms=self.int32(),
            topology_epoch=self.int32(),
            process_id=self.string() or "",
            endpoint=self._endpoint(),
            tags=self.texts(),
        )

    def _endpoint(self) -> StreamsEndpoint | None:
        if self.int8() != _IS_PRESENT:
            return None
        endpoint = StreamsEndpoint(self.string() or "", self._number(_UINT16))
        self.skip_tags()
        return endpoint

    def tasks(self) -> Tasks:
        return Tasks(self._tasks({}, 0), self._tasks({}, 0), self._tasks({}, 0))

    def assignment(self) -> StreamsAssignment:
        epoch, previous_epoch, number = self.int32(), self.int32(), self.int8()
        try:
            state = StreamsMemberState(number)
        except ValueError:
            raise InvalidRecordError(f"{number} is no state of a member") from None
        since: dict[TaskId, int] = {}
        assigned, revoking = (
            Tasks(self._tasks(since, epoch), self._tasks({}, 0), self._tasks({}, 0))
            for _ in range(2)
        )
        return StreamsAssignment(
            epoch=epoch,
            previous_epoch=previous_epoch,
            state=state,
            assigned=assigned,
            revoking=revoking,
            since=since,
        )

    def _tasks(self, since: dict[TaskId, int], epoch: int) -> TaskSet:
        """`since` gets the epochs; before Kafka 4.2 there are none, and that of the member counts
        instead."""
        found: dict[str, frozenset[int]] = {}
        for _ in range(self.count(3)):
            subtopology_id, partitions, tags = self.string() or "", self.ordered(), self.tags()
            epochs = self.epochs_in(tags, epoch, len(partitions))
            for partition, one in zip(partitions, epochs, strict=True):
                since[subtopology_id, partition] = one
            if partitions:
                found[subtopology_id] = frozenset(partitions)
        return found

    def topology(self) -> Topology:
        epoch = self.int32()
        return Topology(epoch, tuple([self._subtopology() for _ in range(self.count(8))]))

    def _subtopology(self) -> Subtopology:
        subtopology = Subtopology(
            subtopology_id=self.string() or "",
            source_topics=self._names(),
            source_regexes=self._names(),
            changelog_topics=self._topics(),
            repartition_sinks=self._names(),
            repartition_sources=self._topics(),
            copartition_groups=tuple([self._copartition_group() for _ in range(self.count(4))]),
        )
        self.skip_tags()
        return subtopology

    def _names(self) -> tuple[str, ...]:
        return tuple([self.string() or "" for _ in range(self.count(1))])

    def _topics(self) -> tuple[TopicInfo, ...]:
        topics = []
        for _ in range(self.count(9)):
            name = self.string() or ""
            partition_count, replication_factor = self.int32(), self._number(_INT16)
            topics.append(TopicInfo(name, partition_count, replication_factor, self.texts()))
            self.skip_tags()
        return tuple(topics)

    def _copartition_group(self) -> CopartitionGroup:
        group = CopartitionGroup(self._places(), self._places(), self._places())
        self.skip_tags()
        return group

    def _places(self) -> tuple[int, ...]:
        count = self.count(_INT16.size)
        places = struct.unpack_from(f">{count}h", self.view, self.at)
        self.at += count * _INT16.size
        return places

    def texts(self) -> tuple[tuple[str, str], ...]:
        pairs = []
        for _ in range(self.count(3)):
            pairs.append((self.string() or "", self.string() or ""))
            self.skip_tags()
        return tuple(pairs)
