"""What a client says of records that it has acquired: checked, and as ranges of one type each.

A rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from moldau.errors import InvalidRequestError
from moldau.model import AcknowledgeType as AcknowledgeType  # exported


class AcknowledgementBatch(NamedTuple):
    """Offsets, and one type for all or one for each."""

    first_offset: int
    last_offset: int  # inclusive
    types: Sequence[int]


class AcknowledgedRange(NamedTuple):
    """Offsets with one type."""

    first: int
    end: int  # exclusive
    type: AcknowledgeType


def split_by_type(
    batches: Sequence[AcknowledgementBatch], *, may_renew: bool
) -> tuple[AcknowledgedRange, ...]:
    """The ranges of all batches, in order; raises InvalidRequestError as Kafka would."""
    last_type = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    ranges: list[AcknowledgedRange] = []
    end = -1
    for first_offset, last_offset, types in batches:
        count = last_offset - first_offset + 1
        if count < 1 or first_offset < 0:
            raise InvalidRequestError(f"offsets {first_offset} to {last_offset} are no range")
        if first_offset < end:
            raise InvalidRequestError(
                f"offset {first_offset} is acknowledged twice, or out of order"
            )
        if len(types) not in (1, count):
            raise InvalidRequestError(f"{len(types)} types for {count} offsets; one, or one each")
        if not all(0 <= one <= last_type for one in types):
            raise InvalidRequestError(f"acknowledge types {sorted(set(types))}: 0 to {last_type:d}")
        end = last_offset + 1
        if len(types) == 1:
            ranges.append(AcknowledgedRange(first_offset, end, AcknowledgeType(types[0])))
        else:
            ranges += _split_types(first_offset, types)
    return tuple(ranges)


def _split_types(first: int, types: Sequence[int]) -> list[AcknowledgedRange]:
    ranges = []
    for one, alike in groupby(types):
        end = first + sum(1 for _ in alike)
        ranges.append(AcknowledgedRange(first, end, AcknowledgeType(one)))
        first = end
    return ranges
