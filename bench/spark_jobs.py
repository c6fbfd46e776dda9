"""The queries that Spark is measured with: a source, a sink, and so many rows between them.

Sources and sinks come in three kinds: Moldau's, Spark's own connector, and prebuilt Arrow batches,
which show what the API of Python data sources can do at best. All read and write one broker.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.frames import make_batch, produce
from bench.processes import ServerProcess
from bench.raw_client import RawClient
from bench.scale import KIB, MIB
from bench.spark_cpu import CpuSeconds, read_cpu
from bench.throughput import PRODUCE_IN_FLIGHT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOLDAU, CONNECTOR, PREBUILT = "moldau", "kafka", "prebuilt"
NOOP, PARQUET, TOPIC = "noop", "parquet", "topic"
PARTITIONS = 4
EMPTY_TOPIC = "none"

_BATCH_BYTES = 128 * KIB
_ARROW_BYTES = 2 * MIB
"""Of a prebuilt Arrow batch: as much as one of Moldau's answers has."""
_ARROW_ROWS_AT_LEAST = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What Spark is asked to do."""

    source: str
    sink: str
    topic: str
    rows: int
    record_bytes: int
    schema: str | None = None
    partitions: int = PARTITIONS
    min_records: int | None = None  # of a task of Moldau's source


class SparkRound(NamedTuple):
    """One query, run once."""

    seconds: float
    cpu: CpuSeconds | None
    rows: int
    payload_bytes: int


def fill_topic(
    broker: ServerProcess,
    topic: str,
    record_bytes: int,
    total_bytes: int,
    partitions: int = PARTITIONS,
) -> int:
    """Make a topic; how many rows it has then."""
    batch = make_batch(_BATCH_BYTES, record_bytes)
    count = max(1, total_bytes // partitions // len(batch.data))
    with RawClient(broker) as client:
        client.create_topic(topic, partitions=partitions)
        for partition in range(partitions):
            prepared = produce(topic, batch, partition=partition)
            client.repeat(prepared, count, PRODUCE_IN_FLIGHT)
    return partitions * count * batch.record_count


class Jobs:
    """Runs queries in one session, from and to one broker."""

    def __init__(self, spark: SparkSession, broker: ServerProcess, folder: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._folder = folder
        # Nothing public tells which process the JVM is.
        self._jvm: int = spark.sparkContext._gateway.proc.pid
        self._copied: Counter[str] = Counter()
        with RawClient(broker) as client:
            for topic in (EMPTY_TOPIC, _copy_of(MOLDAU), _copy_of(CONNECTOR)):
                client.create_topic(topic, partitions=PARTITIONS)

    def measure(self, query: Query) -> SparkRound:
        cpu_before, before = read_cpu(self._broker, self._jvm), time.perf_counter()
        self._save(self._load(query), query)
        after, cpu_after = time.perf_counter(), read_cpu(self._broker, self._jvm)
        rows = _prebuilt_rows(query) if query.source == PREBUILT else query.rows
        if query.sink == TOPIC:
            self._copied[query.source] += rows
        used = None if cpu_before is None or cpu_after is None else cpu_after.since(cpu_before)
        return SparkRound(after - before, used, rows, rows * query.record_bytes)

    def require_all_written(self, query: Query) -> None:
        """Raise unless the sink has all that was written to it."""
        if query.sink == PARQUET:
            found = self._spark.read.parquet(self._parquet(query.source)).count()
            wanted = _prebuilt_rows(query) if query.source == PREBUILT else query.rows
        elif query.sink == TOPIC and query.source != PREBUILT:
            found = _count_rows(self._broker, _copy_of(query.source))
            wanted = self._copied[query.source]
        else:
            return
        if found != wanted:
            raise RuntimeError(f"{found} rows of {wanted} arrived: {query}")

    def _load(self, query: Query) -> DataFrame:
        reader = self._spark.read.format(query.source)
        if query.source == PREBUILT:
            return reader.options(**_prebuilt_options(query)).load()
        if query.schema is not None:
            reader = reader.schema(query.schema)
        if query.min_records is not None:
            reader = reader.option("minRecordsPerPartition", query.min_records)
        return reader.options(**self._brokers()).option("subscribe", query.topic).load()

    def _save(self, frame: DataFrame, query: Query) -> None:
        if query.sink == NOOP:
            frame.write.format("noop").mode("overwrite").save()
        elif query.sink == PARQUET:
            frame.write.mode("overwrite").parquet(self._parquet(query.source))
        else:
            writer = frame.select("key", "value").write.format(query.source).mode("append")
            writer.options(**self._brokers()).option("topic", _copy_of(query.source)).save()

    def _brokers(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._broker.bootstrap}

    def _parquet(self, source: str) -> str:
        return str(self._folder / f"{source}.parquet")


def _copy_of(source: str) -> str:
    return f"copied-by-{source}"


def _prebuilt_options(query: Query) -> dict[str, int]:
    rows_of_a_batch = max(_ARROW_BYTES // query.record_bytes, _ARROW_ROWS_AT_LEAST)
    batches = -(-query.rows // query.partitions // rows_of_a_batch)
    return {
        "tasks": query.partitions,
        "batches": batches,
        "rows": rows_of_a_batch,
        "bytes": query.record_bytes,
    }


def _prebuilt_rows(query: Query) -> int:
    options = _prebuilt_options(query)
    return options["tasks"] * options["batches"] * options["rows"]


def _count_rows(broker: ServerProcess, topic: str) -> int:
    from moldau.spark.offset_reader import OffsetReader
    from moldau.spark.options import SourceOptions

    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
    view = OffsetReader(SourceOptions.read(given))
    return sum(view.find_latest(view.require_partitions().partitions).values())
