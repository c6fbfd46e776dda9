from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from moldau.errors import InvalidRecordError
from moldau.records.batch_header import HEADER_BYTES, crc_matches, read_header
from moldau.records.compression import Codec
from moldau.records.record import NewRecord, Record
from moldau.records.record_batch import build_batch, records_of

NOW = 1_700_000_000_000

contents = st.none() | st.binary(max_size=30) | st.integers(60, 9000).map(bytes)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
rows_of_a_batch = st.lists(
    st.builds(
        NewRecord,
        st.integers(0, 1 << 42),
        contents,
        contents,
        st.lists(st.tuples(names, contents), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=6,
)


def build_elsewhere(
    builder_class: type[AiokafkaBuilder | KafkaPythonBuilder],
    rows: Sequence[NewRecord],
    codec: Codec = Codec.NONE,
    **producer: int,
) -> bytes:
    state = {"is_transactional": 0, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
    builder = builder_class(
        magic=2, compression_type=codec.value, batch_size=1 << 30, **(state | producer)
    )
    for offset, row in enumerate(rows):
        builder.append(
            offset,
            timestamp=row.timestamp_ms,
            key=row.key,
            value=row.value,
            headers=list(row.headers),
        )
    return bytes(builder.build())


def read_elsewhere(
    batch_class: type[AiokafkaBatch | KafkaPythonBatch], batch: bytearray
) -> list[Record]:
    foreign = batch_class(bytes(batch))
    assert foreign.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in foreign]


def with_offsets(rows: Sequence[NewRecord], base_offset: int = 0) -> list[Record]:
    return [Record(base_offset + index, *row) for index, row in enumerate(rows)]


@pytest.mark.parametrize("builder_class", [AiokafkaBuilder, KafkaPythonBuilder])
@given(rows=rows_of_a_batch)
def test_uncompressed_batches_are_those_of_other_clients(
    builder_class: type[AiokafkaBuilder | KafkaPythonBuilder], rows: list[NewRecord]
) -> None:
    theirs = bytearray(build_elsewhere(builder_class, rows))

    # They leave the leader epoch at 0 where Java and we write -1; the broker fills it in.
    leader_epoch = read_header(theirs).leader_epoch
    assert bytes(build_batch(rows, leader_epoch=leader_epoch)) == theirs


@pytest.mark.parametrize("builder_class", [AiokafkaBuilder, KafkaPythonBuilder])
def test_batches_of_idempotent_producers_are_those_of_other_clients(
    builder_class: type[AiokafkaBuilder | KafkaPythonBuilder],
) -> None:
    producer = {"producer_id": 1 << 40, "producer_epoch": 3, "base_sequence": 77}
    rows = [NewRecord(NOW, b"key", b"value"), NewRecord(NOW + 1, None, None, (("n", b"v"),))]
    theirs = build_elsewhere(builder_class, rows, is_transactional=1, **producer)

    ours = build_batch(
        rows,
        leader_epoch=read_header(theirs).leader_epoch,
        transactional=True,
        **producer,
    )

    assert ours == theirs


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("batch_class", [AiokafkaBatch, KafkaPythonBatch])
@given(rows=rows_of_a_batch)
def test_other_clients_read_every_codec(
    batch_class: type[AiokafkaBatch | KafkaPythonBatch], codec: Codec, rows: list[NewRecord]
) -> None:
    batch = build_batch(rows, codec=codec)

    assert read_elsewhere(batch_class, batch) == with_offsets(rows)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("builder_class", [AiokafkaBuilder, KafkaPythonBuilder])
@given(rows=rows_of_a_batch)
def test_every_codec_of_other_clients_is_read(
    builder_class: type[AiokafkaBuilder | KafkaPythonBuilder],
    codec: Codec,
    rows: list[NewRecord],
) -> None:
    batch = build_elsewhere(builder_class, rows, codec)

    assert crc_matches(batch, read_header(batch))
    assert records_of(batch) == with_offsets(rows)


def test_the_header_says_what_is_inside() -> None:
    rows = [NewRecord(NOW + 5, b"a", b"1"), NewRecord(NOW + 9, b"b", b"2"), (NOW, None, None, ())]

    batch = build_batch(rows, base_offset=1000, leader_epoch=4, base_sequence=8)

    header = read_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (1000, 1002, 3)
    assert (header.base_timestamp, header.max_timestamp) == (NOW + 5, NOW + 9)
    assert (header.leader_epoch, header.magic, header.attributes) == (4, 2, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, 8)
    assert crc_matches(batch, header)


def test_the_attributes_say_how_the_batch_was_made() -> None:
    batch = build_batch([(NOW, None, b"", ())], codec=Codec.LZ4, transactional=True, control=True)

    header = read_header(batch)
    assert (header.codec, header.is_transactional, header.is_control) == (3, True, True)
    assert not header.is_log_append_time


def test_the_log_append_time_is_the_time_of_every_record() -> None:
    rows = [NewRecord(NOW, None, b"a"), NewRecord(NOW + 7, None, b"b")]

    batch = build_batch(rows, log_append_time_ms=NOW + 100)

    header = read_header(batch)
    assert header.is_log_append_time
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 100)
    assert [record.timestamp_ms for record in records_of(batch)] == [NOW + 100] * 2


def test_the_level_of_compression_is_used() -> None:
    rows = [(NOW + index, b"%d" % (index * 7919), b"value %d" % index, ()) for index in range(5000)]

    weak, strong = (build_batch(rows, codec=Codec.ZSTD, level=level) for level in (1, 19))

    assert len(strong) < len(weak)
    assert records_of(strong) == records_of(weak)


def test_records_read_from_a_log_can_be_built_into_a_batch_again() -> None:
    rows = [NewRecord(NOW, b"key", b"value", (("name", None),)), NewRecord(NOW + 1, None, None)]
    batch = build_batch(rows, base_offset=50)

    assert build_batch(records_of(batch), base_offset=50) == batch


def test_records_may_come_from_an_iterator() -> None:
    rows = [NewRecord(NOW, b"key", b"value")] * 3

    assert build_batch(iter(rows)) == build_batch(rows) == build_batch(tuple(rows))


def test_a_batch_without_records_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="at least one record"):
        build_batch([])


def test_a_field_that_does_not_fit_is_refused() -> None:
    with pytest.raises(struct.error):
        build_batch([(NOW, None, None, ())], producer_epoch=1 << 15)


def test_the_smallest_batch_has_the_size_that_the_format_says() -> None:
    assert len(build_batch([(NOW, None, None, ())])) == HEADER_BYTES + 7
