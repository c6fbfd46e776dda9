"""The numbering of an idempotent producer."""

from __future__ import annotations

import pytest

from moldau.client.producer.rules.record_accumulator import (
    MAX_EPOCH,
    MAX_SEQUENCE,
    PartitionNumbers,
    ProducerBatch,
    ProducerIdentity,
    add_to_sequence,
)
from moldau.model import TopicPartition

ME = ProducerIdentity(7, 0)


def batch_of(count: int) -> ProducerBatch[None]:
    batch = ProducerBatch(TopicPartition("rivers", 0), None, 0, 0.0)
    for _ in range(count):
        batch.add((0, None, b"", ()), 1)
    return batch


def number(numbers: PartitionNumbers, *counts: int) -> list[int | None]:
    found = []
    for count in counts:
        batch = batch_of(count)
        numbers.number(batch, ME)
        found.append(batch.base_sequence)
    return found


def test_batches_are_numbered_without_a_gap() -> None:
    assert number(PartitionNumbers(), 3, 1, 5, 2) == [0, 3, 4, 9]


@pytest.mark.parametrize(
    ("sequence", "count", "sum_"),
    [(0, 5, 5), (MAX_SEQUENCE, 1, 0), (MAX_SEQUENCE - 1, 5, 3)],
)
def test_after_the_highest_number_comes_0(sequence: int, count: int, sum_: int) -> None:
    assert add_to_sequence(sequence, count) == sum_


def test_a_restart_begins_the_next_epoch_and_numbers_what_waits_from_0() -> None:
    numbers = PartitionNumbers()
    number(numbers, 3, 1)
    waiting = [batch_of(2), batch_of(4)]
    numbers.restart(waiting, ME)
    assert [(one.identity, one.base_sequence) for one in waiting] == [((7, 1), 0), ((7, 1), 2)]
    assert number(numbers, 1) == [6]


def test_a_partition_keeps_its_identity_when_the_producer_gets_another() -> None:
    numbers = PartitionNumbers()
    number(numbers, 3)
    batch = batch_of(1)
    numbers.number(batch, ProducerIdentity(8, 0))
    assert (batch.identity, batch.base_sequence) == (ME, 3)


def test_epochs_come_to_an_end_and_a_new_id_begins_others() -> None:
    numbers = PartitionNumbers()
    last = ProducerIdentity(7, MAX_EPOCH)
    numbers.number(batch_of(1), last)
    assert not numbers.may_restart(last)
    assert numbers.may_restart(ProducerIdentity(8, 0))
    batch = batch_of(1)
    numbers.restart([batch], ProducerIdentity(8, 0))
    assert (batch.identity, batch.base_sequence) == ((8, 0), 0)


def test_several_batches_may_be_under_way_once_the_broker_knows_the_epoch() -> None:
    numbers = PartitionNumbers()
    batch = batch_of(1)
    numbers.number(batch, ME)
    assert not numbers.allow_more
    numbers.on_confirmed(batch)
    assert numbers.allow_more
    numbers.restart([], ME)
    assert not numbers.allow_more
    numbers.on_confirmed(batch)  # one of the epoch before
    assert not numbers.allow_more


def test_numbering_voids_what_was_encoded_with_other_numbers() -> None:
    batch = batch_of(1)
    batch.encoded = bytearray(b"old")
    batch.number(ME, 5)
    assert batch.encoded is None
