"""Where reading a topic begins and ends, as people say it, and the offsets that are meant. A rule.

A bound is an offset, a negative number that counts back from the end, `earliest`, `latest`, or a
time: the first record that is not older. What a partition does not have (any more, or yet) is not
read: bounds are moved to where the log begins or ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from moldau.errors import ConfigurationError

Bound = int | str | datetime
"""One of the above."""

Bounds = Bound | Mapping[int, Bound] | None
"""One for all partitions, or one for each by number; None is the beginning, or the end."""

EARLIEST = "earliest"
LATEST = "latest"
NOT_FOUND = -1
"""What a broker answers where no record is as late as the time asked for."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class OffsetRange(NamedTuple):
    """The offsets from `start_offset` on and before `end_offset`."""

    start_offset: int
    end_offset: int

    @property
    def is_empty(self) -> bool:
        return self.start_offset >= self.end_offset


def bounds_by_partition(
    bounds: Bounds, partitions: Iterable[int], default: str, called: str
) -> dict[int, Bound]:
    """The bound of every partition, checked; `called` is what the caller calls it."""
    wanted = list(partitions)
    if not isinstance(bounds, Mapping):
        bound = default if bounds is None else bounds
        return dict.fromkeys(wanted, _checked(bound, called))
    strangers = [number for number in bounds if number not in wanted]
    if strangers:
        raise ConfigurationError(f"{called} names partition {strangers[0]}, which is not read")
    return {number: _checked(bounds.get(number, default), called) for number in wanted}


def _checked(bound: object, called: str) -> Bound:
    if isinstance(bound, datetime):
        if bound.tzinfo is None:
            raise ConfigurationError(
                f"{called} is {bound} in no time zone; say which, "
                f"for instance datetime(..., tzinfo=timezone.utc)"
            )
        return bound
    if isinstance(bound, int) and not isinstance(bound, bool):
        return bound
    if bound in (EARLIEST, LATEST):
        return str(bound)
    raise ConfigurationError(
        f"{called} is {bound!r}; it can be an offset, a negative number that counts back from the "
        f"end, {EARLIEST!r}, {LATEST!r}, a datetime, or a dictionary of these by partition"
    )


def milliseconds_of(time: datetime) -> int:
    """As Kafka counts; a fraction of a millisecond counts for the next one."""
    # Brokers take negative times for other questions, and no record is that old.
    return max(-int((_EPOCH - time) // _MILLISECOND), 0)


def place(bound: Bound, log: OffsetRange, found_offset: int = NOT_FOUND) -> int:
    """The offset in the log that is meant; `found_offset` is what the broker found for a time."""
    earliest, latest = log
    match bound:
        case datetime():
            offset = latest if found_offset == NOT_FOUND else found_offset
        case str():
            offset = earliest if bound == EARLIEST else latest
        case _:
            offset = bound if bound >= 0 else latest + bound
    return min(max(offset, earliest), latest)
