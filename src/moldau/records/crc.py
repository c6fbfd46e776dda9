"""The CRC-32C of a record batch: over everything from the attributes to the batch's end.

Answers for the checksum alone; that the batch is whole was checked before. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import cast

from moldau.records.batch_header import ATTRIBUTES_AT, CRC_AT, BatchHeader, Buffer

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


def seal(batch: bytearray | memoryview) -> None:
    """Write the checksum into the header; the last step of every change inside a batch."""
    _CRC.pack_into(batch, CRC_AT, compute_crc(batch))
