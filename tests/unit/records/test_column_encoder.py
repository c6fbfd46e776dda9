"""Columns that become records without being looked at one by one, alike by both record codecs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.errors import MoldauError
from moldau.records import _codec_pure as pure
from moldau.records.codec import ColumnEncoding, RecordCodec, row_size
from moldau.records.columns import BytesColumn, HeadersColumn, NumbersColumn
from moldau.records.lines import PackedRows
from moldau.records.record import NewRecord, RecordRow
from moldau.records.record_batch import build_batch

on_both_codecs = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
NO_LIMIT = 1 << 40
NOW_MS = 1_000

small = st.none() | st.binary(max_size=12) | st.just(bytes(200))
rows_of_columns = st.lists(
    st.builds(
        NewRecord,
        st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300),
        small,
        small,
        st.lists(st.tuples(st.text(max_size=4), small), max_size=3).map(tuple),
    ),
    max_size=20,
)


# --- columns, as Arrow would have them ---------------------------------------------------------


def bits(given: Sequence[object]) -> bytes | None:
    """A bit for each that is not None; nothing where all are there."""
    if None not in given:
        return None
    found = bytearray((len(given) + 7) // 8)
    for place, one in enumerate(given):
        found[place // 8] |= (one is not None) << place % 8
    return bytes(found)


def texts(given: Sequence[bytes | None]) -> BytesColumn:
    offsets = accumulate((len(one or b"") for one in given), initial=0)
    data = b"".join(one or b"" for one in given)
    packed = struct.pack(f"={len(given) + 1}i", *offsets)
    return BytesColumn(given.count(None), bits(given), packed, data)


def numbers(given: Sequence[int | None], letter: str) -> NumbersColumn:
    return NumbersColumn(
        bits(given), struct.pack(f"={len(given)}{letter}", *(n or 0 for n in given))
    )


def headers_of(rows: Sequence[RecordRow]) -> HeadersColumn:
    pairs = [pair for row in rows for pair in row[-1]]
    offsets = accumulate((len(row[-1]) for row in rows), initial=0)
    validity = bits([row[-1] or None for row in rows])
    packed = struct.pack(f"={len(rows) + 1}i", *offsets)
    names = texts([name.encode("utf-8", "surrogateescape") for name, _ in pairs])
    return HeadersColumn(
        0, validity, packed, len(pairs), names, texts([value for _, value in pairs])
    )


def encoder(
    codec: RecordCodec, rows: Sequence[RecordRow], partitions: Sequence[int | None] | None = None
) -> ColumnEncoding:
    return codec.ColumnEncoder(
        len(rows),
        values=texts([row[-2] for row in rows]),
        keys=texts([row[-3] for row in rows]),
        headers=headers_of(rows),
        timestamps=numbers([row[-4] for row in rows], "q"),
        partitions=None if partitions is None else numbers(partitions, "i"),
    )


# --- encoding ----------------------------------------------------------------------------------


@given(rows_of_columns, st.integers(0, 700), st.integers(0, 20_000), st.data())
@on_both_codecs
def test_as_many_rows_as_fit_are_encoded_behind_what_is_there(
    codec: RecordCodec, rows: list[NewRecord], limit_bytes: int, first: int, data: st.DataObject
) -> None:
    wanted = data.draw(st.lists(st.integers(0, max(len(rows) - 1, 0)), max_size=30 * len(rows)))
    base = data.draw(st.none() | st.integers(-(1 << 63), (1 << 63) - 1))
    columns, output = encoder(codec, rows), bytearray(b"before")
    listed = struct.pack(f"={len(wanted)}i", *wanted)
    start = data.draw(st.integers(0, len(wanted)))
    count, size_bytes, end, base_found, highest = columns.append_to(
        output, first, listed, start, limit_bytes, base
    )
    chosen = [rows[number] for number in wanted[start:]]
    taken, expected = chosen[:count], bytearray(b"before")
    codec.append_rows(expected, first, taken, base_found)
    assert output == expected
    assert (end, size_bytes) == (start + count, sum(map(row_size, taken)))
    assert size_bytes <= limit_bytes
    if count < len(chosen):  # there was no room for the next one
        assert size_bytes + row_size(chosen[count]) > limit_bytes
        assert columns.row_size(wanted[end]) == row_size(chosen[count])
    if taken:
        assert base_found == (taken[0].timestamp_ms if base is None else base)
        assert highest == max(row.timestamp_ms for row in taken)


@given(rows_of_columns)
@on_both_codecs
def test_without_a_list_all_rows_are_meant(codec: RecordCodec, rows: list[NewRecord]) -> None:
    output, expected = bytearray(), bytearray()
    found = encoder(codec, rows).append_to(output, 0, None, 0, NO_LIMIT, 0)
    codec.append_rows(expected, 0, rows, 0)
    assert (found[0], output) == (len(rows), expected)


def test_columns_that_are_not_there_are_null_and_have_the_time_that_is_given(
    codec: RecordCodec,
) -> None:
    some = numbers([None, 7], "q")
    columns = codec.ColumnEncoder(2, values=None, timestamps=some, timestamp_ms=NOW_MS)
    output = bytearray()
    assert columns.append_to(output, 0, None, 0, NO_LIMIT, None) == (2, 24, 2, NOW_MS, NOW_MS)
    found = codec.decode_records(output, 2, 0, NOW_MS)
    assert [record[1:] for record in found] == [(NOW_MS, None, None, ()), (7, None, None, ())]


def test_large_values_and_many_of_them_are_encoded(codec: RecordCodec) -> None:
    values = [bytes([65 + number % 26]) * (number * 37 % 3000) for number in range(300)]
    values.append(bytes(300_000))
    columns = codec.ColumnEncoder(len(values), values=texts(values))
    packed = PackedRows()
    assert packed.append_columns(columns, None, 0, NO_LIMIT)[0] == len(values)
    assert [record.value for record in packed[0:]] == values


# --- partitions --------------------------------------------------------------------------------


@given(rows_of_columns, st.integers(1, 9), st.booleans(), st.data())
@on_both_codecs
def test_rows_go_where_they_say_or_where_their_key_belongs(
    codec: RecordCodec, rows: list[NewRecord], count: int, ignores_keys: bool, data: st.DataObject
) -> None:
    named = data.draw(
        st.lists(st.none() | st.integers(0, count - 1), min_size=len(rows), max_size=len(rows))
    )
    ordered, ends = encoder(codec, rows, named).split(count, ignores_keys)
    expected: list[list[int]] = [[] for _ in range(count + 1)]
    for number, (row, partition) in enumerate(zip(rows, named, strict=True)):
        if partition is None and row.key is not None and not ignores_keys:
            partition = codec.partition_for_key(row.key, count)
        expected[count if partition is None else partition].append(number)
    found = list(memoryview(ordered).cast("i")) if ordered else []
    starts = [0, *ends]
    assert [found[start:end] for start, end in zip(starts, ends, strict=False)] == expected


@pytest.mark.parametrize("named", [-1, 3, 2**31 - 1])
def test_a_partition_that_is_not_there_is_refused(codec: RecordCodec, named: int) -> None:
    columns = encoder(codec, [NewRecord(0, None, b"a", ())], [named])
    with pytest.raises(ValueError, match=f"row 0 names partition {named} of 3"):
        columns.split(3)


# --- columns that are not what they say ---------------------------------------------------------


any_bytes = st.binary(max_size=40) | st.lists(st.integers(-2, 9), max_size=8).map(
    lambda found: struct.pack(f"={len(found)}i", *found)
)
any_texts = st.builds(BytesColumn, st.just(0), st.none() | any_bytes, any_bytes, any_bytes)
any_headers = st.builds(
    HeadersColumn,
    st.just(0),
    st.none() | any_bytes,
    any_bytes,
    st.integers(-1, 4),
    any_texts,
    any_texts,
)
any_numbers = st.builds(NumbersColumn, st.none() | any_bytes, any_bytes)


@given(
    st.integers(-1, 6),
    st.fixed_dictionaries(
        {"values": st.none() | any_texts},
        optional={
            "keys": any_texts,
            "headers": any_headers,
            "timestamps": any_numbers,
            "partitions": any_numbers,
        },
    ),
    st.none() | any_bytes,
    st.integers(-1, 8),
    st.integers(0, 200),
)
@settings(deadline=None, max_examples=500)
def test_the_twins_agree_on_any_bytes(
    row_count: int, given_columns: dict[str, object], rows: bytes | None, start: int, limit: int
) -> None:
    native = pytest.importorskip("moldau.records._codec_native")

    def outcome_of(codec: RecordCodec) -> list[object]:
        def build() -> ColumnEncoding:
            return codec.ColumnEncoder(row_count, **given_columns)  # type: ignore[arg-type]

        first, second = bytearray(b"before"), bytearray(b"before")
        return [
            attempt(lambda: build().append_to(first, 3, rows, start, limit, None)),
            attempt(lambda: build().append_to(second, 3, None, start, limit, 5)),
            attempt(lambda: build().split(3)),
            attempt(lambda: build().row_size(start)),
            first,
            second,
        ]

    assert outcome_of(pure) == outcome_of(native)


def attempt(work: Callable[[], object]) -> object:
    try:
        return work()
    except (ValueError, IndexError, TypeError, MoldauError) as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    ("first", "end"), [(-1, 1), (2, 1), (0, 4), (2**31 - 1, 2**31 - 1), (-(2**31), 0)]
)
def test_a_row_outside_of_its_data_is_refused_and_nothing_is_written(
    codec: RecordCodec, first: int, end: int
) -> None:
    bad = BytesColumn(0, None, struct.pack("=2i", first, end), b"abc")
    columns = codec.ColumnEncoder(1, values=bad)
    output = bytearray(b"before")
    with pytest.raises(ValueError, match="row 0 lies outside of its column"):
        columns.append_to(output, 0, None, 0, NO_LIMIT, None)
    assert output == b"before"


def test_rows_before_one_that_is_wrong_are_encoded(codec: RecordCodec) -> None:
    bad = BytesColumn(0, None, struct.pack("=4i", 0, 1, 2, 9), b"abc")
    columns = codec.ColumnEncoder(3, values=bad)
    output = bytearray()
    assert columns.append_to(output, 0, None, 0, NO_LIMIT, 0)[:3] == (2, 26, 2)
    assert [record.value for record in codec.decode_records(output, 2, 0, 0)] == [b"a", b"b"]
    with pytest.raises(ValueError, match="row 2 lies outside of its column"):
        columns.append_to(output, 2, None, 2, NO_LIMIT, 0)


def test_a_header_without_a_name_is_refused(codec: RecordCodec) -> None:
    names, contents = texts([None]), texts([b"x"])
    headers = HeadersColumn(0, None, struct.pack("=2i", 0, 1), 1, names, contents)
    columns = codec.ColumnEncoder(1, values=texts([b"v"]), headers=headers)
    with pytest.raises(TypeError, match="a header's name is text, not NoneType"):
        columns.row_size(0)


# --- batches -----------------------------------------------------------------------------------


@given(st.lists(rows_of_columns, max_size=3), rows_of_columns)
@on_both_codecs
def test_packed_rows_of_columns_are_the_same_batch(
    codec: RecordCodec, parts: list[list[NewRecord]], single: list[NewRecord]
) -> None:
    packed = PackedRows(single)
    for rows in parts:
        packed.append_columns(encoder(codec, rows), None, 0, NO_LIMIT)
    expected: list[RecordRow] = [*single, *(row for rows in parts for row in rows)]
    assert len(packed) == len(expected)
    if expected:
        assert build_batch(packed, producer_id=7) == build_batch(expected, producer_id=7)
