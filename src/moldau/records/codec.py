"""The record codec: walks, decodes and encodes the uncompressed records of a batch.

And what producers do to every record before it is in a batch: measure it and hash its key.

Answers for choosing between the module built from Cython and its twin in plain Python, which behave
the same but for their speed. The header, the checksum and the compression of a batch are no matter
of it. A rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from moldau.records.batch_header import Buffer
from moldau.records.columns import (
    BytesColumn,
    ColumnSource,
    HeadersColumn,
    NumbersColumn,
    RecordColumns,
)
from moldau.records.record import Headers, Record, RecordRow
from moldau.records.record_faults import RecordFault

__all__ = [
    "IMPLEMENTATION",
    "LATEST_KEY_BYTES",
    "ColumnEncoder",
    "ColumnEncoding",
    "KeyOffsets",
    "LatestOffsets",
    "RecordCodec",
    "RecordFault",
    "RecordWalk",
    "RecordWalker",
    "append_lines",
    "append_rows",
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


class KeyOffsets(Protocol):
    """The last offset of each key. The native one computes without the GIL. One thread at a time.

    A key is known by its hash, which nobody foresees who does not know the secret.
    """

    def __len__(self) -> int: ...

    def clear(self) -> None:
        """Forget all, and give the memory back."""

    def add(self, payload: Buffer, record_count: int, base_offset: int, from_offset: int) -> None:
        """Note the keys of records from an offset on, or InvalidRecordError."""

    def select(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        end_offset: int,
        drop_tombstones: bool,
        horizon_ms: int | None,
    ) -> tuple[int, int, bool, bytes | None]:
        """What stays of a batch: records from `end_offset` on, and those of which no later one is
        known that has their key. Records without a key go; so do tombstones, if they are to.

        Returns how many, their highest timestamp, whether timestamps are relative to `horizon_ms`
        now (if it is given, and a tombstone stays), and the bytes of what stays: None for none, and
        for all of them as they were. Or InvalidRecordError.
        """


class ColumnEncoding(Protocol):
    """Rows of columns on their way into batches. Their buffers must not change meanwhile.

    A list of rows is a buffer of their numbers, 32 bits each; None stands for all of them.
    """

    @property
    def row_count(self) -> int: ...

    def row_size(self, row: int) -> int:
        """About what a record takes in a batch, as the codec's `row_size`."""

    def append_to(
        self,
        output: bytearray,
        first_index: int,
        rows: Buffer | None,
        start: int,
        limit_bytes: int,
        base_timestamp: int | None,
    ) -> tuple[int, int, int, int, int]:
        """Encode rows from a place of their list on, behind what is there already: as many as take
        at most so many bytes. Without a base timestamp that of the first row is taken.

        Gives how many they are, what they take by the measure of `row_size`, the place of the next
        one, the base timestamp, and the highest one of theirs. What is wrong with a row is raised
        when it is the first, and ends the list before it otherwise.
        """

    def split(self, partition_count: int, ignores_keys: bool = False) -> tuple[bytes, list[int]]:
        """A list of all rows, those of partition 0 first, those that are free to go anywhere last,
        each part in order; and where in it each part ends.

        A row goes to the partition that it names, else to that of its key.
        """


class RecordCodec(Protocol):
    """What both modules offer. `payload` is everything in a batch behind its header."""

    @property
    def IMPLEMENTATION(self) -> str:
        """`native` or `pure`."""

    @property
    def LATEST_KEY_BYTES(self) -> int:
        """What a key takes in `LatestOffsets`, about."""

    def LatestOffsets(self, expected_keys: int, secret: bytes) -> KeyOffsets:
        """Without any; room for more is made when it is needed. The secret has 16 bytes."""

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

    def append_rows(
        self, output: bytearray, first_index: int, rows: Iterable[RecordRow], base_timestamp: int
    ) -> None:
        """Encode rows behind those that are there already; all of them, or none."""

    def append_lines(
        self,
        output: bytearray,
        first_index: int,
        text: bytes,
        start: int,
        limit_bytes: int,
        timestamp_delta: int,
    ) -> tuple[int, int, int]:
        """Encode lines from a place of the text on as values of records without a key, behind
        those that are there already: as many as take at most so many bytes.

        Gives how many they are, what they take by the measure of `row_size`, and where the next
        line begins. A carriage return before a line end is part of it; what is behind the last
        line end is no line.
        """

    def ColumnEncoder(
        self,
        row_count: int,
        *,
        values: BytesColumn | None,
        keys: BytesColumn | None = None,
        headers: HeadersColumn | None = None,
        timestamps: NumbersColumn | None = None,
        partitions: NumbersColumn | None = None,
        timestamp_ms: int = 0,
    ) -> ColumnEncoding:
        """Of records as columns. A column that is None is null throughout. Timestamps have 64 bits,
        and where they are null it is `timestamp_ms`; partitions have 32. ValueError for a column
        that is too short, and later for one that points outside of its data."""

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
        from moldau.records import _codec_pure

        return _codec_pure
    return _codec_native


def _find(name: str) -> Any:
    """The twin's where the native module was built before there was one; otherwise the twin is not
    imported."""
    found = getattr(_chosen, name, None)
    if found is None:
        from moldau.records import _codec_pure

        found = getattr(_codec_pure, name)
    return found


_chosen = _choose()

IMPLEMENTATION = _chosen.IMPLEMENTATION
append_lines = _find("append_lines")
append_rows = _find("append_rows")
decode_columns = _chosen.decode_columns
decode_consumer_records = _chosen.decode_consumer_records
decode_records = _chosen.decode_records
encode_records = _chosen.encode_records
count_fitting = _chosen.count_fitting
find_fault = _chosen.find_fault
find_first_at_or_after = _chosen.find_first_at_or_after
find_timestamps = _chosen.find_timestamps
join_values = _find("join_values")
make_rows = _chosen.make_rows
murmur2 = _chosen.murmur2
partition_for_key = _chosen.partition_for_key
row_size = _chosen.row_size
split_by_key = _chosen.split_by_key
ColumnEncoder: Callable[..., ColumnEncoding] = _find("ColumnEncoder")
LATEST_KEY_BYTES: int = _find("LATEST_KEY_BYTES")
LatestOffsets: Callable[[int, bytes], KeyOffsets] = _find("LatestOffsets")
RecordWalk: Callable[[int, bool], RecordWalker] = _find("RecordWalk")
read_usual_batch = _find("read_usual_batch")
