"""Before a batch opens a transaction, its coordinator has confirmed it: by plain values."""

from __future__ import annotations

import pytest

from moldau.errors import InvalidTxnStateError, OutOfOrderSequenceError
from moldau.records.batch_header import TRANSACTIONAL_FLAG, BatchHeader
from moldau.storage.rules.producer_state import (
    MUST_BE_OPEN,
    ProducerEntry,
    Verification,
    ask_again,
    check_verified,
    is_open,
)

ASKED = Verification(number=3, producer_epoch=1, lowest_sequence=5, bumps_epochs=False)


def a_batch(sequence: int = 5, epoch: int = 1) -> BatchHeader:
    return BatchHeader(0, 100, -1, 2, 0, TRANSACTIONAL_FLAG, 0, 1, 1, 7, epoch, sequence, 1)


def an_entry(epoch: int = 1, open_since: int | None = None) -> ProducerEntry:
    return ProducerEntry(7, epoch, (), 0, 0, open_since)


def test_a_transaction_is_open_in_the_epoch_that_began_it():
    assert is_open(an_entry(1, 10), 1)
    assert not is_open(an_entry(1, 10), 2)
    assert not is_open(an_entry(1), 1)
    assert not is_open(None, 1)


def test_batches_of_one_epoch_share_a_question_and_a_new_epoch_asks_anew():
    later = ASKED._replace(number=4, lowest_sequence=2)
    assert ask_again(None, ASKED) == ASKED
    assert ask_again(ASKED, later) == ASKED._replace(lowest_sequence=2)
    bumped = later._replace(producer_epoch=2)
    assert ask_again(ASKED, bumped) == bumped


@pytest.mark.parametrize("number", [MUST_BE_OPEN, ASKED.number, 99])
def test_in_an_open_transaction_nothing_else_is_asked_for(number):
    check_verified(an_entry(1, open_since=10), None, a_batch(), number)


def test_a_question_that_is_still_remembered_lets_its_batch_begin_a_transaction():
    check_verified(an_entry(), ASKED, a_batch(), ASKED.number)
    check_verified(None, ASKED, a_batch(), ASKED.number)


@pytest.mark.parametrize(
    "known", [None, ASKED._replace(number=4), ASKED._replace(producer_epoch=0)]
)
def test_a_question_that_was_forgotten_or_replaced_lets_nothing_begin(known):
    with pytest.raises(InvalidTxnStateError):
        check_verified(an_entry(), known, a_batch(), ASKED.number)


def test_a_transaction_that_was_open_and_has_ended_is_not_begun_again():
    with pytest.raises(InvalidTxnStateError):
        check_verified(an_entry(), ASKED, a_batch(), MUST_BE_OPEN)


def test_a_new_epoch_does_not_join_the_open_transaction_of_a_former_one():
    with pytest.raises(InvalidTxnStateError):
        check_verified(an_entry(0, open_since=10), ASKED, a_batch(), ASKED.number)


def test_the_first_of_the_batches_that_came_begins():
    with pytest.raises(OutOfOrderSequenceError):
        check_verified(an_entry(), ASKED, a_batch(sequence=6), ASKED.number)


def test_a_producer_that_bumps_its_epochs_begins_at_0_where_the_log_knows_nothing_of_it():
    asked = ASKED._replace(bumps_epochs=True)
    with pytest.raises(OutOfOrderSequenceError):
        check_verified(None, asked, a_batch(sequence=5), asked.number)
    check_verified(None, asked, a_batch(sequence=0), asked.number)
