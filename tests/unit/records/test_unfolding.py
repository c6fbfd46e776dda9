"""Compressed records in pieces: the same bytes, the same refusals, and little of it at a time."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import sys

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import BadCompressionError, DecompressionLimitError
from moldau.records import compression
from moldau.records.compression import (
    LARGEST_PIECE_BYTES,
    PIECE_BYTES,
    Codec,
    can_unfold,
    compress,
    unfold,
)

STREAMED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
LIMIT = 64 << 20


def whole(codec: Codec, data: bytes, limit_bytes: int = LIMIT) -> bytes:
    return b"".join(bytes(piece) for piece in unfold(codec, data, limit_bytes))


@pytest.mark.parametrize("codec", STREAMED)
@given(
    pattern=st.binary(min_size=1, max_size=300), size=st.integers(0, 400_000), level=st.booleans()
)
def test_what_was_packed_comes_back(codec: Codec, pattern: bytes, size: int, level: bool) -> None:
    records = (pattern * (size // len(pattern) + 1))[:size]
    packed = compress(codec, records, 3 if level else None)
    assert can_unfold(codec, packed)
    assert whole(codec, packed) == records


@pytest.mark.parametrize("codec", STREAMED)
def test_a_bomb_is_never_held_whole(codec: Codec) -> None:
    packed = compress(codec, bytes(48 << 20))
    sizes = [len(piece) for piece in unfold(codec, packed, LIMIT)]
    assert sum(sizes) == 48 << 20
    assert max(sizes) <= (2 << 20 if codec is Codec.ZSTD else PIECE_BYTES)


@pytest.mark.parametrize("codec", STREAMED)
def test_more_than_the_limit_is_refused(codec: Codec) -> None:
    packed = compress(codec, bytes(1_000_000))
    assert len(whole(codec, packed, 1_000_000)) == 1_000_000
    with pytest.raises(DecompressionLimitError):
        whole(codec, packed, 999_999)


@pytest.mark.parametrize("codec", STREAMED)
def test_what_is_cut_short_or_damaged_is_refused_or_still_the_truth(codec: Codec) -> None:
    records = random.Random(7).randbytes(5_000) + bytes(100_000)
    packed = compress(codec, records)
    for cut in range(1, len(packed) - 1, 97):
        if can_unfold(codec, packed[:cut]):
            with contextlib.suppress(BadCompressionError):
                assert whole(codec, packed[:cut]) != records  # snappy may end at a block's end
    for at in range(0, len(packed), 53):
        bent = bytearray(packed)
        bent[at] ^= 0x55
        if can_unfold(codec, bytes(bent)):
            with contextlib.suppress(BadCompressionError, DecompressionLimitError):
                whole(codec, bytes(bent))


def test_several_members_of_gzip_are_one_stream() -> None:
    assert whole(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"
    with pytest.raises(BadCompressionError):
        whole(Codec.GZIP, gzip.compress(b"one") + b"garbage, and enough of it")


def test_a_block_of_snappy_cannot_claim_more_than_it_can_hold() -> None:
    claim = bytearray()
    size = 500 << 20
    while size > 0x7F:
        claim.append(size & 0x7F | 0x80)
        size >>= 7
    claim.append(size)
    with pytest.raises(BadCompressionError, match="claim to be"):
        whole(Codec.SNAPPY, bytes(claim) + b"\0x")


def test_raw_snappy_comes_in_one_piece() -> None:
    assert whole(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(b"raw" * 100))) == b"raw" * 100


def test_lz4_with_a_checksum_of_the_whole_is_left_to_others() -> None:
    compressor = cramjam.lz4.Compressor(level=1, content_checksum=True, block_linked=False)
    compressor.compress(b"x" * 1000)
    assert not can_unfold(Codec.LZ4, bytes(compressor.finish()))
    linked = bytes(cramjam.lz4.compress(b"x" * 1000))
    assert not can_unfold(Codec.LZ4, linked)


def test_an_lz4_block_is_no_larger_than_its_frame_allows() -> None:
    packed = bytearray(compress(Codec.LZ4, bytes(1000)))
    struct.pack_into("<I", packed, 7, (64 << 10) + 1)
    with pytest.raises(BadCompressionError):
        whole(Codec.LZ4, bytes(packed) + bytes(70_000))


LARGE_BLOCKS = bytes.fromhex("04224d18 60 70 73")


@pytest.mark.parametrize("value", [b"x", b"x" * 100])
def test_tiny_lz4_blocks_are_unfolded_many_at_a_time(value: bytes) -> None:
    """A decoder for blocks of 4 MiB, for each byte of a frame, would be busy for minutes."""
    stored = struct.pack("<I", len(value) | 1 << 31) + value
    packed = bytes(cramjam.lz4.compress_block(value, store_size=False))
    blocks = (stored + struct.pack("<I", len(packed)) + packed) * 5_000
    frame = LARGE_BLOCKS + blocks + bytes(4)
    assert can_unfold(Codec.LZ4, frame)
    sizes = [len(piece) for piece in unfold(Codec.LZ4, frame, LIMIT)]
    assert sum(sizes) == 10_000 * len(value)
    assert len(sizes) < 100
    assert whole(Codec.LZ4, frame) == value * 10_000


@given(
    sizes=st.lists(st.sampled_from((1, 40, 5_000, 64 << 10)), min_size=1, max_size=20),
    seed=st.integers(0, 1000),
)
def test_lz4_blocks_of_any_size_come_back_in_order(sizes: list[int], seed: int) -> None:
    random_source = random.Random(seed)
    frame, records = bytearray(compress(Codec.LZ4, b"")[:-4]), b""
    for size in sizes:
        value = random_source.randbytes(1) * size
        packed = bytes(cramjam.lz4.compress_block(value, store_size=False))
        frame += struct.pack("<I", len(packed)) + packed
        records += value
    frame += bytes(4)
    assert whole(Codec.LZ4, bytes(frame)) == records
    assert max(len(piece) for piece in unfold(Codec.LZ4, bytes(frame), LIMIT)) <= PIECE_BYTES


def test_a_large_snappy_block_is_left_to_others() -> None:
    """Eight of these at a time would be many times what streams may hold."""
    small = bytes(cramjam.snappy.compress_raw(bytes(LARGEST_PIECE_BYTES)))
    large = bytes(cramjam.snappy.compress_raw(bytes(LARGEST_PIECE_BYTES + 1)))
    head = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    assert can_unfold(Codec.SNAPPY, small)
    assert not can_unfold(Codec.SNAPPY, large)
    framed = b"".join(struct.pack(">i", len(one)) + one for one in (small, large))
    assert not can_unfold(Codec.SNAPPY, head + framed)
    late = (struct.pack(">i", 1) + b"\x00") * 1000 + framed
    assert can_unfold(Codec.SNAPPY, head + late)
    with pytest.raises(BadCompressionError, match="follows"):
        whole(Codec.SNAPPY, head + late)


def test_nothing_may_follow_an_lz4_frame() -> None:
    with pytest.raises(BadCompressionError, match="behind"):
        whole(Codec.LZ4, compress(Codec.LZ4, b"x") + b"y")


FRAME_START = bytes.fromhex("28b52ffd 00")
SMALL_WINDOW, WINDOW_OF_8_MIB, LARGE_WINDOW = b"\x58", b"\x68", b"\x69"
EMPTY_FRAME = FRAME_START + SMALL_WINDOW + bytes.fromhex("010000")


def repeated_bytes(blocks: int, window: bytes = SMALL_WINDOW) -> bytes:
    """A frame of blocks that are four bytes each and unfold to 128 KiB: nothing unfolds further."""
    last = [number == blocks - 1 for number in range(blocks)]
    parts = ((128 << 10 << 3 | 1 << 1 | one).to_bytes(3, "little") + b"x" for one in last)
    return FRAME_START + window + b"".join(parts)


def test_the_steepest_zstd_comes_in_pieces() -> None:
    sizes = [len(piece) for piece in unfold(Codec.ZSTD, repeated_bytes(400), LIMIT)]
    assert sum(sizes) == 400 * (128 << 10)
    assert max(sizes) <= 2 << 20


def test_several_frames_of_zstd_are_one_stream() -> None:
    skippable = bytes.fromhex("502a4d18 03000000 616263")
    frames = compress(Codec.ZSTD, b"one" * 9) + skippable + EMPTY_FRAME * 1000
    assert whole(Codec.ZSTD, frames + compress(Codec.ZSTD, b"two")) == b"one" * 9 + b"two"
    with pytest.raises(BadCompressionError):
        whole(Codec.ZSTD, frames + b"garbage")


@pytest.mark.parametrize("window", [WINDOW_OF_8_MIB, LARGE_WINDOW])
def test_zstd_with_a_large_window_is_left_to_others(window: bytes) -> None:
    """The decoder keeps so much of it; some are hidden behind a frame that is harmless."""
    is_large = window == LARGE_WINDOW
    frame = repeated_bytes(4, window)
    assert can_unfold(Codec.ZSTD, frame) == (not is_large)
    hidden = EMPTY_FRAME * 2 + frame
    assert can_unfold(Codec.ZSTD, hidden)
    refused = pytest.raises(BadCompressionError) if is_large else contextlib.nullcontext()
    with refused:
        whole(Codec.ZSTD, hidden)


def test_zstd_that_is_one_segment_has_all_of_it_as_its_window() -> None:
    """Its first bytes say how long it is: true or not, the decoder sets out to keep as much."""
    for size, allowed in ((8 << 20, True), ((8 << 20) + 1, False), (1 << 40, False)):
        frame = bytes.fromhex("28b52ffd e0") + struct.pack("<Q", size) + bytes(8)
        assert can_unfold(Codec.ZSTD, frame) == allowed
    lie = bytes.fromhex("28b52ffd e0") + struct.pack("<Q", 5) + repeated_bytes(4)[6:]
    with pytest.raises(BadCompressionError):
        whole(Codec.ZSTD, lie)


def test_without_its_decoder_zstd_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    compression._find_zstandard.cache_clear()
    try:
        assert not can_unfold(Codec.ZSTD, repeated_bytes(4))
    finally:
        compression._find_zstandard.cache_clear()
