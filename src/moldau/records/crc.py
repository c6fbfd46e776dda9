"""The CRC-32C of a record batch: over everything from the attributes to the batch's end.

Answers for the checksum alone; that the batch is whole was checked before. A rule.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from moldau.records.batch_header import ATTRIBUTES_AT, CRC_AT, BatchHeader, Buffer

_CRC = struct.Struct(">I")


def compute_crc(batch: Buffer) -> int:
    """The checksum that belongs into the header of this one whole batch."""
    return crc32c(memoryview(batch)[ATTRIBUTES_AT:])


def crc_matches(batch: Buffer, header: BatchHeader) -> bool:
    """Whether this one whole batch is what its producer sent."""
    return crc32c(memoryview(batch)[ATTRIBUTES_AT:]) == header.crc


def seal(batch: bytearray | memoryview) -> None:
    """Write the checksum into the header; the last step of every change inside a batch."""
    _CRC.pack_into(batch, CRC_AT, compute_crc(batch))
