"""How far behind a committed offset is, in seconds: from where the end of a partition was when.

Records carry the time of their producers, and looking one up costs a read; so the end of each
partition is looked at from time to time, and a committed offset is placed between two looks. A
rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

MOST_SAMPLES: Final = 120
"""Of one partition. When there are more, every second of the older half goes."""


class EndSample(NamedTuple):
    """Where a partition ended at a time, in seconds."""

    at: float
    end_offset: int


def add_sample(samples: Sequence[EndSample], sample: EndSample) -> tuple[EndSample, ...]:
    """With one more look. Where nothing has come, only the last of them counts."""
    if samples and sample.end_offset < samples[-1].end_offset:
        return (sample,)  # cut off, or another topic: what was known says nothing
    kept = tuple(samples)
    if len(kept) >= 2 and kept[-1].end_offset == kept[-2].end_offset == sample.end_offset:
        kept = kept[:-1]
    kept = (*kept, sample)
    if len(kept) > MOST_SAMPLES:
        older, newer = kept[: MOST_SAMPLES // 2], kept[MOST_SAMPLES // 2 :]
        kept = older[::2] + newer
    return kept


def seconds_behind(samples: Sequence[EndSample], committed: int, now: float) -> float:
    """How long ago the first record that is not committed came.

    0 where there is none. Before the first look nothing is known: then since that look.
    """
    if not samples or committed >= samples[-1].end_offset:
        return 0.0
    former: EndSample | None = None
    for sample in samples:
        if sample.end_offset > committed:
            if former is None:
                return max(0.0, now - sample.at)
            share = (committed - former.end_offset) / (sample.end_offset - former.end_offset)
            came_at = former.at + share * (sample.at - former.at)
            return max(0.0, now - came_at)
        former = sample
    return 0.0
