"""The answer of ShareFetch, versions 1 and 2, by hand: a list of chunks, with the records left out.

As in `fetch_frame`, whoever sends it puts the bytes of each records object between the chunks. kio
knows the same message, and the tests compare the two. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from moldau.wire.apis import SHARE_FETCH
from moldau.wire.endpoints import NodeEndpoint
from moldau.wire.fetch_frame import Chunk, RecordsChunk
from moldau.wire.headers import response_prefix
from moldau.wire.primitives import (
    encode_compact_count,
    encode_compact_string,
    encode_uuid,
    encode_varint,
)

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">ih")  # throttle time, error
_PARTITION: Final = struct.Struct(">ih")  # index, error
_LEADER: Final = struct.Struct(">iib")  # with its tagged fields
_ACQUIRED: Final = struct.Struct(">qqhb")  # with its tagged fields
_NO_TAGS: Final = b"\0"
_NO_LEADER: Final = (-1, -1)


class SharedPartition(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: tuple[int, int] = _NO_LEADER  # broker id, leader epoch
    records: Sequence[RecordsChunk] = ()  # one after the other
    acquired: Sequence[tuple[int, int, int]] = ()  # first and last offset, delivery count


def encode_share_fetch_frame(
    version: int,
    correlation_id: int,
    topics: Mapping[UUID, Sequence[SharedPartition]],
    *,
    acquisition_lock_timeout_ms: int,
    throttle_ms: int = 0,
    error_code: int = 0,
    error_message: str | None = None,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Chunk]:
    """A whole response frame: chunks, the first of which starts with length and header."""
    parts = [
        _HEAD.pack(throttle_ms, error_code),
        encode_compact_string(error_message),
        _INT32.pack(acquisition_lock_timeout_ms),
        encode_compact_count(len(topics)),
    ]
    chunks: list[Chunk] = []
    total_bytes = 0
    for topic_id, partitions in topics.items():
        parts += (encode_uuid(topic_id), encode_compact_count(len(partitions)))
        for partition in partitions:
            parts.append(_encode_head(partition))
            if partition.records:
                joined = b"".join(parts)
                chunks += (joined, *partition.records)
                total_bytes += len(joined) + sum(one.length for one in partition.records)
                parts = []
            parts.append(encode_compact_count(len(partition.acquired)))
            parts += (_ACQUIRED.pack(*acquired, 0) for acquired in partition.acquired)
            parts.append(_NO_TAGS)
        parts.append(_NO_TAGS)
    parts += (_encode_endpoints(node_endpoints), _NO_TAGS)
    chunks.append(b"".join(parts))
    last = chunks[-1]
    total_bytes += len(last) if isinstance(last, bytes) else 0
    prefix = response_prefix(SHARE_FETCH.key, version, correlation_id, total_bytes)
    return [prefix, *chunks]


def _encode_head(partition: SharedPartition) -> bytes:
    """A partition up to the length of its records."""
    length = sum(one.length for one in partition.records)
    return b"".join(
        (
            _PARTITION.pack(partition.partition, partition.error_code),
            encode_compact_string(partition.error_message),
            _INT16.pack(partition.acknowledge_error_code),
            encode_compact_string(partition.acknowledge_error_message),
            _LEADER.pack(*partition.current_leader, 0),
            encode_varint(length + 1),
        )
    )


def _encode_endpoints(node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    parts = [encode_compact_count(len(node_endpoints))]
    for node_id, host, port, rack in node_endpoints:
        parts += (_INT32.pack(node_id), encode_compact_string(host))
        parts += (_INT32.pack(port), encode_compact_string(rack), _NO_TAGS)
    return b"".join(parts)
