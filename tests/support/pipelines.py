"""Runs pipeline files on a Spark session that is there already."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import moldau
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.progress_files import RunReport
from moldau.spark.pipeline.run import RunOptions, run_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def send(bootstrap: str, topic: str, values: Iterable[bytes | None]) -> None:
    with moldau.Producer(bootstrap) as producer:
        producer.send_many(topic, list(values)).result()


def run_file(
    spark: SparkSession,
    bootstrap: str,
    path: Path,
    *,
    until: Callable[[RunReport], bool] | None = None,
) -> RunReport:
    """Run a pipeline once, or until the figures of its run are so."""
    stop = threading.Event()

    def look(report: RunReport) -> None:
        if until is not None and until(report):
            stop.set()

    options = RunOptions(bootstrap=bootstrap, master="local[2]", once=until is None)
    return run_pipeline(load_pipeline(path), options, stop=stop, on_report=look, spark=spark)
