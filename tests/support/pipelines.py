"""Runs pipeline files on a Spark session that is there already."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import moldau
from moldau.spark.pipeline.file import load_pipeline
from moldau.spark.pipeline.rules.queries import BatchReport
from moldau.spark.pipeline.run import RunOptions, run_pipeline
from moldau.spark.pipeline.status import RunReport

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
    watcher = Watching(until)
    options = RunOptions(bootstrap=bootstrap, master="local[2]", once=until is None)
    return run_pipeline(
        load_pipeline(path), options, stop=watcher.stop, watcher=watcher, spark=spark
    )


class Watching:
    """Looks at a run, and stops it when its figures are so."""

    def __init__(self, until: Callable[[RunReport], bool] | None = None) -> None:
        self.stop = threading.Event()
        self.batches: list[tuple[str, BatchReport]] = []
        self.said: list[str] = []
        self._until = until

    def on_report(self, report: RunReport) -> None:
        if self._until is not None and self._until(report):
            self.stop.set()

    def on_batch(self, query: str, batch: BatchReport) -> None:
        self.batches.append((query, batch))

    def say(self, text: str) -> None:
        self.said.append(text)
