"""Values as JSON has them. A rule.

Times are ISO 8601, decimals and UUIDs texts, bytes texts of one character for each byte (as in
Avro's own JSON), and what JSON has no number for (NaN, Infinity) is its name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from uuid import UUID

from moldau.errors import SchemaDecodingError


def to_document(value: object) -> object:
    """For `json.dumps`; raises SchemaDecodingError for what is nested by the hundred."""
    try:
        return _to_document(value)
    except RecursionError:
        raise SchemaDecodingError("the value is nested too deeply to be shown") from None


def _to_document(value: object) -> object:
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _name_of(value)
    if isinstance(value, Mapping):
        return {str(name): _to_document(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_to_document(one) for one in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("latin-1")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f") if value.is_finite() else str(value)
    if isinstance(value, UUID):
        return str(value)
    return str(value)


def _name_of(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
