"""The columns of a topic as a table: those of Spark's Kafka source, in its order. A rule.

`headers` is null where a record has none. `timestampType` is 0 for the time that the producer gave
and 1 for the time at which the broker appended the record.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Literal

import pyarrow as pa

from moldau.errors import ConfigurationError

TimestampUnit = Literal["ms", "us"]
"""Kafka counts milliseconds, which cost nothing to pass on; Spark wants microseconds."""

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(HEADER)


@cache
def whole_schema(timestamp_unit: TimestampUnit = "ms") -> pa.Schema:
    """All columns."""
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.timestamp(timestamp_unit, tz="UTC")),
            pa.field("timestampType", pa.int32()),
            pa.field("headers", HEADERS),
        ]
    )


def choose_schema(
    columns: Iterable[str] | None = None, timestamp_unit: TimestampUnit = "ms"
) -> pa.Schema:
    """The named columns in the order given, or all; raises ConfigurationError."""
    whole = whole_schema(timestamp_unit)
    if columns is None:
        return whole
    if isinstance(columns, str):
        raise ConfigurationError(f"columns is a list of names: [{columns!r}], not {columns!r}")
    names = list(columns)
    for name in names:
        if name not in whole.names:
            raise ConfigurationError(
                f"a topic has no column {name!r}; there are {', '.join(whole.names)}"
            )
    if len(set(names)) < len(names):
        raise ConfigurationError(f"columns names one of {', '.join(names)} twice")
    return pa.schema([whole.field(name) for name in names])
