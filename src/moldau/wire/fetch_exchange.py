"""Fetch as clients and followers send it, versions 4 to 18: requests, responses, sessions.

The records of a response are slices of the frame, never copied: a frame can have fifty megabytes
of them. `fetch_frame` is the broker's side and lists what each version added. kio knows the same
messages, and the tests compare the two. Followers also ask with ListOffsets where a log begins
and ends. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast
from uuid import UUID

from moldau.errors import MalformedFrameError
from moldau.model import CONSUMER
from moldau.wire.apis import FETCH, LIST_OFFSETS
from moldau.wire.fetch_frame import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.primitives import (
    COMPACT,
    LEGACY,
    READ_ERRORS,
    Encoding,
    encode_compact_count,
    encode_compact_string,
    encode_legacy_count,
    encode_legacy_string,
    encode_uuid,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
)
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

if TYPE_CHECKING:
    from kio.schema.list_offsets.v7.response import ListOffsetsResponse


# Fetch as the one who asks sees it, versions 4 to 18: a request out, an answer with views in.
#
# The records of an answer are slices of the frame, never copied: a frame can have fifty megabytes
# of them. `fetch_frame` is the answering side and lists what each version added. kio knows the same
# messages, and the tests compare the two. A rule.


_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_LEADER_EPOCH: Final = 9
_FIRST_WITH_RACK: Final = 11
_FIRST_FLEXIBLE: Final = FETCH.first_flexible
_FIRST_WITH_TOPIC_ID: Final = 13
_FIRST_WITH_REPLICA_STATE: Final = 15

_DIVERGING_EPOCH_TAG: Final = 0
_CURRENT_LEADER_TAG: Final = 1

_INT32: Final = struct.Struct(">i")
_LIMITS: Final = struct.Struct(">iiib")
_SESSION: Final = struct.Struct(">ii")
_REPLICA_STATE_TAG: Final = struct.Struct(">bbbiqb")
_REPLICA_STATE_BYTES: Final = 13
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_PARTITION_V12: Final = struct.Struct(">iiqiqib")

_SESSION_DATA: Final = struct.Struct(">ihi")
_PARTITION_DATA_V4: Final = struct.Struct(">ihqq")
_PARTITION_DATA_V5: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_DIVERGING_EPOCH: Final = struct.Struct(">iq")
_LEADER: Final = struct.Struct(">ii")

# The least that a topic and a partition take, by which counts are bounded.
_MIN_TOPIC_BYTES: Final = 3
_MIN_PARTITION_BYTES: Final = 23

_NOTHING: Final = memoryview(b"")


class AnsweredPartition(NamedTuple):
    """What a broker says about one partition; `records` is a slice of the frame."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[tuple[int, int]]  # producer id, first offset
    preferred_read_replica: int
    records: memoryview
    diverging_epoch: tuple[int, int] | None = None  # epoch, end offset
    current_leader: tuple[int, int] | None = None  # broker id, leader epoch


class AnsweredTopic(NamedTuple):
    """A topic by name, or by id from version 13 on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[AnsweredPartition]


class FetchAnswer(NamedTuple):
    """A parsed answer. The error is the session's; before version 7 there is none."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: list[AnsweredTopic]


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The body. What the version cannot say is left out."""
    is_flexible = version >= _FIRST_FLEXIBLE
    count = encode_compact_count if is_flexible else encode_legacy_count
    parts: list[bytes] = []
    if version < _FIRST_WITH_REPLICA_STATE:
        parts.append(_INT32.pack(request.replica_id))
    parts.append(
        _LIMITS.pack(
            request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level
        )
    )
    if version >= _FIRST_WITH_SESSIONS:
        parts.append(_SESSION.pack(request.session_id, request.session_epoch))
    parts.append(count(len(request.topics)))
    end = b"\0" if is_flexible else b""
    for topic in request.topics:
        parts.append(_encode_reference(version, topic.name, topic.topic_id))
        parts.append(count(len(topic.partitions)))
        parts += [_encode_partition(version, partition) for partition in topic.partitions]
        parts.append(end)
    if version >= _FIRST_WITH_SESSIONS:
        parts.append(count(len(request.forgotten_topics)))
        for forgotten in request.forgotten_topics:
            parts.append(_encode_reference(version, forgotten.name, forgotten.topic_id))
            parts.append(count(len(forgotten.partitions)))
            parts += [_INT32.pack(index) for index in forgotten.partitions]
            parts.append(end)
    if version >= _FIRST_WITH_RACK:
        string = encode_compact_string if is_flexible else encode_legacy_string
        parts.append(string(request.rack_id))
    if is_flexible:
        parts.append(_encode_request_tags(version, request))
    return b"".join(parts)


def _encode_reference(version: int, name: str | None, topic_id: UUID | None) -> bytes:
    if version >= _FIRST_WITH_TOPIC_ID:
        return encode_uuid(topic_id)
    return encode_compact_string(name) if version >= _FIRST_FLEXIBLE else encode_legacy_string(name)


def _encode_partition(version: int, partition: FetchPartition) -> bytes:
    index, leader_epoch, offset, last_epoch, log_start, max_bytes, *_ = partition
    if version >= _FIRST_FLEXIBLE:
        return _PARTITION_V12.pack(index, leader_epoch, offset, last_epoch, log_start, max_bytes, 0)
    if version >= _FIRST_WITH_LEADER_EPOCH:
        return _PARTITION_V9.pack(index, leader_epoch, offset, log_start, max_bytes)
    if version >= _FIRST_WITH_LOG_START:
        return _PARTITION_V5.pack(index, offset, log_start, max_bytes)
    return _PARTITION_V4.pack(index, offset, max_bytes)


def _encode_request_tags(version: int, request: FetchRequest) -> bytes:
    if version < _FIRST_WITH_REPLICA_STATE or request.replica_id == CONSUMER:
        return b"\0"
    return _REPLICA_STATE_TAG.pack(
        1, 1, _REPLICA_STATE_BYTES, request.replica_id, request.replica_epoch, 0
    )


def parse_fetch_answer(version: int, frame: memoryview, position: int) -> FetchAnswer:
    """The answer whose body starts at the position; raises MalformedFrameError."""
    try:
        return _parse(version, frame, position)
    except READ_ERRORS as error:
        raise MalformedFrameError(f"FetchResponse: {error}") from error


def _parse(version: int, frame: memoryview, position: int) -> FetchAnswer:
    encoding = COMPACT if version >= _FIRST_FLEXIBLE else LEGACY
    error_code, session_id = 0, 0
    if version >= _FIRST_WITH_SESSIONS:
        throttle_time_ms, error_code, session_id = _SESSION_DATA.unpack_from(frame, position)
        position += 10
    else:
        throttle_time_ms = _INT32.unpack_from(frame, position)[0]
        position += 4
    count, position = encoding.array_count(frame, position, _MIN_TOPIC_BYTES)
    topics: list[AnsweredTopic] = []
    for _ in range(count):
        topic, position = _parse_topic(version, encoding, frame, position)
        topics.append(topic)
    return FetchAnswer(throttle_time_ms, error_code, session_id, topics)


def _parse_topic(
    version: int, encoding: Encoding, frame: memoryview, position: int
) -> tuple[AnsweredTopic, int]:
    name, topic_id = None, None
    if version >= _FIRST_WITH_TOPIC_ID:
        topic_id, position = read_uuid(frame, position)
    else:
        name, position = encoding.string(frame, position)
    count, position = encoding.array_count(frame, position, _MIN_PARTITION_BYTES)
    partitions: list[AnsweredPartition] = []
    for _ in range(count):
        partition, position = _parse_partition(version, encoding, frame, position)
        partitions.append(partition)
    if version >= _FIRST_FLEXIBLE:
        position = skip_tagged_fields(frame, position)
    return AnsweredTopic(name, topic_id, partitions), position


def _parse_partition(
    version: int, encoding: Encoding, frame: memoryview, position: int
) -> tuple[AnsweredPartition, int]:
    if version >= _FIRST_WITH_LOG_START:
        fields = _PARTITION_DATA_V5.unpack_from(frame, position)
        position += 30
    else:
        fields = (*_PARTITION_DATA_V4.unpack_from(frame, position), -1)
        position += 22
    aborted, position = _parse_aborted(version, encoding, frame, position)
    preferred_read_replica = -1
    if version >= _FIRST_WITH_RACK:
        preferred_read_replica = _INT32.unpack_from(frame, position)[0]
        position += 4
    records, position = encoding.byte_slice(frame, position)
    if version < _FIRST_FLEXIBLE:
        diverging_epoch = current_leader = None
    elif frame[position]:
        diverging_epoch, current_leader, position = _parse_partition_tags(frame, position)
    else:
        diverging_epoch = current_leader = None
        position += 1
    rest = (aborted, preferred_read_replica, _NOTHING if records is None else records)
    tagged = (diverging_epoch, current_leader)
    return AnsweredPartition._make((*fields, *rest, *tagged)), position


def _parse_aborted(
    version: int, encoding: Encoding, frame: memoryview, position: int
) -> tuple[Sequence[tuple[int, int]], int]:
    """Null and empty say the same to a reader."""
    if version >= _FIRST_FLEXIBLE:
        if frame[position] <= 1:
            return (), position + 1
    elif _INT32.unpack_from(frame, position)[0] < 0:
        return (), position + 4
    count, position = encoding.array_count(frame, position, _ABORTED.size)
    aborted: list[tuple[int, int]] = []
    for _ in range(count):
        aborted.append(_ABORTED.unpack_from(frame, position))
        position += _ABORTED.size
        if version >= _FIRST_FLEXIBLE:
            position = skip_tagged_fields(frame, position)
    return aborted, position


def _parse_partition_tags(
    frame: memoryview, position: int
) -> tuple[tuple[int, int] | None, tuple[int, int] | None, int]:
    diverging_epoch = current_leader = None
    for tag, start, end in read_tagged_fields(frame, position):
        if tag == _DIVERGING_EPOCH_TAG:
            diverging_epoch = _DIVERGING_EPOCH.unpack_from(frame, start)
        elif tag == _CURRENT_LEADER_TAG:
            current_leader = _LEADER.unpack_from(frame, start)
        position = end
    return diverging_epoch, current_leader, position


# The asking side of a fetch session (KIP-227): name partitions once, then only changes. A rule.
#
# A session is asked for with epoch 0 and goes on with 1, 2, …; the broker may decline, and then
# every request names everything. When an answer is lost or the broker has forgotten the session,
# the next request starts over. `moldau.broker.fetch` is the other side.


NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
LAST_EPOCH: Final = 0x7FFFFFFF


class TopicKey(NamedTuple):
    """A topic under its name and its id, if it has one: a topic made anew is another one."""

    name: str
    topic_id: UUID | None


SessionKey = tuple[TopicKey, int]
Wanted = Mapping[SessionKey, FetchPartition]


class SessionRequest(NamedTuple):
    """What a request says of partitions."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


_NO_KEYS: Final[dict[SessionKey, None]] = {}


class FetchSessionHandler:
    """The session with one broker. Requests and answers alternate.

    A request costs what changed since the one before it, whatever the session holds.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[SessionKey, FetchPartition] = {}
        self._unsaid: dict[SessionKey, None] = {}  # of them, what the next request has to name
        self._dropped: dict[SessionKey, None] = {}  # since the last request

    @property
    def is_open(self) -> bool:
        return self._id != NO_SESSION

    @property
    def id(self) -> int:
        return self._id

    # What is wanted

    def want(self, key: SessionKey, partition: FetchPartition) -> None:
        """Fetch a partition from there on, until it is wanted otherwise."""
        if self._wanted.get(key) != partition:
            self._wanted[key] = partition
            self._unsaid[key] = None
            self._dropped.pop(key, None)

    def drop(self, key: SessionKey) -> None:
        """Fetch a partition no longer."""
        if self._wanted.pop(key, None) is not None:
            self._unsaid.pop(key, None)
            self._dropped[key] = None

    def want_only(self, wanted: Wanted) -> None:
        """Fetch these, and nothing else."""
        for key in [key for key in self._wanted if key not in wanted]:
            self.drop(key)
        for key, partition in wanted.items():
            self.want(key, partition)

    # Requests and answers

    def next_request(self, *, by_name: bool = False) -> SessionRequest:
        """Everything in a first request; later what is new, moved or no longer wanted.

        `by_name` before version 13. To forget a topic that was made anew would be to forget the new
        one, then: what is forgotten is so after what is wanted.
        """
        if self._epoch == INITIAL_EPOCH:
            named, dropped = self._wanted, _NO_KEYS
        else:
            named = {key: self._wanted[key] for key in self._unsaid}
            dropped = self._without_renewed() if by_name else self._dropped
        request = SessionRequest(self._id, self._epoch, _by_topic(named), _forget(dropped))
        self._unsaid, self._dropped = {}, {}
        return request

    def _without_renewed(self) -> dict[SessionKey, None]:
        if not self._dropped:
            return _NO_KEYS
        wanted = {(topic.name, index) for topic, index in self._wanted}
        return {(topic, i): None for topic, i in self._dropped if (topic.name, i) not in wanted}

    def answered(self, session_id: int) -> None:
        self._id = session_id
        if session_id == NO_SESSION:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1

    def start_over(self, *, is_forgotten: bool = False) -> None:
        """After a failure. A session that the broker still has is ended by the next request."""
        self._epoch = INITIAL_EPOCH
        if is_forgotten:
            self._id = NO_SESSION


def _by_topic(named: Wanted) -> list[FetchTopic]:
    topics: dict[TopicKey, list[FetchPartition]] = {}
    for (topic, _), partition in named.items():
        topics.setdefault(topic, []).append(partition)
    return [FetchTopic(key.name, key.topic_id, rows) for key, rows in topics.items()]


def _forget(keys: Collection[SessionKey]) -> list[ForgottenTopic]:
    topics: dict[TopicKey, list[int]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(index)
    return [ForgottenTopic(key.name, key.topic_id, rows) for key, rows in topics.items()]


# ListOffsets as a follower asks it of its leader: where the log begins and ends.
#
# Answers for one question about one partition, in version 7. A rule.


_LIST_OFFSETS_VERSION: Final = 7


class OffsetAnswer(NamedTuple):
    """An offset, or why there is none."""

    error_code: int
    offset: int


def encode_offset_question(
    topic: str,
    partition: int,
    *,
    replica_id: int,
    leader_epoch: int,
    timestamp: int,
    client_id: str,
) -> bytes:
    """A whole request frame."""
    wanted = {
        "partition_index": partition,
        "current_leader_epoch": leader_epoch,
        "timestamp": timestamp,
    }
    values = {
        "replica_id": replica_id,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [wanted]}],
    }
    return encode_request(
        fit(request_class(LIST_OFFSETS.key, _LIST_OFFSETS_VERSION), values), 0, client_id
    )


def parse_offset_answer(frame: memoryview) -> OffsetAnswer:
    """The answer about the one partition; raises MalformedFrameError."""
    answer = cast(
        "ListOffsetsResponse", parse_response(LIST_OFFSETS.key, _LIST_OFFSETS_VERSION, frame)[1]
    )
    if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
        raise MalformedFrameError("an answer about other partitions than the one asked for")
    found = answer.topics[0].partitions[0]
    return OffsetAnswer(found.error_code.value, found.offset)
