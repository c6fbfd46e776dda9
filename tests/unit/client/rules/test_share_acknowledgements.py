"""From what was said of single records to ranges."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from moldau.client.queue.rules.in_flight import AcknowledgedOffsets, to_ranges
from moldau.model import AcknowledgeType

ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE


def test_neighbours_that_are_alike_are_one_range() -> None:
    said = [(3, ACCEPT), (1, ACCEPT), (2, ACCEPT), (4, RELEASE), (7, RELEASE)]
    assert to_ranges(said) == [
        AcknowledgedOffsets(1, 3, ACCEPT),
        AcknowledgedOffsets(4, 4, RELEASE),
        AcknowledgedOffsets(7, 7, RELEASE),
    ]


@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from(AcknowledgeType))))
def test_ranges_say_the_same_as_single_words_and_are_as_few_as_possible(
    said: list[tuple[int, AcknowledgeType]],
) -> None:
    ranges = to_ranges(said)
    told = {
        offset: one.kind
        for one in ranges
        for offset in range(one.first_offset, one.last_offset + 1)
    }
    assert told == dict(said)
    for before, after in itertools.pairwise(ranges):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before.kind is not after.kind
