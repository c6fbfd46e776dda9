"""How much of what is there one batch of a streaming query takes. A rule.

Offsets are counted, not records: gaps count, too, since nobody knows of them before they are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.model import TopicPartition
from moldau.spark.rules.offset_maps import Offsets
from moldau.spark.rules.ranges import count_backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """The options of this name; None where they are not set."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60 * 1000
    max_bytes: int | None = None


def may_wait(
    starts: Offsets, ends: Offsets, limits: TriggerLimits, waited_ms: float | None
) -> bool:
    """Whether there is too little for a batch, and time to wait for more.

    `waited_ms` is None before the first batch of a run: that one does not wait.
    """
    if limits.min_offsets is None or waited_ms is None or waited_ms >= limits.max_delay_ms:
        return False
    return sum(count_backlog(starts, ends).values()) < limits.min_offsets


def limit_ends(
    starts: Offsets,
    ends: Offsets,
    limits: TriggerLimits,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Where a batch ends: at the ends given, or earlier by the limits.

    Every partition of `ends` is in the answer. One that is new and gets nothing this time is left
    at its beginning, which is where `starts` has it.
    """
    backlog = count_backlog(starts, ends)
    if limits.max_offsets is not None:
        backlog = share_out(backlog, limits.max_offsets)
    if limits.max_bytes is not None:
        backlog = limit_bytes(backlog, limits.max_bytes, bytes_per_offset)
    return {
        one: starts.get(one, 0) + backlog[one] if end > starts.get(one, 0) else end
        for one, end in ends.items()
    }


def share_out(backlog: Mapping[TopicPartition, int], limit: int) -> dict[TopicPartition, int]:
    """Share a number of offsets over partitions by their backlog.

    The shares add up to the limit, or to the whole backlog where that is less. Each partition with
    a backlog gets one at least, as far as the limit reaches, so that none waits for ever.
    """
    waiting = {one: size for one, size in backlog.items() if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return dict(backlog)
    by_size = sorted(waiting, key=lambda one: (-waiting[one], one))
    shares = dict.fromkeys(backlog, 0)
    shares.update(dict.fromkeys(by_size[:limit], 1))
    left = limit - min(limit, len(by_size))
    rest = total - len(by_size)
    remainders: list[tuple[int, TopicPartition]] = []
    given = 0
    for one in by_size if left else ():
        share, remainder = divmod((waiting[one] - 1) * left, rest)
        shares[one] += share
        given += share
        remainders.append((remainder, one))
    for _, one in sorted(remainders, key=lambda row: (-row[0], row[1]))[: left - given]:
        shares[one] += 1
    return shares


def limit_bytes(
    backlog: Mapping[TopicPartition, int],
    max_bytes: int,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Shrink the shares until they have about so many bytes, by the mean size of an offset.

    Never to nothing: a record that is larger than the limit has to be read some day.
    """
    estimate = sum(size * bytes_per_offset.get(one, 0.0) for one, size in backlog.items())
    if estimate <= max_bytes:
        return dict(backlog)
    total = sum(backlog.values())
    return share_out(backlog, max(int(total * max_bytes / estimate), 1))
