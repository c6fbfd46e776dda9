"""Which partition a producer's records go to."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from moldau.arrow.outgoing import to_encoder
from moldau.client.producer.rules.built_in_partitioner import (
    PartitionedTopic,
    Partitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    partition_for_key,
)
from moldau.client.producer.rules.record_accumulator import PartitionQueue
from moldau.errors import UnknownTopicError
from moldau.model import TopicPartition
from moldau.records.codec import ColumnEncoding
from moldau.records.record import NewRecord, RecordRow


def target_of(
    partitioner: Partitioner, count: int = 4, *, ignores_keys: bool = False
) -> PartitionedTopic[None]:
    target: PartitionedTopic[None] = PartitionedTopic(
        "rivers", partitioner, ignores_keys=ignores_keys
    )
    target.queues = [PartitionQueue(TopicPartition("rivers", index)) for index in range(count)]
    target.available = tuple(range(count))
    return target


def sticky(*picks: int) -> StickyPartitioner:
    left = iter(picks)
    return StickyPartitioner(lambda count: next(left))


def index_of(queue: PartitionQueue[None]) -> int:
    return queue.partition.partition


def rows(*keys: bytes | None) -> list[RecordRow]:
    return [NewRecord(0, key, b"%d" % number) for number, key in enumerate(keys)]


def test_a_key_decides() -> None:
    target = target_of(sticky())
    for key in (b"moldau", b"elbe", b""):
        assert index_of(target.choose_anew(key)) == partition_for_key(key, 4)


def test_free_records_stick_to_a_partition_for_the_length_of_a_batch() -> None:
    target = target_of(sticky(2, 0))
    queue = target.choose_anew(None)
    batch = queue.open_batch(None, now=0.0)
    assert index_of(queue) == 2
    assert target.find_open(None) is batch
    assert index_of(target.choose_anew(None)) == 0


def test_keys_can_be_ignored() -> None:
    target = target_of(sticky(3, 1), ignores_keys=True)
    assert index_of(target.choose_anew(b"moldau")) == 3
    assert [place for place, _ in target.split(None, rows(b"a", b"b"))] == [None]


def test_in_turn_every_record_goes_to_the_next_partition() -> None:
    target = target_of(RoundRobinPartitioner())
    assert [index_of(target.choose_anew(None)) for _ in range(5)] == [0, 1, 2, 3, 0]
    assert target.find_open(None) is None


def test_many_records_are_split_by_their_keys_and_keep_their_order() -> None:
    target = target_of(sticky())
    keys = [b"%d" % (number % 7) for number in range(50)] + [None, None]
    parts = dict(target.split(None, rows(*keys)))
    for partition, part in parts.items():
        numbers = [int(row[-2] or b"") for row in part]
        assert numbers == sorted(numbers)
        for row in part:
            key = row[-3]
            assert partition == (None if key is None else partition_for_key(key, 4))
    assert sum(map(len, parts.values())) == 52


def test_many_records_take_turns() -> None:
    target = target_of(RoundRobinPartitioner())
    parts = target.split(None, rows(*[None] * 10))
    assert Counter({place: len(part) for place, part in parts}) == {0: 3, 1: 3, 2: 2, 3: 2}


def test_a_partition_that_is_given_is_taken() -> None:
    given = rows(b"key", None)
    assert target_of(sticky()).split(3, given) == [(3, given)]


@pytest.mark.parametrize("partition", [-1, 4])
def test_a_partition_that_is_not_there_is_named(partition: int) -> None:
    with pytest.raises(UnknownTopicError, match=f"no partition {partition}; it has 4"):
        target_of(sticky()).require_queue(partition)


def test_a_partitioner_may_count_with_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    assert index_of(target_of(sticky()).require_queue(numpy.int64(3))) == 3


def columns(*keys: bytes | None) -> ColumnEncoding:
    batch = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": ["x"] * len(keys)})
    return to_encoder(batch, 0)


def split_numbers(
    target: PartitionedTopic[None], *keys: bytes | None
) -> dict[int | None, list[int]]:
    parts = target.split_columns(None, columns(*keys))
    return {
        where: list(range(len(keys)) if part is None else memoryview(part).cast("i"))
        for where, part in parts
    }


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("ignores_keys", [False, True])
@pytest.mark.parametrize("in_turn", [False, True])
def test_columns_are_split_as_rows_are(count: int, ignores_keys: bool, in_turn: bool) -> None:
    keys = [None if number % 3 else b"%d" % number for number in range(40)]

    def make() -> PartitionedTopic[None]:
        partitioner = RoundRobinPartitioner() if in_turn else sticky(0)
        return target_of(partitioner, count, ignores_keys=ignores_keys)

    expected = {
        where: [int(row[-2] or b"") for row in part]
        for where, part in make().split(None, rows(*keys))
    }
    found = split_numbers(make(), *keys)
    if count == 1:
        assert [*found.values()] == [*expected.values()]  # the only partition is anywhere
    else:
        assert found == expected
    assert make().split_columns(0, columns(*keys)) == [(0, None)]
