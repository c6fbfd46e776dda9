"""Arrow columns as records: whatever Arrow makes of the rows, the same rows are encoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.arrow.columns import HEADERS
from moldau.arrow.outgoing import find_bounds, to_batches, to_encoder, to_rows
from moldau.errors import ConfigurationError
from moldau.records.codec import decode_records
from moldau.records.record import NewRecord

NOW_MS = 1_700_000_000_000
NO_LIMIT = 1 << 40

small = st.none() | st.binary(max_size=9)
some_rows = st.lists(
    st.builds(
        NewRecord,
        st.integers(0, 1 << 50),
        small,
        small,
        st.lists(st.tuples(st.text(max_size=3), small), max_size=2).map(tuple),
    ),
    max_size=40,
)


def headers_array(rows: Sequence[NewRecord]) -> pa.Array:
    lists = [[{"key": k, "value": v} for k, v in row.headers] or None for row in rows]
    return pa.array(lists, HEADERS)


def batch_of(rows: Sequence[NewRecord]) -> pa.RecordBatch:
    columns = {
        "key": pa.array([row.key for row in rows], pa.binary()),
        "value": pa.array([row.value for row in rows], pa.binary()),
        "timestamp": pa.array([row.timestamp_ms for row in rows], pa.timestamp("ms", tz="UTC")),
        "headers": headers_array(rows),
    }
    return pa.RecordBatch.from_pydict(columns)


def encode(batch: pa.RecordBatch) -> list[NewRecord]:
    output = bytearray()
    encoder = to_encoder(batch, NOW_MS)
    count, *_ = encoder.append_to(output, 0, None, 0, NO_LIMIT, 0)
    assert count == batch.num_rows
    return [NewRecord(*record[1:]) for record in decode_records(output, count, 0, 0)]


@given(some_rows, st.integers(0, 40), st.integers(0, 40))
@settings(deadline=None)
def test_the_rows_of_a_slice_are_encoded(rows: list[NewRecord], start: int, length: int) -> None:
    piece = batch_of(rows).slice(start, length)
    assert encode(piece) == rows[start : start + length]


@given(some_rows, st.integers(0, 40))
@settings(deadline=None)
def test_rows_one_by_one_are_the_same(rows: list[NewRecord], start: int) -> None:
    (found,) = to_rows(batch_of(rows).slice(start), keep_keys=False, keep_values=False)
    assert found == (None, rows[start:])


TEXTS = ["a", "", None, "Vltava ž", "a"]


def words_of(kind: pa.DataType) -> pa.Array:
    """As Polars gives a column of few words."""
    indices = pa.array([1, 2, None, 0, 1], pa.uint32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(["Vltava ž", "a", ""]).cast(kind))


@pytest.mark.parametrize(
    "make",
    [
        lambda: pa.array(TEXTS, pa.string()),
        lambda: pa.array(TEXTS, pa.large_string()),
        lambda: pa.array(TEXTS, pa.string_view()),
        lambda: pa.array(TEXTS).dictionary_encode(),
        lambda: words_of(pa.string_view()),
        lambda: words_of(pa.large_binary()),
        lambda: pa.array([one and one.encode() for one in TEXTS], pa.large_binary()),
        lambda: pa.array([one and one.encode() for one in TEXTS], pa.binary_view()),
    ],
)
def test_text_of_every_kind_is_bytes(make: Callable[[], pa.Array]) -> None:
    batch = pa.record_batch({"value": make(), "key": make()})
    expected = [None if one is None else one.encode() for one in TEXTS]
    for piece, wanted in ((batch, expected), (batch.slice(2, 2), expected[2:4])):
        assert [(row.key, row.value) for row in encode(piece)] == [(x, x) for x in wanted]


def test_values_of_a_fixed_size_and_columns_of_nothing_are_taken() -> None:
    batch = pa.record_batch(
        {
            "value": pa.array([b"ab", None], pa.binary(2)),
            "key": pa.nulls(2),
            "partition": pa.nulls(2),
        }
    )
    assert [(row.key, row.value) for row in encode(batch)] == [(None, b"ab"), (None, None)]
    assert find_bounds(batch) is None


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Prague"])
def test_times_of_every_unit_are_milliseconds(unit: str, zone: str | None) -> None:
    times = pa.array([NOW_MS, None], pa.timestamp("ms")).cast(pa.timestamp(unit), safe=False)
    batch = pa.record_batch(
        {"value": ["x", "y"], "timestamp": times.cast(pa.timestamp(unit, zone))}
    )
    assert [row.timestamp_ms for row in encode(batch)] == [NOW_MS, NOW_MS]


def test_whole_numbers_are_milliseconds() -> None:
    batch = pa.record_batch({"value": ["x"], "timestamp": pa.array([7], pa.int32())})
    assert [row.timestamp_ms for row in encode(batch)] == [7]


def test_headers_may_be_named_otherwise_inside_of_their_list() -> None:
    kind = pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]), False)
    )
    lists = pa.array([[{"key": "a", "value": None}], []], kind)
    found = encode(pa.record_batch({"value": ["x", "y"], "headers": lists}))
    assert [row.headers for row in found] == [(("a", None),), ()]


def test_where_no_row_has_headers_their_columns_may_have_no_offset_at_all() -> None:
    """As Java writes arrays without rows, and so Spark."""
    nothing = pa.py_buffer(b"")
    names, contents = (
        pa.Array.from_buffers(kind, 0, [None, nothing, nothing])
        for kind in (pa.string(), pa.binary())
    )
    headers = pa.StructArray.from_arrays([names, contents], ["key", "value"])
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), headers)
    found = encode(pa.record_batch({"value": ["x", "y"], "headers": lists}))
    assert [(row.value, row.headers) for row in found] == [(b"x", ()), (b"y", ())]


def test_a_header_that_is_null_has_no_name() -> None:
    batch = pa.record_batch({"value": ["x"], "headers": pa.array([[None]], HEADERS)})
    with pytest.raises(TypeError, match="a header's name is text, not NoneType"):
        encode(batch)


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ({"key": ["a"]}, ConfigurationError, "a column 'value' is needed, there is key"),
        ({"value": [1]}, TypeError, "the column 'value' is int64, it has to be binary or string"),
        ({"value": ["a"], "key": [1.5]}, TypeError, "the column 'key' is double"),
        ({"value": ["a"], "headers": ["b"]}, TypeError, "the column 'headers' is string"),
        ({"value": ["a"], "partition": ["0"]}, TypeError, "the column 'partition' is string"),
        ({"value": ["a"], "partition": [1 << 40]}, ValueError, "the column 'partition' has a numb"),
        ({"value": ["a"], "timestamp": ["0"]}, TypeError, "the column 'timestamp' is string"),
        ({"value": ["a"], "timestamp": [-5]}, ValueError, "milliseconds since 1970, not -5"),
    ],
)
def test_a_column_of_another_kind_is_refused_by_its_name(
    columns: dict[str, list[object]], kind: type[Exception], message: str
) -> None:
    batch = pa.record_batch({name: pa.array(one) for name, one in columns.items()})
    with pytest.raises(kind, match=message):
        to_encoder(batch, NOW_MS)


def test_the_bounds_of_partitions_leave_out_what_is_null() -> None:
    batch = pa.record_batch({"value": ["a"] * 3, "partition": pa.array([4, None, -1], pa.int64())})
    assert find_bounds(batch) == (-1, 4)


def test_rows_that_look_at_each_are_parted_by_the_partition_they_name() -> None:
    batch = pa.record_batch({"value": ["a", "b", "c"], "partition": pa.array([1, None, 1])})
    found = {one.partition: one.rows for one in to_rows(batch, keep_keys=True, keep_values=True)}
    assert {key: [row[2] for row in rows] for key, rows in found.items()} == {
        1: ["a", "c"],
        None: ["b"],
    }


def test_whatever_hands_over_columns_is_a_table() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"value": ["a", "b"], "key": ["k", None]})
    found = [row for piece in to_batches(frame) for row in encode(piece)]
    assert [(row.key, row.value) for row in found] == [(b"k", b"a"), (None, b"b")]


def test_chunks_are_pieces_and_empty_ones_are_left_out() -> None:
    table = pa.concat_tables(
        [pa.table({"value": ["a"]}), pa.table({"value": pa.array([], "string")})]
    )
    assert [piece.num_rows for piece in to_batches(table)] == [1]
    assert to_batches(pa.record_batch({"value": pa.array([], "string")})) == []


@pytest.mark.parametrize("given_object", [None, ["a"], {"value": ["a"]}, b"a"])
def test_what_is_no_table_is_refused(given_object: object) -> None:
    with pytest.raises(TypeError, match="table: give an Arrow table"):
        to_batches(given_object)
