"""The DataFrames of a pipeline: sources read and parsed, then transforms, by their names. A shell.

A record that does not parse is either written to the dead-letter topic by a query of its own, or
ends the pipeline. None is ignored. Texts have to be UTF-8; JSON and Avro have to fit the schema. A
record without a value is no fault: its columns are null.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from moldau.config.properties import expand_secret
from moldau.errors import ConfigurationError, RegistryError
from moldau.spark.decode import decode_avro, decode_json
from moldau.spark.pipeline.model import (
    Pipeline,
    PythonTransform,
    RegistrySource,
    Source,
    SqlTransform,
)
from moldau.spark.registry_columns import from_registry

_PARSED: Final = "_moldau_parsed"
REASON: Final = "reason"

Function = Callable[..., DataFrame]


def build_frames(
    spark: SparkSession, pipeline: Pipeline, kafka: Mapping[str, str]
) -> Mapping[str, DataFrame]:
    """Plan sources and transforms; nothing runs yet. Raises ConfigurationError, and what Spark
    has to say. `kafka` are the options that lead to the brokers."""
    named: dict[str, DataFrame] = {}
    for source in pipeline.sources:
        rows = parse_values(_read_records(spark, source, kafka), source).rows
        named[source.name] = _add_watermark(rows, source)
        named[source.name].createOrReplaceTempView(source.name)
    for transform in pipeline.transforms:
        if isinstance(transform, SqlTransform):
            frame = spark.sql(transform.sql)
        else:
            frame = _call_function(spark, transform, named, pipeline.folder)
        named[transform.name] = frame
        frame.createOrReplaceTempView(transform.name)
    return named


def build_dead_letters(
    spark: SparkSession, source: Source, pipeline: Pipeline, kafka: Mapping[str, str]
) -> DataFrame | None:
    """The records of a source that do not parse, as they are to be written to its dead-letter
    topic; None where it has none."""
    faulty = parse_values(_read_records(spark, source, kafka), source).faulty
    return None if faulty is None else to_dead_letters(faulty, pipeline.name)


def _read_records(spark: SparkSession, source: Source, kafka: Mapping[str, str]) -> DataFrame:
    reader = (
        spark.readStream.format("moldau")
        .options(**kafka)
        .option("startingOffsets", source.starting_offsets)
        .option("includeHeaders", str(source.include_headers or bool(source.dead_letter)).lower())
    )
    if source.topic_pattern is not None:
        reader = reader.option("subscribePattern", source.topic_pattern)
    else:
        reader = reader.option("subscribe", ",".join(source.topics))
    if source.group is not None:
        reader = reader.option("groupId", source.group)
    return reader.options(**dict(source.options)).load()


def _add_watermark(rows: DataFrame, source: Source) -> DataFrame:
    if source.watermark is None:
        return rows
    if source.watermark.column not in rows.columns:
        raise ConfigurationError(
            f"sources.{source.name}.watermark.column: there is no column "
            f"{source.watermark.column!r}, only {', '.join(rows.columns)}"
        )
    return rows.withWatermark(source.watermark.column, source.watermark.delay)


def _call_function(
    spark: SparkSession, transform: PythonTransform, named: Mapping[str, DataFrame], folder: str
) -> DataFrame:
    function = load_function(transform, folder)
    _ship_module(spark, transform.module, folder)
    made = function(*(named[name] for name in transform.inputs))
    if not isinstance(made, DataFrame):
        raise ConfigurationError(
            f"transforms.{transform.name}.python: {transform.function} gave "
            f"{type(made).__name__}, not a DataFrame; return one"
        )
    return made


def load_function(transform: PythonTransform, folder: str) -> Function:
    """The function that a transform names; raises ConfigurationError."""
    if folder not in sys.path:
        sys.path.insert(0, folder)
    where = f"transforms.{transform.name}.python"
    try:
        module = importlib.import_module(transform.module)
    except ImportError as fault:
        raise ConfigurationError(
            f"{where}: {transform.module} cannot be imported: {fault}; put it beside the pipeline "
            "file, or install it"
        ) from fault
    function = getattr(module, transform.function, None)
    if not callable(function):
        raise ConfigurationError(
            f"{where}: {transform.module} has no function {transform.function}"
        )
    found: Function = function
    return found


def _ship_module(spark: SparkSession, module: str, folder: str) -> None:
    """Have workers find the module, too: functions within it may be called there."""
    file = Path(folder) / f"{module}.py"
    if file.is_file():
        spark.sparkContext.addPyFile(str(file))


def columns_of(schema: StructType) -> dict[str, str]:
    """Names and types."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}


# Values of records into columns


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
    reading = _read_values(records, source)
    columns = [*reading.columns, *_find_metadata(source)]
    if reading.is_faulty is None:
        return Parsed(reading.frame.select(columns), None)
    if source.dead_letter is None:
        checked = reading.frame.filter(_raise_if_faulty(reading.is_faulty, reading.reason, source))
        return Parsed(checked.select(columns), None)
    rows = reading.frame.filter(~reading.is_faulty).select(columns)
    faulty = reading.frame.filter(reading.is_faulty).withColumn(REASON, F.lit(reading.reason))
    return Parsed(rows, faulty)


def _read_values(records: DataFrame, source: Source) -> _Reading:
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
    return _find_fields(frame, "the value is not JSON of the source's schema")


def _read_avro(records: DataFrame, source: Source) -> _Reading:
    try:
        frame = decode_avro(records, source.schema or "", into=_PARSED)
    except (ConfigurationError, KeyError) as fault:
        raise _wrong_schema(source, fault, "it is that of a record") from fault
    return _find_fields(frame, "the value is not Avro of the source's schema")


def _read_by_registry(records: DataFrame, source: Source, registry: RegistrySource) -> _Reading:
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
    return _find_fields(
        records.withColumn(_PARSED, decoded), "the value is not of the registry's schema"
    )


def _find_fields(frame: DataFrame, reason: str) -> _Reading:
    """The fields of what was decoded; it is null where that was not possible."""
    kind = frame.schema[_PARSED].dataType
    names = kind.names if isinstance(kind, StructType) else []
    columns = [F.col(_PARSED)[name].alias(name) for name in names]
    is_faulty = F.col("value").isNotNull() & F.col(_PARSED).isNull()
    return _Reading(frame, columns or [F.col(_PARSED).alias("value")], is_faulty, reason)


def _wrong_schema(source: Source, fault: Exception, advice: str) -> ConfigurationError:
    first = str(fault).strip().splitlines()[0]
    return ConfigurationError(f"sources.{source.name}.schema: {first}; {advice}")


def _raise_if_faulty(is_faulty: Column, reason: str, source: Source) -> Column:
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


def _find_metadata(source: Source) -> list[Column]:
    names = ["key", "topic", "partition", "offset", "timestamp"]
    if source.include_headers:
        names.append("headers")
    return [F.col(name).alias(f"_{name}") for name in names]


# Dead letters


def to_dead_letters(records: DataFrame, pipeline_name: str, sink: str | None = None) -> DataFrame:
    """Key and value as they were, and headers that tell where the record is, what is wrong (the
    column REASON), and which sink did without it if not all of them did."""
    told = [
        _make_header("moldau.pipeline", F.lit(pipeline_name)),
        _make_header("moldau.reason", F.col(REASON)),
        _make_header("moldau.topic", F.col("topic")),
        _make_header("moldau.partition", F.col("partition")),
        _make_header("moldau.offset", F.col("offset")),
        _make_header("moldau.timestamp", F.col("timestamp")),
    ]
    if sink is not None:
        told.append(_make_header("moldau.sink", F.lit(sink)))
    added = F.array(*told)
    kept = F.coalesce(F.col("headers"), F.slice(added, 1, 0))
    return records.select("key", "value", F.concat(kept, added).alias("headers"))


def write_dead_letters(letters: DataFrame, options: Mapping[str, str], topic: str) -> int:
    """Append to a topic; how many they were. The options say where the brokers are."""
    observation = Observation()
    counted = letters.observe(observation, F.count(F.lit(1)).alias("letters"))
    append_to_topic(counted, {**options, "topic": topic})
    return int(observation.get["letters"])


def append_to_topic(records: DataFrame, options: Mapping[str, str]) -> None:
    """Write a frame that is not a stream."""
    records.write.format("moldau").options(**options).mode("append").save()


def _make_header(name: str, content: Column) -> Column:
    return F.struct(
        F.lit(name).alias("key"), content.cast(StringType()).cast("binary").alias("value")
    )
