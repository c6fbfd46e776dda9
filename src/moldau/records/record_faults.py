"""What can be wrong with the records of a batch, in words.

Both record codecs find faults as four numbers and ask here for the message, so that they cannot
come to differ. A rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class RecordFault:
    """The first record that is wrong, counted from 0, and why."""

    index: int
    reason: str


# Kinds of fault. `_codec_native.pyx` repeats the numbers.
CUT_SHORT: Final = 1
OVERLONG: Final = 2
NEGATIVE: Final = 3
TOO_LARGE: Final = 4
UNEXPECTED_OFFSET_DELTA: Final = 5
KEY_MISSING: Final = 6
RECORD_LEFT_OVER: Final = 7
PAYLOAD_LEFT_OVER: Final = 8
RECORD_MISSING: Final = 9

# Fields, in the order in which they stand. `_codec_native.pyx` repeats the numbers.
RECORD_COUNT: Final = 0
RECORD_LENGTH: Final = 1
ATTRIBUTES: Final = 2
TIMESTAMP_DELTA: Final = 3
OFFSET_DELTA: Final = 4
KEY_LENGTH: Final = 5
VALUE_LENGTH: Final = 6
HEADER_COUNT: Final = 7
HEADER_KEY_LENGTH: Final = 8
HEADER_VALUE_LENGTH: Final = 9

_FIELD_NAMES: Final = (
    "record count",
    "record length",
    "attributes byte",
    "timestamp delta",
    "offset delta",
    "key length",
    "value length",
    "header count",
    "header key length",
    "header value length",
)

_REASONS: Final = {
    CUT_SHORT: "the {field} is cut short",
    OVERLONG: "the {field} is an over-long varint",
    NEGATIVE: "the {field} is {found}",
    TOO_LARGE: "the {field} is {found}, but only {allowed} bytes follow",
    UNEXPECTED_OFFSET_DELTA: "the offset delta is {found} where {allowed} is due",
    KEY_MISSING: "there is no key",
    RECORD_LEFT_OVER: "{found} bytes of the record are left over after its last header",
    PAYLOAD_LEFT_OVER: "{found} bytes are left over after the last record",
    RECORD_MISSING: "there are no bytes left for it",
}


def describe(index: int, kind: int, field: int, found: int, allowed: int) -> RecordFault:
    """Put a fault into words; `found` and `allowed` mean what the kind's message says."""
    template = _REASONS[kind]
    reason = template.format(field=_FIELD_NAMES[field], found=found, allowed=allowed)
    return RecordFault(index, reason)
