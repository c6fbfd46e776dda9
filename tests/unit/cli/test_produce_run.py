"""The account of `moldau produce`: what is counted, and what is said."""

from __future__ import annotations

import pytest

from moldau.cli.produce_run import Account, describe_counts
from moldau.cli.progress import describe_progress
from moldau.client.batch_promises import SharedPromise
from moldau.client.intake import Placed
from moldau.client.record_futures import ManyFuture
from moldau.client.rules.producer_instructions import Delivered, NotDelivered
from moldau.errors import BatchTooLargeError
from moldau.model import TopicPartition


def batch(partition: int) -> SharedPromise:
    return SharedPromise(TopicPartition("clicks", partition), lambda promise: None)


def test_only_what_is_in_the_log_is_counted() -> None:
    account = Account()
    first, second, third = batch(0), batch(2), batch(0)
    account.add(ManyFuture([Placed(first, 0, 3), Placed(second, 0, 2)]), 5, 500)
    account.add(ManyFuture([Placed(third, 0, 1)]), 1, 100)
    first.keep(Delivered(10))
    account.count()
    assert account.counts.total() == 0  # all of the first lines, or none of them yet
    second.keep(Delivered(0))
    account.count()
    assert dict(account.counts) == {0: 3, 2: 2}
    assert account.size_bytes == 500


def test_a_failure_is_raised_and_what_was_delivered_beside_it_is_counted() -> None:
    account = Account()
    good, bad, later = batch(0), batch(1), batch(0)
    sent = ManyFuture([Placed(good, 0, 3), Placed(bad, 0, 2)])
    account.add(sent, 5, 500)
    account.add(ManyFuture([Placed(later, 0, 4)]), 4, 100)
    good.keep(Delivered(0))
    bad.keep(NotDelivered(BatchTooLargeError("too large")))
    later.keep(Delivered(3))
    with pytest.raises(BatchTooLargeError):
        account.count()
    account.count_rest()
    assert dict(account.counts) == {0: 7}
    assert account.missing_count == 2


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
