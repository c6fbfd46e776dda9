"""Records as they are written to a dead-letter topic, and how many they were. A shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON: Final = "reason"


def to_dead_letters(records: DataFrame, pipeline_name: str, sink: str | None = None) -> DataFrame:
    """Key and value as they were, and headers that tell where the record is, what is wrong (the
    column REASON), and which sink did without it if not all of them did."""
    told = [
        _header("moldau.pipeline", F.lit(pipeline_name)),
        _header("moldau.reason", F.col(REASON)),
        _header("moldau.topic", F.col("topic")),
        _header("moldau.partition", F.col("partition")),
        _header("moldau.offset", F.col("offset")),
        _header("moldau.timestamp", F.col("timestamp")),
    ]
    if sink is not None:
        told.append(_header("moldau.sink", F.lit(sink)))
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


def _header(name: str, content: Column) -> Column:
    return F.struct(
        F.lit(name).alias("key"), content.cast(StringType()).cast("binary").alias("value")
    )
