"""Acknowledgements of records by ranges of offsets, as brokers take them. A rule.

A range says the same of all its offsets: a thousand records that were accepted one by one are one
range. What is said twice counts as it was said last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.model import AcknowledgeType


class AcknowledgedOffsets(NamedTuple):
    """Both ends belong to it."""

    first_offset: int
    last_offset: int
    kind: AcknowledgeType


def to_ranges(said: Iterable[tuple[int, AcknowledgeType]]) -> list[AcknowledgedOffsets]:
    """Ranges in order of their offsets, as few as possible; an offset is in one of them at most."""
    ranges: list[AcknowledgedOffsets] = []
    for offset, kind in sorted(dict(said).items()):
        if ranges and ranges[-1].last_offset + 1 == offset and ranges[-1].kind is kind:
            ranges[-1] = AcknowledgedOffsets(ranges[-1].first_offset, offset, kind)
        else:
            ranges.append(AcknowledgedOffsets(offset, offset, kind))
    return ranges
