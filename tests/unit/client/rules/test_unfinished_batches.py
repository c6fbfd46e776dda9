"""Who waits for which batches of a producer."""

from __future__ import annotations

from moldau.client.producer.rules.record_accumulator import IncompleteBatches


def test_a_flush_waits_for_what_was_opened_before_it_and_for_nothing_else() -> None:
    batches = IncompleteBatches()
    first, second = batches.open(), batches.open()
    flush = batches.begin_flush()
    later = batches.open()
    batches.finish(second)
    assert list(batches.end_flushes()) == []
    batches.finish(first)
    assert list(batches.end_flushes()) == [flush]
    assert list(batches.end_flushes()) == []
    batches.finish(later)
    assert batches.is_empty
    assert batches.begin_flush() is None


def test_the_halves_of_a_batch_count_in_its_place() -> None:
    batches = IncompleteBatches()
    first = batches.open()
    batches.open()
    flush = batches.begin_flush()
    batches.divide(first, 2)
    for _ in range(2):  # the batch itself, and one half
        batches.finish(first)
    batches.finish(first + 1)
    assert list(batches.end_flushes()) == []
    batches.finish(first)
    assert list(batches.end_flushes()) == [flush]


def test_a_flush_that_nobody_waits_for_does_not_end() -> None:
    batches = IncompleteBatches()
    serial = batches.open()
    flush = batches.begin_flush()
    assert flush is not None
    batches.forget_flush(flush)
    batches.finish(serial)
    assert list(batches.end_flushes()) == []
