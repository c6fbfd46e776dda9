"""Spark's own Kafka connector, with Java's clients in it, reads from and writes to Moldau."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import moldau
import moldau.testing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 1000
ABORTED = 10


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


def test_the_connector_reads_what_our_sink_wrote_exactly_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """With `read_committed`: not what failed attempts left, and in the same places as we do."""
    with moldau.testing.broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        brokers = {"kafka.bootstrap.servers": broker.bootstrap}
        with moldau.Producer(broker.bootstrap) as producer:
            producer.send_many("numbers", [b"%d" % number for number in range(COUNT)])
        _leave_aborted(broker.bootstrap, "copied")
        stream = spark.readStream.format("moldau").options(**brokers).option("subscribe", "numbers")
        query = (
            stream.option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", COUNT // 3)
            .load()
            .select("value")
            .writeStream.format("moldau")
            .options(**brokers)
            .option("topic", "copied")
            .option("exactlyOnce", "true")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(300)
        _leave_aborted(broker.bootstrap, "copied")
        committed = {**brokers, "subscribe": "copied", "kafka.isolation.level": "read_committed"}
        places = ("partition", "offset", "value")
        theirs = sorted(spark.read.format("kafka").options(**committed).load()[places].collect())
        ours = sorted(spark.read.format("moldau").options(**committed).load()[places].collect())
        assert ours == theirs
        assert sorted(int(row["value"]) for row in theirs) == list(range(COUNT))
        committed["kafka.isolation.level"] = "read_uncommitted"
        everything = spark.read.format("kafka").options(**committed).load()
        assert everything.count() == COUNT + 2 * ABORTED


def _leave_aborted(bootstrap: str, topic: str) -> None:
    with moldau.Producer(bootstrap, transactional_id="stumbles") as producer:
        producer.begin_transaction()
        producer.send_many(topic, [b"aborted"] * ABORTED)
        producer.flush()
        producer.abort_transaction()
