from __future__ import annotations

import contextlib
import gzip
import os
import random
import resource
import struct
import sys
import zlib

import aiokafka.codec
import cramjam
import kafka.codec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import (
    BatchTooLargeError,
    ConfigurationError,
    InvalidRecordError,
    UnsupportedCompressionError,
)
from moldau.records.compression import (
    BadCompressionError,
    Codec,
    DecompressionLimitError,
    compress,
    decompress,
    expect_bytes,
)

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"the quick brown fox %d " % number for number in range(10_000))
LEVELS = {
    Codec.GZIP: (-1, 0, 1, 9, 40),
    Codec.SNAPPY: (1, 99),
    Codec.LZ4: (-3, 1, 2, 9, 12, 17, 99),
    Codec.ZSTD: (-200_000, -131_072, -5, 0, 1, 99),
}

AIOKAFKA = {
    Codec.GZIP: (aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    Codec.SNAPPY: (aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    Codec.LZ4: (aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    Codec.ZSTD: (aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
}
KAFKA_PYTHON = {
    Codec.GZIP: (kafka.codec.gzip_encode, kafka.codec.gzip_decode),
    Codec.SNAPPY: (kafka.codec.snappy_encode, kafka.codec.snappy_decode),
    Codec.LZ4: (kafka.codec.lz4_encode, kafka.codec.lz4_decode),
    Codec.ZSTD: (kafka.codec.zstd_encode, kafka.codec.zstd_decode),
}


def make_bomb(codec: Codec, megabytes: int) -> bytes:
    """Zeroes, compressed piece by piece as a stream of unknown length."""
    piece = bytes(1 << 20)
    if codec is Codec.GZIP:
        stream = zlib.compressobj(1, zlib.DEFLATED, 31)
        return b"".join(stream.compress(piece) for _ in range(megabytes)) + stream.flush()
    if codec is Codec.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(piece))
        header = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
        return header + (len(block).to_bytes(4, "big") + block) * megabytes
    if codec is Codec.LZ4:
        compressor = cramjam.lz4.Compressor(block_linked=False)
    else:
        compressor = cramjam.zstd.Compressor()
    for _ in range(megabytes):
        compressor.compress(piece)
    return bytes(compressor.finish())


def peak_memory_bytes() -> int:
    """Of the whole process, so that what the compiled libraries allocate is counted."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@pytest.mark.parametrize("codec", Codec)
@given(st.binary(max_size=2000) | st.integers(0, 300_000).map(lambda size: TEXT[:size]))
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [b"x", TEXT, os.urandom(200_000)], ids=len)
def test_other_clients_read_what_we_compress(codec: Codec, data: bytes) -> None:
    for level in (None, *LEVELS[codec]):
        compressed = compress(codec, data, level)
        assert bytes(AIOKAFKA[codec][1](compressed)) == data
        assert bytes(KAFKA_PYTHON[codec][1](compressed)) == data


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [b"x", TEXT, os.urandom(200_000)], ids=len)
def test_we_read_what_other_clients_compress(codec: Codec, data: bytes) -> None:
    for encode in (AIOKAFKA[codec][0], KAFKA_PYTHON[codec][0]):
        assert decompress(codec, encode(data), len(data)) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_compressed(
    codec: Codec, view: type[bytes | bytearray | memoryview]
) -> None:
    for level in (None, 1):
        compressed = compress(codec, view(TEXT), level)
        assert decompress(codec, view(compressed), len(TEXT)) == TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_higher_level_makes_fewer_bytes(codec: Codec) -> None:
    words = random.Random(1)
    data = b"".join(b"%x " % words.getrandbits(9) for _ in range(20_000))
    lowest = 1 if codec is Codec.GZIP else min(LEVELS[codec])  # -1 asks for the default

    assert len(compress(codec, data, max(LEVELS[codec]))) < len(compress(codec, data, lowest))


def test_the_default_levels_are_those_of_kafka() -> None:
    assert compress(Codec.GZIP, TEXT) == compress(Codec.GZIP, TEXT, 6)
    assert compress(Codec.GZIP, TEXT, -1) == compress(Codec.GZIP, TEXT, 6)
    assert compress(Codec.LZ4, TEXT) == compress(Codec.LZ4, TEXT, 9)
    assert compress(Codec.ZSTD, TEXT) == compress(Codec.ZSTD, TEXT, 3)


@pytest.mark.parametrize("level", [None, 1, 12])
def test_lz4_blocks_are_independent_since_java_refuses_linked_ones(level: int | None) -> None:
    flags = compress(Codec.LZ4, TEXT, level)[4]

    assert flags >> 6 == 1
    assert flags & 0b0010_0000
    assert not flags & 0b0000_0100, "a content checksum, which some readers cannot skip"


@pytest.mark.parametrize("has_checksums", [False, True])
def test_what_is_not_one_lz4_frame_is_refused_as_no_java_consumer_reads_on(
    has_checksums: bool,
) -> None:
    compressor = cramjam.lz4.Compressor(content_checksum=has_checksums, block_linked=False)
    compressor.compress(TEXT)
    frame = bytes(compressor.finish())
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"abc"

    assert decompress(Codec.LZ4, frame, len(TEXT)) == TEXT
    for packed in (frame + frame, frame + skippable, skippable + frame, frame + bytes(4)):
        with pytest.raises(BadCompressionError, match="lz4 frame"):
            decompress(Codec.LZ4, packed, 2 * len(TEXT))


def test_of_very_many_snappy_blocks_only_the_first_are_asked() -> None:
    """Asking two hundred thousand of them, in a megabyte, would hold up the event loop."""
    block = struct.pack(">i", 2) + b"\x00\x00"
    packed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + block * 600

    assert expect_bytes(Codec.SNAPPY, packed) > 512 * 1024  # nothing to unfold where it came in
    assert expect_bytes(Codec.SNAPPY, packed + b"damage") == expect_bytes(Codec.SNAPPY, packed)
    with pytest.raises(BadCompressionError):
        expect_bytes(Codec.SNAPPY, packed[: 16 + 6 * 10] + b"damage")


def test_linked_lz4_blocks_are_refused_as_kafka_does() -> None:
    linked = bytes(cramjam.lz4.compress(TEXT))

    with pytest.raises(BadCompressionError, match="linked"):
        decompress(Codec.LZ4, linked, len(TEXT))


def test_snappy_is_framed_as_java_expects() -> None:
    compressed = compress(Codec.SNAPPY, TEXT)

    assert compressed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert int.from_bytes(compressed[16:20], "big") < 32 * 1024


def test_raw_snappy_is_read_too() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), len(TEXT)) == TEXT


def test_a_gzip_stream_may_have_several_members() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"a") + gzip.compress(b"b"), 2) == b"ab"


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    compressed = compress(codec, TEXT)

    assert decompress(codec, compressed, len(TEXT)) == TEXT
    with pytest.raises(DecompressionLimitError, match=f"more than {len(TEXT) - 1} bytes"):
        decompress(codec, compressed, len(TEXT) - 1)


@pytest.mark.parametrize("codec", Codec)
def test_an_empty_limit_allows_nothing_but_nothing(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b""), 0) == b""
    with pytest.raises(DecompressionLimitError):
        decompress(codec, compress(codec, b"x"), 0)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_output_far_larger_than_guessed_is_still_read(codec: Codec) -> None:
    assert decompress(codec, make_bomb(codec, 4), 4 << 20) == bytes(4 << 20)


@pytest.mark.parametrize("size", [0, 1, 255, 256, 300, 65_791, 65_792, 200_000, len(TEXT)])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_what_is_compressed_says_how_large_it_was(codec: Codec, size: int) -> None:
    packed = compress(codec, TEXT[:size])
    if len(packed) >= 18:  # less has nothing to say
        assert expect_bytes(codec, packed) == size
    assert decompress(codec, packed, 1 << 30) == TEXT[:size]


@pytest.mark.parametrize("boast", [0, 5, 1 << 16, (1 << 32) - 1])
def test_a_size_that_is_a_lie_is_found_out(boast: int) -> None:
    packed = bytearray(compress(Codec.GZIP, TEXT))
    packed[-4:] = boast.to_bytes(4, "little")
    with pytest.raises((BadCompressionError, DecompressionLimitError)):
        decompress(Codec.GZIP, packed, 10 * len(TEXT))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_refused_without_unfolding_it(codec: Codec) -> None:
    bomb = make_bomb(codec, 128)
    peak_before_bytes = peak_memory_bytes()

    with pytest.raises(DecompressionLimitError):
        decompress(codec, bomb, 1 << 20)

    assert peak_memory_bytes() - peak_before_bytes < 32 << 20


def test_a_snappy_block_that_boasts_is_refused_before_it_is_believed() -> None:
    four_gigabytes = b"\xff\xff\xff\xff\x0f"
    with pytest.raises(DecompressionLimitError):
        decompress(Codec.SNAPPY, four_gigabytes, 1 << 30)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("damage", ["half", "garbage", "flipped", "empty", "trailing"])
def test_damaged_data_is_bad_compression(codec: Codec, damage: str) -> None:
    compressed = compress(codec, TEXT)
    damaged = {
        "half": compressed[: len(compressed) // 2],
        "garbage": b"neither this nor that codec",
        "flipped": compressed[:20] + bytes(byte ^ 0xA5 for byte in compressed[20:]),
        "empty": b"",
        "trailing": compressed + b"xx",
    }[damage]

    with pytest.raises(BadCompressionError, match="do not decompress"):
        decompress(codec, damaged, 1 << 24)


@pytest.mark.parametrize("codec", COMPRESSING)
@given(data=st.data())
def test_hostile_data_is_refused_or_read_within_the_limit(
    codec: Codec, data: st.DataObject
) -> None:
    mutated = bytearray(compress(codec, TEXT[:3000]))
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    for hostile in (mutated, data.draw(st.binary(max_size=200))):
        with contextlib.suppress(BadCompressionError, DecompressionLimitError):
            assert len(decompress(codec, hostile, 4096)) <= 4096


@pytest.mark.parametrize("cut", range(8, 24))
def test_xerial_framing_that_is_cut_short_is_bad_compression(cut: int) -> None:
    compressed = compress(Codec.SNAPPY, b"abc" * 100)
    if cut == 16:
        assert decompress(Codec.SNAPPY, compressed[:cut], 1000) == b""
        return

    with pytest.raises(BadCompressionError):
        decompress(Codec.SNAPPY, compressed[:cut], 1000)


def test_a_negative_xerial_block_is_bad_compression() -> None:
    framed = compress(Codec.SNAPPY, b"")[:16] + b"\xff\xff\xff\xff"

    with pytest.raises(BadCompressionError):
        decompress(Codec.SNAPPY, framed, 1000)


def test_the_errors_have_codes_on_which_producers_do_the_right_thing() -> None:
    assert issubclass(BadCompressionError, InvalidRecordError)  # do not send it again
    assert issubclass(DecompressionLimitError, BatchTooLargeError)  # split the batch


def test_codecs_have_their_kafka_names_and_numbers() -> None:
    names = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

    assert {codec.label: codec.value for codec in Codec} == names
    assert {name: Codec.parse(name) for name in names} == names
    assert Codec.parse("uncompressed") is Codec.NONE
    with pytest.raises(ConfigurationError, match=r"'brotli'.*none, gzip, snappy, lz4, zstd"):
        Codec.parse("brotli")


def test_the_bits_of_a_header_that_mean_no_codec_are_refused() -> None:
    assert [Codec.require(number) for number in range(5)] == list(Codec)
    for number in (-1, 5, 6, 7):
        with pytest.raises(UnsupportedCompressionError, match=str(number)):
            Codec.require(number)
