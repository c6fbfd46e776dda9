"""Both of our record codecs, and the batches of other people's clients: byte for byte the same.

aiokafka's batches are made here; librdkafka shows its own to a broker only, which keeps the records
as they are.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import moldau
from moldau.client.consumer.rules.fetch_buffer import RawBatch
from moldau.records.batch_header import HEADER_BYTES, Buffer, read_header
from moldau.records.codec import RecordCodec
from moldau.records.record import NewRecord, Record
from moldau.records.record_batch import payload_of
from support import confluent_client
from support.rows import Row
from support.waiting import PATIENCE_SECONDS

# The broker keeps what hypothesis makes up for as long as the test takes.
BROKER_SETTINGS = {"log.retention.ms": "-1"}

contents = st.none() | st.binary(max_size=30) | st.integers(60, 9000).map(bytes)
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=10)
rows_of_a_batch = st.lists(
    st.builds(
        NewRecord,
        st.integers(1, 1_700_000_000_000),
        contents,
        contents,
        st.lists(st.tuples(names, contents), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module", params=["native", "pure"])
def codec(request: pytest.FixtureRequest) -> RecordCodec:
    try:
        module = importlib.import_module(f"moldau.records._codec_{request.param}")
    except ImportError:
        pytest.skip("the native record codec is not built")
    return module


def check_payload(codec: RecordCodec, batch: Buffer, rows: Sequence[NewRecord]) -> None:
    """The records of a foreign batch are read as these rows, and written as the same bytes."""
    header = read_header(batch)
    payload = payload_of(batch, header)
    records = [Record(header.base_offset + n, *row) for n, row in enumerate(rows)]
    decoded = codec.decode_records(
        payload, header.record_count, header.base_offset, header.base_timestamp
    )
    assert decoded == records
    assert codec.encode_records(rows, header.base_timestamp) == bytes(payload)


@given(rows=rows_of_a_batch)
def test_aiokafkas_records_are_read_and_written(codec: RecordCodec, rows: list[NewRecord]) -> None:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 30,
    )
    for offset, row in enumerate(rows):
        builder.append(offset, row.timestamp_ms, row.key, row.value, list(row.headers))
    theirs = bytes(builder.build())

    check_payload(codec, theirs, rows)

    ours = theirs[:HEADER_BYTES] + codec.encode_records(rows, read_header(theirs).base_timestamp)
    read_back = AiokafkaBatch(ours)
    assert read_back.validate_crc()
    assert [(one.key, one.value, tuple(one.headers)) for one in read_back] == [
        (row.key, row.value, row.headers) for row in rows
    ]


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rows=rows_of_a_batch)
def test_librdkafkas_records_are_read_and_written(
    codec: RecordCodec, bootstrap: str, topic: str, rows: list[NewRecord]
) -> None:
    wanted = [Row(row.key, row.value, row.headers, row.timestamp_ms) for row in rows]
    first_offset, *_ = confluent_client.produce(bootstrap, topic, wanted)

    batches: list[RawBatch] = []
    with moldau.Consumer(bootstrap) as consumer:
        partition = moldau.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, first_offset)
        while not batches or batches[-1].next_offset < first_offset + len(rows):
            batches += consumer.poll_batches(PATIENCE_SECONDS)

    for batch in batches:
        begin = batch.header.base_offset - first_offset
        check_payload(codec, batch.data, rows[begin : begin + batch.header.record_count])
