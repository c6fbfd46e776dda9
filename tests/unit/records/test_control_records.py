from __future__ import annotations

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER
from aiokafka.record.control_record import ControlRecord as AiokafkaControlRecord
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from moldau.errors import InvalidRecordError
from moldau.model import NO_SEQUENCE
from moldau.records.batch_header import crc_matches, read_header
from moldau.records.record import Record
from moldau.records.record_batch import (
    ControlType,
    EndTransactionMarker,
    build_marker_batch,
    find_control_type,
    find_marker,
    records_of,
)

COMMIT = EndTransactionMarker(ControlType.COMMIT, 12)
ABORT = EndTransactionMarker(ControlType.ABORT, 12)


def marker_batch(marker: EndTransactionMarker) -> bytearray:
    return build_marker_batch(
        marker,
        timestamp_ms=1000,
        producer_id=5,
        producer_epoch=2,
        base_offset=9,
        leader_epoch=3,
    )


def control_record(key: bytes | None, value: bytes | None) -> Record:
    return Record(0, 0, key, value)


@given(
    st.builds(
        EndTransactionMarker, st.sampled_from(ControlType), st.integers(-(1 << 31), (1 << 31) - 1)
    )
)
def test_a_marker_comes_back_from_its_batch(marker: EndTransactionMarker) -> None:
    (record,) = records_of(marker_batch(marker))

    assert find_marker(record) == marker


def test_the_batch_of_a_marker_is_a_control_batch_without_a_sequence() -> None:
    batch = marker_batch(COMMIT)

    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch) == (5, 2)
    assert header.base_sequence == NO_SEQUENCE
    assert (header.base_offset, header.leader_epoch, header.record_count) == (9, 3, 1)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1000)
    assert crc_matches(batch, header)


def test_the_bytes_are_those_of_kafka() -> None:
    (record,) = records_of(marker_batch(COMMIT))

    assert record.key == b"\x00\x00\x00\x01"
    assert record.value == b"\x00\x00\x00\x00\x00\x0c"


def test_other_clients_understand_the_markers() -> None:
    for marker, aiokafka_marker in ((COMMIT, COMMIT_MARKER), (ABORT, ABORT_MARKER)):
        batch = marker_batch(marker)
        (record,) = records_of(batch)
        assert AiokafkaControlRecord.parse(record.key) == aiokafka_marker

        (foreign,) = KafkaPythonBatch(bytes(batch))
        assert foreign.commit == (marker is COMMIT)
        assert foreign.abort == (marker is ABORT)


def test_control_records_of_other_kinds_are_no_markers() -> None:
    leader_change = control_record(b"\x00\x00\x00\x02", b"")

    assert find_control_type(leader_change.key) is None
    assert find_marker(leader_change) is None


def test_later_versions_are_read_by_the_fields_that_are_known() -> None:
    record = control_record(b"\x00\x01\x00\x00more", b"\x00\x05\x00\x00\x00\x0cmore")

    assert find_marker(record) == ABORT


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_a_key_that_is_none_is_refused(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="key of a control record"):
        find_control_type(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_a_marker_without_a_sound_value_is_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="value of an end-transaction marker"):
        find_marker(control_record(b"\x00\x00\x00\x00", value))
