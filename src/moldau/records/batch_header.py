"""The header of a record batch, version 2: the only part of a batch that the broker looks at.

    offset  bytes  field
         0      8  base offset              written by the broker, outside the CRC
         8      4  batch length             of everything after this field
        12      4  partition leader epoch   written by the broker, outside the CRC
        16      1  magic                    2
        17      4  CRC-32C                  of everything from the attributes on
        21      2  attributes               codec 0-2, timestamp type 3, transactional 4, control 5,
                                            delete horizon 6
        23      4  last offset delta
        27      8  base timestamp
        35      8  max timestamp
        43      8  producer id
        51      2  producer epoch
        53      4  base sequence
        57      4  record count
        61         records

A rule: bytes in, values out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import NamedTuple, cast

from moldau.model import NO_PRODUCER_ID, NO_SEQUENCE

Buffer = bytes | bytearray | memoryview

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
"""Base offset and batch length: what precedes the bytes that `batch length` counts."""

BASE_OFFSET_AT = 0
LENGTH_AT = 8
LEADER_EPOCH_AT = 12
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35

CURRENT_MAGIC = 2

CODEC_MASK = 0x07
TIMESTAMP_TYPE_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40


_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qi")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")


class BatchHeader(NamedTuple):
    """The fields as they are stored. A named tuple: it is made once for each batch."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at a position; the caller knows that 61 bytes are there."""
    return BatchHeader._make(_HEADER.unpack_from(buffer, position))


def read_size(buffer: Buffer, position: int = 0) -> int:
    """Size of the whole batch at a position, from its first twelve bytes."""
    length: int = _PREFIX.unpack_from(buffer, position)[1]
    return length + LOG_OVERHEAD_BYTES


def walk_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; stops before the first one that is cut short."""
    position = 0
    end = len(buffer)
    while position + HEADER_BYTES <= end:
        header = read_header(buffer, position)
        size = header.batch_length + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES or position + size > end:
            return
        yield position, header
        position += size


def stamp(
    buffer: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0
) -> None:
    """Write what the broker decides into a batch; neither field is under the CRC."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LEADER_EPOCH_AT, leader_epoch)


# The CRC-32C of a batch covers everything from the attributes on.


_CRC = struct.Struct(">I")
_Checksum = Callable[[Buffer], int]


def _load_extension() -> _Checksum:
    """The package's own module in C, without the package's face.

    That one looks its version up on disk and brings a command line along: a twelfth of a broker's
    start and 2 MB, for nothing that is used here.
    """
    package = PathFinder.find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:  # built in another way: take the front door
        from crc32c import crc32c as checksum

        return cast("_Checksum", checksum)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("_Checksum", module.crc32c)


crc32c: _Checksum = _load_extension()
"""Of any bytes."""


def compute_crc(batch: Buffer) -> int:
    """The checksum that belongs into the header of this one whole batch."""
    return crc32c(memoryview(batch)[ATTRIBUTES_AT:])


def crc_matches(batch: Buffer, header: BatchHeader) -> bool:
    """Whether this one whole batch is what its producer sent."""
    return crc32c(memoryview(batch)[ATTRIBUTES_AT:]) == header.crc


def write_crc(batch: bytearray | memoryview) -> None:
    """Write the checksum into the header; the last step of every change inside a batch."""
    _CRC.pack_into(batch, CRC_AT, compute_crc(batch))
