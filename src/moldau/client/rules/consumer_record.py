"""A record as a consumer gives it. A value, nothing more."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from moldau.records.record import Headers


class TimestampType(IntEnum):
    """Who set a record's timestamp."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple):
    """A record, where it is from, and what its partition knew of it.

    With deserializers, `key` and `value` are what these made of the bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_type: int = TimestampType.CREATE_TIME
    leader_epoch: int = -1
