"""What Spark offers to no source in Python, and what to do instead, as `docs/spark.md` says it.

When one of the refusals ends, Spark's API has got further, and the page can promise more.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import moldau
import moldau.spark
from support import confluent_client
from support.rows import numbered_rows
from support.spark_versions import QUERY_SECONDS, limits_batches
from support.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_the_output_mode_update_is_had_by_foreachBatch(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.create(), topics.create()
    confluent_client.produce(bootstrap, source, numbered_rows(3))
    brokers = {"kafka.bootstrap.servers": bootstrap}
    stream = spark.readStream.format("moldau").options(**brokers, subscribe=source)
    counts = stream.option("startingOffsets", "earliest").load().groupBy("partition").count()
    values = counts.selectExpr("CAST(count AS STRING) AS value").writeStream.outputMode("update")

    direct = values.format("moldau").options(**brokers, topic=target)
    with pytest.raises((AnalysisException, StreamingQueryException), match=r"(?i)update"):
        direct.option("checkpointLocation", str(tmp_path / "direct")).start().awaitTermination(
            QUERY_SECONDS
        )

    def append(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("moldau").options(**brokers, topic=target).mode("append").save()

    for count in (3, 5):
        by_batch = values.foreachBatch(append).option("checkpointLocation", str(tmp_path / "b"))
        query = by_batch.trigger(availableNow=True).start()
        assert query.awaitTermination(QUERY_SECONDS)
        table = moldau.read_table(target, bootstrap=bootstrap, columns=["value"])
        assert table["value"].to_pylist()[-1] == b"%d" % count
        confluent_client.produce(bootstrap, source, numbered_rows(2))


def test_a_write_without_a_mode_is_told_which_to_take(spark: SparkSession, bootstrap: str) -> None:
    frame = spark.sql("SELECT 'v' AS value").write.format("moldau")
    with pytest.raises(AnalysisException, match=r"(?s)ErrorIfExists.*Append"):
        frame.options(**{"kafka.bootstrap.servers": bootstrap, "topic": "nobody"}).save()


@limits_batches
def test_metrics_of_a_stream_follow_from_its_progress(
    spark: SparkSession, bootstrap: str, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    confluent_client.produce(bootstrap, topic, numbered_rows(5))
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    stream = spark.readStream.format("moldau").options(**given, startingOffsets="earliest")
    writer = stream.option("maxOffsetsPerTrigger", "3").load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_SECONDS)
    reports = [one.sources[0] for one in query.recentProgress if one.numInputRows]
    behind = [moldau.spark.source_metrics(one)["maxOffsetsBehindLatest"] for one in reports]
    assert behind == ["2", "0"]
    assert not any(one.metrics for one in reports)
