"""Topics through Spark: rows per second from a topic to nowhere, to Parquet, to another topic.

In the same session and turn by turn: Moldau's source and sink; prebuilt Arrow batches, which are
what the API of Python data sources can do at best; and, where its jars can be had, Spark's own
connector (see `bench.spark_connector`). Planning a query starts Python processes, which takes about
as long for no rows as for many; queries that read nothing show how long.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.measure import MB, take_turns
from bench.processes import ServerProcess, running_broker, temporary_folder
from bench.report import Cell, Goal, Outcome, Table
from bench.scale import KIB, Scale
from bench.spark_connector import ConnectorUnavailableError, require_connector
from bench.spark_jobs import (
    CONNECTOR,
    EMPTY_TOPIC,
    MOLDAU,
    NOOP,
    PARTITIONS,
    PREBUILT,
    Jobs,
    Query,
    SparkRound,
    fill_topic,
)
from bench.spark_steps import add_steps, make_table
from bench.throughput import record_name
from moldau.errors import StartupError
from moldau.spark.session_factory import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).parents[1]
_CORES = 2
_MILLION = 1e6
_GOAL_RECORD_BYTES = 100
_MANY_PARTITIONS = 100
_VALUE_ONLY = f"{MOLDAU}, value only"
_PACKED = f"{MOLDAU}, minRecordsPerPartition"

Found = Mapping[str, Sequence[SparkRound]]


def run(scale: Scale) -> Outcome:
    obstacle = find_obstacle()
    if obstacle is not None:
        return Outcome(tables=[Table(title="Spark: skipped", columns=("why",), rows=[(obstacle,)])])
    jars, remark = _find_connector(scale)
    with (
        temporary_folder() as folder,
        open_session(folder, jars) as spark,
        running_broker() as broker,
    ):
        sources = (MOLDAU, PREBUILT, CONNECTOR) if jars else (MOLDAU, PREBUILT)
        report = _Report(sources, remark)
        jobs = Jobs(spark, broker, folder)
        for sink in scale.spark_sinks:
            report.add_planning(sink, _measure_nothing(jobs, sources, sink, _rounds(scale, sink)))
        for record_bytes in scale.record_sizes:
            many, some = f"many-{record_bytes}", f"some-{record_bytes}"
            rows = {
                many: fill_topic(broker, many, record_bytes, 2 * scale.round_bytes),
                some: fill_topic(broker, some, record_bytes, scale.round_bytes // 2),
            }
            if NOOP in scale.spark_sinks:
                report.add_partitions(
                    record_bytes, _measure_partitions(jobs, broker, record_bytes, scale)
                )
            for sink in scale.spark_sinks:
                topic = many if sink == NOOP else some
                queries = _queries(sources, sink, topic, rows[topic], record_bytes)
                report.add(sink, record_bytes, _measure(jobs, queries, _rounds(scale, sink)))
            add_steps(report.steps, broker, some, record_bytes, scale.rounds)
    return report.outcome()


def find_obstacle() -> str | None:
    """Why there is no Spark here."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401

        require_java()
    except (ImportError, StartupError) as error:
        return str(error)
    return None


def _rounds(scale: Scale, sink: str) -> int:
    """Queries take seconds: fewer rounds than elsewhere, fewest where rows are written."""
    return (scale.rounds + 1) // 2 if sink == NOOP else max(scale.rounds // 2, 1)


def _find_connector(scale: Scale) -> tuple[list[Path], str]:
    """Its jars, and a message about it."""
    if not scale.spark_connector:
        return [], f"{CONNECTOR}, Spark's own connector, is not measured in a run of this size."
    try:
        jars = require_connector()
    except ConnectorUnavailableError as error:
        return [], f"{CONNECTOR}, Spark's own connector, was not measured: {error}."
    return jars, f"{CONNECTOR}: Spark's own connector, {', '.join(jar.stem for jar in jars)}."


@contextlib.contextmanager
def open_session(folder: Path, jars: Sequence[Path]) -> Iterator[SparkSession]:
    from bench.prebuilt_source import PrebuiltSource
    from moldau.spark import session

    _prepare_environment_of_workers(folder)
    settings = {
        "spark.local.dir": folder / "spark",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.driver.memory": "1g",
    }
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    spark = session(f"local[{_CORES}]", **settings)
    try:
        spark.sparkContext.setLogLevel("OFF")
        spark.dataSource.register(PrebuiltSource)
        yield spark
    finally:
        spark.stop()


def _prepare_environment_of_workers(folder: Path) -> None:
    """As it is for users: compiled modules are kept, and nobody has installed the tests' packages.

    kio imports hypothesis where there is one, in every process that Spark starts for a query. The
    source of prebuilt batches is imported from this repository.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    blocked = folder / "blocked"
    blocked.mkdir()
    (blocked / "hypothesis.py").write_text('raise ImportError("blocked")\n', encoding="utf-8")
    given = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(blocked), str(_ROOT), given)))


# --- measuring --------------------------------------------------------------------------------


def _queries(
    sources: Sequence[str], sink: str, topic: str, rows: int, record_bytes: int
) -> dict[str, Query]:
    found = {
        source: Query(source=source, sink=sink, topic=topic, rows=rows, record_bytes=record_bytes)
        for source in sources
    }
    if sink == NOOP:
        found[_VALUE_ONLY] = dataclasses.replace(found[MOLDAU], schema="value BINARY")
    return found


def _measure(jobs: Jobs, queries: Mapping[str, Query], rounds: int) -> Found:
    subjects = {name: partial(jobs.measure, query) for name, query in queries.items()}
    found = take_turns(rounds, subjects)
    for query in queries.values():
        jobs.require_all_written(query)
    return found


def _measure_partitions(
    jobs: Jobs, broker: ServerProcess, record_bytes: int, scale: Scale
) -> Mapping[tuple[str, int], Sequence[SparkRound]]:
    """The same bytes in few partitions and in many, which is to say in few tasks and in many."""
    found = {}
    for partitions in (PARTITIONS, _MANY_PARTITIONS):
        topic = f"of-{partitions}-{record_bytes}"
        rows = fill_topic(broker, topic, record_bytes, 2 * scale.round_bytes, partitions)
        for source in (MOLDAU, PREBUILT):
            found[source, partitions] = Query(
                source=source,
                sink=NOOP,
                topic=topic,
                rows=rows,
                record_bytes=record_bytes,
                partitions=partitions,
            )
    packed = dataclasses.replace(
        found[MOLDAU, _MANY_PARTITIONS], min_records=found[MOLDAU, PARTITIONS].rows // PARTITIONS
    )
    found[_PACKED, _MANY_PARTITIONS] = packed
    subjects = {name: partial(jobs.measure, query) for name, query in found.items()}
    return take_turns(_rounds(scale, NOOP), subjects)


def _measure_nothing(jobs: Jobs, sources: Sequence[str], sink: str, rounds: int) -> Found:
    queries = _queries(sources, sink, EMPTY_TOPIC, rows=0, record_bytes=KIB)
    queries.pop(_VALUE_ONLY, None)
    return _measure(jobs, queries, rounds)


# --- reporting --------------------------------------------------------------------------------


class _Report:
    """Gathers the rounds and makes tables of them."""

    def __init__(self, sources: Sequence[str], remark: str) -> None:
        self.steps = make_table()
        self._sources = sources
        self._nothing: dict[tuple[str, str], SparkRound] = {}
        self._goals: list[Goal] = []
        self._rates = Table(
            title=f"Spark on local[{_CORES}]: from a topic of {PARTITIONS} partitions",
            columns=(
                "records",
                "to",
                "source",
                "M rows/s",
                "MB/s",
                "net M rows/s",
                f"net / {PREBUILT}",
                f"net / {CONNECTOR}",
            ),
            note="net: without the time that the same query takes for no rows. "
            f"{PREBUILT}: the ceiling, Arrow batches made beforehand; to a topic: to a Python sink "
            f"that drops them. {remark}",
        )
        self._planning = Table(
            title="A query of no rows: planning, and the Python processes it needs",
            columns=("to", "source", "seconds", "CPU s"),
        )
        self._partitions = Table(
            title="The same bytes in few partitions and in many, to noop",
            columns=(
                "records",
                "source",
                "partitions",
                "M rows per CPU s",
                "Python CPU ms a partition",
            ),
            note="Planning included; CPU of the broker, the JVM and all Python processes.",
        )
        self._cpu = Table(
            title="Where the time goes, from a topic to noop: CPU seconds for a million rows",
            columns=(
                "records",
                "source",
                "broker",
                "Python",
                "JVM",
                "all",
                f"{_CORES} cores: M rows/s at most",
                "cores busy",
            ),
            note="Without what a query of no rows takes. At most: if the cores were never idle.",
        )

    def add_partitions(
        self, record_bytes: int, found: Mapping[tuple[str, int], Sequence[SparkRound]]
    ) -> None:
        for (source, partitions), rounds in found.items():
            best = min(rounds, key=lambda one: one.cpu.total if one.cpu else one.seconds)
            per_core = None if best.cpu is None else best.rows / best.cpu.total / _MILLION
            python = None if best.cpu is None else best.cpu.python / partitions * 1000
            self._partitions.add(record_name(record_bytes), source, partitions, per_core, python)

    def add_planning(self, sink: str, found: Found) -> None:
        for source, rounds in found.items():
            best = min(rounds, key=lambda one: one.seconds)
            self._nothing[source, sink] = best
            self._planning.add(sink, source, best.seconds, best.cpu and best.cpu.total)

    def add(self, sink: str, record_bytes: int, found: Found) -> None:
        best = {name: min(rounds, key=lambda one: one.seconds) for name, rounds in found.items()}
        net = {name: self._net_rate(name, sink, one) for name, one in best.items()}
        for name, one in best.items():
            self._rates.add(
                record_name(record_bytes),
                sink,
                name,
                one.rows / one.seconds / _MILLION,
                one.payload_bytes / one.seconds / MB,
                net[name],
                net[name] / net[PREBUILT],
                net[name] / net[CONNECTOR] if CONNECTOR in net else None,
            )
            if sink == NOOP:
                self._cpu.add(record_name(record_bytes), name, *self._cpu_cells(name, one))
        if sink == NOOP and record_bytes == _GOAL_RECORD_BYTES:
            self._add_goal(best[MOLDAU])

    def outcome(self) -> Outcome:
        tables = [self._rates, self._planning, self._partitions, self._cpu, self.steps]
        return Outcome(tables=[table for table in tables if table.rows], goals=self._goals)

    def _planned(self, name: str, sink: str) -> SparkRound:
        return self._nothing[name.partition(",")[0], sink]

    def _net_seconds(self, name: str, sink: str, one: SparkRound) -> float:
        """Not less than a hundredth of it: a small query may be faster than one of no rows."""
        return max(one.seconds - self._planned(name, sink).seconds, one.seconds / 100)

    def _net_rate(self, name: str, sink: str, one: SparkRound) -> float:
        return one.rows / self._net_seconds(name, sink, one) / _MILLION

    def _cpu_cells(self, name: str, one: SparkRound) -> Sequence[Cell]:
        planned = self._planned(name, NOOP)
        if one.cpu is None or planned.cpu is None:
            return [None] * 6
        millions = one.rows / _MILLION
        used = one.cpu.since(planned.cpu)
        at_most = _CORES / used.total * millions if used.total > 0 else None
        busy = used.total / self._net_seconds(name, NOOP, one)
        return [*(part / millions for part in used), used.total / millions, at_most, busy]

    def _add_goal(self, one: SparkRound) -> None:
        size = record_name(_GOAL_RECORD_BYTES)
        self._goals.append(
            Goal(
                figure=f"Spark, M rows/s of {size} from a topic to noop, planning included",
                to_reach=1.0,
                measured=one.rows / one.seconds / _MILLION,
                at_most=False,
            )
        )
