"""The account of `moldau produce`: what is counted, and what is said."""

from __future__ import annotations

import pytest

from moldau.cli.output import describe_progress
from moldau.cli.produce_run import Account, describe_counts
from moldau.client.producer.produce_result import AppendedRecords, ManyFuture, SharedProduceResult
from moldau.client.producer.rules.record_accumulator import Delivered, Divided, NotDelivered
from moldau.errors import BatchTooLargeError
from moldau.model import TopicPartition


def batch(partition: int) -> SharedProduceResult:
    return SharedProduceResult(TopicPartition("clicks", partition), lambda result: None)


def test_only_what_is_in_the_log_is_counted() -> None:
    account = Account()
    first, second, third = batch(0), batch(2), batch(0)
    account.add(
        ManyFuture([AppendedRecords(first, 0, 3), AppendedRecords(second, 0, 2)]), range(1, 6), 500
    )
    account.add(ManyFuture([AppendedRecords(third, 0, 1)]), range(6, 7), 100)
    first.complete(Delivered(10))
    account.count()
    assert account.counts.total() == 0  # all of the first lines, or none of them yet
    second.complete(Delivered(0))
    account.count()
    assert dict(account.counts) == {0: 3, 2: 2}
    assert account.size_bytes == 500


def test_a_failure_is_raised_and_what_was_delivered_beside_it_is_counted() -> None:
    account = Account()
    good, bad, later = batch(0), batch(1), batch(0)
    sent = ManyFuture([AppendedRecords(good, 0, 3), AppendedRecords(bad, 0, 2)])
    account.add(sent, range(11, 16), 500)
    account.add(ManyFuture([AppendedRecords(later, 0, 4)]), range(16, 20), 100)
    good.complete(Delivered(0))
    bad.complete(NotDelivered(BatchTooLargeError("too large")))
    later.complete(Delivered(3))
    with pytest.raises(BatchTooLargeError, match=r"^line 14: too large$"):
        account.count()
    account.count_rest()
    assert dict(account.counts) == {0: 7}
    assert account.missing_count == 2


def test_a_line_that_is_too_large_is_named_within_its_divided_batch() -> None:
    account = Account()
    whole, first, second = batch(0), batch(0), batch(0)
    account.add(ManyFuture([AppendedRecords(whole, 0, 4)]), range(1, 5), 500)
    whole.complete(Divided(((0, first), (2, second))))
    first.complete(Delivered(0))
    second.complete(NotDelivered(BatchTooLargeError("too large")))
    with pytest.raises(BatchTooLargeError, match=r"^line 3: "):
        account.count()


def test_lines_with_keys_went_into_batches_in_another_order() -> None:
    account = Account()
    bad = batch(0)
    account.add(ManyFuture([AppendedRecords(bad, 0, 2)]), range(7, 9), 500, in_order=False)
    bad.complete(NotDelivered(BatchTooLargeError("too large")))
    with pytest.raises(BatchTooLargeError, match=r"^one of the lines 7 to 8: too large$"):
        account.count()


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
