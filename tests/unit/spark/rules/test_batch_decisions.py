"""Which transactions of a batch are committed: those of the one decision, whoever writes again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.producer.rules.transaction_manager import PreparedTransaction
from moldau.errors import TransactionAbortedError
from moldau.spark.rules.batch_decisions import (
    STATE_PARTITIONS,
    Decision,
    decide,
    driver_transactional_id,
    find_undecided,
    is_of_task,
    partition_of,
    task_transactional_id,
)

QUERY = "3b17610f-5b52-4639-bd7d-cdea5b342a3e"


def prepared(name: str, epoch: int = 0) -> PreparedTransaction:
    return PreparedTransaction(transactional_id=name, producer_id=7, producer_epoch=epoch)


A, B, STRAY = prepared("a"), prepared("b"), prepared("stray", 3)
transactions = st.builds(
    PreparedTransaction,
    transactional_id=st.text(),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 32767),
)


@given(st.integers(0, 2**63 - 1), st.lists(transactions), st.lists(transactions))
def test_a_decision_is_read_as_it_was_written(
    batch_id: int, commit: list[PreparedTransaction], abort: list[PreparedTransaction]
) -> None:
    decision = Decision(batch_id=batch_id, commit=tuple(commit), abort=tuple(abort))
    assert Decision.decode(decision.encode()) == decision


def test_what_tasks_offer_is_committed_and_what_else_is_open_is_aborted() -> None:
    decision = decide(0, [A, B], [B, STRAY, A])
    assert decision == Decision(batch_id=0, commit=(A, B), abort=(STRAY,))
    assert decide(1, [], []) == Decision(batch_id=1, commit=(), abort=())


def test_a_transaction_that_somebody_has_ended_cannot_be_decided_over() -> None:
    with pytest.raises(TransactionAbortedError, match=r"batch 1 .* \(a\); start the query again"):
        decide(1, [A, B], [B, prepared("a", 1)])  # the same id, a later transaction


def test_what_no_decision_commits_can_be_aborted() -> None:
    latest = Decision(batch_id=5, commit=(A,), abort=(STRAY,))
    assert find_undecided(latest, 5, [A, B]) == (B,)
    assert find_undecided(latest, 6, [B]) == (B,)
    assert find_undecided(latest, 4, [B]) == (B,)
    assert find_undecided(None, 0, [A, B]) == (A, B)


def test_ids_of_tasks_are_found_by_their_query_and_the_drivers_is_not_among_them() -> None:
    assert is_of_task(task_transactional_id(QUERY, "0123"), QUERY)
    assert not is_of_task(task_transactional_id("another", "0123"), QUERY)
    assert not is_of_task(driver_transactional_id(QUERY), QUERY)
    assert 0 <= partition_of(QUERY) < STATE_PARTITIONS
