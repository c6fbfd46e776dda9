from collections.abc import Iterable
from typing import TypeVar

from moldau.records.batch_header import Buffer
from moldau.records.columns import ColumnSource, RecordColumns
from moldau.records.record import Headers, Record, RecordRow
from moldau.records.record_faults import RecordFault

T = TypeVar("T", bound=tuple[object, ...])

IMPLEMENTATION: str

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
