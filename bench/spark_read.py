"""Topics into Spark: rows per second from a topic to a sink that drops them.

Beside it, in the same session and turn by turn, a source that gives prebuilt Arrow batches: what
the API of Python data sources can do at best. Planning a query starts Python processes, which takes
about as long for no rows as for many; a query that reads nothing shows how long.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.frames import Batch, make_batch, produce
from bench.measure import MB_PER_SECOND, REQUESTS_PER_SECOND, Measured, most, take_turns
from bench.processes import ServerProcess, running_broker
from bench.raw_client import RawClient
from bench.report import Outcome, Table
from bench.scale import KIB, Scale
from bench.throughput import PRODUCE_IN_FLIGHT, record_name
from moldau.errors import StartupError
from moldau.spark.session_factory import require_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_BYTES = 128 * KIB
_PARTITIONS = 4
_ROWS_OF_A_BATCH = 20_000
_ROOT = Path(__file__).parents[1]

Subjects = dict[str, Callable[[], Measured]]


def run(scale: Scale) -> Outcome:
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401

        require_java()
    except (ImportError, StartupError) as error:
        return Outcome(
            tables=[Table(title="Spark: skipped", columns=("why",), rows=[(str(error),)])]
        )
    return Outcome(tables=[_measure(scale)])


def _measure(scale: Scale) -> Table:
    table = Table(
        title=f"Spark on local[2]: a topic of {_PARTITIONS} partitions to a noop sink",
        columns=("records", "source", "M rows/s", "MB/s", "net of planning", "of the ceiling"),
        note="net of planning: M rows/s without the time that a query of no rows takes; "
        "of the ceiling: of that.",
    )
    with _session() as spark:
        for record_bytes in scale.record_sizes:
            batch = make_batch(_BATCH_BYTES, record_bytes)
            with running_broker() as broker:
                rows = _fill(broker, batch, 2 * scale.round_bytes)
                found = take_turns(scale.rounds, _subjects(spark, broker, batch, rows))
            planning = {
                name: min(one.seconds for one in found[f"{name}, nothing"])
                for name in ("moldau", "prebuilt")
            }
            ceiling = _net(found["prebuilt"], planning["prebuilt"])
            for name in ("moldau", "moldau, value only", "prebuilt"):
                net = _net(found[name], planning[name.partition(",")[0]])
                table.add(
                    record_name(record_bytes),
                    name,
                    most(found[name], REQUESTS_PER_SECOND) / 1e6,
                    most(found[name], MB_PER_SECOND),
                    net,
                    net / ceiling,
                )
    return table


def _net(rounds: Sequence[Measured], planning_seconds: float) -> float:
    """Millions of rows for each second that was not planning; in the best round."""
    return max(
        one.requests / max(one.seconds - planning_seconds, one.seconds / 100) / 1e6
        for one in rounds
    )


@contextlib.contextmanager
def _session() -> Iterator[SparkSession]:
    from bench.prebuilt_source import PrebuiltSource
    from moldau.spark import session

    # Spark's workers import the source of prebuilt batches from here.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(_ROOT), os.environ.get("PYTHONPATH")))
    )
    with tempfile.TemporaryDirectory(prefix="moldau-bench-", ignore_cleanup_errors=True) as folder:
        spark = session(
            "local[2]",
            **{
                "spark.local.dir": folder,
                "spark.sql.warehouse.dir": f"{folder}/warehouse",
                "spark.driver.memory": "1g",
            },
        )
        try:
            spark.sparkContext.setLogLevel("OFF")
            spark.dataSource.register(PrebuiltSource)
            yield spark
        finally:
            spark.stop()


def _fill(broker: ServerProcess, batch: Batch, total_bytes: int) -> int:
    """How many rows the topic has then."""
    count = max(1, total_bytes // _PARTITIONS // len(batch.data))
    with RawClient(broker) as client:
        client.create_topic("rows", partitions=_PARTITIONS)
        client.create_topic("none", partitions=_PARTITIONS)
        for partition in range(_PARTITIONS):
            prepared = produce("rows", batch, partition=partition)
            client.repeat(prepared, count, PRODUCE_IN_FLIGHT)
    return _PARTITIONS * count * batch.record_count


def _subjects(spark: SparkSession, broker: ServerProcess, batch: Batch, rows: int) -> Subjects:
    def topic(name: str, schema: str | None = None) -> DataFrame:
        reader = spark.read.format("moldau").option("subscribe", name)
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
        return (reader if schema is None else reader.schema(schema)).load()

    def prebuilt(batches: int) -> DataFrame:
        options = {
            "tasks": _PARTITIONS,
            "batches": batches,
            "rows": _ROWS_OF_A_BATCH,
            "bytes": batch.record_bytes,
        }
        return spark.read.format("prebuilt").options(**options).load()

    batches = max(1, rows // _PARTITIONS // _ROWS_OF_A_BATCH)
    size = batch.record_bytes
    return {
        "moldau": partial(_drop, partial(topic, "rows"), rows, size),
        "moldau, value only": partial(_drop, partial(topic, "rows", "value BINARY"), rows, size),
        "moldau, nothing": partial(_drop, partial(topic, "none"), 0, size),
        "prebuilt": partial(
            _drop, partial(prebuilt, batches), _PARTITIONS * batches * _ROWS_OF_A_BATCH, size
        ),
        "prebuilt, nothing": partial(_drop, partial(prebuilt, 0), 0, size),
    }


def _drop(frame: Callable[[], DataFrame], rows: int, record_bytes: int) -> Measured:
    before = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return Measured(time.perf_counter() - before, 0.0, rows, rows * record_bytes)
