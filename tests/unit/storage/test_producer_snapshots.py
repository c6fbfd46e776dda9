"""Producer snapshots, byte by byte as Kafka writes them."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import DamagedFileError
from moldau.storage.files import RealFiles
from moldau.storage.producer_snapshots import decode_snapshot, encode_snapshot, read_snapshot
from moldau.storage.rules.producer_state import ProducerEntry, RememberedBatch

int64s = st.integers(0, 2**63 - 1)
int32s = st.integers(0, 2**31 - 1)


@st.composite
def entries(draw):
    timestamp_ms = draw(st.integers(-1, 2**63 - 1))
    batches = draw(
        st.lists(
            st.builds(RememberedBatch, int32s, int64s, int32s, st.just(timestamp_ms)),
            max_size=5,
        )
    )
    return ProducerEntry(
        draw(int64s),
        draw(st.integers(0, 2**15 - 1)),
        tuple(batches),
        timestamp_ms,
        draw(st.integers(-1, 2**31 - 1)),
        draw(st.none() | int64s),
    )


@given(st.lists(entries(), max_size=5, unique_by=lambda entry: entry.producer_id))
def test_what_is_written_is_read_back(written):
    assert decode_snapshot(encode_snapshot(written)) == written


def test_the_bytes_are_kafkas():
    entry = ProducerEntry(1, 2, (RememberedBatch(3, 40, 5, 6000),), 6000, 7, 8)

    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 1, 2, 3, 40, 5, 6000, 7, 8)
    assert encode_snapshot([entry]) == struct.pack(">hI", 1, crc32c(body)) + body


def test_every_remembered_batch_is_kept_and_the_last_one_is_what_kafka_reads():
    batches = tuple(RememberedBatch(i, 10 + i, 0, 1000 + i) for i in range(5))
    entry = ProducerEntry(1, 0, batches, 1004)
    data = encode_snapshot([entry])

    assert decode_snapshot(data) == [entry]
    last = struct.pack(">qhiqiqiq", 1, 0, 4, 14, 0, 1004, -1, -1)
    assert data.endswith(last), "of several rows of a producer Kafka keeps the last"


def test_a_file_of_kafkas_has_the_last_batch_alone():
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 1, 2, 3, 40, 5, 6000, 7, -1)
    entry = ProducerEntry(1, 2, (RememberedBatch(3, 40, 5, 6000),), 6000, 7)
    assert decode_snapshot(struct.pack(">hI", 1, crc32c(body)) + body) == [entry]


@given(st.data())
def test_any_damage_is_noticed(data):
    good = encode_snapshot([ProducerEntry(1, 0, (RememberedBatch(3, 40, 5, 6000),), 6000)])
    bit = data.draw(st.integers(0, len(good) * 8 - 1))
    flipped = bytearray(good)
    flipped[bit // 8] ^= 1 << bit % 8

    with pytest.raises(DamagedFileError):
        decode_snapshot(bytes(flipped))
    with pytest.raises(DamagedFileError):
        decode_snapshot(good[: data.draw(st.integers(0, len(good) - 1))])
    with pytest.raises(DamagedFileError):
        decode_snapshot(good + b"\x00")


def test_a_count_that_does_not_fit_the_size_is_noticed():
    body = struct.pack(">i", 2) + bytes(46)

    with pytest.raises(DamagedFileError, match="no room"):
        decode_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)


def test_a_snapshot_goes_through_a_file(tmp_path):
    path = tmp_path / "00000000000000000041.snapshot"
    written = [ProducerEntry(1, 0, (RememberedBatch(3, 40, 5, 6000),), 6000)]

    path.write_bytes(encode_snapshot(written))

    assert read_snapshot(RealFiles(), path) == written
