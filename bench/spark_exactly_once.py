"""What exactlyOnce costs a Spark stream: the same topic copied with it and without, batch by batch.

In one session and turn by turn. CPU is of all who take part: the broker, the JVM, and Spark's
Python processes; it says more than the clock where the machine is busy. Every batch costs Spark
itself some hundred milliseconds; so it is looked at with few large batches and with many small.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from bench.measure import take_turns
from bench.processes import ServerProcess, running_broker, temporary_folder
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import KIB, Scale
from bench.spark_cpu import CpuSeconds, read_cpu
from bench.spark_jobs import PARTITIONS, fill_topic
from bench.spark_read import find_obstacle, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GOAL = 1.5
_SOURCE = "source"
_BATCHES = (4, 20)
_TWO_PHASES = "transaction.two.phase.commit.enable=true"
SINKS = {"at least once": "false", "exactly once": "true"}


class Copied(NamedTuple):
    """One query, from its start to its end."""

    seconds: float
    cpu: CpuSeconds | None


def run(scale: Scale) -> Outcome:
    obstacle = find_obstacle()
    if obstacle is not None:
        return Outcome(tables=[Table(title="Spark: skipped", columns=("why",), rows=[(obstacle,)])])
    table = Table(
        title=f"A Spark stream copies a topic of {PARTITIONS} partitions, records of 1 KiB",
        columns=(
            "batches",
            "rows each",
            "written",
            "s",
            "of the first",
            "CPU s: broker",
            "Python",
            "JVM",
            "in all",
            "of the first",
        ),
    )
    goals = []
    with (
        temporary_folder() as folder,
        open_session(folder, ()) as spark,
        running_broker((_TWO_PHASES,)) as broker,
    ):
        rows = fill_topic(broker, _SOURCE, KIB, scale.round_bytes // 2)
        for batches in _BATCHES:
            copy = partial(_copy, spark, broker, folder, -(-rows // batches))
            subjects = {name: partial(copy, option) for name, option in SINKS.items()}
            found = take_turns(max(scale.rounds // 2, 1), subjects)
            goals.append(_add(table, batches, rows, found))
    return Outcome(tables=[table], goals=goals)


def _copy(
    spark: SparkSession, broker: ServerProcess, folder: Path, rows_of_batch: int, option: str
) -> Copied:
    name = uuid4().hex
    with RawClient(broker) as client:
        client.create_topic(name, partitions=PARTITIONS)
    jvm: int = spark.sparkContext._gateway.proc.pid  # as in `spark_jobs`
    brokers = {"kafka.bootstrap.servers": broker.bootstrap}
    cpu, begun = read_cpu(broker, jvm), time.perf_counter()
    frame = (
        spark.readStream.format("moldau")
        .options(**brokers)
        .option("subscribe", _SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(rows_of_batch))
        .load()
        .select("key", "value")
    )
    query = (
        frame.writeStream.format("moldau")
        .options(**brokers)
        .option("topic", name)
        .option("exactlyOnce", option)
        .option("checkpointLocation", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    seconds, after = time.perf_counter() - begun, read_cpu(broker, jvm)
    used = None if cpu is None or after is None else after.since(cpu)
    return Copied(seconds, used)


def _add(table: Table, batches: int, rows: int, found: dict[str, Sequence[Copied]]) -> Goal:
    first: Copied | None = None
    ratio = 0.0
    for name, rounds in found.items():
        best = min(rounds, key=_total)
        seconds = min(one.seconds for one in rounds)
        if first is None:
            first = Copied(seconds, best.cpu)
        ratio = _total(best) / _total(first)
        parts = [None] * 3 if best.cpu is None else list(best.cpu)
        table.add(
            batches,
            rows // batches,
            name,
            seconds,
            seconds / first.seconds,
            *parts,
            _total(best),
            ratio,
        )
    return Goal(
        figure=f"Spark, exactly once beside at least once, {batches} batches of {rows // batches} "
        "rows, CPU",
        to_reach=_GOAL,
        measured=ratio,
    )


def _total(one: Copied) -> float:
    """Of CPU; the clock where that cannot be had."""
    return one.seconds if one.cpu is None else one.cpu.total
