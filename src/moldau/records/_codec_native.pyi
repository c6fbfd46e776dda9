from collections.abc import Iterable
from typing import TypeVar

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

T = TypeVar("T", bound=tuple[object, ...])

IMPLEMENTATION: str
LATEST_KEY_BYTES: int

def find_fault(payload: Buffer, record_count: int, require_keys: bool) -> RecordFault | None: ...
def read_usual_batch(
    batch: Buffer,
    most_bytes: int,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
    most_records: int,
    looks_inside: bool,
    require_keys: bool,
    header_class: type[T],
) -> T | None: ...

class RecordWalk:
    def __init__(self, record_count: int, require_keys: bool) -> None: ...
    def feed(self, piece: Buffer) -> RecordFault | None: ...
    def finish(self) -> RecordFault | None: ...

class LatestOffsets:
    def __init__(self, expected_keys: int, secret: bytes) -> None: ...
    def __len__(self) -> int: ...
    def clear(self) -> None: ...
    def add(
        self, payload: Buffer, record_count: int, base_offset: int, from_offset: int
    ) -> None: ...
    def select(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        end_offset: int,
        drop_tombstones: bool,
        horizon_ms: int | None,
    ) -> tuple[int, int, bool, bytes | None]: ...

class ColumnEncoder:
    def __init__(
        self,
        row_count: int,
        *,
        values: BytesColumn | None,
        keys: BytesColumn | None = None,
        headers: HeadersColumn | None = None,
        timestamps: NumbersColumn | None = None,
        partitions: NumbersColumn | None = None,
        timestamp_ms: int = 0,
    ) -> None: ...
    @property
    def row_count(self) -> int: ...
    def row_size(self, row: int) -> int: ...
    def append_to(
        self,
        output: bytearray,
        first_index: int,
        rows: Buffer | None,
        start: int,
        limit_bytes: int,
        base_timestamp: int | None,
    ) -> tuple[int, int, int, int, int]: ...
    def split(
        self, partition_count: int, ignores_keys: bool = False
    ) -> tuple[bytes, list[int]]: ...

def find_first_at_or_after(
    payload: Buffer,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    target_timestamp: int,
) -> tuple[int, int] | None: ...
def decode_records(
    payload: Buffer,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time_ms: int | None = None,
) -> list[Record]: ...
def decode_consumer_records(
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
) -> list[T]: ...
def encode_records(rows: Iterable[RecordRow], base_timestamp: int) -> bytes: ...
def append_rows(
    output: bytearray, first_index: int, rows: Iterable[RecordRow], base_timestamp: int
) -> None: ...
def append_lines(
    output: bytearray,
    first_index: int,
    text: bytes,
    start: int,
    limit_bytes: int,
    timestamp_delta: int,
) -> tuple[int, int, int]: ...
def make_rows(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    timestamp_ms: int,
    headers: Headers,
) -> list[RecordRow]: ...
def find_timestamps(rows: list[RecordRow]) -> tuple[int, int]: ...
def row_size(row: RecordRow) -> int: ...
def count_fitting(rows: list[RecordRow], start: int, limit_bytes: int) -> tuple[int, int]: ...
def murmur2(data: bytes) -> int: ...
def partition_for_key(key: bytes, partition_count: int) -> int: ...
def split_by_key(rows: list[RecordRow], partition_count: int) -> list[list[RecordRow]]: ...
def join_values(
    payload: Buffer,
    record_count: int,
    base_offset: int,
    from_offset: int,
    end_offset: int,
    most_records: int,
    null: bytes,
) -> tuple[bytearray, int]: ...
def decode_columns(
    sources: Iterable[ColumnSource],
    *,
    keys: bool = True,
    values: bool = True,
    headers: bool = True,
    microseconds: bool = False,
) -> RecordColumns: ...
