"""One suite for the columns of both record codecs: the same rows as `decode_records` gives."""

from __future__ import annotations

import gc
import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.errors import BatchTooLargeError, InvalidRecordError
from moldau.records import _codec_pure
from moldau.records.batch_header import Buffer, read_header
from moldau.records.codec import RecordCodec
from moldau.records.columns import (
    END_OFFSET,
    FIRST_OFFSET,
    MAX_PAYLOAD_BYTES,
    BytesColumn,
    ColumnSource,
    HeadersColumn,
    RecordColumns,
    source_of,
)
from moldau.records.compression import Codec
from moldau.records.record import NewRecord, Record
from moldau.records.record_batch import build_batch, payload_of, records_of

INT64_MAX = (1 << 63) - 1
T = TypeVar("T")

on_both_codecs = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

small = st.none() | st.binary(max_size=12)
rows_of_a_batch = st.lists(
    st.builds(
        NewRecord,
        st.integers(-(1 << 63), INT64_MAX) | st.integers(0, 300),
        small,
        small,
        st.lists(st.tuples(st.text(max_size=4), small), max_size=3).map(tuple),
    ),
    max_size=20,
)


# --- reading the buffers, as Arrow would ------------------------------------------------------


def numbers(buffer: Buffer, letter: str = "q") -> list[int]:
    return list(memoryview(bytes(buffer)).cast(letter))


def nulls(validity: Buffer | None, rows: int) -> list[bool]:
    if validity is None:
        return [False] * rows
    assert len(validity) == (rows + 7) // 8
    return [not validity[row // 8] >> row % 8 & 1 for row in range(rows)]


def slices(offsets: Buffer, null_count: int, validity: Buffer | None) -> list[slice | None]:
    starts = numbers(offsets, "i")
    is_null = nulls(validity, len(starts) - 1)
    assert sum(is_null) == null_count
    assert (validity is None) == (null_count == 0)
    return [
        None if null else slice(start, end)
        for start, end, null in zip(starts[:-1], starts[1:], is_null, strict=True)
    ]


def strings(column: BytesColumn) -> list[bytes | None]:
    data = bytes(column.data)
    found = slices(column.offsets, column.null_count, column.validity)
    assert numbers(column.offsets, "i")[-1] == len(data)
    return [None if one is None else data[one] for one in found]


def headers(column: HeadersColumn) -> list[tuple[tuple[str, bytes | None], ...]]:
    names = [(name or b"").decode() for name in strings(column.names)]
    assert column.names.null_count == 0
    pairs = list(zip(names, strings(column.values), strict=True))
    assert column.header_count == len(pairs)
    found = slices(column.offsets, column.null_count, column.validity)
    assert all(one is None or one.start < one.stop for one in found), "no headers are null"
    return [() if one is None else tuple(pairs[one]) for one in found]


def required(column: T | None) -> T:
    assert column is not None
    return column


def rows_of(columns: RecordColumns) -> list[Record]:
    assert columns.row_count == sum(columns.source_rows)
    rows = [
        Record(*fields)
        for fields in zip(
            numbers(columns.offsets),
            numbers(columns.timestamps),
            strings(required(columns.keys)),
            strings(required(columns.values)),
            headers(required(columns.headers)),
            strict=True,
        )
    ]
    assert len(rows) == columns.row_count
    return rows


def payload(rows: Iterable[NewRecord]) -> bytes:
    return _codec_pure.encode_records(rows, 0)


def record(offset_delta: int, value: bytes = b"value") -> bytes:
    """By hand: encoding always counts offsets from 0."""
    rows = [NewRecord(0, b"key", value)]
    encoded = bytearray(payload(rows))
    assert encoded[3] == 0  # behind length, attributes and timestamp
    encoded[3] = offset_delta * 2
    return bytes(encoded)


# --- rows -------------------------------------------------------------------------------------


@on_both_codecs
@given(
    batches=st.lists(
        st.tuples(
            rows_of_a_batch,
            st.integers(0, 1 << 60),
            st.integers(-(1 << 62), 1 << 62),
            st.none() | st.integers(-1, INT64_MAX),
        ),
        max_size=4,
    )
)
def test_columns_hold_the_rows_of_all_batches_in_order(
    codec: RecordCodec, batches: list[tuple[list[NewRecord], int, int, int | None]]
) -> None:
    sources = [
        ColumnSource(codec.encode_records(rows, base), len(rows), offset, base, time)
        for rows, offset, base, time in batches
    ]

    columns = codec.decode_columns(sources)

    decoded = [codec.decode_records(*source[:5]) for source in sources]
    assert rows_of(columns) == [row for rows in decoded for row in rows]
    assert columns.source_rows == [len(rows) for rows in decoded]


@on_both_codecs
@given(
    rows=rows_of_a_batch,
    start=st.integers(95, 125),
    end=st.integers(95, 125),
)
def test_only_the_offsets_that_are_wanted_come(
    codec: RecordCodec, rows: list[NewRecord], start: int, end: int
) -> None:
    source = ColumnSource(codec.encode_records(rows, 0), len(rows), 100, 0, None, start, end)

    columns = codec.decode_columns([source, source])

    wanted = [
        row
        for row in codec.decode_records(*source[:5])
        if row.offset in range(start, max(start, end))
    ]
    assert rows_of(columns) == wanted * 2
    assert columns.source_rows == [len(wanted)] * 2


@pytest.mark.parametrize("compression", Codec)
def test_batches_of_every_compression_are_read_alike(
    codec: RecordCodec, compression: Codec
) -> None:
    rows = [NewRecord(1000 + n, b"k%d" % n, b"v" * n, (("n", b"%d" % n),)) for n in range(50)]
    batch = build_batch(rows, base_offset=70, codec=compression)
    header = read_header(batch)

    columns = codec.decode_columns([source_of(header, payload_of(batch, header))])

    assert rows_of(columns) == records_of(batch)


def test_a_batch_with_log_append_time_has_it_in_every_row(codec: RecordCodec) -> None:
    rows = [NewRecord(1, None, None), NewRecord(2, None, None)]
    batches = [build_batch(rows, log_append_time_ms=99), build_batch(rows)]
    sources = [source_of(read_header(batch), batch[61:]) for batch in batches]

    columns = codec.decode_columns(sources)

    assert numbers(columns.timestamps) == [99, 99, 1, 2]


def test_gaps_that_compaction_left_are_kept(codec: RecordCodec) -> None:
    source = ColumnSource(record(3) + record(4) + record(40), 3, 1000, 0)

    columns = codec.decode_columns([source, source._replace(start_offset=1004, end_offset=1040)])

    assert numbers(columns.offsets) == [1003, 1004, 1040, 1004]
    assert columns.source_rows == [3, 1]


def test_offsets_and_times_wrap_as_in_java(codec: RecordCodec) -> None:
    encoded = codec.encode_records([NewRecord(INT64_MAX, None, None)], 0)

    columns = codec.decode_columns([ColumnSource(encoded, 1, 0, 5)])

    assert numbers(columns.timestamps) == [-(1 << 63) + 4]


# --- nulls and nothing ------------------------------------------------------------------------


def test_null_and_empty_are_different(codec: RecordCodec) -> None:
    rows = [NewRecord(0, None, b"", (("", None),)), NewRecord(0, b"", None, (("a", b""),))]

    columns = codec.decode_columns([ColumnSource(payload(rows), 2, 0, 0)])

    assert strings(required(columns.keys)) == [None, b""]
    assert strings(required(columns.values)) == [b"", None]
    assert headers(required(columns.headers)) == [(("", None),), (("a", b""),)]


def test_a_column_without_nulls_has_no_bitmap(codec: RecordCodec) -> None:
    rows = [NewRecord(0, b"k", b"v", (("h", b"x"),))] * 9

    columns = codec.decode_columns([ColumnSource(payload(rows), 9, 0, 0)])

    assert required(columns.keys).validity is None
    assert required(columns.headers).validity is None
    assert required(columns.headers).values.validity is None


@pytest.mark.parametrize("sources", [[], [ColumnSource(b"", 0, 0, 0)] * 2])
def test_no_records_make_empty_columns(codec: RecordCodec, sources: list[ColumnSource]) -> None:
    columns = codec.decode_columns(sources)

    assert rows_of(columns) == []
    assert columns.source_rows == [0] * len(sources)
    assert numbers(required(columns.keys).offsets, "i") == [0]
    assert numbers(required(columns.headers).offsets, "i") == [0]


def test_columns_that_are_not_wanted_are_not_made(codec: RecordCodec) -> None:
    source = ColumnSource(payload([NewRecord(7, b"k", b"v", (("h", None),))]), 1, 5, 0)

    for name in ("keys", "values", "headers"):
        columns = codec.decode_columns([source], **{name: False})
        assert [field for field in columns._fields if getattr(columns, field) is None] == [name]
        assert numbers(columns.offsets) == [5]

    bare = codec.decode_columns([source], keys=False, values=False, headers=False)
    assert bare[4:] == (None, None, None)
    assert numbers(bare.timestamps) == [7]


# --- headers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain", "plain"),
        ("ř€😀".encode(), "ř€😀"),
        (b"a\xffb", "a\ufffdb"),
        (b"\xff" * 5000, "\ufffd" * 5000),
        (b"\xe2\x82", "\ufffd"),
        (b"\xed\xa0\x80", "\ufffd" * 3),
    ],
)
def test_names_of_headers_are_always_utf_8(codec: RecordCodec, raw: bytes, shown: str) -> None:
    name = raw.decode("utf-8", "surrogateescape")
    rows = [NewRecord(0, None, None, ((name, b"1"), ("next", b"2")))] * 3

    columns = codec.decode_columns([ColumnSource(payload(rows), 3, 0, 0)])

    assert headers(required(columns.headers)) == [((shown, b"1"), ("next", b"2"))] * 3


# --- many and large ---------------------------------------------------------------------------


def test_any_number_of_rows_fits(codec: RecordCodec) -> None:
    rows = [
        NewRecord(n, b"%d" % n if n % 3 else None, b"v" * (n % 50), (("h", b"%d" % n),) * (n % 4))
        for n in range(3000)
    ]
    source = ColumnSource(payload(rows), 3000, 0, 0)

    columns = codec.decode_columns([source, source])

    assert rows_of(columns) == [Record(n, *row) for _ in range(2) for n, row in enumerate(rows)]


def test_a_large_value_fits(codec: RecordCodec) -> None:
    rows = [NewRecord(0, b"k" * 70_000, b"v" * 300_000), NewRecord(0, None, b"w")]

    columns = codec.decode_columns([ColumnSource(payload(rows), 2, 0, 0)])

    assert rows_of(columns) == [Record(n, *row) for n, row in enumerate(rows)]


def test_too_much_at_once_is_refused_before_anything_is_decoded(codec: RecordCodec) -> None:
    part = bytes(MAX_PAYLOAD_BYTES // 512)

    with pytest.raises(BatchTooLargeError, match=f"decode at most {MAX_PAYLOAD_BYTES} at a time"):
        codec.decode_columns([ColumnSource(part, 1, 0, 0)] * 513)


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("value_bytes", [10, 300_000], ids=["small", "large"])
def test_any_buffer_can_be_decoded(
    codec: RecordCodec, view: Callable[[bytes], Buffer], value_bytes: int
) -> None:
    rows = [NewRecord(0, b"k", bytes(value_bytes))]

    columns = codec.decode_columns([ColumnSource(view(payload(rows)), 1, 0, 0)])

    assert rows_of(columns) == [Record(0, *rows[0])]


def test_the_columns_outlive_what_they_were_made_of(codec: RecordCodec) -> None:
    encoded = bytearray(payload([NewRecord(0, b"key", b"value" * 1000)]))
    data = required(codec.decode_columns([ColumnSource(encoded, 1, 0, 0)]).values).data

    encoded[:] = bytes(len(encoded))
    encoded.clear()  # possible only when nobody holds on to the buffer
    gc.collect()

    assert bytes(data) == b"value" * 1000


def test_the_columns_cannot_be_written_to(codec: RecordCodec) -> None:
    columns = codec.decode_columns([ColumnSource(payload([NewRecord(0, b"k", b"v")]), 1, 0, 0)])

    assert memoryview(columns.offsets).readonly
    assert memoryview(required(columns.values).data).readonly


# --- nonsense ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (ColumnSource(b"", 1, 30, 0), "record 0: there are no bytes left for it"),
        (ColumnSource(b"", -1, 30, 0), "record 0: the record count is -1"),
        (ColumnSource(record(0), 2, 30, 0), "record 1: there are no bytes left for it"),
        (ColumnSource(record(0), (1 << 31) - 1, 30, 0), "record 1: there are no bytes left for it"),
        (
            ColumnSource(record(0) + b"!", 1, 30, 0),
            "record 1: 1 bytes are left over after the last record",
        ),
        (
            ColumnSource(record(0) + record(1)[:-3], 2, 30, 0, None, 30, 31),
            "record 1: the record length is 14, but only 11 bytes follow",
        ),
    ],
)
def test_a_batch_that_is_wrong_is_named(
    codec: RecordCodec, source: ColumnSource, reason: str
) -> None:
    sound = ColumnSource(record(0), 1, 7, 0)

    with pytest.raises(InvalidRecordError, match=f"^the batch at offset 30, {reason}$"):
        codec.decode_columns([sound, source, sound])


def test_records_cut_at_any_byte_are_refused(codec: RecordCodec) -> None:
    whole = payload([NewRecord(10**15, b"k", b"v", (("name", b"value"), ("n", None)))])

    for cut in range(len(whole)):
        with pytest.raises(InvalidRecordError):
            codec.decode_columns([ColumnSource(whole[:cut], 1, 0, 0)])


def test_a_buffer_is_let_go_after_a_failure(codec: RecordCodec) -> None:
    encoded = bytearray(record(0))

    with pytest.raises(InvalidRecordError):
        codec.decode_columns([ColumnSource(encoded, 2, 0, 0)])
    with pytest.raises((TypeError, AttributeError)):
        codec.decode_columns([ColumnSource(encoded, 1, 0, 0), None])  # type: ignore[list-item]

    encoded.clear()


def test_a_source_has_all_its_fields(codec: RecordCodec) -> None:
    with pytest.raises((ValueError, AttributeError)):
        codec.decode_columns([(record(0), 1, 0)])  # type: ignore[list-item]


def test_the_limits_of_a_source_are_all_offsets() -> None:
    assert struct.unpack("=qq", struct.pack("=qq", FIRST_OFFSET, END_OFFSET)) == (
        FIRST_OFFSET,
        END_OFFSET,
    )


def test_timestamps_in_microseconds_wrap_where_they_do_not_fit(codec: RecordCodec) -> None:
    rows = [NewRecord(time_ms, None, b"", ()) for time_ms in (0, 17, INT64_MAX)]
    source = ColumnSource(payload(rows), 3, 0, 0)
    columns = codec.decode_columns([source], microseconds=True)
    assert numbers(columns.timestamps) == [0, 17_000, -1000]


# --- memory -----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=12))
@on_both_codecs
def test_columns_that_are_held_do_not_change_when_memory_is_used_again(
    codec: RecordCodec, batches: list[tuple[int, bool]]
) -> None:
    """Blocks of large columns that were let go serve later ones (the native codec's)."""
    held: list[tuple[BytesColumn, bytes]] = []
    for number, (pieces, is_kept) in enumerate(batches):
        value = bytes([number]) * (70_000 * pieces)
        batch = build_batch([NewRecord(0, None, value, ())] * 3)
        header = read_header(batch)
        columns = codec.decode_columns([source_of(header, payload_of(batch, header))])
        assert columns.values is not None
        assert bytes(columns.values.data) == value * 3
        if is_kept:
            held.append((columns.values, value))
        elif held:
            held.pop(0)
        del columns
    for column, value in held:
        assert bytes(column.data) == value * 3
