"""Arrow tables through the producer: the same records in the same partitions as row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.producer_stage import TOPIC, ProducerStage
from client.scripted_broker import settle
from moldau.arrow.columns import HEADERS
from moldau.client.producer.produce_result import OutgoingRecord, RecordMetadata, RecordRange
from moldau.client.producer.producer import AsyncProducer
from moldau.errors import ErrorCode, RecordTooLargeError, UnknownTopicError
from moldau.records.record import NewRecord, Record

rows_of_tables = st.lists(
    st.builds(
        NewRecord,
        st.integers(0, 1 << 40),
        st.none() | st.binary(max_size=4),
        st.none() | st.binary(max_size=40),
        st.just(()) | st.just((("name", b"value"),)),
    ),
    min_size=1,
    max_size=60,
)


def table_of(rows: list[NewRecord], chunk: int = 1 << 20) -> pa.Table:
    headers = [[{"key": k, "value": v} for k, v in row.headers] or None for row in rows]
    whole = pa.table(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "timestamp": pa.array([row.timestamp_ms for row in rows], pa.timestamp("ms")),
            "headers": pa.array(headers, HEADERS),
        }
    )
    return pa.Table.from_batches(whole.to_batches(max_chunksize=chunk))


def contents(log: list[Record]) -> list[NewRecord]:
    return [NewRecord(*record[1:]) for record in log]


@given(rows_of_tables, st.integers(1, 30), st.sampled_from([64, 300, 16_384]))
@settings(deadline=None, max_examples=40)
def test_a_table_arrives_as_its_rows_do(rows: list[NewRecord], chunk: int, batch_size: int) -> None:
    sent, expected = ProducerStage(leaders=(1, 1, 1)), ProducerStage(leaders=(1, 1, 1))

    async def send_table(producer: AsyncProducer) -> int:
        ranges = await (await producer.send_arrow(TOPIC, table_of(rows, chunk)))
        return sum(one.record_count for one in ranges)

    async def send_rows(producer: AsyncProducer) -> None:
        await (await producer.send_many(TOPIC, rows))

    assert sent.run(send_table, batch_size=batch_size) == len(rows)
    expected.run(send_rows, batch_size=batch_size)

    def keyed(stage: ProducerStage) -> dict[int, list[NewRecord]]:
        logs = {at: contents(log) for at, log in stage.logs.items()}
        found = {at: [row for row in log if row.key is not None] for at, log in logs.items()}
        return {at: log for at, log in found.items() if log}

    def free(stage: ProducerStage) -> list[NewRecord]:
        found = [row for log in stage.logs.values() for row in contents(log) if row.key is None]
        return sorted(found, key=repr)

    assert keyed(sent) == keyed(expected)
    assert free(sent) == free(expected)


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view()])
@pytest.mark.parametrize("options", [{}, {"value_serializer": str.encode}])
def test_rows_go_to_the_partition_that_they_name_and_an_argument_goes_before(
    kind: pa.DataType, options: dict[str, Any]
) -> None:
    stage = ProducerStage(leaders=(1, 1, 1))
    values = pa.array(["a", "b", "c"], kind)
    table = pa.table({"value": values, "partition": pa.array([2, 0, 2], pa.int32())})

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send_arrow(TOPIC, table))
        await (await producer.send_arrow(TOPIC, table, partition=1))

    stage.run(story, **options)
    assert {at: stage.values(at) for at in range(3)} == {
        0: [b"b"],
        1: [b"a", b"b", b"c"],
        2: [b"a", b"c"],
    }


@pytest.mark.parametrize("named", [-1, 3])
@pytest.mark.parametrize("leaders", [(1,), (1, 1, 1)])
def test_a_partition_that_the_topic_does_not_have_is_refused(
    named: int, leaders: tuple[int, ...]
) -> None:
    stage = ProducerStage(leaders=leaders)

    async def story(producer: AsyncProducer) -> None:
        table = pa.table({"value": ["a", "b"], "partition": pa.array([0, named], pa.int32())})
        with pytest.raises(UnknownTopicError, match=f"has no partition {named}; it has"):
            await producer.send_arrow(TOPIC, table)

    stage.run(story)
    assert not stage.logs


def test_in_turn_free_rows_are_spread_evenly() -> None:
    stage = ProducerStage(leaders=(1, 1, 1))

    async def story(producer: AsyncProducer) -> None:
        table = pa.table({"value": [str(number) for number in range(300)]})
        await (await producer.send_arrow(TOPIC, table))

    stage.run(story, partitioner="round_robin")
    assert [len(stage.values(at)) for at in range(3)] == [100, 100, 100]
    assert stage.values(0)[:2] == [b"0", b"3"]


def test_keys_are_ignored_on_request() -> None:
    stage = ProducerStage(leaders=(1, 1, 1))

    async def story(producer: AsyncProducer) -> None:
        table = pa.table({"value": ["x"] * 30, "key": [str(number) for number in range(30)]})
        await (await producer.send_arrow(TOPIC, table))

    stage.run(story, partitioner_ignore_keys=True)
    assert sorted(len(log) for log in stage.logs.values()) == [30]


def test_rows_without_a_time_have_the_one_that_is_given_or_now() -> None:
    stage = ProducerStage()
    table = pa.table({"value": ["a", "b"], "timestamp": pa.array([7, None], pa.int64())})

    async def story(producer: AsyncProducer) -> int:
        await (await producer.send_arrow(TOPIC, table, timestamp_ms=9))
        now_ms = stage.clock.now_ms()
        await (await producer.send_arrow(TOPIC, table))
        return now_ms

    now_ms = stage.run(story)
    found = [record.timestamp_ms for record in stage.logs[0]]
    assert found[:3] == [7, 9, 7]
    assert found[3] >= now_ms
    assert [header.max_timestamp for header in stage.headers] == [9, found[3]]


def test_a_value_larger_than_a_batch_goes_alone_and_one_larger_than_a_request_is_refused() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        table = pa.table({"value": ["a", "b" * 200, "c"]})
        await (await producer.send_arrow(TOPIC, table))
        with pytest.raises(
            RecordTooLargeError, match=r"the record has about 312 bytes, max\.request\.size is 300"
        ):
            await producer.send_arrow(TOPIC, pa.table({"value": ["d", "e" * 300, "f"]}))

    stage.run(story, batch_size=64, max_request_size=300)
    assert stage.values() == [b"a", b"b" * 200, b"c", b"d"]
    assert [header.record_count for header in stage.headers] == [1, 1, 1, 1]


def test_rows_before_one_that_cannot_be_sent_are_on_their_way() -> None:
    stage = ProducerStage()
    headers = pa.array([[{"key": "a", "value": b""}], None, [{"key": None, "value": b""}]], HEADERS)

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(TypeError, match="a header's name is text, not NoneType"):
            await producer.send_arrow(
                TOPIC, pa.table({"value": ["1", "2", "3"], "headers": headers})
            )
        await (await producer.send(TOPIC, b"4"))

    stage.run(story)
    assert stage.values() == [b"1", b"2", b"4"]


def test_a_table_waits_for_memory() -> None:
    stage = ProducerStage()
    values = [b"%d" % number for number in range(200)]

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send_arrow(TOPIC, pa.table({"value": pa.array(values)})))

    stage.run(story, buffer_memory=200, batch_size=100)
    assert stage.values() == values


def test_a_batch_of_columns_that_is_too_large_for_the_broker_is_divided() -> None:
    stage = ProducerStage()
    stage.mishaps.append(ErrorCode.message_too_large)
    table = pa.table({"value": [str(number) for number in range(9)]})

    async def story(producer: AsyncProducer) -> None:
        ranges = await (await producer.send_arrow(TOPIC, table))
        assert ranges == (RecordRange(TOPIC, 0, 0, 4), RecordRange(TOPIC, 0, 4, 5))

    stage.run(story)
    assert stage.values() == [b"%d" % number for number in range(9)]


def test_columns_lines_and_records_share_a_batch_in_the_order_of_their_calls() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await producer.send(TOPIC, b"0")
        await producer.send_arrow(TOPIC, pa.table({"value": ["1", "2"]}))
        await producer.send_many(TOPIC, [b"3"])
        await producer.send_arrow(TOPIC, pa.record_batch({"value": ["4"]}))
        await producer.flush()

    stage.run(story, linger_ms=100)
    assert stage.values() == [b"%d" % number for number in range(5)]
    assert [header.record_count for header in stage.headers] == [5]


def test_serializers_get_what_arrow_has() -> None:
    stage = ProducerStage()
    table = pa.table({"value": [{"km": 430}], "key": ["Moldau"]})

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send_arrow(TOPIC, table, timestamp_ms=5))

    stage.run(story, value_serializer=lambda value: b"%d" % value["km"])
    (record,) = stage.logs[0]
    assert record == (0, 5, b"Moldau", b"430", ())


class Watching:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        self.seen.append(record.value)
        return record

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        self.seen.append(metadata and metadata.timestamp_ms)


@pytest.mark.parametrize("by", ["interceptor", "partitioner"])
def test_interceptors_and_partitioners_see_every_row(by: str) -> None:
    stage, watching = ProducerStage(leaders=(1, 1)), Watching()
    options: dict[str, Any] = {"interceptors": [watching]}
    if by == "partitioner":
        options = {"partitioner": lambda topic, key, value, count: int(value) % count}
    table = pa.table({"value": ["0", "1"], "headers": pa.array([None, []], HEADERS)})

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send_arrow(TOPIC, table, timestamp_ms=5))

    stage.run(story, **options)
    if by == "partitioner":
        assert (stage.values(0), stage.values(1)) == ([b"0"], [b"1"])
    else:
        assert watching.seen == [b"0", b"1", 5, 5]


@pytest.mark.parametrize(
    "table", [pa.table({"value": pa.array([], pa.string())}), pa.table({"value": []}).slice(0)]
)
def test_nothing_is_sent_when_there_is_nothing(table: pa.Table) -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        assert await (await producer.send_arrow(TOPIC, table)) == ()
        await settle()

    stage.run(story)
    assert not stage.produce_requests()
