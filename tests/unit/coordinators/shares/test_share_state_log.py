"""Records of `__share_group_state` in Kafka's formats: the golden bytes follow the schemas of 4.3.

That Kafka itself reads them is seen in `tests/interop/test_java_share_groups.py`.
"""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.shares.rules.records import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateRecord,
    ShareUpdate,
    SnapshotRecord,
    StateBatch,
    UpdateRecord,
    decode_share_state,
    encode_share_state,
)
from moldau.errors import InvalidRecordError

KEY = SharePartitionKey("takers", UUID("00010203-0405-0607-0809-0a0b0c0d0e0f"), 3)
BATCHES = (
    StateBatch(10, 19, DeliveryState.ACKNOWLEDGED, 1),
    StateBatch(20, 20, DeliveryState.AVAILABLE, 2),
)
SNAPSHOT = SnapshotRecord(
    KEY,
    ShareState(
        snapshot_epoch=4,
        state_epoch=2,
        leader_epoch=7,
        start_offset=10,
        delivery_complete_count=10,
        create_timestamp_ms=1_700_000_000_000,
        write_timestamp_ms=1_700_000_000_001,
        batches=BATCHES,
    ),
)
UPDATE = UpdateRecord(KEY, ShareUpdate(4, 7, -1, -1, BATCHES[1:]))
KEY_HEX = "000674616b657273 000102030405060708090a0b0c0d0e0f 00000003"
SNAPSHOT_HEX = (
    "0000 00000004 00000002 00000007 000000000000000a 0000018bcfe56800 0000018bcfe56801 03"
    "000000000000000a 0000000000000013 02 0001 00"
    "0000000000000014 0000000000000014 00 0002 00"
    "01 00 04 0000000a"
)
UPDATE_HEX = (
    "0000 00000004 00000007 ffffffffffffffff 02 0000000000000014 0000000000000014 00 0002 00 00"
)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (SNAPSHOT, "0000" + KEY_HEX, SNAPSHOT_HEX),
        (UPDATE, "0001" + KEY_HEX, UPDATE_HEX),
        (SnapshotRecord(KEY, None), "0000" + KEY_HEX, None),
    ],
)
def test_records_have_kafkas_bytes(record: ShareStateRecord, key: str, value: str | None) -> None:
    encoded = encode_share_state(record)
    assert encoded[0] == bytes.fromhex(key)
    assert encoded[1] == (None if value is None else bytes.fromhex(value))
    assert decode_share_state(*encoded) == record


def test_tags_of_later_versions_are_passed_over() -> None:
    value = bytes.fromhex(UPDATE_HEX)[:-1] + bytes.fromhex("02 00 04 00000007 05 01 ff")
    record = decode_share_state(bytes.fromhex("0001" + KEY_HEX), value)
    assert isinstance(record, UpdateRecord)
    assert record.value is not None
    assert record.value.delivery_complete_count == 7


def test_other_kinds_of_records_are_left_alone() -> None:
    assert decode_share_state(bytes.fromhex("0002" + KEY_HEX), b"whatever") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\0", b""),
        (bytes.fromhex("0000" + KEY_HEX), b"\0"),
        (bytes.fromhex("0000" + KEY_HEX), b"\0\1"),
        (bytes.fromhex("0000" + KEY_HEX), bytes.fromhex(SNAPSHOT_HEX)[:40]),
        (bytes.fromhex("0001" + KEY_HEX), bytes.fromhex(UPDATE_HEX.replace("00 0002", "07 0002"))),
    ],
)
def test_garbage_is_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        decode_share_state(key, value)


def test_a_group_whose_name_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRecordError):
        encode_share_state(SnapshotRecord(KEY._replace(group_id="x" * 40_000), None))


@given(st.binary(max_size=60), st.binary(max_size=120))
def test_no_bytes_do_anything_else(key: bytes, value: bytes) -> None:
    with suppress(InvalidRecordError):
        decode_share_state(key, value)
