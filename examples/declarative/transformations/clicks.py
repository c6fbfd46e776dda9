"""Clicks from a topic: parsed into a table, and the pages in capitals to another topic."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BOOTSTRAP = spark.conf.get("moldau.bootstrap", "127.0.0.1:9092")

dp.create_sink(
    "capitals",
    "moldau",
    {"kafka.bootstrap.servers": BOOTSTRAP, "topic": "clicks-in-capitals"},
)


@dp.table
def clicks() -> DataFrame:
    records = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = F.from_json(F.col("value").cast("string"), "user STRING, page STRING, at TIMESTAMP")
    return records.select(parsed.alias("click")).select("click.*")


@dp.append_flow(target="capitals")
def to_capitals() -> DataFrame:
    shouted = F.to_json(F.struct("user", F.upper("page").alias("page"))).alias("value")
    return spark.readStream.table("clicks").select(F.col("user").alias("key"), shouted)
