from __future__ import annotations

from collections.abc import Callable

import pytest

from moldau.errors import (
    CorruptBatchError,
    InvalidRecordError,
    UnsupportedCompressionError,
    UnsupportedForMessageFormatError,
)
from moldau.records.batch_header import ATTRIBUTES_AT, HEADER_BYTES, MAGIC_AT, Buffer, read_header
from moldau.records.compression import BadCompressionError, Codec, DecompressionLimitError
from moldau.records.record import NewRecord, Record
from moldau.records.record_batch import build_batch, payload_of, records_of

ROWS = [NewRecord(1000, b"key", b"value" * 20), NewRecord(1001, None, None, (("n", b"v"),))]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_a_batch_of_any_codec_in_any_buffer_is_read(
    codec: Codec, view: Callable[[bytes], Buffer]
) -> None:
    batch = view(bytes(build_batch(ROWS, base_offset=70, codec=codec)))

    expected = [Record(70, *ROWS[0]), Record(71, *ROWS[1])]
    assert records_of(batch) == expected
    assert records_of(batch, read_header(batch)) == expected


def test_an_uncompressed_payload_is_a_view_of_the_batch() -> None:
    batch = build_batch(ROWS)

    payload = payload_of(batch, read_header(batch))

    assert isinstance(payload, memoryview)
    assert payload.obj is batch
    assert payload == batch[HEADER_BYTES:]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_compressed_payload_is_unfolded_within_the_limit(codec: Codec) -> None:
    batch = build_batch(ROWS, codec=codec)
    plain = build_batch(ROWS)[HEADER_BYTES:]

    assert payload_of(batch, read_header(batch), len(plain)) == plain
    with pytest.raises(DecompressionLimitError):
        payload_of(batch, read_header(batch), len(plain) - 1)
    with pytest.raises(DecompressionLimitError):
        records_of(batch, limit_bytes=len(plain) - 1)


def test_bytes_that_are_no_whole_batch_are_refused() -> None:
    batch = build_batch(ROWS)

    for wrong in (b"", batch[: HEADER_BYTES - 1], batch[:-1], batch + b"!"):
        with pytest.raises(CorruptBatchError):
            records_of(wrong)


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_refused(magic: int) -> None:
    batch = build_batch(ROWS)
    batch[MAGIC_AT] = magic

    with pytest.raises(UnsupportedForMessageFormatError, match=f"format {magic}"):
        records_of(batch)


def test_a_codec_that_does_not_exist_is_refused() -> None:
    batch = build_batch(ROWS)
    batch[ATTRIBUTES_AT + 1] |= 5

    with pytest.raises(UnsupportedCompressionError):
        records_of(batch)


def test_records_that_are_not_compressed_as_the_header_says_are_refused() -> None:
    batch = build_batch(ROWS)
    batch[ATTRIBUTES_AT + 1] |= Codec.GZIP

    with pytest.raises(BadCompressionError):
        records_of(batch)


def test_a_record_count_that_is_wrong_is_refused() -> None:
    batch = build_batch(ROWS)
    for count in (1, 3):
        header = read_header(batch)._replace(record_count=count)
        with pytest.raises(InvalidRecordError):
            records_of(batch, header)


def test_a_batch_emptied_by_compaction_has_no_records() -> None:
    batch = build_batch(ROWS)[:HEADER_BYTES]
    header = read_header(batch)._replace(record_count=0)

    assert records_of(batch, header) == []
