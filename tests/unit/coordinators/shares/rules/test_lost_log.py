"""The state of a share partition whose log has lost its end."""

from __future__ import annotations

import pytest

from moldau.coordinators.shares.rules.in_flight import cut_to_log
from moldau.coordinators.shares.rules.records import DeliveryState, StateBatch

AVAILABLE, DONE = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED


def test_what_is_done_behind_the_end_is_available_again_with_one_more_delivery() -> None:
    cut = cut_to_log(3, [StateBatch(3, 5, DONE, 1), StateBatch(8, 9, DONE, 2)], 8)
    again = StateBatch(8, 9, AVAILABLE, 3)
    assert cut == (3, (StateBatch(3, 5, DONE, 1), again), (again,))
    assert cut.complete_count == 3


@pytest.mark.parametrize("end_offset", [4, 5])
def test_a_batch_is_split_where_the_log_ends(end_offset: int) -> None:
    cut = cut_to_log(3, [StateBatch(3, 5, DONE, 1)], end_offset)
    again = StateBatch(end_offset, 5, AVAILABLE, 2)
    assert cut == (3, (StateBatch(3, end_offset - 1, DONE, 1), again), (again,))
    assert cut.complete_count == end_offset - 3


def test_a_batch_that_ends_with_the_log_stays_as_it_is() -> None:
    batch = StateBatch(3, 5, DONE, 1)
    assert cut_to_log(3, [batch], 6) == (3, (batch,), ())


def test_what_is_not_done_is_not_written_again() -> None:
    open_batch = StateBatch(3, 9, AVAILABLE, 4)
    cut = cut_to_log(3, [open_batch], 5)
    assert cut.batches == (StateBatch(3, 4, AVAILABLE, 4), StateBatch(5, 9, AVAILABLE, 4))
    assert (cut.rewritten, cut.complete_count) == ((), 0)


def test_a_start_behind_the_end_goes_back_to_it() -> None:
    assert cut_to_log(9, [], 5).start_offset == 5
