"""Compressed records piece by piece, so that a batch that unfolds to much is never whole in memory.

What is held at a time:

| codec | at most | because |
|---|---|---|
| gzip | `PIECE_BYTES` | zlib stops where it is told to, and goes on from there |
| LZ4 | 4 MiB | a block says how large it may be; Kafka's blocks are independent of each other |
| snappy | 4 MiB | a block says how large it is; xerial's hold 32 KiB |
| zstd | 8 MiB and 2 MiB | a window of what came before, and what a few bytes can unfold to |

Some cannot be taken in pieces: an LZ4 frame with a checksum or a size of its whole content; a
snappy block that is larger, such as producers write that do without xerial's framing; zstd with a
larger window (Kafka's default level has 2 MiB, level 19 has 8), and any zstd without the package
`zstandard` (which `moldau[security]` brings): cramjam's decoder does a whole frame at a time.
`can_unfold` says so, and such a batch is unpacked as a whole, one at a time
(`replication.unpacking`). A rule.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

from moldau.errors import BadCompressionError, DecompressionLimitError
from moldau.records.batch_header import Buffer
from moldau.records.compression import Codec, find_zstd_window, first_snappy_sizes, snappy_blocks
from moldau.records.late_cramjam import cramjam

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor

PIECE_BYTES: Final = 256 * 1024
LARGEST_PIECE_BYTES: Final = 4 << 20

_FED_BYTES: Final = 16 * 1024
_GZIP_FORMAT: Final = 31  # of zlib's window bits: a gzip header, and any window
_SNAPPY_RATIO: Final = 64
_LZ4_HEADER_BYTES: Final = 7
_LZ4_MAGIC: Final = bytes.fromhex("04224d18")
_LZ4_FLAGS_AT: Final = 4
_LZ4_SIZES_AT: Final = 5
_LZ4_KNOWN_FLAGS: Final = 0x60  # version 1, independent blocks
_LZ4_BLOCK_CHECKSUM_FLAG: Final = 0x10
_LZ4_BLOCK_BYTES: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: LARGEST_PIECE_BYTES}
_LZ4_RATIO: Final = 255
_LZ4_STORED_FLAG: Final = 1 << 31
_LZ4_END: Final = bytes(4)
_LENGTH: Final = struct.Struct("<I")
_ZSTD_WINDOW_BYTES: Final = 8 << 20
_ZSTD_FED_BYTES: Final = 64  # as four bytes can stand for a block of 128 KiB, these are 2 MiB


def can_unfold(codec: Codec, data: Buffer) -> bool:
    """Whether the records can be had in pieces."""
    match codec:
        case Codec.GZIP:
            return True
        case Codec.SNAPPY:
            return _is_snappy_in_pieces(data)
        case Codec.LZ4:
            return _is_plain_lz4(bytes(data[:_LZ4_HEADER_BYTES]))
        case Codec.ZSTD:
            return find_zstd_window(data) <= _ZSTD_WINDOW_BYTES and _make_zstd_decoder() is not None
        case Codec.NONE:
            return False


def unfold(codec: Codec, data: Buffer, limit_bytes: int) -> Iterator[Buffer]:
    """The records in pieces, each of which is good until the next one is asked for.

    `DecompressionLimitError` when there are more than `limit_bytes`.
    """
    match codec:
        case Codec.GZIP:
            pieces = _unfold_gzip(memoryview(data))
        case Codec.SNAPPY:
            pieces = _unfold_snappy(data)
        case Codec.LZ4:
            pieces = _unfold_lz4(memoryview(data))
        case Codec.ZSTD:
            pieces = _unfold_zstd(memoryview(data))
        case Codec.NONE:
            raise ValueError(f"{codec.label} cannot be unfolded")
    total = 0
    for piece in pieces:
        total += len(piece)
        if total > limit_bytes:
            raise DecompressionLimitError(
                f"the records decompress to more than {limit_bytes} bytes"
            )
        yield piece


def _damage(reason: object) -> BadCompressionError:
    return BadCompressionError(f"the records do not decompress: {reason}")


def _unfold_gzip(data: memoryview) -> Iterator[Buffer]:
    """One member after the other; producers write one."""
    decoder = zlib.decompressobj(_GZIP_FORMAT)
    position = 0
    try:
        while position < len(data):
            if decoder.eof:
                decoder = zlib.decompressobj(_GZIP_FORMAT)
            fed: Buffer = data[position : position + _FED_BYTES]
            position += len(fed)
            while fed:
                piece = decoder.decompress(fed, PIECE_BYTES)
                fed = decoder.unconsumed_tail
                if piece:
                    yield piece
            position -= len(decoder.unused_data)
        while piece := decoder.decompress(b"", PIECE_BYTES):
            yield piece
    except zlib.error as error:
        raise _damage(error) from None
    if not decoder.eof:
        raise _damage("it is cut short")


def _is_snappy_in_pieces(data: Buffer) -> bool:
    try:
        return max(first_snappy_sizes(data)[0], default=0) <= LARGEST_PIECE_BYTES
    except BadCompressionError:
        return True  # unfolding it says so


def _unfold_snappy(data: Buffer) -> Iterator[Buffer]:
    try:
        for block in snappy_blocks(data):
            size = cramjam.snappy.decompress_raw_len(block)
            if size > len(block) * _SNAPPY_RATIO:
                raise _damage(f"{len(block)} bytes of snappy claim to be {size}")
            if size > LARGEST_PIECE_BYTES:  # `can_unfold` looks at the first blocks only
                raise _damage(f"a snappy block of {size} bytes follows very many small ones")
            output = bytearray(size)
            cramjam.snappy.decompress_raw_into(block, output)
            yield output
    except cramjam.DecompressionError as error:
        raise _damage(error) from None


def _is_plain_lz4(header: bytes) -> bool:
    if len(header) < _LZ4_HEADER_BYTES or not header.startswith(_LZ4_MAGIC):
        return False
    flags = header[_LZ4_FLAGS_AT] & ~_LZ4_BLOCK_CHECKSUM_FLAG
    return flags == _LZ4_KNOWN_FLAGS and header[_LZ4_SIZES_AT] >> 4 in _LZ4_BLOCK_BYTES


def _unfold_lz4(data: memoryview) -> Iterator[Buffer]:
    """Blocks together as a frame of their own: the decoder checks header, sizes and checksums.

    As many as fit for certain: a decoder for each would cost a hostile frame of tiny blocks a
    hundred times what it costs an honest one.
    """
    header = bytes(data[:_LZ4_HEADER_BYTES])
    if not _is_plain_lz4(header):
        raise ValueError("such a frame cannot be unfolded")
    largest = _LZ4_BLOCK_BYTES[header[_LZ4_SIZES_AT] >> 4]
    output = bytearray(max(largest, PIECE_BYTES))
    first, room = _LZ4_HEADER_BYTES, len(output)
    last = first
    for end, most in _lz4_blocks(data, largest, header[_LZ4_FLAGS_AT]):
        if most > room:
            yield _decompress_lz4(header, data[first:last], output)
            first, room = last, len(output)
        last = end
        room -= most
    if first < last:
        yield _decompress_lz4(header, data[first:last], output)


def _decompress_lz4(header: bytes, blocks: memoryview, output: bytearray) -> memoryview:
    try:
        frame = b"".join((header, blocks, _LZ4_END))
        return memoryview(output)[: cramjam.lz4.decompress_into(frame, output)]
    except cramjam.DecompressionError as error:
        raise _damage(error) from None


def _lz4_blocks(data: memoryview, largest: int, flags: int) -> Iterator[tuple[int, int]]:
    """Where each block ends, and the most that it can unfold to."""
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM_FLAG else 0
    position = _LZ4_HEADER_BYTES
    while True:
        start = position + _LENGTH.size
        if start > len(data):
            raise _damage("the lz4 frame is cut short")
        length = _LENGTH.unpack_from(data, position)[0] & ~_LZ4_STORED_FLAG
        if not length:
            if start < len(data):
                raise _damage("there is something behind the lz4 frame")
            return
        position = start + length + checksum_bytes
        if position > len(data) or length > largest:
            raise _damage("an lz4 block is cut short or too large")
        yield position, min(length * _LZ4_RATIO, largest)


@cache
def _find_zstandard() -> type[ZstdDecompressor] | None:
    """Imported when the first large batch comes: few brokers ever see one."""
    try:
        from zstandard import ZstdDecompressor
    except ImportError:
        return None
    return ZstdDecompressor


def _make_zstd_decoder() -> ZstdDecompressor | None:
    make = _find_zstandard()
    return None if make is None else make(max_window_size=_ZSTD_WINDOW_BYTES)


def _unfold_zstd(data: memoryview) -> Iterator[Buffer]:
    """One frame after the other; producers write one.

    The decoder gives all that the bytes unfold to which it is fed, so it is fed few of them.
    """
    from zstandard import ZstdError

    decoder = _make_zstd_decoder()
    if decoder is None:
        raise ValueError("zstd cannot be unfolded without the package zstandard")
    frame = decoder.decompressobj()
    position = 0
    try:
        while position < len(data):
            if frame.eof:
                frame = decoder.decompressobj()
            fed = data[position : position + _ZSTD_FED_BYTES]
            position += len(fed)
            piece = frame.decompress(fed)
            if piece:
                yield piece
            position -= len(frame.unused_data)
    except ZstdError as error:
        raise _damage(error) from None
    if not frame.eof:
        raise _damage("it is cut short")
