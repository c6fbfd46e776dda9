"""The DataFrames of a pipeline: sources read and parsed, then transforms, by their names. A shell.

A record that does not parse is either written to the dead-letter topic by a query of its own, or
ends the pipeline. None is passed over.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from moldau.errors import ConfigurationError
from moldau.spark.pipeline.dead_letters import to_dead_letters
from moldau.spark.pipeline.model import Pipeline, PythonTransform, Source, SqlTransform
from moldau.spark.pipeline.values import parse_values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Function = Callable[..., DataFrame]


def build_frames(
    spark: SparkSession, pipeline: Pipeline, kafka: Mapping[str, str]
) -> Mapping[str, DataFrame]:
    """Plan sources and transforms; nothing runs yet. Raises ConfigurationError, and what Spark
    has to say. `kafka` are the options that lead to the brokers."""
    named: dict[str, DataFrame] = {}
    for source in pipeline.sources:
        rows = parse_values(_read_records(spark, source, kafka), source).rows
        named[source.name] = _finish(rows, source)
        named[source.name].createOrReplaceTempView(source.name)
    for transform in pipeline.transforms:
        if isinstance(transform, SqlTransform):
            frame = spark.sql(transform.sql)
        else:
            frame = _call(spark, transform, named, pipeline.folder)
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


def _finish(rows: DataFrame, source: Source) -> DataFrame:
    if source.watermark is None:
        return rows
    if source.watermark.column not in rows.columns:
        raise ConfigurationError(
            f"sources.{source.name}.watermark.column: there is no column "
            f"{source.watermark.column!r}, only {', '.join(rows.columns)}"
        )
    return rows.withWatermark(source.watermark.column, source.watermark.delay)


def _call(
    spark: SparkSession, transform: PythonTransform, named: Mapping[str, DataFrame], folder: str
) -> DataFrame:
    from pyspark.sql import DataFrame

    function = load_function(transform, folder)
    _ship(spark, transform.module, folder)
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


def _ship(spark: SparkSession, module: str, folder: str) -> None:
    """Have workers find the module, too: functions within it may be called there."""
    file = Path(folder) / f"{module}.py"
    if file.is_file():
        spark.sparkContext.addPyFile(str(file))


def columns_of(schema: StructType) -> dict[str, str]:
    """Names and types."""
    return {field.name: field.dataType.simpleString() for field in schema.fields}
