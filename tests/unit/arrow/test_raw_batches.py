"""Batches as Arrow: the rows of `records_of`, in the columns of Spark's Kafka source."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.arrow.columns import whole_schema
from moldau.arrow.raw_batches import batches_to_table, to_record_batches
from moldau.client.consumer.rules.fetch_buffer import RawBatch
from moldau.errors import BadCompressionError, InvalidRecordError
from moldau.model import TopicPartition
from moldau.records.batch_header import ATTRIBUTES_AT, read_header
from moldau.records.compression import Codec
from moldau.records.record import NewRecord
from moldau.records.record_batch import build_batch, records_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CLICKS = TopicPartition("clicks", 3)

blobs = st.none() | st.binary(max_size=9)
many_rows = st.lists(
    st.builds(
        NewRecord,
        st.integers(0, 1 << 41),
        blobs,
        blobs,
        st.lists(st.tuples(st.text(max_size=3), blobs), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


def raw(
    rows: Sequence[NewRecord],
    base_offset: int = 0,
    partition: TopicPartition = CLICKS,
    *,
    codec: Codec = Codec.NONE,
    log_append_time_ms: int | None = None,
) -> RawBatch:
    data = bytes(
        build_batch(
            rows, base_offset=base_offset, codec=codec, log_append_time_ms=log_append_time_ms
        )
    )
    return raw_of(data, partition)


def raw_of(data: bytes | bytearray, partition: TopicPartition = CLICKS) -> RawBatch:
    header = read_header(data)
    return RawBatch(partition, memoryview(data), header, header.base_offset, header.next_offset)


def expected_rows(batches: Sequence[RawBatch]) -> Iterator[dict[str, object]]:
    """From the records, one by one."""
    for batch in batches:
        for record in records_of(batch.data):
            if not batch.from_offset <= record.offset < batch.next_offset:
                continue
            yield {
                "key": record.key,
                "value": record.value,
                "topic": batch.partition.topic,
                "partition": batch.partition.partition,
                "offset": record.offset,
                "timestamp": EPOCH + timedelta(milliseconds=record.timestamp_ms),
                "timestampType": int(batch.header.is_log_append_time),
                "headers": [{"key": n, "value": v} for n, v in record.headers] or None,
            }


def assert_same(table: pa.Table, batches: Sequence[RawBatch]) -> None:
    table.validate(full=True)
    assert table.to_pylist() == list(expected_rows(batches))


@settings(deadline=None)  # the first table loads time zones
@given(
    st.lists(
        st.builds(
            raw,
            many_rows,
            st.integers(0, 1 << 50),
            st.builds(TopicPartition, st.sampled_from(["clicks", "ř"]), st.integers(0, 3)),
            codec=st.sampled_from(Codec),
            log_append_time_ms=st.none() | st.integers(0, 1 << 41),
        ),
        max_size=5,
    )
)
def test_a_table_has_the_records_of_the_batches(batches: list[RawBatch]) -> None:
    assert_same(batches_to_table(batches), batches)


def test_the_schema_is_that_of_sparks_kafka_source() -> None:
    table = batches_to_table([])

    assert table.num_rows == 0
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[ms, tz=UTC]"),
        ("timestampType", "int32"),
        ("headers", "list<item: struct<key: string, value: binary>>"),
    ]


def test_only_the_offsets_that_are_meant_are_in_the_table() -> None:
    batch = raw([NewRecord(n, None, b"%d" % n) for n in range(10)], base_offset=20)
    batches = [batch._replace(from_offset=28), batch._replace(next_offset=22), batch]

    table = batches_to_table(batches)

    assert table.column("offset").to_pylist() == [28, 29, 20, 21, *range(20, 30)]
    assert_same(table, batches)


def test_columns_come_in_the_order_asked_for() -> None:
    batches = [raw([NewRecord(5, b"k", b"v", (("h", b"1"),))], base_offset=7)]

    table = batches_to_table(batches, columns=["offset", "headers", "partition"])

    assert table.to_pylist() == [
        {"offset": 7, "headers": [{"key": "h", "value": b"1"}], "partition": 3}
    ]
    assert table.column_names == ["offset", "headers", "partition"]


@pytest.mark.parametrize("name", whole_schema().names)
def test_each_column_can_be_had_alone(name: str) -> None:
    batches = [raw([NewRecord(5, b"k", None), NewRecord(6, None, b"v", (("h", None),))])]

    table = batches_to_table(batches, columns=[name])

    table.validate(full=True)
    assert table.to_pylist() == [{name: row[name]} for row in expected_rows(batches)]


def test_timestamps_can_be_had_in_microseconds() -> None:
    batches = [raw([NewRecord(1_700_000_000_123, None, None)])]

    table = batches_to_table(batches, columns=["timestamp"], timestamp_unit="us")

    assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [1_700_000_000_123_000]


def test_a_timestamp_beyond_all_reason_does_not_stop_a_table() -> None:
    batches = [raw([NewRecord((1 << 63) - 1, None, b"v")])]

    for unit in ("ms", "us"):
        table = batches_to_table(batches, timestamp_unit=unit)  # type: ignore[arg-type]
        assert table.column("value").to_pylist() == [b"v"]


def test_much_is_unpacked_piece_by_piece() -> None:
    rows = [NewRecord(0, None, bytes(100))] * 10
    batches = [raw(rows, 10 * n, codec=Codec.ZSTD) for n in range(6)]

    pieces = list(to_record_batches(iter(batches), whole_schema(), target_bytes=2000))

    assert [piece.num_rows for piece in pieces] == [20, 20, 20]
    assert_same(pa.Table.from_batches(pieces), batches)


def test_batches_without_a_wanted_record_make_no_piece() -> None:
    batch = raw([NewRecord(0, None, b"v")])._replace(next_offset=0)

    assert list(to_record_batches([batch], whole_schema())) == []


def test_a_table_holds_on_to_nothing_but_its_memory() -> None:
    data = bytearray(build_batch([NewRecord(0, b"key", b"value")]))
    table = batches_to_table([raw_of(data)])

    data.clear()  # possible only when nobody holds on to the buffer
    gc.collect()

    assert table.column("value").to_pylist() == [b"value"]


def test_damaged_batches_are_refused() -> None:
    batch = raw([NewRecord(0, None, b"value")], base_offset=12)
    wrong_codec = bytearray(batch.data)
    wrong_codec[ATTRIBUTES_AT + 1] |= Codec.GZIP

    with pytest.raises(InvalidRecordError, match="the batch at offset 12, record 0"):
        batches_to_table([batch._replace(data=batch.data[:-1])])
    with pytest.raises(BadCompressionError):
        batches_to_table([raw_of(wrong_codec)])


def test_frames_of_pandas_and_polars_are_made_of_a_table() -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("pandas")
    rows = [NewRecord(1_700_000_000_000, b"k", b"v", (("h", b"1"),)), NewRecord(5, None, None)]
    table = batches_to_table([raw(rows, 40)])

    pandas_frame = table.to_pandas()
    assert list(pandas_frame["offset"]) == [40, 41]
    assert list(pandas_frame["value"]) == [b"v", None]
    assert pandas_frame["timestamp"][0] == datetime.fromtimestamp(1_700_000_000, UTC)

    polars_frame = polars.from_arrow(table)
    assert polars_frame["offset"].to_list() == [40, 41]
    assert polars_frame["key"].to_list() == [b"k", None]
    assert polars_frame["headers"].to_list() == [[{"key": "h", "value": b"1"}], None]
