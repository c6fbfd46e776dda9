"""The columns of a topic, read and written: those of Spark's own Kafka source and sink.

A query that names a schema of its own reads only those columns: what is not named is not decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import types
from pyspark.sql.types import StructField, StructType

from moldau.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa


_PLAIN = (
    StructField("key", types.BinaryType()),
    StructField("value", types.BinaryType()),
    StructField("topic", types.StringType()),
    StructField("partition", types.IntegerType()),
    StructField("offset", types.LongType()),
    StructField("timestamp", types.TimestampType()),
    StructField("timestampType", types.IntegerType()),
)
_HEADER = StructType(
    [StructField("key", types.StringType()), StructField("value", types.BinaryType())]
)
_HEADERS = StructField("headers", types.ArrayType(_HEADER))


def source_schema(*, include_headers: bool) -> StructType:
    """What `load()` gives when no schema was named."""
    return StructType([*_PLAIN, _HEADERS] if include_headers else list(_PLAIN))


def require_columns(schema: StructType) -> None:
    """Every column has to be one of the source's, with its type; raises ConfigurationError."""
    known = {field.name: field.dataType for field in source_schema(include_headers=True)}
    for field in schema:
        if field.name not in known:
            raise ConfigurationError(
                f"a topic has no column {field.name!r}; there are {', '.join(known)}"
            )
        if field.dataType != known[field.name]:
            raise ConfigurationError(
                f"the column {field.name} is {known[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}; read it as it is and cast it"
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark's Python workers expect the batches: they compare field by field.

    PySpark's own `to_arrow_schema` says the same, and is called differently in each version.
    """
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    arrow_types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(one.name, arrow_types[one.name], one.nullable) for one in schema])


# Written are `value`, and where they are there `key`, `headers`, `topic` and `partition`; others
# are ignored. Types are given as Spark names them in short.


_TEXT_OR_BYTES = ("string", "binary")
_WRITTEN_HEADERS = ("array<struct<key:string,value:binary>>",)
_WRITTEN_TYPES: Mapping[str, tuple[str, ...]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": _WRITTEN_HEADERS,
    "topic": ("string",),
    "partition": ("int",),
}

_WRITTEN = ("key", "value", "headers", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteColumns:
    """Which columns are there to be written; `value` always is."""

    topic: str | None
    """Where all rows go, whatever their column says."""
    written: tuple[str, ...]
    """The names of those that are part of a record, or say where it goes in its topic. A column of
    timestamps is none of them, as in Spark's own sink."""


def find_write_columns(types: Mapping[str, str], topic: str | None) -> WriteColumns:
    """What will be written; raises ConfigurationError with the column and the remedy."""
    if "value" not in types:
        raise ConfigurationError(
            f"a column 'value' is needed, there {_describe(types)}; make it of the others, for "
            "example with to_json(struct(*)) AS value"
        )
    for name, allowed in _WRITTEN_TYPES.items():
        found = types.get(name)
        if found is not None and found not in allowed:
            raise ConfigurationError(
                f"the column {name!r} is {found}, it has to be {' or '.join(allowed)}; "
                f"{_remedy(name)}"
            )
    if topic is None and "topic" not in types:
        raise ConfigurationError(
            'nothing says which topic to write to: give .option("topic", ...), or a column '
            f"'topic'; there {_describe(types)}"
        )
    return WriteColumns(
        topic=topic,
        written=tuple(name for name in _WRITTEN if name in types),
    )


def refuse_null_topic(count: int) -> None:
    """Rows without a topic have nowhere to go."""
    if count:
        raise ConfigurationError(
            f"the column 'topic' is null in {count} of the rows; fill it, or give "
            '.option("topic", ...)'
        )


def _describe(types: Mapping[str, str]) -> str:
    if not types:
        return "are no columns"
    return f"{'is' if len(types) == 1 else 'are'} {', '.join(types)}"


def _remedy(name: str) -> str:
    match name:
        case "headers":
            return "make it of array(struct(name AS key, content AS value))"
        case "partition":
            return "cast it with CAST(partition AS INT)"
        case _:
            return f"cast it with CAST({name} AS STRING), or make JSON of it with to_json"
