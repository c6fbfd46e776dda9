"""The record codec: walks, decodes and encodes the uncompressed records of a batch.

And what producers do to every record before it is in a batch: measure it and hash its key.

Answers for choosing between the module built from Cython and its twin in plain Python, which behave
the same but for their speed. The header, the checksum and the compression of a batch are no matter
of it. A rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from moldau.records import _codec_pure
from moldau.records.batch_header import Buffer
from moldau.records.columns import ColumnSource, RecordColumns
from moldau.records.record import Headers, Record, RecordRow
from moldau.records.record_faults import RecordFault

__all__ = [
    "IMPLEMENTATION",
    "RecordCodec",
    "RecordFault",
    "RecordWalk",
    "RecordWalker",
    "count_fitting",
    "decode_columns",
    "decode_consumer_records",
    "decode_records",
    "encode_records",
    "find_fault",
    "find_first_at_or_after",
    "find_timestamps",
    "join_values",
    "make_rows",
    "murmur2",
    "partition_for_key",
    "read_usual_batch",
    "row_size",
    "split_by_key",
]

T = TypeVar("T", bound=tuple[object, ...])


class RecordWalker(Protocol):
    """`find_fault` for records that come in pieces, of which none is kept."""

    def feed(self, piece: Buffer) -> RecordFault | None:
        """Look at the next piece; the fault, as soon as there is one."""

    def finish(self) -> RecordFault | None:
        """There are no more pieces: what is wrong with all of them, or None."""


class RecordCodec(Protocol):
    """What both modules offer. `payload` is everything in a batch behind its header."""

    @property
    def IMPLEMENTATION(self) -> str:
        """`native` or `pure`."""

    def find_fault(
        self, payload: Buffer, record_count: int, require_keys: bool
    ) -> RecordFault | None:
        """The first thing that a consumer would stumble over, or None.

        Records must be whole, fill the payload, and have the offset deltas 0 to n-1. Batches that
        were compacted have gaps and do not come here.
        """

    def read_usual_batch(
        self,
        batch: Buffer,
        most_bytes: int,
        now_ms: int,
        before_max_ms: int,
        after_max_ms: int,
        most_records: int,
        looks_inside: bool,
        require_keys: bool,
        header_class: type[T],
    ) -> T | None:
        """The header of a client's batch that is not compressed, if nothing is wrong with it but,
        perhaps, its checksum; None says nothing."""

    def RecordWalk(self, record_count: int, require_keys: bool) -> RecordWalker:
        """Begins a walk over the records of one batch."""

    def find_first_at_or_after(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        target_timestamp: int,
    ) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is not older than the target.

        Raises InvalidRecordError on damage before that record.
        """

    def decode_records(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        log_append_time_ms: int | None = None,
    ) -> list[Record]:
        """All records, or InvalidRecordError; gaps between offsets are allowed."""

    def decode_columns(
        self,
        sources: Iterable[ColumnSource],
        *,
        keys: bool = True,
        values: bool = True,
        headers: bool = True,
        microseconds: bool = False,
    ) -> RecordColumns:
        """The records of many batches as columns, or InvalidRecordError.

        With `microseconds` the timestamps are given in those; one that is too large for it wraps.
        A batch is checked as a whole, also where only some of its offsets are wanted. Other
        threads run meanwhile when there is much to do.
        """

    def join_values(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        from_offset: int,
        end_offset: int,
        most_records: int,
        null: bytes,
    ) -> tuple[bytearray, int]:
        """The values of the records between two offsets, each with a line end behind it, and how
        many they are; at most so many. `null` is what stands for null, of six bytes at most.

        Raises InvalidRecordError, also for records that are not wanted.
        """

    def decode_consumer_records(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        log_append_time_ms: int | None,
        from_offset: int,
        record_class: type[T],
        topic: str,
        partition: int,
        leader_epoch: int,
    ) -> list[T]:
        """The records from an offset on, as consumers give them: `record_class` is a named tuple
        of topic, partition, the fields of a record, the kind of its timestamp (0 the producer's,
        1 the broker's), and leader epoch."""

    def encode_records(self, rows: Iterable[RecordRow], base_timestamp: int) -> bytes:
        """The payload of a batch; offset deltas count from 0."""

    def make_rows(
        self,
        values: list[bytes | None],
        keys: list[bytes | None] | None,
        timestamp_ms: int,
        headers: Headers,
    ) -> list[RecordRow]:
        """Rows of values, with keys beside them or None, that share a timestamp and headers."""

    def find_timestamps(self, rows: list[RecordRow]) -> tuple[int, int]:
        """The timestamp of the first row and the highest one; there is at least one row."""

    def row_size(self, row: RecordRow) -> int:
        """About what a record takes in a batch, before compression."""

    def count_fitting(self, rows: list[RecordRow], start: int, limit_bytes: int) -> tuple[int, int]:
        """How many rows from `start` on take at most so many bytes, and what they take."""

    def murmur2(self, data: bytes) -> int:
        """The hash as Java shows it: a signed 32-bit number (`Utils.murmur2`)."""

    def partition_for_key(self, key: bytes, partition_count: int) -> int:
        """Where every Java client puts this key."""

    def split_by_key(self, rows: list[RecordRow], partition_count: int) -> list[list[RecordRow]]:
        """The rows of each partition in order, and at the end of the list those without a key."""


def _choose() -> RecordCodec:
    try:
        from moldau.records import _codec_native
    except ImportError:
        return _codec_pure
    return _codec_native


_chosen = _choose()

IMPLEMENTATION = _chosen.IMPLEMENTATION
decode_columns = _chosen.decode_columns
decode_consumer_records = _chosen.decode_consumer_records
decode_records = _chosen.decode_records
encode_records = _chosen.encode_records
count_fitting = _chosen.count_fitting
find_fault = _chosen.find_fault
find_first_at_or_after = _chosen.find_first_at_or_after
find_timestamps = _chosen.find_timestamps
join_values = getattr(_chosen, "join_values", _codec_pure.join_values)
"""The twin's where the native module was built before there was one."""
make_rows = _chosen.make_rows
murmur2 = _chosen.murmur2
partition_for_key = _chosen.partition_for_key
row_size = _chosen.row_size
split_by_key = _chosen.split_by_key
RecordWalk: Callable[[int, bool], RecordWalker] = getattr(
    _chosen, "RecordWalk", _codec_pure.RecordWalk
)
"""The twin's where the native module was built before there was one."""
read_usual_batch = getattr(_chosen, "read_usual_batch", _codec_pure.read_usual_batch)
