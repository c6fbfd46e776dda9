"""What a producer takes and gives: records on their way out, and where they ended up. Values."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from moldau.records.record import Headers


class RecordMetadata(NamedTuple):
    """Where a record is. The offset is -1 with acks=0, and where a broker did not tell it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class RecordRange(NamedTuple):
    """Where consecutive records of one `send_many` are. With acks=0 the offset is -1."""

    topic: str
    partition: int
    base_offset: int
    record_count: int


class OutgoingRecord(NamedTuple):
    """A record as `send` was given it, before serializers and partitioner have seen it."""

    topic: str
    value: object = None
    key: object = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Headers = ()


class Interceptor(Protocol):
    """Sees every record on its way out and every outcome. What it raises is logged, not raised."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Called in the thread of `send`; what it returns is sent instead."""
        ...

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """Called once for each record, in the producer's own thread; one of the two is None."""
        ...
