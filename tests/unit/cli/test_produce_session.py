"""Batches and the account of what was taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from moldau.cli import produce_session
from moldau.cli.produce_run import describe_counts
from moldau.cli.produce_session import RECORD_OVERHEAD_BYTES, ProduceSession
from moldau.cli.progress import describe_progress
from moldau.client.loop_thread import LoopThread
from moldau.client.rules.partitioners import RoundRobinPartitioner, StickyPartitioner
from moldau.errors import BatchTooLargeError
from moldau.model import TopicPartition
from moldau.records.record import NewRecord


class RememberingSender:
    """Stands in for a `BatchSender`."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[bytes | None]]] = []
        self.fail_with: Exception | None = None
        self.under_way = 0
        self.most_under_way = 0

    async def send(self, partition: TopicPartition, records: Sequence[NewRecord]) -> int:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        if self.fail_with is not None:
            raise self.fail_with
        self.batches.append((partition.partition, [record.value for record in records]))
        return 0


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with LoopThread() as thread:
        yield thread


def make_session(
    loop: LoopThread,
    sender: RememberingSender,
    *,
    batch_bytes: int = 100,
    fixed_partition: int | None = None,
    partitions: int = 4,
) -> ProduceSession:
    picks = iter(range(1000))
    return ProduceSession(
        loop,
        sender,  # type: ignore[arg-type]
        "clicks",
        partition_count=partitions,
        available=range(partitions),
        partitioner=StickyPartitioner(lambda count: next(picks) % count),
        fixed_partition=fixed_partition,
        batch_bytes=batch_bytes,
    )


def record(value: bytes, key: bytes | None = None) -> NewRecord:
    return NewRecord(0, key, value)


def test_a_full_batch_is_sent_and_the_next_goes_elsewhere(loop: LoopThread) -> None:
    sender = RememberingSender()
    session = make_session(loop, sender, batch_bytes=3 * (RECORD_OVERHEAD_BYTES + 1))
    for value in b"abcdefg":
        session.add(record(bytes((value,))))
    session.finish()
    assert sender.batches == [(0, [b"a", b"b", b"c"]), (1, [b"d", b"e", b"f"]), (2, [b"g"])]
    assert dict(session.counts) == {0: 3, 1: 3, 2: 1}
    assert session.record_count == 7


def test_a_record_larger_than_a_batch_goes_alone(loop: LoopThread) -> None:
    sender = RememberingSender()
    session = make_session(loop, sender, batch_bytes=50, fixed_partition=0)
    for value in (b"a", b"x" * 1000, b"b"):
        session.add(record(value))
    session.finish()
    assert [len(values) for _, values in sender.batches] == [1, 1, 1]


def test_keys_keep_to_their_partitions(loop: LoopThread) -> None:
    sender = RememberingSender()
    session = make_session(loop, sender, batch_bytes=10_000)
    for number in range(40):
        session.add(record(b"v", key=b"key-%d" % (number % 5)))
    session.finish()
    assert sum(session.counts.values()) == 40
    assert all(count % 8 == 0 for count in session.counts.values())


def test_a_chosen_partition_gets_everything(loop: LoopThread) -> None:
    sender = RememberingSender()
    session = make_session(loop, sender, fixed_partition=2)
    session.add(record(b"v", key=b"some key"))
    session.add(record(b"v"))
    session.finish()
    assert dict(session.counts) == {2: 2}


def test_only_what_was_taken_is_counted(loop: LoopThread) -> None:
    sender = RememberingSender()
    session = make_session(loop, sender, fixed_partition=0)
    session.add(record(b"a"))
    session.finish()
    sender.fail_with = BatchTooLargeError("too large")
    session.add(record(b"b"))
    with pytest.raises(BatchTooLargeError):
        session.finish()
    assert session.record_count == 1


def test_what_is_under_way_is_bounded(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_session, "WINDOW_BYTES", 250)
    sender = RememberingSender()
    session = make_session(loop, sender, batch_bytes=100)
    for _ in range(100):
        session.add(record(b"x" * 80))
    session.finish()
    assert session.record_count == 100
    assert sender.most_under_way <= 2


def test_round_robin_fills_one_batch_for_each_partition(loop: LoopThread) -> None:
    sender = RememberingSender()
    session = ProduceSession(
        loop,
        sender,  # type: ignore[arg-type]
        "clicks",
        partition_count=3,
        available=range(3),
        partitioner=RoundRobinPartitioner(),
        batch_bytes=10_000,
    )
    for _ in range(9):
        session.add(record(b"v"))
    session.finish()
    assert dict(session.counts) == {0: 3, 1: 3, 2: 3}


def test_the_account_is_one_line() -> None:
    assert describe_counts("clicks", {}, confirmed=True) == "0 records sent to clicks"
    assert describe_counts("clicks", {3: 1}, confirmed=True) == (
        "1 record sent to clicks (partition 3)"
    )
    assert describe_counts("clicks", {0: 1200, 2: 3}, confirmed=False) == (
        "1,203 records sent to clicks (1,200 in partition 0, 3 in partition 2, unconfirmed)"
    )


def test_progress_tells_how_much_and_how_fast() -> None:
    said = "5,000 records, 2.5 MB, 2,500 records/s"
    assert describe_progress(5000, 2_500_000, 2.0, None) == said
    assert describe_progress(5000, 2_500_000, 2.0, 0.5) == f"{said}, 50% of the input"
    assert describe_progress(1, 50, 0.0, None) == "1 records, 0.0 MB, 0 records/s"


def test_a_partition_given_with_the_record_is_taken(loop: LoopThread) -> None:
    sender = RememberingSender()
    session = make_session(loop, sender)
    session.add(record(b"a"), 3)
    session.add(record(b"b"), 1)
    session.add(record(b"c"), 3)
    session.finish()
    assert sorted(sender.batches) == [(1, [b"b"]), (3, [b"a", b"c"])]


def test_one_partition_for_all_outweighs_the_records_own(loop: LoopThread) -> None:
    sender = RememberingSender()
    session = make_session(loop, sender, fixed_partition=2)
    session.add(record(b"a"), 3)
    session.finish()
    assert sender.batches == [(2, [b"a"])]
