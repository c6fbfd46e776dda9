"""The codecs of a record batch, and how far a batch may unfold.

Answers for turning records into compressed bytes that every Kafka client reads, and back within a
limit, since a few hundred bytes can unfold to gigabytes. It does not know what is inside. A rule.

The work is done by cramjam. Every function of it used here lets other threads run meanwhile (this
was measured), except the LZ4 frame compressor, see `_compress_lz4`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Final

import cramjam

from moldau.errors import (
    BadCompressionError,
    ConfigurationError,
    DecompressionLimitError,
    UnsupportedCompressionError,
)
from moldau.records.batch_header import Buffer

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor


__all__ = [
    "BadCompressionError",
    "Codec",
    "DecompressionLimitError",
    "compress",
    "decompress",
    "expect_bytes",
    "find_zstd_window",
    "first_snappy_sizes",
    "snappy_blocks",
]


class Codec(IntEnum):
    """The codec as it stands in bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def label(self) -> str:
        """The name in configurations and on the command line."""
        return self.name.lower()

    @classmethod
    def parse(cls, label: str) -> Codec:
        """The codec of a name; `uncompressed` is what topics call `none`."""
        if label == "uncompressed":
            return cls.NONE
        for codec in cls:
            if codec.label == label:
                return codec
        known = ", ".join(codec.label for codec in cls)
        raise ConfigurationError(f"no compression codec is called {label!r}; there are {known}")

    @classmethod
    def require(cls, number: int) -> Codec:
        """The codec of the bits in a batch header; three of the eight values mean nothing."""
        if 0 <= number <= cls.ZSTD:
            return cls(number)
        raise UnsupportedCompressionError(f"compression codec {number} is not known")


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress the records of a batch; without a level, as strongly as Kafka does."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=_gzip_level(level)))
        case Codec.SNAPPY:
            return _compress_xerial(data)
        case Codec.LZ4:
            return _compress_lz4(data, level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_zstd_level(level)))


def expect_bytes(codec: Codec, data: Buffer) -> int:
    """What the records of a batch most likely unfold to, by what they say of themselves.

    Nobody vouches for it: they may turn out larger. Costs less than a millisecond, whatever it is.
    """
    match codec:
        case Codec.NONE:
            return len(data)
        case Codec.GZIP:
            return _expect_gzip(data)
        case Codec.SNAPPY:
            return _expect_snappy(data)
        case Codec.LZ4:
            return _guess(data)
        case Codec.ZSTD:
            return _expect_zstd(data)


def decompress(
    codec: Codec, data: Buffer, limit_bytes: int, expected_bytes: int | None = None
) -> Buffer:
    """Unfold the records of a batch, or refuse when there are more than `limit_bytes`.

    Never holds more than `limit_bytes` of output, and mostly one buffer of just the right size.
    Whoever knows more than the batch says of itself names what to expect: a buffer that is too
    small is filled in vain.
    """
    match codec:
        case Codec.NONE:
            return _pass_through(data, limit_bytes)
        case Codec.GZIP:
            expected = expected_bytes or _expect_gzip(data)
            return _decompress_bounded(cramjam.gzip.decompress_into, data, expected, limit_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy_blocks(list(snappy_blocks(data)), limit_bytes)
        case Codec.LZ4:
            _require_kafka_frame(memoryview(data))
            expected = expected_bytes or _guess(data)
            return _decompress_bounded(cramjam.lz4.decompress_into, data, expected, limit_bytes)
        case Codec.ZSTD:
            expected = expected_bytes or _expect_zstd(data)
            return _decompress_bounded(cramjam.zstd.decompress_into, data, expected, limit_bytes)


def _limit_error(limit_bytes: int) -> DecompressionLimitError:
    return DecompressionLimitError(f"the records decompress to more than {limit_bytes} bytes")


def _pass_through(data: Buffer, limit_bytes: int) -> bytes:
    if len(data) > limit_bytes:
        raise _limit_error(limit_bytes)
    return bytes(data)


def _guess(data: Buffer) -> int:
    return max(len(data) * _GUESSED_RATIO, _FIRST_GUESS_BYTES)


# --- gzip and zstd: cramjam's own levels -----------------------------------------------------

_GZIP_DEFAULT_LEVEL = 6
_GZIP_SIZE = struct.Struct("<I")
_GZIP_SMALLEST_BYTES = 18
_ZSTD_DEFAULT_LEVEL = 3
_ZSTD_MAGIC = bytes.fromhex("28b52ffd")
_ZSTD_SIZE_BYTES = (0, 2, 4, 8)
_ZSTD_SIZE_FLAG_SHIFT = 6
_ZSTD_SINGLE_SEGMENT_FLAG = 0x20
_ZSTD_DICTIONARY_FLAGS = 0x03
_ZSTD_SMALLEST_BYTES = 9
_ZSTD_LARGEST_WINDOW_BYTES = 1 << 64


def _gzip_level(level: int | None) -> int:
    """Kafka's -1 asks for the library's default, which is 6 everywhere."""
    return _GZIP_DEFAULT_LEVEL if level is None or level < 0 else min(max(level, 1), 9)


def _zstd_level(level: int | None) -> int:
    return _ZSTD_DEFAULT_LEVEL if level is None else min(max(level, -131072), 22)


def _expect_gzip(data: Buffer) -> int:
    """The last four bytes say it, of the last member (producers write one) and modulo 4 GiB."""
    if len(data) < _GZIP_SMALLEST_BYTES:
        return _FIRST_GUESS_BYTES
    size: int = _GZIP_SIZE.unpack_from(data, len(data) - _GZIP_SIZE.size)[0]
    return size


def _expect_zstd(data: Buffer) -> int:
    """A frame may begin with the size of its content (RFC 8878, 3.1.1.1)."""
    if len(data) < _ZSTD_SMALLEST_BYTES or data[:4] != _ZSTD_MAGIC:
        return _guess(data)
    size = _find_zstd_content_size(data)
    return _guess(data) if size is None else size


def find_zstd_window(data: Buffer) -> int:
    """How much of what came before the decoder of a zstd frame has to keep (3.1.1.1.2).

    Of what is no frame nobody knows: the largest number there is.
    """
    if len(data) < _ZSTD_SMALLEST_BYTES or data[:4] != _ZSTD_MAGIC:
        return _ZSTD_LARGEST_WINDOW_BYTES
    if data[4] & _ZSTD_SINGLE_SEGMENT_FLAG:
        size = _find_zstd_content_size(data)
        return _ZSTD_LARGEST_WINDOW_BYTES if size is None else size
    base = 1 << (10 + (data[5] >> 3))
    return base + base // 8 * (data[5] & 7)


def _find_zstd_content_size(data: Buffer) -> int | None:
    """None where the frame does not say it, or needs a dictionary, which nobody has."""
    descriptor = data[4]
    is_single = bool(descriptor & _ZSTD_SINGLE_SEGMENT_FLAG)
    flag = descriptor >> _ZSTD_SIZE_FLAG_SHIFT
    if descriptor & _ZSTD_DICTIONARY_FLAGS or not (flag or is_single):
        return None
    count = _ZSTD_SIZE_BYTES[flag] or 1
    start = 5 if is_single else 6
    size = int.from_bytes(data[start : start + count], "little")
    return size + 256 if count == 2 else size


# --- gzip, lz4 and zstd: output of unknown size into a bounded buffer ------------------------

_FIRST_GUESS_BYTES = 16 * 1024
_GUESSED_RATIO = 8
_GROWTH = 4
_OUTPUT_FULL = "failed to write whole buffer"
"""What cramjam says when the output does not fit; it stops there, having allocated nothing more."""


def _decompress_bounded(
    decompress_into: Callable[[Buffer, bytearray], int],
    data: Buffer,
    expected_bytes: int,
    limit_bytes: int,
) -> Buffer:
    """Try a buffer of the likely size, then larger ones; repeated work stays below a third."""
    size = min(max(expected_bytes, 1), limit_bytes)
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if str(error) != _OUTPUT_FULL:
                raise BadCompressionError(f"the records do not decompress: {error}") from None
        else:
            return memoryview(output)[:written]
        if size >= limit_bytes:
            raise _limit_error(limit_bytes)
        size = min(size * _GROWTH, limit_bytes)


# --- lz4: the frame format, in independent blocks ---------------------------------------------

_LZ4_KAFKA_DEFAULT_LEVEL = 9
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_FRAME_START = bytes.fromhex("04224d18 60 40 82")
"""Magic; version 1 with independent blocks and no checksums; 64 KiB blocks; the header's hash."""
_LZ4_FRAME_END = bytes(4)
_LZ4_MAGIC = _LZ4_FRAME_START[:4]
_LZ4_FLAGS_AT = 4
_LZ4_DICTIONARY_FLAG = 0x01
_LZ4_CONTENT_CHECKSUM_FLAG = 0x04
_LZ4_CONTENT_SIZE_FLAG = 0x08
_LZ4_BLOCK_CHECKSUM_FLAG = 0x10
_LZ4_INDEPENDENT_BLOCKS_FLAG = 0x20
_LZ4_STORED_FLAG = 1 << 31
_LZ4_BLOCK_LENGTH = struct.Struct("<I")


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """Java clients refuse linked blocks, which is all that `cramjam.lz4.compress` writes.

    Kafka's default level, 9, means the fast compressor there and here. The others need the frame
    compressor, which holds the interpreter lock: it is fed in small pieces.
    """
    if level is None or level == _LZ4_KAFKA_DEFAULT_LEVEL:
        return _compress_lz4_fast(data)
    compressor = cramjam.lz4.Compressor(
        level=min(max(level, 1), 17), content_checksum=False, block_linked=False
    )
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        compressor.compress(bytes(view[start : start + _LZ4_BLOCK_BYTES]))
    return bytes(compressor.finish())


def _compress_lz4_fast(data: Buffer) -> bytes:
    view = memoryview(data)
    frame = bytearray(_LZ4_FRAME_START)
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        packed = cramjam.lz4.compress_block(plain, store_size=False)
        if len(packed) < len(plain):
            frame += _LZ4_BLOCK_LENGTH.pack(len(packed))
            frame += packed
        else:
            frame += _LZ4_BLOCK_LENGTH.pack(len(plain) | _LZ4_STORED_FLAG)
            frame += plain
    frame += _LZ4_FRAME_END
    return bytes(frame)


def _require_kafka_frame(view: memoryview) -> None:
    """Refuse what Kafka's `Lz4BlockInputStream` does not read: linked blocks, and whatever is not
    one frame; once stored, no Java consumer would get past. A frame that is cut short is left to
    the decoder."""
    if len(view) < len(_LZ4_FRAME_START) or view[: len(_LZ4_MAGIC)] != _LZ4_MAGIC:
        raise BadCompressionError("the records do not decompress: they are no lz4 frame")
    flags = view[_LZ4_FLAGS_AT]
    if not flags & _LZ4_INDEPENDENT_BLOCKS_FLAG:
        raise BadCompressionError("the records do not decompress: the lz4 blocks are linked")
    position = len(_LZ4_FRAME_START)
    position += 8 if flags & _LZ4_CONTENT_SIZE_FLAG else 0
    position += 4 if flags & _LZ4_DICTIONARY_FLAG else 0
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM_FLAG else 0
    while position + _LZ4_BLOCK_LENGTH.size <= len(view):
        length = _LZ4_BLOCK_LENGTH.unpack_from(view, position)[0] & ~_LZ4_STORED_FLAG
        position += _LZ4_BLOCK_LENGTH.size
        if not length:
            position += 4 if flags & _LZ4_CONTENT_CHECKSUM_FLAG else 0
            if position < len(view):
                raise BadCompressionError(
                    "the records do not decompress: there is something behind the lz4 frame"
                )
            return
        position += length + checksum_bytes


# --- snappy: blocks in the framing of the xerial library, which Kafka inherited ---------------

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_VERSIONS = struct.pack(">ii", 1, 1)
_XERIAL_HEADER_BYTES = len(_XERIAL_MAGIC) + len(_XERIAL_VERSIONS)
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = struct.Struct(">i")
_MOST_SNAPPY_BLOCKS = 512


def _compress_xerial(data: Buffer) -> bytes:
    view = memoryview(data)
    framed = bytearray(_XERIAL_MAGIC + _XERIAL_VERSIONS)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        packed = cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES])
        framed += _XERIAL_LENGTH.pack(len(packed))
        framed += packed
    return bytes(framed)


def snappy_blocks(data: Buffer) -> Iterator[memoryview]:
    """Xerial framing, or one raw block, which some producers send."""
    view = memoryview(data)
    return _xerial_blocks(view) if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else iter((view,))


def first_snappy_sizes(data: Buffer) -> tuple[list[int], bool]:
    """What the first blocks say that they unfold to, and whether these are all.

    A megabyte may hold two hundred thousand blocks: asking all of them holds up the event loop.
    """
    first = list(islice(snappy_blocks(data), _MOST_SNAPPY_BLOCKS + 1))
    return _snappy_sizes(first), len(first) <= _MOST_SNAPPY_BLOCKS


def _expect_snappy(data: Buffer) -> int:
    """Of very many blocks, what they would hold if a producer like Kafka's had written them."""
    sizes, are_all = first_snappy_sizes(data)
    return sum(sizes) if are_all else max(sum(sizes), len(sizes) * _XERIAL_BLOCK_BYTES)


def _xerial_blocks(view: memoryview) -> Iterator[memoryview]:
    position = _XERIAL_HEADER_BYTES
    if len(view) < position:
        raise BadCompressionError("the records do not decompress: the snappy header is cut short")
    while position < len(view):
        start = position + _XERIAL_LENGTH.size
        length = _XERIAL_LENGTH.unpack_from(view, position)[0] if start <= len(view) else -1
        position = start + length
        if length < 0 or position > len(view):
            raise BadCompressionError("the records do not decompress: a snappy block is cut short")
        yield view[start:position]


def _snappy_sizes(blocks: Sequence[memoryview]) -> list[int]:
    try:
        return [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    except cramjam.DecompressionError as error:
        raise BadCompressionError(f"the records do not decompress: {error}") from None


def _decompress_snappy_blocks(blocks: Sequence[memoryview], limit_bytes: int) -> Buffer:
    """Every block states its size, so the limit is checked before anything is allocated."""
    sizes = _snappy_sizes(blocks)
    total = sum(sizes)
    if total > limit_bytes:
        raise _limit_error(limit_bytes)
    output = memoryview(bytearray(total))
    position = 0
    try:
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, output[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        raise BadCompressionError(f"the records do not decompress: {error}") from None
    return output


# Compressed records piece by piece, so that a batch that unfolds to much is never whole in memory.
#
# What is held at a time:
#
# | codec | at most | because |
# |---|---|---|
# | gzip | `PIECE_BYTES` | zlib stops where it is told to, and goes on from there |
# | LZ4 | 4 MiB | a block says how large it may be; Kafka's blocks are independent of each other |
# | snappy | 4 MiB | a block says how large it is; xerial's hold 32 KiB |
# | zstd | 8 MiB and 2 MiB | a window of what came before, and what a few bytes can unfold to |
#
# Some cannot be taken in pieces: an LZ4 frame with a checksum or a size of its whole content; a
# snappy block that is larger, such as producers write that do without xerial's framing; zstd with a
# larger window (Kafka's default level has 2 MiB, level 19 has 8), and any zstd without the package
# `zstandard` (which `moldau[security]` brings): cramjam's decoder does a whole frame at a time.
# `can_unfold` says so, and such a batch is unpacked as a whole, one at a time
# (`replication.incoming_batches`). A rule.


PIECE_BYTES: Final = 256 * 1024
LARGEST_PIECE_BYTES: Final = 4 << 20

_FED_BYTES: Final = 16 * 1024
_GZIP_FORMAT: Final = 31  # of zlib's window bits: a gzip header, and any window
_SNAPPY_RATIO: Final = 64
_LZ4_HEADER_BYTES: Final = 7
_LZ4_FRAME_MAGIC: Final = bytes.fromhex("04224d18")
_LZ4_FLAG_BYTE_AT: Final = 4
_LZ4_SIZES_AT: Final = 5
_LZ4_KNOWN_FLAGS: Final = 0x60  # version 1, independent blocks
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_BLOCK_SIZES: Final = {4: 64 << 10, 5: 256 << 10, 6: 1 << 20, 7: LARGEST_PIECE_BYTES}
_LZ4_RATIO: Final = 255
_LZ4_STORED: Final = 1 << 31
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
    if len(header) < _LZ4_HEADER_BYTES or not header.startswith(_LZ4_FRAME_MAGIC):
        return False
    flags = header[_LZ4_FLAG_BYTE_AT] & ~_LZ4_BLOCK_CHECKSUM
    return flags == _LZ4_KNOWN_FLAGS and header[_LZ4_SIZES_AT] >> 4 in _LZ4_BLOCK_SIZES


def _unfold_lz4(data: memoryview) -> Iterator[Buffer]:
    """Blocks together as a frame of their own: the decoder checks header, sizes and checksums.

    As many as fit for certain: a decoder for each would cost a hostile frame of tiny blocks a
    hundred times what it costs an honest one.
    """
    header = bytes(data[:_LZ4_HEADER_BYTES])
    if not _is_plain_lz4(header):
        raise ValueError("such a frame cannot be unfolded")
    largest = _LZ4_BLOCK_SIZES[header[_LZ4_SIZES_AT] >> 4]
    output = bytearray(max(largest, PIECE_BYTES))
    first, room = _LZ4_HEADER_BYTES, len(output)
    last = first
    for end, most in _lz4_blocks(data, largest, header[_LZ4_FLAG_BYTE_AT]):
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
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    position = _LZ4_HEADER_BYTES
    while True:
        start = position + _LENGTH.size
        if start > len(data):
            raise _damage("the lz4 frame is cut short")
        length = _LENGTH.unpack_from(data, position)[0] & ~_LZ4_STORED
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
