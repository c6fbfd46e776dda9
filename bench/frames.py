"""Requests, encoded before the clock starts, and what is known about their answers.

Every answer to a prepared request has the same size, and its error code the same place, so the
client can count and check answers without decoding them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import NamedTuple

from moldau.records.record_batch import build_batch
from moldau.wire.apis import API_VERSIONS, FETCH, METADATA, PRODUCE
from moldau.wire.headers import request_prefix
from moldau.wire.messages import encode_request
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

CLIENT_ID = "bench"
CREATE_TOPICS = 19

_PRODUCE_VERSION = 11  # the newest that names topics instead of giving their ids
_FETCH_VERSION = 12
_API_VERSIONS_VERSION = 3
_CREATE_TOPICS_VERSION = 7
_METADATA_VERSION = 12

_TIMEOUT_MS = 30_000
_LENGTH_AND_HEADER_BYTES = 9  # of a flexible answer
_FETCH_FIELDS = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqi")


class Batch(NamedTuple):
    """Records as a producer sends them."""

    data: bytes
    record_count: int
    record_bytes: int


class Prepared(NamedTuple):
    """A request, and how to check its answer: sizes and places include the length in front."""

    frame: bytes
    error_at: int
    payload_bytes: int
    """The record bytes that it carries or asks for; 0 where that is not the point."""


def make_batch(batch_bytes: int, record_bytes: int) -> Batch:
    """The largest batch of not more than so many bytes, of values of a size, without keys."""
    value = bytes(i % 251 for i in range(record_bytes))
    row = (time.time_ns() // 1_000_000, None, value, ())
    count = max(1, batch_bytes // (record_bytes + 7))
    data = build_batch([row] * count)
    while len(data) > batch_bytes and count > 1:
        count -= max(1, (len(data) - batch_bytes) // (record_bytes + 12))
        data = build_batch([row] * count)
    return Batch(bytes(data), count, record_bytes)


def produce(topic: str, batch: Batch, *, partition: int = 0, acks: int = 1) -> Prepared:
    name = topic.encode()
    body = b"".join(
        (
            b"\0",  # no transactional id
            struct.pack(">hi", acks, _TIMEOUT_MS),
            _varint(2),
            _varint(len(name) + 1) + name,
            _varint(2),
            struct.pack(">i", partition),
            _varint(len(batch.data) + 1),
            batch.data,
            b"\0\0\0",  # tags of partition, topic, request
        )
    )
    frame = request_prefix(PRODUCE.key, _PRODUCE_VERSION, 1, CLIENT_ID, len(body)) + body
    error_at = _LENGTH_AND_HEADER_BYTES + 1 + 1 + len(name) + 1 + 4
    return Prepared(frame, error_at, len(batch.data))


def fetch(
    topic: str,
    offset: int,
    *,
    max_bytes: int,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    payload_bytes: int = 0,
) -> Prepared:
    """A fetch of one partition, without a session."""
    name = topic.encode()
    body = b"".join(
        (
            _FETCH_FIELDS.pack(-1, max_wait_ms, min_bytes, max_bytes, 0, 0, -1),
            _varint(2),
            _varint(len(name) + 1) + name,
            _varint(2),
            _FETCH_PARTITION.pack(partition, -1, offset, -1, -1, max_bytes),
            b"\0\0",  # tags of partition, topic
            b"\x01\x01\0",  # nothing forgotten, empty rack, no tags
        )
    )
    frame = request_prefix(FETCH.key, _FETCH_VERSION, 1, CLIENT_ID, len(body)) + body
    error_at = _LENGTH_AND_HEADER_BYTES + 4 + 2 + 4 + 1 + 1 + len(name) + 1 + 4
    return Prepared(frame, error_at, payload_bytes)


def api_versions() -> Prepared:
    values = {"client_software_name": "bench", "client_software_version": "1"}
    entity = fit(request_class(API_VERSIONS.key, _API_VERSIONS_VERSION), values)
    return Prepared(encode_request(entity, 1, CLIENT_ID), 8, 0)


def metadata() -> Prepared:
    """Of all topics. This version has no error of its own; the throttle time is in its place."""
    values = {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    entity = fit(request_class(METADATA.key, _METADATA_VERSION), values)
    return Prepared(encode_request(entity, 1, CLIENT_ID), _LENGTH_AND_HEADER_BYTES, 0)


def create_topic(
    name: str, partitions: int, configs: Mapping[str, str], replication_factor: int = 1
) -> tuple[bytes, int, int]:
    """Frame, API key and version."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": (),
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
    values = {"topics": [topic], "timeout": _TIMEOUT_MS, "validate_only": False}
    entity = fit(request_class(CREATE_TOPICS, _CREATE_TOPICS_VERSION), values)
    return encode_request(entity, 1, CLIENT_ID), CREATE_TOPICS, _CREATE_TOPICS_VERSION


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
