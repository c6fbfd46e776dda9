"""A record as people see it: what a consumer gets and a producer gives. A value, nothing more."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Names may repeat. Bytes of a name that are no UTF-8 are kept as lone surrogates (PEP 383), so a
record that is read and written again is the same."""

RECORD_OVERHEAD_BYTES = 12
"""About what lengths, attributes and deltas take around key, value and headers of a record."""


class Record(NamedTuple):
    """A record with its place in the log. A named tuple: consumers get millions of them."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record that has no place yet; its offset follows from its position in a batch."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


RecordRow: TypeAlias = NewRecord | Record | tuple[int, bytes | None, bytes | None, Headers]
"""What can be encoded: any tuple that ends with timestamp, key, value and headers."""
