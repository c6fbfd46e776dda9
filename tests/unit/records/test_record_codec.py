"""One suite for both record codecs: `codec` is the native one, then the pure one."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.errors import InvalidRecordError
from moldau.records import _codec_pure
from moldau.records import codec as chooser
from moldau.records.batch_header import Buffer
from moldau.records.codec import RecordCodec
from moldau.records.record import NewRecord, Record
from moldau.records.record_faults import RecordFault

INT64_MAX = (1 << 63) - 1
INT64_MIN = -(1 << 63)

on_both_codecs = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


# --- records by hand --------------------------------------------------------------------------


def varint(value: int) -> bytes:
    raw = value * 2 if value >= 0 else -value * 2 - 1
    encoded = bytearray()
    while raw >= 0x80:
        encoded.append(raw % 0x80 + 0x80)
        raw //= 0x80
    return bytes(encoded) + bytes([raw])


def sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def body(
    *,
    attributes: bytes = b"\x00",
    timestamp_delta: bytes = varint(0),
    offset_delta: bytes = varint(0),
    key: bytes = sized(b"key"),
    value: bytes = sized(b"value"),
    headers: bytes = varint(0),
) -> bytes:
    return attributes + timestamp_delta + offset_delta + key + value + headers


def record(offset_delta: int = 0, **fields: bytes) -> bytes:
    return sized(body(offset_delta=varint(offset_delta), **fields))


# --- walking ----------------------------------------------------------------------------------


def test_sound_records_have_no_fault(codec: RecordCodec) -> None:
    headers = varint(2) + sized(b"a") + sized(None) + sized(b"") + sized(b"x" * 300)
    payload = record(0) + record(1, key=sized(None), value=sized(None)) + record(2, headers=headers)

    assert codec.find_fault(payload, 3, False) is None


def test_no_records_in_no_bytes_are_sound(codec: RecordCodec) -> None:
    assert codec.find_fault(b"", 0, True) is None
    assert codec.decode_records(b"", 0, 5, 5) == []
    assert codec.encode_records([], 0) == b""


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("value_bytes", [10, 300_000], ids=["small", "large"])
def test_any_buffer_can_be_walked(
    codec: RecordCodec, view: Callable[[bytes], Buffer], value_bytes: int
) -> None:
    payload = record(0) + record(1, value=sized(bytes(value_bytes)))

    assert codec.find_fault(view(payload), 2, True) is None
    assert codec.find_fault(view(payload + b"!"), 2, True) is not None
    assert len(codec.decode_records(view(payload), 2, 0, 0)) == 2


def test_a_part_of_a_buffer_can_be_walked(codec: RecordCodec) -> None:
    frame = b"before" + record(0) + b"after"

    assert codec.find_fault(memoryview(frame)[6:-5], 1, False) is None


def test_the_attributes_of_a_record_mean_nothing(codec: RecordCodec) -> None:
    assert codec.find_fault(record(attributes=b"\xff"), 1, False) is None


def test_a_varint_may_be_longer_than_needed_but_not_over_long(codec: RecordCodec) -> None:
    padded = body(
        timestamp_delta=b"\x80" * 9 + b"\x00",
        offset_delta=b"\x80\x80\x80\x80\x00",
        key=b"\x86\x80\x80\x80\x00key",
    )

    assert codec.find_fault(varint(len(padded)) + padded, 1, True) is None
    assert codec.decode_records(sized(padded), 1, 7, 9)[0][:3] == (7, 9, b"key")


def test_bits_beyond_those_of_a_varint_are_lost_as_in_java(codec: RecordCodec) -> None:
    payload = record(
        0, key=b"\x86\x80\x80\x80\x70key", timestamp_delta=b"\x82" + b"\x80" * 8 + b"~"
    )

    (decoded,) = codec.decode_records(payload, 1, 0, 10)
    assert (decoded.key, decoded.timestamp_ms) == (b"key", 11)


FIVE = b"\xff" * 5 + b"\x00"
TEN = b"\xff" * 10 + b"\x00"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        pytest.param(b"", "there are no bytes left for it", id="nothing"),
        pytest.param(b"\x80", "the record length is cut short", id="half a length"),
        pytest.param(FIVE, "the record length is an over-long varint", id="over-long length"),
        pytest.param(varint(-1), "the record length is -1", id="null record"),
        pytest.param(varint(-500), "the record length is -500", id="negative record"),
        pytest.param(
            varint(4) + b"abc", "the record length is 4, but only 3 bytes follow", id="torn record"
        ),
        pytest.param(
            varint((1 << 31) - 1),
            "the record length is 2147483647, but only 0 bytes follow",
            id="huge record",
        ),
        pytest.param(varint(0), "the attributes byte is cut short", id="empty record"),
        pytest.param(sized(b"\x00"), "the timestamp delta is cut short", id="no timestamp"),
        pytest.param(sized(b"\x00\x80"), "the timestamp delta is cut short", id="half a timestamp"),
        pytest.param(
            record(timestamp_delta=TEN),
            "the timestamp delta is an over-long varint",
            id="over-long timestamp",
        ),
        pytest.param(sized(b"\x00\x00"), "the offset delta is cut short", id="no offset"),
        pytest.param(
            sized(body(offset_delta=FIVE)),
            "the offset delta is an over-long varint",
            id="over-long offset",
        ),
        pytest.param(record(1), "the offset delta is 1 where 0 is due", id="wrong offset"),
        pytest.param(record(-1), "the offset delta is -1 where 0 is due", id="negative offset"),
        pytest.param(sized(b"\x00\x00\x00"), "the key length is cut short", id="no key length"),
        pytest.param(record(key=FIVE), "the key length is an over-long varint", id="over-long key"),
        pytest.param(record(key=varint(-2)), "the key length is -2", id="negative key"),
        pytest.param(
            sized(b"\x00\x00\x00" + varint(9) + b"12345678"),
            "the key length is 9, but only 8 bytes follow",
            id="torn key",
        ),
        pytest.param(
            sized(b"\x00\x00\x00" + sized(None)), "the value length is cut short", id="no value"
        ),
        pytest.param(
            record(value=FIVE), "the value length is an over-long varint", id="over-long value"
        ),
        pytest.param(record(value=varint(-2)), "the value length is -2", id="negative value"),
        pytest.param(
            record(value=varint(100)),
            "the value length is 100, but only 1 bytes follow",
            id="torn value",
        ),
        pytest.param(record(headers=b""), "the header count is cut short", id="no header count"),
        pytest.param(
            record(headers=FIVE), "the header count is an over-long varint", id="over-long headers"
        ),
        pytest.param(record(headers=varint(-1)), "the header count is -1", id="negative headers"),
        pytest.param(
            record(headers=varint(2) + b"\x00"),
            "the header count is 2, but only 1 bytes follow",
            id="more headers than bytes",
        ),
        pytest.param(
            record(headers=varint(2) + sized(b"") + sized(b"")),
            "the header key length is cut short",
            id="missing header",
        ),
        pytest.param(
            record(headers=varint(1) + varint(-1) + sized(b"")),
            "the header key length is -1",
            id="null header key",
        ),
        pytest.param(
            record(headers=varint(1) + varint(3) + b"ab"),
            "the header key length is 3, but only 2 bytes follow",
            id="torn header key",
        ),
        pytest.param(
            record(headers=varint(1) + FIVE),
            "the header key length is an over-long varint",
            id="over-long header key",
        ),
        pytest.param(
            record(headers=varint(1) + sized(b"a")),
            "the header value length is cut short",
            id="no header value",
        ),
        pytest.param(
            record(headers=varint(1) + sized(b"a") + varint(-2)),
            "the header value length is -2",
            id="negative header value",
        ),
        pytest.param(
            record(headers=varint(1) + sized(b"a") + varint(3) + b"ab"),
            "the header value length is 3, but only 2 bytes follow",
            id="torn header value",
        ),
        pytest.param(
            record(headers=varint(1) + sized(b"a") + FIVE),
            "the header value length is an over-long varint",
            id="over-long header value",
        ),
        pytest.param(
            record(headers=varint(0) + b"xyz"),
            "3 bytes of the record are left over after its last header",
            id="left over in the record",
        ),
    ],
)
def test_every_fault_is_named(codec: RecordCodec, payload: bytes, reason: str) -> None:
    assert codec.find_fault(payload, 1, False) == RecordFault(0, reason)


def test_the_index_of_the_first_bad_record_is_told(codec: RecordCodec) -> None:
    payload = record(0) + record(1) + record(2, value=varint(-7)) + record(3, key=varint(-7))

    assert codec.find_fault(payload, 4, False) == RecordFault(2, "the value length is -7")


@pytest.mark.parametrize("deltas", [(0, 0), (0, 2), (1, 2), (1, 0), (0, 1, 1)])
def test_offset_deltas_are_nothing_but_consecutive(
    codec: RecordCodec, deltas: tuple[int, ...]
) -> None:
    payload = b"".join(record(delta) for delta in deltas)
    wrong = next(index for index, delta in enumerate(deltas) if index != delta)

    fault = codec.find_fault(payload, len(deltas), False)

    assert fault == RecordFault(wrong, f"the offset delta is {deltas[wrong]} where {wrong} is due")


def test_bytes_after_the_last_record_are_a_fault(codec: RecordCodec) -> None:
    payload = record(0) + record(1)

    assert codec.find_fault(payload, 1, False) == RecordFault(
        1, f"{len(record(1))} bytes are left over after the last record"
    )


def test_no_field_reaches_into_the_next_record(codec: RecordCodec) -> None:
    following = record(1, value=sized(bytes(200)))
    understated = varint(len(body()) - 1) + body()

    assert codec.find_fault(record(0, value=varint(100)) + following, 2, False) == RecordFault(
        0, "the value length is 100, but only 1 bytes follow"
    )
    assert codec.find_fault(understated + following, 2, False) == RecordFault(
        0, "the header count is cut short"
    )


def test_fewer_records_than_stated_are_a_fault(codec: RecordCodec) -> None:
    fault = codec.find_fault(record(0) + record(1), (1 << 31) - 1, False)

    assert fault == RecordFault(2, "there are no bytes left for it")


def test_a_negative_record_count_is_a_fault(codec: RecordCodec) -> None:
    assert codec.find_fault(b"", -1, False) == RecordFault(0, "the record count is -1")
    for read in (
        lambda: codec.decode_records(b"", -1, 0, 0),
        lambda: codec.find_first_at_or_after(b"", -1, 0, 0, 0),
    ):
        with pytest.raises(InvalidRecordError, match="record 0: the record count is -1"):
            read()


def test_a_missing_key_is_a_fault_only_where_keys_are_required(codec: RecordCodec) -> None:
    payload = record(0, key=sized(b"")) + record(1, key=sized(None))

    assert codec.find_fault(payload, 2, False) is None
    assert codec.find_fault(payload, 2, True) == RecordFault(1, "there is no key")


def test_a_record_cut_at_any_byte_is_a_fault(codec: RecordCodec) -> None:
    headers = varint(1) + sized(b"name") + sized(b"value")
    payload = record(0) + record(1, headers=headers, timestamp_delta=varint(10**15))

    for cut in range(len(payload)):
        assert codec.find_fault(payload[:cut], 2, False) is not None, cut
        with pytest.raises(InvalidRecordError):
            codec.decode_records(payload[:cut], 2, 0, 0)


# --- decoding ---------------------------------------------------------------------------------


def test_offsets_and_timestamps_count_from_the_base(codec: RecordCodec) -> None:
    payload = record(0, timestamp_delta=varint(-5)) + record(1, timestamp_delta=varint(7))

    records = codec.decode_records(payload, 2, 1000, 50)

    assert records == [
        Record(1000, 45, b"key", b"value", ()),
        Record(1001, 57, b"key", b"value", ()),
    ]
    assert all(type(decoded) is Record for decoded in records)
    assert hash(records[0]) == hash(Record(1000, 45, b"key", b"value", ()))


def test_the_log_append_time_replaces_every_timestamp(codec: RecordCodec) -> None:
    payload = record(0) + record(1, timestamp_delta=varint(7))

    assert [r.timestamp_ms for r in codec.decode_records(payload, 2, 0, 50, 99)] == [99, 99]


def test_null_and_empty_are_different(codec: RecordCodec) -> None:
    headers = varint(2) + sized(b"") + sized(None) + sized(b"n") + sized(b"")
    payload = record(0, key=sized(None), value=sized(b""), headers=headers)

    (decoded,) = codec.decode_records(payload, 1, 0, 0)

    assert (decoded.key, decoded.value) == (None, b"")
    assert decoded.headers == (("", None), ("n", b""))


def test_compacted_batches_with_gaps_are_decoded(codec: RecordCodec) -> None:
    records = codec.decode_records(record(3) + record(9), 2, 100, 0)

    assert [decoded.offset for decoded in records] == [103, 109]


def test_header_names_that_are_no_text_survive(codec: RecordCodec) -> None:
    name = b"\xff\xed\xa0\x80ok"
    payload = record(0, headers=varint(1) + sized(name) + sized(None))

    records = codec.decode_records(payload, 1, 0, 0)

    assert records[0].headers[0][0].encode("utf-8", "surrogateescape") == name
    assert codec.encode_records(records, 0) == payload


def test_sums_wrap_as_in_java(codec: RecordCodec) -> None:
    payload = record(1, timestamp_delta=varint(1))

    assert codec.decode_records(payload, 1, INT64_MAX, INT64_MAX)[0][:2] == (INT64_MIN, INT64_MIN)
    assert codec.find_first_at_or_after(payload, 1, INT64_MAX, INT64_MAX, 0) is None


def test_damage_is_told_with_the_record_and_the_reason(codec: RecordCodec) -> None:
    damaged = record(0) + record(1, key=varint(-2))

    with pytest.raises(InvalidRecordError, match=r"^record 1: the key length is -2$"):
        codec.decode_records(damaged, 2, 0, 0)
    with pytest.raises(InvalidRecordError, match=r"^record 1: the key length is -2$"):
        codec.find_first_at_or_after(damaged, 2, 0, 0, 1)
    with pytest.raises(InvalidRecordError, match=r"^record 1: .* left over after the last record$"):
        codec.decode_records(record(0) + b"!", 1, 0, 0)
    with pytest.raises(InvalidRecordError, match=r"^record 1: .* left over after the last record$"):
        codec.find_first_at_or_after(record(0) + b"!", 1, 0, 0, 1)


# --- finding by time --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "found"),
    [(0, (500, 100)), (100, (500, 100)), (101, (501, 130)), (130, (501, 130)), (131, None)],
)
def test_the_first_record_not_older_than_the_target_is_found(
    codec: RecordCodec, target: int, found: tuple[int, int] | None
) -> None:
    payload = b"".join(
        record(index, timestamp_delta=varint(delta)) for index, delta in enumerate((0, 30, 10, 30))
    )

    assert codec.find_first_at_or_after(payload, 4, 500, 100, target) == found


def test_nothing_behind_the_found_record_is_looked_at(codec: RecordCodec) -> None:
    assert codec.find_first_at_or_after(record(0) + b"damage", 2, 0, 5, 5) == (0, 5)


# --- encoding ---------------------------------------------------------------------------------


def test_records_are_encoded_byte_for_byte(codec: RecordCodec) -> None:
    rows = [
        NewRecord(1000, b"key", b"value"),
        NewRecord(995, None, b"", (("name", b"1"), ("name", None))),
    ]

    headers = varint(2) + sized(b"name") + sized(b"1") + sized(b"name") + sized(None)
    assert codec.encode_records(rows, 1000) == record(0) + record(
        1, timestamp_delta=varint(-5), key=sized(None), value=sized(b""), headers=headers
    )


def test_rows_of_every_kind_are_encoded_alike(codec: RecordCodec) -> None:
    headers = (("name", b"1"),)
    rows = [
        (1000, b"key", b"value", headers),
        NewRecord(1000, b"key", b"value", headers),
        Record(77, 1000, b"key", b"value", headers),
    ]

    assert len({codec.encode_records([row], 0) for row in rows}) == 1
    assert codec.encode_records(iter(rows), 0) == codec.encode_records(rows, 0)


def test_any_buffer_can_be_a_key_a_value_or_a_header(codec: RecordCodec) -> None:
    class Name(str):
        __slots__ = ()

    plain = codec.encode_records([(0, b"k", b"v", (("n", b"h"),))], 0)

    row = (0, bytearray(b"k"), memoryview(b"v"), [[Name("n"), bytearray(b"h")]])
    assert codec.encode_records([row], 0) == plain  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ((0, "text", b"", ()), TypeError),
        ((0, b"", 5, ()), TypeError),
        ((0, b"", b"", ((b"name", b""),)), TypeError),
        ((0, b"", b"", (("name", "text"),)), TypeError),
        ((0, b"", b"", ((None, b""),)), TypeError),
        ((0, b"", b"", (("\ud800", b""),)), UnicodeEncodeError),
        ((0, b"", b"", None), TypeError),
        ((1 << 63, b"", b"", ()), OverflowError),
        (("0", b"", b"", ()), TypeError),
        ((b"", b"", ()), ValueError),
        ([0, b"", b"", ()], TypeError),
        (None, TypeError),
    ],
)
def test_rows_that_are_no_records_are_refused(
    codec: RecordCodec, row: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        codec.encode_records([row], 0)  # type: ignore[list-item]


def test_an_error_of_the_rows_themselves_comes_through(codec: RecordCodec) -> None:
    def rows() -> object:
        yield (0, b"", b"", ())
        raise LookupError("the rows have failed")

    with pytest.raises(LookupError, match="the rows have failed"):
        codec.encode_records(rows(), 0)  # type: ignore[arg-type]


timestamps = st.integers(INT64_MIN, INT64_MAX)
contents = st.none() | st.binary(max_size=40) | st.integers(60, 20_000).map(bytes)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
headers_of_a_record = st.lists(st.tuples(names, contents), max_size=4).map(tuple)
rows_of_a_batch = st.lists(
    st.builds(NewRecord, timestamps, contents, contents, headers_of_a_record), max_size=8
)


@on_both_codecs
@given(rows=rows_of_a_batch, base_offset=st.integers(0, INT64_MAX - 10), base=timestamps)
def test_what_was_encoded_comes_back(
    codec: RecordCodec, rows: list[NewRecord], base_offset: int, base: int
) -> None:
    payload = codec.encode_records(rows, base)

    assert codec.find_fault(payload, len(rows), False) is None
    assert codec.decode_records(payload, len(rows), base_offset, base) == [
        Record(base_offset + index, *row) for index, row in enumerate(rows)
    ]


@on_both_codecs
@given(rows=rows_of_a_batch, target=timestamps)
def test_finding_by_time_agrees_with_looking_at_every_record(
    codec: RecordCodec, rows: list[NewRecord], target: int
) -> None:
    payload = codec.encode_records(rows, 0)
    found = [(i, row.timestamp_ms) for i, row in enumerate(rows) if row.timestamp_ms >= target]

    result = codec.find_first_at_or_after(payload, len(rows), 0, 0, target)

    assert result == (found[0] if found else None)


# --- choosing ---------------------------------------------------------------------------------


def test_the_pure_codec_serves_where_the_native_one_is_not_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("moldau.records._codec_native", raising=False)
    monkeypatch.setitem(sys.modules, "moldau.records._codec_native", None)

    assert chooser._choose() is _codec_pure


def test_each_codec_says_which_it_is(codec: RecordCodec) -> None:
    assert getattr(codec, "__name__", "").endswith(f"_codec_{codec.IMPLEMENTATION}")
    assert chooser.IMPLEMENTATION in ("native", "pure")
