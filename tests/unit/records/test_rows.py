"""Rows on their way into batches: measured, hashed and sorted by key, alike by both twins."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.records import _codec_pure as pure
from moldau.records.codec import RecordCodec
from moldau.records.record import RECORD_OVERHEAD_BYTES, NewRecord, Record, RecordRow

# From Kafka's own UtilsTest.
JAVA_VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]

contents = st.none() | st.binary(max_size=12)
rows = st.lists(
    st.builds(
        NewRecord,
        st.integers(-(1 << 63), (1 << 63) - 1),
        contents,
        contents,
        st.lists(st.tuples(st.text(max_size=4), contents), max_size=3).map(tuple),
    ),
    max_size=8,
)


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS)
def test_murmur2_equals_javas_on_the_published_vectors(
    codec: RecordCodec, key: bytes, expected: int
) -> None:
    assert codec.murmur2(key) == expected


@given(st.binary(max_size=40))
def test_the_twins_agree_on_any_key(key: bytes) -> None:
    native = pytest.importorskip("moldau.records._codec_native")
    assert native.murmur2(key) == pure.murmur2(key)
    for count in (1, 7, 1000):
        assert native.partition_for_key(key, count) == pure.partition_for_key(key, count)


@settings(deadline=None)
@given(rows, st.integers(1, 5), st.integers(0, 4), st.integers(0, 200))
def test_the_twins_agree_on_any_rows(
    given_rows: list[RecordRow], count: int, start: int, limit: int
) -> None:
    native = pytest.importorskip("moldau.records._codec_native")
    assert native.split_by_key(given_rows, count) == pure.split_by_key(given_rows, count)
    assert list(map(native.row_size, given_rows)) == list(map(pure.row_size, given_rows))
    start = min(start, len(given_rows))
    assert native.count_fitting(given_rows, start, limit) == pure.count_fitting(
        given_rows, start, limit
    )
    if given_rows:
        assert native.find_timestamps(given_rows) == pure.find_timestamps(given_rows)


@pytest.mark.parametrize("key", [b"", b"x", b"21"])
def test_the_sign_of_a_hash_is_dropped_before_the_modulo(codec: RecordCodec, key: bytes) -> None:
    expected = (codec.murmur2(key) & 0x7FFFFFFF) % 10
    assert codec.partition_for_key(key, 10) == expected


def test_rows_are_sorted_by_their_keys_and_the_keyless_come_last(codec: RecordCodec) -> None:
    keys = [b"a", None, b"b", b"a", None]
    given_rows: list[RecordRow] = [(n, key, None, ()) for n, key in enumerate(keys)]
    parts = codec.split_by_key(given_rows, 4)
    assert len(parts) == 5
    assert parts[4] == [given_rows[1], given_rows[4]]
    assert parts[codec.partition_for_key(b"a", 4)][:1] == [given_rows[0]]
    assert sum(map(len, parts)) == 5


def test_a_size_is_that_of_the_contents_and_some_more(codec: RecordCodec) -> None:
    assert codec.row_size((0, None, None, ())) == RECORD_OVERHEAD_BYTES
    assert codec.row_size((0, b"key", b"value", ())) == RECORD_OVERHEAD_BYTES + 8
    with_headers = codec.row_size((0, None, None, (("größe", b"12"), ("n", None))))
    assert with_headers == RECORD_OVERHEAD_BYTES + (10 + 7 + 2) + (10 + 1)


@settings(deadline=None)
@given(rows.filter(bool))
def test_a_size_is_close_to_what_is_written(given_rows: list[RecordRow]) -> None:
    close = [(1000 + n, *row[1:]) for n, row in enumerate(given_rows)]
    estimate = sum(map(pure.row_size, close))
    written = len(pure.encode_records(close, 1000))
    assert written <= estimate <= written + 20 * len(close) * 4


def test_any_tuple_that_ends_like_a_record_is_a_row(codec: RecordCodec) -> None:
    record = Record(17, 5, b"k", b"v")
    assert codec.row_size(record) == codec.row_size((5, b"k", b"v", ()))
    assert codec.find_timestamps([record]) == (5, 5)


@pytest.mark.parametrize("nonsense", [(1, 2, 3), [0, None, None, ()], None])
def test_what_is_no_row_is_refused(codec: RecordCodec, nonsense: object) -> None:
    for act in (
        lambda: codec.row_size(nonsense),  # type: ignore[arg-type]
        lambda: codec.count_fitting([nonsense], 0, 100),  # type: ignore[list-item]
        lambda: codec.split_by_key([nonsense], 3),  # type: ignore[list-item]
        lambda: codec.find_timestamps([nonsense]),  # type: ignore[list-item]
    ):
        with pytest.raises((TypeError, ValueError), match="a row"):
            act()


def test_a_topic_has_at_least_one_partition(codec: RecordCodec) -> None:
    with pytest.raises(ValueError, match="0 partitions"):
        codec.partition_for_key(b"k", 0)
    with pytest.raises(ValueError, match="0 partitions"):
        codec.split_by_key([], 0)


def test_the_highest_timestamp_need_not_be_the_last(codec: RecordCodec) -> None:
    given_rows: list[RecordRow] = [(time, None, None, ()) for time in (5, 9, 7)]
    assert codec.find_timestamps(given_rows) == (5, 9)
    with pytest.raises(ValueError, match="no row"):
        codec.find_timestamps([])


def test_as_many_rows_are_taken_as_fit(codec: RecordCodec) -> None:
    size = codec.row_size((0, None, b"12345", ()))
    given_rows: list[RecordRow] = [(0, None, b"12345", ())] * 5
    assert codec.count_fitting(given_rows, 0, 3 * size) == (3, 3 * size)
    assert codec.count_fitting(given_rows, 0, 3 * size - 1) == (2, 2 * size)
    assert codec.count_fitting(given_rows, 3, 100 * size) == (2, 2 * size)
    assert codec.count_fitting(given_rows, 0, 0) == (0, 0)
    assert codec.count_fitting(given_rows, 5, 100) == (0, 0)


def test_rows_are_made_of_values_and_keys(codec: RecordCodec) -> None:
    headers = (("h", b"1"),)
    assert codec.make_rows([b"v", None], None, 5, headers) == [
        (5, None, b"v", headers),
        (5, None, None, headers),
    ]
    buffers = [bytearray(b"v"), memoryview(b"w")]
    made = codec.make_rows(buffers, [b"k", None], 5, ())  # type: ignore[arg-type]
    assert made == [(5, b"k", b"v", ()), (5, None, b"w", ())]
    assert all(type(row[-2]) is bytes for row in made)


def test_rows_survive_the_garbage_collector(codec: RecordCodec) -> None:
    made = codec.make_rows([b"%d" % n for n in range(5_000)], None, 5, ())
    gc.collect()
    assert [row[-2] for row in made] == [b"%d" % n for n in range(5_000)]


@pytest.mark.parametrize(
    ("values", "keys", "error"),
    [
        ([b"fine", "text"], None, "value 1 is str, not bytes"),
        ([b"fine"], [5], "key 0 is int, not bytes"),
    ],
)
def test_what_is_not_bytes_is_named_by_its_place(
    codec: RecordCodec, values: list[bytes | None], keys: list[bytes | None] | None, error: str
) -> None:
    with pytest.raises(TypeError, match=error):
        codec.make_rows(values, keys, 5, ())


def test_there_are_as_many_keys_as_values(codec: RecordCodec) -> None:
    with pytest.raises(ValueError, match="2 values and 1 keys"):
        codec.make_rows([b"1", b"2"], [b"1"], 5, ())


def test_a_timestamp_has_64_bits(codec: RecordCodec) -> None:
    with pytest.raises(OverflowError):
        codec.make_rows([b"v"], None, 1 << 63, ())
