"""Segments are Kafka's own: the record readers of other projects read them as they are."""

from __future__ import annotations

import pytest
from log_bench import START_MS, LogBench

from moldau.records.batch_header import read_header
from moldau.records.compression import Codec
from moldau.records.record_batch import build_batch

HEADERS = (("trace", b"abc"), ("empty", b""))


@pytest.fixture
def segment(bench: LogBench) -> bytes:
    """A log of one batch with each codec, as it is on disk."""
    log = bench.create()
    for number, codec in enumerate(Codec):
        rows = [(START_MS + number, b"key", b"value-%d" % number, HEADERS)] * 3
        batch = build_batch(rows, codec=codec)
        log.append(batch, read_header(batch), leader_epoch=4, now_ms=START_MS)
    log.close()
    return bench.files.read(bench.folder / "00000000000000000000.log")


def expected() -> list[tuple[int, int, bytes, bytes]]:
    return [
        (3 * number + i, START_MS + number, b"key", b"value-%d" % number)
        for number in range(len(Codec))
        for i in range(3)
    ]


def test_aiokafka_reads_our_segments(segment: bytes):
    memory_records = pytest.importorskip("aiokafka.record.memory_records")
    records = memory_records.MemoryRecords(segment)
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        for record in batch:
            assert [tuple(header) for header in record.headers] == list(HEADERS)
            found.append((record.offset, record.timestamp, record.key, record.value))
    assert found == expected()


def test_kafka_python_reads_our_segments(segment: bytes):
    record = pytest.importorskip("kafka.record")
    records = record.MemoryRecords(segment)
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += [(each.offset, each.timestamp, each.key, each.value) for each in batch]
    assert found == expected()
