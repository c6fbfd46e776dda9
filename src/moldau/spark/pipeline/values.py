"""Values of records into columns, and the records whose values cannot be read. A shell.

Texts have to be UTF-8; JSON and Avro have to fit the schema. A record without a value is no fault:
its columns are null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from moldau.config.properties import expand_secret
from moldau.errors import ConfigurationError, RegistryError
from moldau.spark.decode import decode_avro, decode_json
from moldau.spark.pipeline.dead_letters import REASON
from moldau.spark.pipeline.model import RegistrySource, Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PARSED = "_moldau_parsed"


class Parsed(NamedTuple):
    """Rows, and where there is a dead-letter topic the records that are none, with the reason."""

    rows: DataFrame
    faulty: DataFrame | None


class _Reading(NamedTuple):
    """What a format makes of a frame of records: columns of it, and whether a record is faulty."""

    frame: DataFrame
    columns: list[Column]
    is_faulty: Column | None
    reason: str


def parse_values(records: DataFrame, source: Source) -> Parsed:
    """Part the records of a source into rows and faulty records."""
    reading = _read(records, source)
    columns = [*reading.columns, *_metadata(source)]
    if reading.is_faulty is None:
        return Parsed(reading.frame.select(columns), None)
    if source.dead_letter is None:
        checked = reading.frame.filter(_or_stop(reading.is_faulty, reading.reason, source))
        return Parsed(checked.select(columns), None)
    rows = reading.frame.filter(~reading.is_faulty).select(columns)
    faulty = reading.frame.filter(reading.is_faulty).withColumn(REASON, F.lit(reading.reason))
    return Parsed(rows, faulty)


def _read(records: DataFrame, source: Source) -> _Reading:
    match source.format:
        case "binary":
            return _Reading(records, [F.col("value")], None, "")
        case "text":
            return _read_text(records)
        case "json":
            return _read_json(records, source)
        case "avro" | "registry":
            if source.registry is not None:
                return _read_by_registry(records, source, source.registry)
            return _read_avro(records, source)


def _read_text(records: DataFrame) -> _Reading:
    text = F.col("value").cast(StringType())
    is_faulty = F.col("value").isNotNull() & ~F.is_valid_utf8(text)
    return _Reading(records, [text.alias("value")], is_faulty, "the value is not UTF-8")


def _read_json(records: DataFrame, source: Source) -> _Reading:
    try:
        frame = decode_json(records, source.schema or "", into=_PARSED)
    except PySparkException as fault:
        raise _wrong_schema(source, fault, 'write it like "user STRING, at TIMESTAMP"') from fault
    return _fields(frame, "the value is not JSON of the source's schema")


def _read_avro(records: DataFrame, source: Source) -> _Reading:
    try:
        frame = decode_avro(records, source.schema or "", into=_PARSED)
    except (ConfigurationError, KeyError) as fault:
        raise _wrong_schema(source, fault, "it is that of a record") from fault
    return _fields(frame, "the value is not Avro of the source's schema")


def _read_by_registry(records: DataFrame, source: Source, registry: RegistrySource) -> _Reading:
    from moldau.spark.registry_columns import from_registry

    try:
        decoded = from_registry(
            "value",
            {name: expand_secret(name, text) for name, text in registry.settings},
            subject=registry.subject,
            version=registry.version or "latest",
            message=registry.message,
            expected_type="AVRO" if source.format == "avro" else None,
        )
    except (ConfigurationError, RegistryError) as fault:
        raise ConfigurationError(f"sources.{source.name}.registry: {fault}") from fault
    return _fields(
        records.withColumn(_PARSED, decoded), "the value is not of the registry's schema"
    )


def _fields(frame: DataFrame, reason: str) -> _Reading:
    """The fields of what was decoded; it is null where that was not possible."""
    kind = frame.schema[_PARSED].dataType
    names = kind.names if isinstance(kind, StructType) else []
    columns = [F.col(_PARSED)[name].alias(name) for name in names]
    is_faulty = F.col("value").isNotNull() & F.col(_PARSED).isNull()
    return _Reading(frame, columns or [F.col(_PARSED).alias("value")], is_faulty, reason)


def _wrong_schema(source: Source, fault: Exception, advice: str) -> ConfigurationError:
    first = str(fault).strip().splitlines()[0]
    return ConfigurationError(f"sources.{source.name}.schema: {first}; {advice}")


def _or_stop(is_faulty: Column, reason: str, source: Source) -> Column:
    """Always true; the first faulty record ends the query with a message about it."""
    message = F.concat(
        F.lit(f"sources.{source.name}: {reason} in "),
        F.col("topic"),
        F.lit("-"),
        F.col("partition").cast(StringType()),
        F.lit(" at offset "),
        F.col("offset").cast(StringType()),
        F.lit("; mend the schema, or set dead_letter to a topic for such records"),
    )
    return F.when(is_faulty, F.raise_error(message).cast("boolean")).otherwise(F.lit(True))


def _metadata(source: Source) -> list[Column]:
    names = ["key", "topic", "partition", "offset", "timestamp"]
    if source.include_headers:
        names.append("headers")
    return [F.col(name).alias(f"_{name}") for name in names]
