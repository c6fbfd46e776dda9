"""What `__consumer_offsets` says about groups and committed offsets, as values and in bytes:
Kafka's own formats, so that its tools read our folders and we read its.

The values are the hard state: what survives the coordinator.

    key 0, 1   int16 version, group string, topic string, partition int32         a committed offset
    key 2      int16 version, group string                                         a group

    value of a committed offset, int16 version:
      0, 2     offset int64, metadata string, commit timestamp int64
      1        offset int64, metadata string, commit timestamp int64, expire timestamp int64
      3, 4     offset int64, leader epoch int32, metadata string, commit timestamp int64;
               4: topic id uuid (tagged field 0)

    value of a group, int16 version:
      0..4     protocol type string, generation int32, protocol nullable string, leader nullable
               string, state timestamp int64 (2+), members:
        member id string, instance id nullable string (3+), client id string, client host string,
        rebalance time-out int32 (1+), session time-out int32, subscription bytes, assignment bytes

Versions 4 have compact lengths and tagged fields. Written are the versions that Kafka 4 writes: 3
for a group; 4 for an offset with the id of its topic, 3 for one without an id, and 1 for one with a
time of its own, which has no room for the id. A null value is a tombstone.
Consumer, share and streams groups have keys of other versions (`consumer_records`,
`share_records`, `streams_records`); keys of yet others are left alone.

A rule.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from moldau.coordinators.groups.rules.consumer_records import (
    CONSUMER_KEYS,
    ConsumerGroupRecord,
    decode_consumer_group,
    encode_consumer_group,
)
from moldau.coordinators.groups.rules.share_records import (
    SHARE_KEYS,
    SHARE_RECORDS,
    ShareGroupRecord,
    decode_share_group,
    encode_share_group,
)
from moldau.coordinators.groups.rules.streams_records import (
    STREAMS_KEYS,
    STREAMS_RECORDS,
    StreamsGroupRecord,
    decode_streams_group,
    encode_streams_group,
)
from moldau.errors import InvalidRecordError, MalformedFrameError
from moldau.model import NO_LEADER_EPOCH, NO_TIMESTAMP, TopicId
from moldau.records.batch_header import BatchHeader
from moldau.records.record import Record
from moldau.records.record_batch import ControlType, find_marker
from moldau.wire.primitives import (
    COMPACT,
    LEGACY,
    READ_ERRORS,
    UUID_BYTES,
    encode_compact_string,
    encode_legacy_string,
    read_legacy_string,
    read_tagged_fields,
    skip_tagged_fields,
    uuid_of,
)

_LAST_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_OFFSET_VALUE: Final = 3
_OFFSET_VALUE_WITH_TOPIC_ID: Final = 4
_OFFSET_VALUE_WITH_EXPIRY: Final = 1
_GROUP_VALUE: Final = 3
_FIRST_COMPACT: Final = 4
_FIRST_WITH_LEADER_EPOCH: Final = 3
_FIRST_WITH_STATE_TIMESTAMP: Final = 2
_FIRST_WITH_INSTANCE_ID: Final = 3
_FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
_MEMBER_MIN_BYTES: Final = 9
_TOPIC_ID_TAG: Final = 0
_TOPIC_ID_FIELD: Final = bytes((1, _TOPIC_ID_TAG, UUID_BYTES))  # the only one; its value follows
_NO_METADATA: Final = 1  # the length of an empty compact string

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_TWO_INT64 = struct.Struct(">qq")
_VERSION_AND_OFFSET = struct.Struct(">hq")
_VERSION_OFFSET_AND_EPOCH = struct.Struct(">hqi")
_POSITION_3 = struct.Struct(">hqih")  # version, offset, leader epoch, length of the metadata
_POSITION_3_ALONE = struct.Struct(">hqihq")  # without metadata; the commit timestamp
_POSITION_4_ALONE = struct.Struct(">hqiBq3s16s")  # likewise, and the id of the topic


def encode(record: StoredRecord) -> tuple[bytes, bytes | None]:
    """Key and value. Raises `InvalidRecordError` for what the format has no room for.

    An offset that is pending looks as one that is not: its batch tells whose transaction it is
    part of.
    """
    try:
        if isinstance(record, OffsetRecord | PendingOffsetRecord):
            *_, group_id, topic, partition, committed = record
            key = _offset_key(group_id, topic) + _INT32.pack(partition)
            return key, None if committed is None else _offset_value(committed)
        if isinstance(record, SHARE_RECORDS):
            return encode_share_group(record)
        if isinstance(record, STREAMS_RECORDS):
            return encode_streams_group(record)
        if not isinstance(record, GroupRecord):
            return encode_consumer_group(record)
        key = _INT16.pack(_GROUP_KEY) + encode_legacy_string(record.group_id)
        return key, None if record.metadata is None else _group_value(record.metadata)
    except struct.error as error:  # a text of more than 32,767 bytes
        raise InvalidRecordError(f"a record of groups cannot be written: {error}") from error


def decode(key: bytes | None, value: bytes | None) -> StoredRecord | None:
    """The record, or None when it belongs to a kind of group that is not known here."""
    try:
        return _decode(key, value)
    except (*READ_ERRORS, MalformedFrameError) as error:
        raise InvalidRecordError(f"no record of groups: {error}") from error


def decode_transactional(header: BatchHeader, record: Record) -> CoordinatorRecord | None:
    """What is committed in a producer's transaction, or its end."""
    if header.is_control:
        marker = find_marker(record)
        if marker is None:
            return None
        return TransactionEnd(header.producer_id, marker.control_type is ControlType.COMMIT)
    found = decode(record.key, record.value)
    if not isinstance(found, OffsetRecord):
        return found
    if found.committed is None:  # nobody deletes in a transaction
        return None
    return PendingOffsetRecord(header.producer_id, *found[:3], found.committed)


# Writing


@lru_cache(maxsize=64)
def _offset_key(group_id: str, topic: str) -> bytes:
    """Up to the partition: a commit is about many of one topic."""
    return (
        _INT16.pack(_LAST_OFFSET_KEY) + encode_legacy_string(group_id) + encode_legacy_string(topic)
    )


def _offset_value(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id, _ = committed
    if expire_ms != NO_TIMESTAMP:  # such clients know no leader epochs
        return (
            _VERSION_AND_OFFSET.pack(_OFFSET_VALUE_WITH_EXPIRY, offset)
            + encode_legacy_string(metadata)
            + _TWO_INT64.pack(commit_ms, expire_ms)
        )
    if topic_id is not None:
        return _offset_value_with_id(committed, topic_id)
    if not metadata:
        return _POSITION_3_ALONE.pack(_OFFSET_VALUE, offset, leader_epoch, 0, commit_ms)
    return (
        _VERSION_OFFSET_AND_EPOCH.pack(_OFFSET_VALUE, offset, leader_epoch)
        + encode_legacy_string(metadata)
        + _INT64.pack(commit_ms)
    )


def _offset_value_with_id(committed: CommittedOffset, topic_id: TopicId) -> bytes:
    version, (offset, leader_epoch, metadata, commit_ms, *_) = (
        _OFFSET_VALUE_WITH_TOPIC_ID,
        committed,
    )
    if not metadata:
        return _POSITION_4_ALONE.pack(
            version,
            offset,
            leader_epoch,
            _NO_METADATA,
            commit_ms,
            _TOPIC_ID_FIELD,
            topic_id.bytes,
        )
    return (
        _VERSION_OFFSET_AND_EPOCH.pack(version, offset, leader_epoch)
        + encode_compact_string(metadata)
        + _INT64.pack(commit_ms)
        + _TOPIC_ID_FIELD
        + topic_id.bytes
    )


def _group_value(metadata: GroupMetadata) -> bytes:
    parts = [
        _INT16.pack(_GROUP_VALUE),
        encode_legacy_string(metadata.protocol_type),
        _INT32.pack(metadata.generation),
        encode_legacy_string(metadata.protocol),
        encode_legacy_string(metadata.leader),
        _INT64.pack(metadata.state_timestamp_ms),
        _INT32.pack(len(metadata.members)),
    ]
    for member in metadata.members:
        parts += (
            encode_legacy_string(member.member_id),
            encode_legacy_string(member.instance_id),
            encode_legacy_string(member.client_id),
            encode_legacy_string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


# Reading


def _decode(key: bytes | None, value: bytes | None) -> StoredRecord | None:
    if key is None:
        raise InvalidRecordError("a record of groups has a key")
    view = memoryview(key)
    version: int = _INT16.unpack_from(view)[0]
    if version in CONSUMER_KEYS:
        return decode_consumer_group(version, view, value)
    if version in SHARE_KEYS:
        return decode_share_group(version, view, value)
    if version in STREAMS_KEYS:
        return decode_streams_group(version, view, value)
    if not 0 <= version <= _GROUP_KEY:
        return None
    group_id, position = read_legacy_string(view, 2)
    if version == _GROUP_KEY:
        metadata = None if value is None else _Reader(value).group()
        return GroupRecord(group_id or "", metadata)
    topic, position = read_legacy_string(view, position)
    partition: int = _INT32.unpack_from(view, position)[0]
    committed = None if value is None else _position(value)
    return OffsetRecord(group_id or "", topic or "", partition, committed)


def _position(value: bytes) -> CommittedOffset:
    """Versions 3 and 4, which nearly all are, in one go: loading a log is mostly this."""
    if len(value) == _POSITION_4_ALONE.size and value[1] == _OFFSET_VALUE_WITH_TOPIC_ID:
        _, offset, leader_epoch, length, commit_ms, field, raw_id = _POSITION_4_ALONE.unpack(value)
        if length == _NO_METADATA and field == _TOPIC_ID_FIELD and not value[0]:
            topic_id = _find_topic_id(raw_id)
            return CommittedOffset(offset, leader_epoch, "", commit_ms, NO_TIMESTAMP, topic_id)
    if len(value) < _POSITION_3.size or value[1] != _OFFSET_VALUE or value[0]:
        return _Reader(value).committed_offset()
    _, offset, leader_epoch, length = _POSITION_3.unpack_from(value)
    end = _POSITION_3.size + length
    if length < 0 or end + _INT64.size > len(value):
        raise MalformedFrameError(f"metadata of {length} bytes in a value of {len(value)}")
    metadata = value[_POSITION_3.size : end].decode()
    return CommittedOffset(offset, leader_epoch, metadata, _INT64.unpack_from(value, end)[0])


def _find_topic_id(raw: bytes) -> TopicId | None:
    """The zero id is none."""
    found = uuid_of(raw)
    return None if found is None else TopicId(found)


class _Reader:
    """Goes through a value from front to back."""

    def __init__(self, value: bytes) -> None:
        self._view = memoryview(value)
        self._at = 2
        self._version: int = _INT16.unpack_from(value)[0]
        if not 0 <= self._version <= _FIRST_COMPACT:
            raise InvalidRecordError(f"a value of version {self._version} is not known")
        self._is_compact = self._version == _FIRST_COMPACT
        self._encoding = COMPACT if self._is_compact else LEGACY

    def committed_offset(self) -> CommittedOffset:
        version = self._version
        offset = self._int64()
        leader_epoch = self._int32() if version >= _FIRST_WITH_LEADER_EPOCH else NO_LEADER_EPOCH
        metadata = self._string() or ""
        commit_ms = self._int64()
        expire_ms = self._int64() if version == _OFFSET_VALUE_WITH_EXPIRY else NO_TIMESTAMP
        topic_id = self._topic_id() if self._is_compact else None
        return CommittedOffset(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id)

    def _topic_id(self) -> TopicId | None:
        found = None
        for tag, start, end in read_tagged_fields(self._view, self._at):
            if tag == _TOPIC_ID_TAG:
                if end - start != UUID_BYTES:
                    raise InvalidRecordError(f"a topic id of {end - start} bytes")
                found = _find_topic_id(bytes(self._view[start:end]))
        return found

    def group(self) -> GroupMetadata:
        protocol_type = self._string() or ""
        generation = self._int32()
        protocol = self._string()
        leader = self._string()
        has_timestamp = self._version >= _FIRST_WITH_STATE_TIMESTAMP
        timestamp_ms = self._int64() if has_timestamp else NO_TIMESTAMP
        return GroupMetadata(
            protocol_type=protocol_type,
            generation=generation,
            protocol=protocol,
            leader=leader,
            state_timestamp_ms=timestamp_ms,
            members=self._members(),
        )

    def _members(self) -> tuple[StoredMember, ...]:
        count, self._at = self._encoding.array_count(self._view, self._at, _MEMBER_MIN_BYTES)
        members = tuple([self._member() for _ in range(count)])
        instances = [one.instance_id for one in members if one.instance_id is not None]
        if len({one.member_id for one in members}) < count or len(set(instances)) < len(instances):
            raise InvalidRecordError("a member is in the generation twice")
        return members

    def _member(self) -> StoredMember:
        version = self._version
        member_id = self._string() or ""
        instance_id = self._string() if version >= _FIRST_WITH_INSTANCE_ID else None
        client_id = self._string() or ""
        client_host = self._string() or ""
        rebalance_ms = self._int32() if version >= _FIRST_WITH_REBALANCE_TIMEOUT else None
        session_ms = self._int32()
        member = StoredMember(
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=session_ms if rebalance_ms is None else rebalance_ms,
            session_timeout_ms=session_ms,
            subscription=self._bytes(),
            assignment=self._bytes(),
        )
        if self._is_compact:
            self._at = skip_tagged_fields(self._view, self._at)
        return member

    def _int32(self) -> int:
        value: int = _INT32.unpack_from(self._view, self._at)[0]
        self._at += _INT32.size
        return value

    def _int64(self) -> int:
        value: int = _INT64.unpack_from(self._view, self._at)[0]
        self._at += _INT64.size
        return value

    def _string(self) -> str | None:
        value, self._at = self._encoding.string(self._view, self._at)
        return value

    def _bytes(self) -> bytes:
        value, self._at = self._encoding.byte_slice(self._view, self._at)
        return b"" if value is None else bytes(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMember:
    """A member of a generation, with what it got."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # what it said to the protocol that was chosen
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A generation. Without members, the group is empty since `state_timestamp_ms`."""

    protocol_type: str  # empty: nobody has ever joined, offsets are all there is
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int  # NO_TIMESTAMP in records of Kafka before 2.1
    members: tuple[StoredMember, ...]


class CommittedOffset(NamedTuple):
    """Where a group goes on in one partition. A named tuple: one is made for each commit."""

    offset: int
    leader_epoch: int  # of the last record that was read, or NO_LEADER_EPOCH
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP  # asked for by old clients only
    topic_id: TopicId | None = None
    """The topic of the name when the commit was handled (GRP-10). None: the record has no id."""
    names_topic_id: bool = False
    """The client named the id itself, by OffsetCommit 10. The log does not keep this."""


class OffsetRecord(NamedTuple):
    """A commit, or the removal of one (None)."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


class GroupRecord(NamedTuple):
    """A new generation, or the end of the group (None)."""

    group_id: str
    metadata: GroupMetadata | None


class PendingOffsetRecord(NamedTuple):
    """A commit in a transaction that its producer has not ended yet."""

    producer_id: int
    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset


class TransactionEnd(NamedTuple):
    """The end marker of a producer's transaction: of all groups in this log."""

    producer_id: int
    is_commit: bool


StoredRecord: TypeAlias = (
    OffsetRecord
    | GroupRecord
    | ConsumerGroupRecord
    | ShareGroupRecord
    | StreamsGroupRecord
    | PendingOffsetRecord
)
"""What has a key and a value; the end of a transaction is a control batch."""

CoordinatorRecord: TypeAlias = StoredRecord | TransactionEnd
