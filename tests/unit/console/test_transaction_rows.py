"""Transactions as they are shown."""

from __future__ import annotations

from moldau.client.admin.values import TransactionDescription, TransactionListing
from moldau.console.paging import PageRequest
from moldau.console.transactions import choose_transactions, transaction_facts, with_details
from moldau.model import TopicPartition


def listing(name: str, state: str) -> TransactionListing:
    return TransactionListing(transactional_id=name, producer_id=7, state=state, coordinator_id=1)


LISTINGS = [listing("b", "CompleteCommit"), listing("c", "Ongoing"), listing("a", "Empty")]


def test_open_ones_come_first() -> None:
    rows = choose_transactions(LISTINGS, PageRequest(), only_open=False)
    assert [row.transactional_id for row in rows] == ["c", "a", "b"]
    assert len(choose_transactions(LISTINGS, PageRequest(), only_open=True)) == 1
    assert choose_transactions(LISTINGS, PageRequest(search="x"), only_open=False) == []


def test_one_that_is_older_than_its_time_out_is_late() -> None:
    rows = choose_transactions(LISTINGS, PageRequest(search="c"), only_open=True)
    described = TransactionDescription(
        transactional_id="c",
        coordinator_id=1,
        state="Ongoing",
        producer_id=7,
        producer_epoch=0,
        timeout_ms=60_000,
        started_ms=1_000,
        partitions=frozenset({TopicPartition("t", 0)}),
    )
    (row,) = with_details(rows, {"c": described}, 62_000)
    assert (row.age_seconds, row.partitions, row.is_late) == (61.0, 1, True)
    (row,) = with_details(rows, {"c": described}, 61_000)
    assert not row.is_late
    assert with_details(rows, {}, 0) == rows


def test_the_facts_of_one_are_told_in_words() -> None:
    described = TransactionDescription(
        transactional_id="c",
        coordinator_id=3,
        state="Ongoing",
        producer_id=7,
        producer_epoch=2,
        timeout_ms=60_000,
        started_ms=1_700_000_000_000,
        partitions=frozenset(),
    )
    facts = dict(transaction_facts(described, 1_700_000_061_000))
    assert facts["Open since"] == "2023-11-14 22:13:20.000 UTC, for 1 min 1 s"
    assert facts["Producer"] == "id 7, epoch 2"
