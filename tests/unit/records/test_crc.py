from __future__ import annotations

import struct

import pytest

from moldau.records.batch_header import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    compute_crc,
    crc_matches,
    read_header,
    stamp,
    write_crc,
)
from moldau.records.record_batch import build_batch


def one_batch() -> bytearray:
    return build_batch([(1_700_000_000_000, b"key", b"value", ())])


def test_the_checksum_is_crc_32c() -> None:
    batch = bytearray(ATTRIBUTES_AT) + b"123456789"

    assert compute_crc(batch) == 0xE3069283


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_checked(view: type[bytes | bytearray | memoryview]) -> None:
    batch = one_batch()

    assert crc_matches(view(batch), read_header(batch))


def test_every_byte_from_the_attributes_on_is_covered() -> None:
    header = read_header(one_batch())
    for position in range(ATTRIBUTES_AT, len(one_batch())):
        batch = one_batch()
        batch[position] ^= 1
        assert not crc_matches(batch, header), position


def test_what_the_broker_writes_is_not_covered() -> None:
    batch = one_batch()
    stamp(batch, 12345, 7)

    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch) == (12345, 7)
    assert crc_matches(batch, header)


def test_sealing_makes_a_changed_batch_match_again() -> None:
    batch = one_batch()
    batch[HEADER_BYTES:] = bytes(len(batch) - HEADER_BYTES)
    assert not crc_matches(batch, read_header(batch))

    write_crc(memoryview(batch))

    assert crc_matches(batch, read_header(batch))
    assert struct.unpack_from(">I", batch, CRC_AT)[0] == compute_crc(batch)
