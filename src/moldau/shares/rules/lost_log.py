"""What is left of the state of a share partition when its log has lost its end: after an unclean
election, or when all replicas lost power at once. A rule.

Nothing was ever delivered that was not committed, so a state that speaks of offsets behind the end
of its leader's log speaks of records that are gone. Others will get these offsets, and have to be
delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from moldau.shares.rules.delivery_state import DeliveryState, StateBatch


class CutState(NamedTuple):
    """A state that fits its log, and what has to be written for the store to say the same."""

    start_offset: int
    batches: tuple[StateBatch, ...]
    rewritten: tuple[StateBatch, ...]

    @property
    def complete_count(self) -> int:
        return sum(
            one.last_offset - one.first_offset + 1
            for one in self.batches
            if one.delivery_state.is_final
        )


def cut_to_log(start_offset: int, batches: Iterable[StateBatch], end_offset: int) -> CutState:
    """What is done behind the end is Available again. It counts as one more delivery: of two words
    on an offset the store takes the one with more deliveries."""
    kept: list[StateBatch] = []
    rewritten: list[StateBatch] = []
    for batch in batches:
        for part in _split(batch, end_offset):
            if part.first_offset < end_offset or not part.delivery_state.is_final:
                kept.append(part)
            else:
                again = part._replace(
                    delivery_state=DeliveryState.AVAILABLE, delivery_count=part.delivery_count + 1
                )
                kept.append(again)
                rewritten.append(again)
    return CutState(min(start_offset, end_offset), tuple(kept), tuple(rewritten))


def _split(batch: StateBatch, offset: int) -> Iterator[StateBatch]:
    if batch.first_offset < offset <= batch.last_offset:
        yield batch._replace(last_offset=offset - 1)
        yield batch._replace(first_offset=offset)
    else:
        yield batch
