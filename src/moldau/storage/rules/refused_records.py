"""Which records of a refused batch are at fault, for the errors of single records in an answer.

Kafka refuses a batch as a whole and names every record that made it do so (KIP-467), so that a
producer can give up these and send the others again. `LogValidator` is the model: a record without
a key where one is needed, or with a timestamp out of range, is named and the next one is looked at;
a batch with any timestamp out of range is refused for that (`append_checks`).

Only a batch that is refused comes here, so this may take longer than the check that found a fault;
what cannot be read any further ends the list. A rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from moldau.errors import InvalidRecordError, RecordErrors
from moldau.model import NO_TIMESTAMP
from moldau.records.batch_header import BatchHeader, Buffer
from moldau.records.codec import decode_columns
from moldau.records.columns import BytesColumn, ColumnSource

MOST_RECORDS: Final = 100_000
"""Of a batch with more records none is named but the first: naming each would be a way to make the
broker busy."""

_SHOWN: Final = 3


class TimestampRange(NamedTuple):
    """What the topic allows, both ends included."""

    oldest_ms: int
    newest_ms: int

    def find_fault(self, timestamp: int) -> str | None:
        if timestamp == NO_TIMESTAMP or self.oldest_ms <= timestamp <= self.newest_ms:
            return None
        return f"timestamp {timestamp} is not within [{self.oldest_ms}, {self.newest_ms}]"


def name_refused(
    payload: Buffer,
    header: BatchHeader,
    *,
    require_keys: bool,
    allowed: TimestampRange | None = None,
) -> RecordErrors:
    """Every record that is at fault; empty when the records cannot be told apart."""
    if not 0 < header.record_count <= MOST_RECORDS:
        return ()
    source = ColumnSource(payload, header.record_count, 0, header.base_timestamp)
    try:
        columns = decode_columns((source,), keys=require_keys, values=False, headers=False)
    except InvalidRecordError:  # damaged: whoever found that says so
        return ()
    offset_deltas = memoryview(columns.offsets).cast("B").cast("q")
    timestamps = memoryview(columns.timestamps).cast("B").cast("q")
    has_key = _has_key(columns.keys, header.record_count)
    return tuple(_walk(offset_deltas, timestamps, has_key, allowed))


def _walk(
    offset_deltas: Sequence[int],
    timestamps: Sequence[int],
    has_key: Iterator[bool],
    allowed: TimestampRange | None,
) -> Iterator[tuple[int, str]]:
    facts = zip(offset_deltas, timestamps, has_key, strict=True)
    for index, (delta, timestamp, is_keyed) in enumerate(facts):
        if delta != index:
            yield index, f"the offset delta is {delta} where {index} is due"
        elif not is_keyed:
            yield index, "there is no key, and the topic is compacted"
        elif allowed is not None and (fault := allowed.find_fault(timestamp)) is not None:
            yield index, fault


def _has_key(keys: BytesColumn | None, count: int) -> Iterator[bool]:
    """Of each record; where no key is asked for, or none is missing, all count as keyed."""
    validity = None if keys is None else keys.validity
    if validity is None:
        return iter((True,) * count)
    bits = memoryview(validity).cast("B")
    return (bool(bits[index >> 3] >> (index & 7) & 1) for index in range(count))


def summarize(errors: RecordErrors) -> str:
    """The first ones in one line."""
    shown = "; ".join(f"record {index}: {reason}" for index, reason in errors[:_SHOWN])
    left = len(errors) - _SHOWN
    return shown if left <= 0 else f"{shown}; and {left} more records"
