"""What transactions may be told to be, and what is noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from moldau.model import TopicPartition
from moldau.simulation.transaction_workers import (
    COPIES,
    ReadRecord,
    ToldEnd,
    TransactionHistory,
    WorkerResult,
)

SOURCE = TopicPartition("t", 0)
FIRST, SECOND = SINKS = TopicPartition("results", 0), TopicPartition("results", 1)
Readable = Mapping[TopicPartition, Sequence[ReadRecord]]


def make() -> tuple[TransactionHistory, list[str]]:
    reported: list[str] = []
    return TransactionHistory("g", lambda rule, text: reported.append(rule)), reported


def write(history: TransactionHistory, name: str, offsets: Sequence[int], end: ToldEnd) -> None:
    """Work on the records of one partition, as a worker does."""
    history.begin_transaction(name)
    for offset in offsets:
        for copy in range(COPIES):
            history.write(WorkerResult(name, SOURCE.partition, offset, copy))
    history.send_offsets(name, {SOURCE: offsets[-1] + 1})
    history.end(name, end)


def records(name: str, offsets: Sequence[int]) -> Readable:
    """What these results are in the logs, beginning at offset 0."""
    return {
        sink: [
            ReadRecord(at, WorkerResult(name, SOURCE.partition, offset, copy).encode())
            for at, offset in enumerate(offsets)
        ]
        for copy, sink in enumerate(SINKS)
    }


def test_a_result_says_what_it_is() -> None:
    result = WorkerResult("x0.1.4", 1, 17, 0)
    assert WorkerResult.decode(result.encode()) == result


@pytest.mark.parametrize("outcome", [ToldEnd.ASKED, ToldEnd.COMMITTED])
def test_a_transaction_that_was_committed_is_there_with_its_offsets(outcome: ToldEnd) -> None:
    history, reported = make()
    write(history, "x", [0, 1], outcome)
    history.see(FIRST, 0, records("x", [0])[FIRST][0].value)
    history.check_end(records("x", [0, 1]), {SOURCE: 2}, {SOURCE: [0, 1, 2]})
    assert not reported


@pytest.mark.parametrize("outcome", [ToldEnd.OPEN, ToldEnd.ASKED, ToldEnd.ABORTED])
def test_a_transaction_that_was_not_committed_is_nowhere(outcome: ToldEnd) -> None:
    history, reported = make()
    write(history, "x", [0, 1], outcome)
    history.check_end({}, {}, {SOURCE: [0, 1]})
    assert not reported


@pytest.mark.parametrize("outcome", [ToldEnd.OPEN, ToldEnd.ABORTED])
def test_a_record_of_an_aborted_or_undecided_transaction_that_is_read_is_noticed(
    outcome: ToldEnd,
) -> None:
    history, reported = make()
    write(history, "x", [0], outcome)
    history.see(FIRST, 0, records("x", [0])[FIRST][0].value)
    assert reported == ["TXP-4"]


def test_a_record_of_nobody_is_noticed() -> None:
    history, reported = make()
    history.see(FIRST, 0, WorkerResult("late-x", 0, 0, 0).encode())
    assert reported == ["TXP-2"]


def test_a_lost_transaction_is_noticed() -> None:
    history, reported = make()
    write(history, "x", [0], ToldEnd.COMMITTED)
    history.check_end({}, {}, {})
    assert reported == ["TXN-4", "TXN-4"]  # the records, and the offsets


@pytest.mark.parametrize("outcome", [ToldEnd.ASKED, ToldEnd.COMMITTED])
def test_a_transaction_that_is_in_one_partition_only_is_noticed(outcome: ToldEnd) -> None:
    history, reported = make()
    write(history, "x", [0], outcome)
    history.check_end({FIRST: records("x", [0])[FIRST]}, {SOURCE: 1}, {})
    assert reported == ["TXN-4"]


def test_a_transaction_without_its_offsets_is_noticed() -> None:
    history, reported = make()
    write(history, "x", [0, 1], ToldEnd.ASKED)
    history.check_end(records("x", [0, 1]), {SOURCE: 1}, {})
    assert reported == ["TXN-4"]


def test_offsets_without_their_transaction_are_noticed() -> None:
    history, reported = make()
    write(history, "x", [0], ToldEnd.ASKED)
    history.check_end({}, {SOURCE: 1}, {SOURCE: [0]})
    assert reported == ["TXN-4"]


def test_what_is_done_twice_is_noticed() -> None:
    history, reported = make()
    write(history, "x", [0], ToldEnd.COMMITTED)
    write(history, "y", [0], ToldEnd.COMMITTED)
    again = {
        sink: [*records("x", [0])[sink], ReadRecord(5, records("y", [0])[sink][0].value)]
        for sink in SINKS
    }
    history.check_end(again, {SOURCE: 1}, {SOURCE: [0]})
    assert reported == ["TXN-4"] * 3  # late in both partitions, and two results too many


def test_what_was_read_once_and_is_gone_is_noticed() -> None:
    history, reported = make()
    write(history, "x", [0], ToldEnd.ASKED)
    history.see(FIRST, 0, records("x", [0])[FIRST][0].value)
    history.check_end({FIRST: []}, {}, {})
    assert reported == ["TXP-4"]


def test_nothing_is_asked_of_those_before() -> None:
    history, reported = make()
    write(history, "x", [0], ToldEnd.ABORTED)
    next_one = TransactionHistory("h", lambda rule, text: reported.append(rule), history)
    next_one.see(FIRST, 0, records("x", [0])[FIRST][0].value)
    next_one.check_end({FIRST: records("x", [0])[FIRST]}, {}, {SOURCE: [0]})
    assert not reported
