"""What tests send and get back, the same for every client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

Headers = tuple[tuple[str, bytes | None], ...]

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class Row(NamedTuple):
    """A record to be sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None


class Got(NamedTuple):
    """A record that came back."""

    offset: int
    timestamp_type: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @classmethod
    def of(cls, record: Any) -> Self:
        """From a record of aiokafka's or kafka-python's, whose names are the same."""
        kind, timestamp_ms = record.timestamp_type, record.timestamp
        headers = tuple(record.headers)
        return cls(record.offset, kind, timestamp_ms, record.key, record.value, headers)


def rows_of(got: Iterable[Got]) -> list[Row]:
    """What a consumer got, as a producer sent it."""
    return [Row(one.key, one.value, one.headers, one.timestamp_ms) for one in got]


def numbered_rows(count: int, *, padding: int = 20, start_ms: int = 1_700_000_000_000) -> list[Row]:
    """Rows that are all different and compress well."""
    return [
        Row(
            b"key-%d" % number,
            b"value-%d-" % number + b"x" * padding,
            (("number", b"%d" % number),),
            start_ms + number,
        )
        for number in range(count)
    ]


VARIED_ROWS: Sequence[Row] = (
    Row(b"key", b"value", (), 1_700_000_000_000),
    Row(None, b"no key", (), 1_700_000_000_001),
    Row(b"a tombstone", None, (), 1_700_000_000_002),
    Row(b"", b"", (), 1_700_000_000_003),
    Row(b"empty value", b"", (("", b""),), 1_700_000_000_004),
    Row(
        "Schlüssel ❄".encode(),
        "Wert 東京 🌊".encode(),
        (("größe", "héader".encode()),),
        1_700_000_000_005,
    ),
    Row(
        bytes(range(256)),
        bytes(range(255, -1, -1)),
        (("binary", bytes(range(256))),),
        1_700_000_000_006,
    ),
    Row(
        b"headers",
        b"repeated",
        (("same", b"1"), ("same", b"2"), ("other", b"3")),
        1_700_000_000_007,
    ),
    Row(b"older", b"timestamps need not grow", (), 1_600_000_000_000),
    Row(b"long", b"0123456789" * 2_000, (), 1_700_000_000_008),
)
"""What records may be, except what a client cannot send."""
