"""Lines that become records without being looked at one by one, alike by both record codecs."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.records import _codec_pure as pure
from moldau.records.batch_header import read_header
from moldau.records.codec import RecordCodec
from moldau.records.compression import Codec
from moldau.records.lines import PackedRows, TextLines
from moldau.records.record import RECORD_OVERHEAD_BYTES, NewRecord, Record, RecordRow
from moldau.records.record_batch import build_batch, records_of

on_both_codecs = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
texts = st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\xff", b"\x00" * 70]), max_size=40).map(
    b"".join
)
deltas = st.integers(-(1 << 63), (1 << 63) - 1)
NO_LIMIT = 1 << 40


@given(texts, st.integers(0, 400), st.integers(0, 20_000), deltas)
@on_both_codecs
def test_as_many_lines_as_fit_are_encoded_behind_what_is_there(
    codec: RecordCodec, text: bytes, limit_bytes: int, first_index: int, delta: int
) -> None:
    output = bytearray(b"before")
    count, size_bytes, end = codec.append_lines(output, first_index, text, 0, limit_bytes, delta)
    lines = list(TextLines(text))
    taken = lines[:count]
    expected = bytearray(b"before")
    rows: list[RecordRow] = [NewRecord(delta, None, line, ()) for line in taken]
    codec.append_rows(expected, first_index, rows, 0)
    assert output == expected
    assert size_bytes == sum(RECORD_OVERHEAD_BYTES + len(line) for line in taken) <= limit_bytes
    if count < len(lines):  # there was no room for the next one
        assert size_bytes + RECORD_OVERHEAD_BYTES + len(lines[count]) > limit_bytes
    assert list(TextLines(text[end:])) == lines[count:]


@given(texts, st.integers(0, 400), deltas)
@on_both_codecs
def test_the_twins_agree_on_any_text(text: bytes, limit_bytes: int, delta: int) -> None:
    native = pytest.importorskip("moldau.records._codec_native")
    ours, theirs = bytearray(), bytearray()
    for start in range(len(text) + 2):
        found = pure.append_lines(ours, 7, text, start, limit_bytes, delta)
        assert native.append_lines(theirs, 7, text, start, limit_bytes, delta) == found
    assert ours == theirs


def test_long_lines_and_many_of_them_are_encoded(codec: RecordCodec) -> None:
    lines = [bytes([65 + number % 26]) * (number * 37 % 3000) for number in range(300)]
    text = b"".join(line + b"\n" for line in [*lines, bytes(300_000)])
    output = bytearray()
    count, _, end = codec.append_lines(output, 0, text, 0, NO_LIMIT, 0)
    assert (count, end) == (301, len(text))
    found = codec.decode_records(output, 301, 0, 0)
    assert [record.value for record in found] == [*lines, bytes(300_000)]


def test_a_place_before_the_text_is_refused_by_no_twin_with_a_crash(codec: RecordCodec) -> None:
    assert codec.append_lines(bytearray(), 0, b"a\n", 3, NO_LIMIT, 0) == (0, 0, 3)


def test_a_row_that_cannot_be_encoded_leaves_nothing_behind(codec: RecordCodec) -> None:
    output = bytearray(b"before")
    with pytest.raises(TypeError):
        codec.append_rows(output, 0, [(0, None, b"good", ()), (0, None, 7, ())], 0)  # type: ignore[list-item]
    assert output == b"before"


@given(texts)
def test_a_text_is_split_at_line_ends(text: bytes) -> None:
    lines = TextLines(text)
    expected = [line.removesuffix(b"\r") for line in text.split(b"\n")[:-1]]
    assert list(lines) == expected
    assert len(lines) == len(expected)
    assert lines[1:3] == expected[1:3]


def test_other_ends_are_exact() -> None:
    assert list(TextLines(b"a\r--b\n--", b"--")) == [b"a\r", b"b\n"]
    assert len(TextLines(b"xaaaa", b"aa")) == 2


rows_and_texts = st.lists(
    st.tuples(st.integers(0, 1 << 40), texts)
    | st.builds(
        NewRecord,
        st.integers(0, 1 << 40),
        st.none() | st.binary(max_size=5),
        st.none() | st.binary(max_size=5),
        st.just(()) | st.just((("name", b"value"),)),
    ),
    max_size=6,
)


@given(rows_and_texts)
@settings(deadline=None)
def test_packed_rows_are_what_was_put_in(parts: list[NewRecord | tuple[int, bytes]]) -> None:
    packed = PackedRows()
    expected: list[RecordRow] = []
    for part in parts:
        if isinstance(part, NewRecord):
            packed.append(part)
            expected.append(part)
        else:
            timestamp_ms, text = part
            packed.append_lines(text, 0, NO_LIMIT, timestamp_ms)
            expected += [NewRecord(timestamp_ms, None, line, ()) for line in TextLines(text)]
    assert len(packed) == len(expected)
    assert [NewRecord(*row[1:]) for row in packed[0:]] == expected
    if expected:
        assert build_batch(packed, producer_id=7) == build_batch(expected, producer_id=7)


@pytest.mark.parametrize("codec_of_batch", list(Codec))
def test_packed_rows_make_a_batch_of_any_codec(codec_of_batch: Codec) -> None:
    packed = PackedRows([(5, None, b"a", ())])
    packed.append_lines(b"b\nc\r\n", 0, NO_LIMIT, 9)
    batch = build_batch(packed, codec=codec_of_batch)
    header = read_header(batch)
    assert (header.base_timestamp, header.max_timestamp) == (5, 9)
    assert list(records_of(batch, header)) == [
        Record(0, 5, None, b"a"),
        Record(1, 9, None, b"b"),
        Record(2, 9, None, b"c"),
    ]
