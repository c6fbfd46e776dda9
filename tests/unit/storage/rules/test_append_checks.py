"""What a client may append, by plain values."""

from __future__ import annotations

import struct
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    RecordListTooLargeError,
    UnsupportedCompressionError,
)
from moldau.model import NO_TIMESTAMP
from moldau.records.batch_header import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    MAGIC_AT,
    BatchHeader,
    crc_matches,
    read_header,
    write_crc,
)
from moldau.records.codec import IMPLEMENTATION
from moldau.records.compression import Codec, compress
from moldau.records.record_batch import build_batch, records_of
from moldau.storage.rules.log_validator import (
    QUICK_BATCH_BYTES,
    QUICK_RECORDS,
    QUICK_UNPACKED_BYTES,
    AppendLimits,
    InspectedBatch,
    can_stream,
    check_batch,
    check_records_if_quick,
    check_size,
    check_usual_batch,
    expect_unpacked,
    inspect_batch,
    needs_worker,
    set_log_append_time,
    stream_records,
    wanted_codec,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
LIMITS = AppendLimits(
    max_message_bytes=1024 * 1024,
    segment_bytes=1024 * 1024 * 1024,
    compacted=False,
    log_append_time=False,
    timestamp_before_max_ms=2**63 - 1,
    timestamp_after_max_ms=HOUR_MS,
    inspect_records=True,
)
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]


def a_batch(*values: bytes, timestamp_ms: int = NOW_MS, key: bytes | None = b"k", **fields):
    rows = [(timestamp_ms, key, value, ()) for value in values or (b"one", b"two", b"three")]
    return build_batch(rows, **fields)


def patched(batch: bytearray, position: int, layout: str, value: int) -> bytearray:
    """A batch with one field of the header changed and the CRC right again."""
    struct.pack_into(layout, batch, position, value)
    write_crc(batch)
    return batch


def inspect(
    buffer: memoryview, header: BatchHeader, limits: AppendLimits, codec: Codec | None = None
) -> InspectedBatch:
    unpacked_bytes = min(limits.decompressed_max_bytes, 2 << 20)
    return inspect_batch(
        buffer, header, limits, codec=codec, level=None, unpacked_bytes=unpacked_bytes
    )


def check(batch: bytes | bytearray, limits: AppendLimits = LIMITS):
    """What the look at usual batches passes, the look at every one of them has to pass as well."""
    usual = check_usual_batch(memoryview(batch), limits, NOW_MS)
    try:
        header = check_batch(memoryview(batch), limits, NOW_MS)
    except KafkaError:
        assert usual is None
        raise
    assert usual in (None, header)
    return header


def test_a_sound_batch_gives_its_header():
    batch = a_batch(producer_id=7, producer_epoch=0, base_sequence=0)

    assert check(batch) == read_header(batch)


@pytest.mark.skipif(IMPLEMENTATION == "pure", reason="the twin in Python says nothing")
def test_most_batches_are_usual():
    batch = memoryview(a_batch(producer_id=7, producer_epoch=0, base_sequence=0))
    assert check_usual_batch(batch, LIMITS, NOW_MS) == read_header(batch)
    assert check_usual_batch(memoryview(a_batch()), LIMITS, NOW_MS) is not None


@pytest.mark.parametrize("inspect_records", [True, False])
@pytest.mark.parametrize("compacted", [True, False])
@given(st.data())
def test_what_is_usual_is_sound_inside_and_out(inspect_records, compacted, data):
    limits = replace(
        LIMITS, inspect_records=inspect_records, compacted=compacted, timestamp_before_max_ms=5
    )
    batch = a_batch(
        timestamp_ms=NOW_MS + data.draw(st.integers(-7, 7)),
        key=data.draw(st.sampled_from([None, b"k"])),
        producer_id=data.draw(st.integers(-1, 1)),
        producer_epoch=data.draw(st.integers(-1, 1)),
        base_sequence=data.draw(st.integers(-1, 1)),
    )
    for _ in range(data.draw(st.integers(0, 2))):
        batch[data.draw(st.integers(0, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        write_crc(batch)
    header = check_usual_batch(memoryview(batch), limits, NOW_MS)
    if header is not None:
        assert check_batch(memoryview(batch), limits, NOW_MS) == header == read_header(batch)
        assert check_records_if_quick(batch, header, limits)


def test_an_empty_buffer_is_no_batch():
    with pytest.raises(InvalidRecordError, match="exactly one record batch"):
        check(b"")


def test_two_batches_are_one_too_many():
    with pytest.raises(InvalidRecordError, match="exactly one record batch"):
        check(a_batch() + a_batch())
    with pytest.raises(InvalidRecordError, match="exactly one record batch"):
        check(patched(a_batch(), 8, ">i", HEADER_BYTES - 12))  # the first one is a bare header


@pytest.mark.parametrize("size_bytes", [1, 12, 16, 17, HEADER_BYTES - 1, HEADER_BYTES, -1])
def test_a_batch_that_is_cut_short_is_corrupt(size_bytes):
    with pytest.raises(CorruptBatchError):
        check(a_batch()[:size_bytes])


@pytest.mark.parametrize("length", [-12, -1, 0, HEADER_BYTES - 13])
def test_a_length_that_is_too_small_for_a_header_is_corrupt(length):
    with pytest.raises(CorruptBatchError):
        check(patched(a_batch(), 8, ">i", length))


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_refused(magic):
    batch = a_batch()
    batch[MAGIC_AT] = magic

    with pytest.raises(InvalidRecordError, match="magic"):
        check(batch)
    with pytest.raises(InvalidRecordError, match="magic"):
        check(batch[:30])  # an old message may be shorter than a header of today


@given(bit=st.integers(0, (len(a_batch()) - ATTRIBUTES_AT) * 8 - 1))
def test_a_flipped_bit_under_the_crc_is_corrupt(bit):
    batch = a_batch()
    batch[ATTRIBUTES_AT + bit // 8] ^= 1 << bit % 8

    with pytest.raises(CorruptBatchError, match="CRC"):
        check(batch)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_with_a_kafka_error(data):
    with pytest.raises(KafkaError):
        check(data)


def test_a_batch_may_be_as_large_as_max_message_bytes_and_no_larger():
    batch = a_batch()
    size = len(batch)

    check(batch, replace(LIMITS, max_message_bytes=size))
    with pytest.raises(BatchTooLargeError):
        check(batch, replace(LIMITS, max_message_bytes=size - 1))


def test_a_batch_larger_than_a_segment_is_refused():
    batch = a_batch()

    check(batch, replace(LIMITS, segment_bytes=len(batch)))
    with pytest.raises(RecordListTooLargeError):
        check(batch, replace(LIMITS, segment_bytes=len(batch) - 1))


def test_size_can_be_checked_again_after_recompression():
    check_size(100, replace(LIMITS, max_message_bytes=100))
    with pytest.raises(BatchTooLargeError):
        check_size(101, replace(LIMITS, max_message_bytes=100))


def test_the_base_offset_of_a_client_does_not_matter():
    assert check(a_batch(base_offset=5)).base_offset == 5


@pytest.mark.parametrize(("count", "last_delta"), [(0, -1), (-1, -2), (3, 3), (3, 1), (2, 2)])
def test_count_and_last_offset_delta_must_agree(count, last_delta):
    batch = patched(a_batch(), 57, ">i", count)

    with pytest.raises(InvalidRecordError, match="announces"):
        check(patched(batch, 23, ">i", last_delta))


def test_clients_may_not_write_control_batches():
    with pytest.raises(InvalidRecordError, match="control"):
        check(a_batch(control=True, producer_id=1, producer_epoch=0))


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_unknown_codecs_are_refused(bits):
    with pytest.raises(UnsupportedCompressionError):
        check(patched(a_batch(), ATTRIBUTES_AT, ">h", bits))


@pytest.mark.parametrize("producer_id", [0, 7])
@pytest.mark.parametrize(("epoch", "sequence"), [(-1, 0), (0, -1), (-1, -1)])
def test_a_producer_id_needs_an_epoch_and_a_sequence(producer_id, epoch, sequence):
    with pytest.raises(InvalidRecordError, match=f"producer {producer_id} "):
        check(a_batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


def test_a_transactional_batch_needs_a_producer_id():
    check(a_batch(transactional=True, producer_id=0, producer_epoch=0, base_sequence=0))
    with pytest.raises(InvalidRecordError, match="transactional"):
        check(a_batch(transactional=True))


@pytest.mark.parametrize("log_append_time", [True, False])
def test_a_producer_may_not_claim_log_append_time(log_append_time):
    with pytest.raises(InvalidTimestampError):
        check(a_batch(log_append_time_ms=NOW_MS), replace(LIMITS, log_append_time=log_append_time))


def test_a_timestamp_may_lie_ahead_as_far_as_the_limit():
    check(a_batch(timestamp_ms=NOW_MS + HOUR_MS))
    with pytest.raises(InvalidTimestampError, match=str(NOW_MS + HOUR_MS)):
        check(a_batch(timestamp_ms=NOW_MS + HOUR_MS + 1))


def test_a_timestamp_may_lie_back_as_far_as_the_limit():
    limits = replace(LIMITS, timestamp_before_max_ms=HOUR_MS)

    check(a_batch(timestamp_ms=NOW_MS - HOUR_MS), limits)
    with pytest.raises(InvalidTimestampError, match=str(NOW_MS - HOUR_MS)):
        check(a_batch(timestamp_ms=NOW_MS - HOUR_MS - 1), limits)


def test_the_first_record_of_a_batch_may_be_too_old_even_if_the_last_is_not():
    rows = [(NOW_MS - HOUR_MS - 1, None, b"old", ()), (NOW_MS, None, b"new", ())]

    with pytest.raises(InvalidTimestampError):
        check(build_batch(rows), replace(LIMITS, timestamp_before_max_ms=HOUR_MS))


def test_records_without_timestamps_are_within_every_limit():
    limits = replace(LIMITS, timestamp_before_max_ms=0, timestamp_after_max_ms=0)

    check(a_batch(timestamp_ms=NO_TIMESTAMP), limits)
    check(build_batch([(NO_TIMESTAMP, None, b"", ()), (NOW_MS, None, b"", ())]), limits)


def test_timestamps_do_not_matter_where_the_broker_sets_them():
    limits = replace(LIMITS, log_append_time=True, timestamp_before_max_ms=0)

    check(a_batch(timestamp_ms=NOW_MS + 2 * HOUR_MS), limits)


@pytest.mark.parametrize("codec", list(Codec))
def test_sound_records_pass_under_every_codec(codec):
    batch = a_batch(codec=codec)
    header = check(batch)

    inspect(memoryview(batch), header, LIMITS)
    assert check_records_if_quick(memoryview(batch), header, LIMITS)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_wrong_record_is_named_by_its_index(codec):
    whole = a_batch()
    payload = bytearray(whole[HEADER_BYTES:])
    second_record = 1 + payload[0] // 2  # the length is a one-byte zigzag varint
    payload[second_record + 3] = 0  # its offset delta, 0 instead of 1
    packed = bytes(payload) if codec is Codec.NONE else compress(codec, payload)
    batch = whole[:HEADER_BYTES] + packed
    batch = patched(batch, 8, ">i", len(batch) - 12)
    batch = patched(batch, ATTRIBUTES_AT, ">h", codec)

    with pytest.raises(InvalidRecordError, match="record 1: ") as caught:
        inspect(memoryview(batch), check(batch), LIMITS)
    assert [index for index, _ in caught.value.record_errors] == [1]
    with pytest.raises(InvalidRecordError, match="record 1: "):
        check_records_if_quick(memoryview(batch), check(batch), LIMITS)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_does_not_decompress_is_invalid(codec):
    batch = patched(a_batch(b"x" * 100), ATTRIBUTES_AT, ">h", codec)

    with pytest.raises(InvalidRecordError):
        inspect(memoryview(batch), check(batch), LIMITS)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_asks_for_keys(codec):
    batch = a_batch(key=None, codec=codec)
    header = check(batch)

    inspect(memoryview(batch), header, LIMITS)
    with pytest.raises(InvalidRecordError, match="key") as caught:
        inspect(memoryview(batch), header, replace(LIMITS, compacted=True))
    assert [index for index, _ in caught.value.record_errors] == [0, 1, 2]


def test_header_validation_leaves_the_inside_alone():
    batch = a_batch()
    batch = patched(batch[:HEADER_BYTES] + b"\x00" * (len(batch) - HEADER_BYTES), 57, ">i", 3)
    header = check(batch)
    limits = replace(LIMITS, inspect_records=False)

    inspect(memoryview(batch), header, limits)
    assert check_records_if_quick(memoryview(batch), header, limits)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_unpacks_to_more_than_the_bound_is_too_large(codec):
    batch = a_batch(b"\x00" * 4096, codec=codec)
    header = check(batch)

    inspect(memoryview(batch), header, replace(LIMITS, decompressed_max_bytes=5000))
    with pytest.raises(BatchTooLargeError):
        inspect(memoryview(batch), header, replace(LIMITS, decompressed_max_bytes=4096))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_a_batch_does_not_say_of_itself_is_guessed_by_the_last_one(codec):
    batch = a_batch(b"\x00" * 300_000, codec=codec)
    header = check(batch)
    found = check_records_if_quick(memoryview(batch), header, LIMITS)
    ratio = found.unpacked_bytes / len(batch)

    assert 300_000 <= found.unpacked_bytes < 300_100
    assert expect_unpacked(batch, header, ratio) >= 300_000
    assert expect_unpacked(a_batch(), check(a_batch()), ratio) == 0  # it is not compressed


def test_a_small_batch_that_unpacks_to_much_is_left_to_a_worker():
    batch = a_batch(b"\x00" * (QUICK_UNPACKED_BYTES + 1), codec=Codec.ZSTD)
    header = check(batch)

    assert not needs_worker(header, len(batch))
    assert not check_records_if_quick(memoryview(batch), header, LIMITS)
    inspect(memoryview(batch), header, LIMITS)


def test_large_compressed_batches_and_very_many_records_are_left_to_a_worker():
    plain = read_header(a_batch())
    packed = read_header(a_batch(codec=Codec.LZ4))

    assert not needs_worker(plain, 2 * QUICK_BATCH_BYTES)
    assert not needs_worker(packed, QUICK_BATCH_BYTES)
    assert needs_worker(packed, QUICK_BATCH_BYTES + 1)
    assert not needs_worker(plain._replace(record_count=QUICK_RECORDS), 100)
    assert needs_worker(plain._replace(record_count=QUICK_RECORDS + 1), 100)


@pytest.mark.parametrize(
    ("compression_type", "sent", "wanted"),
    [
        ("producer", Codec.GZIP, None),
        ("uncompressed", Codec.NONE, None),
        ("uncompressed", Codec.GZIP, Codec.NONE),
        ("lz4", Codec.LZ4, None),
        ("lz4", Codec.NONE, Codec.LZ4),
        ("zstd", Codec.SNAPPY, Codec.ZSTD),
    ],
)
def test_a_batch_is_rewritten_only_when_the_topic_wants_another_codec(
    compression_type, sent, wanted
):
    assert wanted_codec(compression_type, read_header(a_batch(codec=sent))) is wanted


@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("wanted", list(Codec))
def test_rewriting_changes_the_codec_and_nothing_else(sent, wanted):
    rows = [(NOW_MS + i, b"k%d" % i, b"v" * i, (("h", b"x"),)) for i in range(20)]
    fields = {"producer_id": 9, "producer_epoch": 3, "base_sequence": 44, "transactional": True}
    batch = build_batch(rows, codec=sent, **fields)

    rewritten = inspect(memoryview(batch), read_header(batch), LIMITS, codec=wanted).data

    expected = build_batch(rows, codec=wanted, **fields)
    header = read_header(rewritten)
    assert header.size_bytes == len(rewritten)
    assert crc_matches(rewritten, header)
    assert records_of(rewritten) == records_of(expected)
    assert header._replace(crc=0) == read_header(expected)._replace(crc=0)


def test_rewriting_is_bounded_too():
    batch = a_batch(b"\x00" * 4096, codec=Codec.ZSTD)

    with pytest.raises(BatchTooLargeError):
        inspect(
            memoryview(batch),
            read_header(batch),
            replace(LIMITS, decompressed_max_bytes=4096),
            codec=Codec.GZIP,
        )


def test_log_append_time_is_set_in_place():
    batch = a_batch(codec=Codec.LZ4, timestamp_ms=5)

    header = set_log_append_time(memoryview(batch), NOW_MS)

    assert header == read_header(batch)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW_MS
    assert header.codec == Codec.LZ4
    assert crc_matches(batch, header)
    assert {record.timestamp_ms for record in records_of(batch)} == {NOW_MS}


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_that_unfolds_to_much_is_looked_at_piece_by_piece(codec):
    batch = a_batch(b"small", bytes(40 << 20), b"small", codec=codec)
    header = check(batch, replace(LIMITS, max_message_bytes=8 << 20))
    assert can_stream(batch, header)
    tracemalloc.start()
    try:
        stream_records(batch, header, LIMITS)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 << 20
    with pytest.raises(BatchTooLargeError):
        stream_records(batch, header, replace(LIMITS, decompressed_max_bytes=40 << 20))


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_stream_of_records_is_refused_for_what_the_whole_is_refused_for(codec):
    compacted = replace(LIMITS, compacted=True)
    batch = a_batch(key=None, codec=codec)
    with pytest.raises(InvalidRecordError, match="record 0: there is no key"):
        stream_records(batch, check(batch), compacted)
    stream_records(batch, check(batch), replace(compacted, inspect_records=False))
    short = patched(a_batch(codec=codec), 57, ">i", 4)  # one record less than announced
    short = patched(short, 23, ">i", 3)
    with pytest.raises(InvalidRecordError, match="record 3: "):
        stream_records(short, check(short), LIMITS)


def test_what_is_not_compressed_is_no_stream():
    batch = a_batch()
    assert not can_stream(batch, check(batch))
