"""Spark's own Kafka connector, with Java's clients in it, reads from and writes to Moldau."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import moldau

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 1000


def test_the_connector_writes_reads_and_streams(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    brokers = {"kafka.bootstrap.servers": bootstrap}
    numbers = spark.range(COUNT).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) value")
    numbers.write.format("kafka").options(**brokers).option("topic", "written").save()
    assert _values(bootstrap, "written") == list(range(COUNT))

    read = spark.read.format("kafka").options(**brokers).option("subscribe", "written").load()
    by_moldau = spark.read.format("moldau").options(**brokers).option("subscribe", "written").load()
    assert read.dtypes == by_moldau.dtypes
    assert sorted(read.drop("timestamp").collect()) == sorted(by_moldau.drop("timestamp").collect())

    stream = spark.readStream.format("kafka").options(**brokers).option("subscribe", "written")
    query = (
        stream.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("kafka")
        .options(**brokers)
        .option("topic", "streamed")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(300)
    assert _values(bootstrap, "streamed") == list(range(COUNT))


def _values(bootstrap: str, topic: str) -> list[int]:
    table = moldau.read_table(topic, bootstrap=bootstrap, columns=["value"])
    return sorted(int(value) for value in table["value"].to_pylist())
