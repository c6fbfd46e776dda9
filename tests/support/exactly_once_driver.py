"""A Spark driver that copies one topic to another exactly once; a process, which tests may kill.

    python -m support.exactly_once_driver BOOTSTRAP SOURCE TARGET FOLDER [MASTER]

The first attempt of every task of the second batch fails after it has written something.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def stumble(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hand the rows on; fail behind them in the first attempt of a task of the second batch."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    is_second = context is not None and context.getLocalProperty("streaming.sql.batchId") == "1"
    if context is not None and is_second and context.attemptNumber() == 0:
        raise RuntimeError("the first attempt stumbles")


_MASTER = "local[2,4]"
"""A task may fail three times."""

_QUICK_LOSS = {
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "15s",
    "spark.network.timeoutInterval": "5s",
}
"""An executor that is paused counts as lost soon."""


def main(bootstrap: str, source: str, target: str, folder: Path, master: str = _MASTER) -> None:
    from moldau.spark import session

    spark = session(
        master,
        app_name="exactly once",
        **{
            **({} if master == _MASTER else _QUICK_LOSS),
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": f"{_QUICK} -Djava.io.tmpdir={folder}",
            "spark.local.dir": folder / "local",
            "spark.sql.warehouse.dir": folder / "warehouse",
        },
    )
    frame = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "40")
        .load()
        .select("value")
        .mapInArrow(stumble, "value BINARY")
    )
    query = (
        frame.writeStream.format("moldau")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), *sys.argv[5:])
