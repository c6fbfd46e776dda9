"""What a client says of records, checked and as ranges."""

from __future__ import annotations

import pytest

from moldau.coordinators.shares.rules.in_flight import (
    AcknowledgedRange,
    AcknowledgementBatch,
    AcknowledgeType,
    split_by_type,
)
from moldau.errors import InvalidRequestError

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def split(*batches: tuple[int, int, tuple[int, ...]], may_renew: bool = True) -> list[object]:
    given = [AcknowledgementBatch(*batch) for batch in batches]
    return list(split_by_type(given, may_renew=may_renew))


def test_one_type_is_for_all_offsets() -> None:
    assert split((0, 0, (1,))) == [AcknowledgedRange(0, 1, ACCEPT)]
    assert split((0, 1, (1,)), (2, 9, (2,))) == [
        AcknowledgedRange(0, 2, ACCEPT),
        AcknowledgedRange(2, 10, RELEASE),
    ]


def test_one_type_for_each_offset_makes_ranges_of_those_that_are_alike() -> None:
    assert split((5, 6, (1, 1))) == [AcknowledgedRange(5, 7, ACCEPT)]
    assert split((5, 9, (1, 1, 0, 3, 3))) == [
        AcknowledgedRange(5, 7, ACCEPT),
        AcknowledgedRange(7, 8, GAP),
        AcknowledgedRange(8, 10, REJECT),
    ]


@pytest.mark.parametrize(
    ("first", "last", "types", "why"),
    [
        (-1, 3, (1,), "no range"),
        (5, 4, (1,), "no range"),
        (5, 9, (), "0 types for 5 offsets"),
        (5, 9, (1, 1), "2 types for 5 offsets"),
        (5, 5, (-1,), "0 to 4"),
        (5, 6, (1, 5), "0 to 4"),
    ],
)
def test_what_cannot_be_is_refused(first: int, last: int, types: tuple[int, ...], why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why):
        split((first, last, types))


def test_offsets_are_acknowledged_once_and_in_order() -> None:
    for first in (4, 9):
        with pytest.raises(InvalidRequestError, match=f"offset {first} is acknowledged twice"):
            split((5, 9, (1,)), (first, 12, (1,)))
    assert len(split((5, 9, (1,)), (10, 12, (1,)))) == 2


def test_a_renewal_is_for_those_who_know_it() -> None:
    assert split((5, 5, (4,))) == [AcknowledgedRange(5, 6, RENEW)]
    with pytest.raises(InvalidRequestError, match="0 to 3"):
        split((5, 5, (4,)), may_renew=False)
    assert split((5, 5, (3,)), may_renew=False) == [AcknowledgedRange(5, 6, REJECT)]
