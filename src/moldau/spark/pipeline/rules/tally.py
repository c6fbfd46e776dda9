"""How many records a query has set aside since its checkpoint began. A rule.

A tally names the last batch that it counts. A batch that Spark repeats after a crash reads the same
records under the same watermark, so it changes nothing when it is counted already.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace

from moldau.errors import InvariantViolation


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Records that a query did not make part of its result."""

    late_records: int = 0
    """Input records that came after the watermark had closed a window of theirs."""
    records_without_time: int = 0
    """Input records whose time is null, so that they belong to no window."""
    untraced_rows: int = 0
    """Rows that Spark dropped as late and that cannot be traced to their records."""
    dead_letters: int = 0
    """Records written to a dead-letter topic: some of the above, and those that do not parse."""

    def __add__(self, other: SetAside) -> SetAside:
        return SetAside(**{key: value + getattr(other, key) for key, value in asdict(self).items()})

    def __bool__(self) -> bool:
        return any(asdict(self).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """All that was set aside, up to and including `batch_id`."""

    batch_id: int = -1
    total: SetAside = field(default_factory=SetAside)

    def counts(self, batch_id: int) -> bool:
        """Whether a batch is in the total."""
        return batch_id <= self.batch_id


def add_batch(tally: Tally, batch_id: int, found: SetAside) -> Tally:
    """The tally with one more batch; unchanged where it counts the batch already."""
    if tally.counts(batch_id):
        return tally
    return replace(tally, batch_id=batch_id, total=tally.total + found)


def encode_tally(tally: Tally) -> str:
    """As it is written to a file."""
    return json.dumps({"batch": tally.batch_id, **asdict(tally.total)}, indent=1)


def decode_tally(text: str, name: str) -> Tally:
    """Raises InvariantViolation: a tally is written whole, or it is not there."""
    try:
        document = json.loads(text)
        total = SetAside(**{one.name: int(document.get(one.name, 0)) for one in fields(SetAside)})
        return Tally(batch_id=int(document["batch"]), total=total)
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise InvariantViolation(f"{name} is no tally of a query: {fault!r}") from fault
