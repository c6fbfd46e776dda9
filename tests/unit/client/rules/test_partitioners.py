"""Partition choice: equal to Java's for keys, sticky or in turn without them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.producer.rules.built_in_partitioner import (
    RoundRobinPartitioner,
    StickyPartitioner,
)
from moldau.records.codec import murmur2, partition_for_key

# From Kafka's own UtilsTest.
JAVA_VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS)
def test_murmur2_equals_javas_on_the_published_vectors(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@given(st.binary(max_size=40), st.integers(min_value=1, max_value=1000))
def test_a_key_has_one_partition_among_those_there_are(key: bytes, count: int) -> None:
    partition = partition_for_key(key, count)
    assert 0 <= partition < count
    assert partition == partition_for_key(key, count)


def test_a_negative_hash_loses_its_sign_before_the_modulo() -> None:
    assert partition_for_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10


def test_keyless_records_stay_on_a_partition_until_the_batch_is_full() -> None:
    picks = iter([2, 0])
    partitioner = StickyPartitioner(lambda count: next(picks))
    assert [partitioner.choose(None, 4, (0, 1, 2, 3)) for _ in range(5)] == [2] * 5
    partitioner.on_batch_full()
    assert partitioner.choose(None, 4, (0, 1, 2, 3)) == 0


def test_a_keyless_record_goes_where_a_leader_is() -> None:
    partitioner = StickyPartitioner(lambda count: count - 1)
    assert partitioner.choose(None, 10, (3, 5)) == 5


def test_without_any_leader_every_partition_is_as_good() -> None:
    assert StickyPartitioner(lambda count: count - 1).choose(None, 10, ()) == 9


def test_a_sticky_choice_is_made_anew_when_the_partition_is_gone() -> None:
    partitioner = StickyPartitioner(lambda count: count - 1)
    assert partitioner.choose(None, 8, range(8)) == 7
    assert partitioner.choose(None, 2, range(2)) == 1


@pytest.mark.parametrize("partitioner", [StickyPartitioner(lambda n: 0), RoundRobinPartitioner()])
def test_a_key_decides_whatever_the_partitioner(
    partitioner: StickyPartitioner | RoundRobinPartitioner,
) -> None:
    assert partitioner.choose(b"foobar", 7, ()) == partition_for_key(b"foobar", 7)


def test_round_robin_takes_turns_among_partitions_with_a_leader() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.choose(None, 5, (1, 3)) for _ in range(4)] == [1, 3, 1, 3]
    assert [partitioner.choose(None, 3, ()) for _ in range(3)] == [1, 2, 0]
