"""The columns of a topic: those of Spark's own Kafka source, for Spark and for Arrow.

A query that names a schema of its own reads only those columns: what is not named is not decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_HEADERS = StructField("headers", ArrayType(_HEADER))


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
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(one.name, types[one.name], one.nullable) for one in schema])
