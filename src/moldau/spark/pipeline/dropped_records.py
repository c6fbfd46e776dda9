"""Counts the records that a query drops, and writes them to dead letters where the file says so.

A shell, called in the driver after each batch is written and before Spark counts it as done: a
batch whose drops are not in the tally is repeated. Reading it again costs something, so that is
done only for a batch in which Spark has dropped something, or cannot say.

A plan that cannot be followed does not end a pipeline whose results are right: such a batch is
counted as one that was not searched. It does where records would miss in dead letters.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from moldau.errors import ConfigurationError, InvariantViolation
from moldau.spark.pipeline.checkpoint import Checkpoint
from moldau.spark.pipeline.dead_letters import REASON, to_dead_letters, write_dead_letters
from moldau.spark.pipeline.model import OutputMode, Pipeline, Source
from moldau.spark.pipeline.plan_tracing import (
    TIME,
    BatchFacts,
    DropPlace,
    RecordTracer,
    find_late_places,
    find_timeless_places,
    inline_names,
    read_facts,
)
from moldau.spark.pipeline.rules.failures import explain_failure, is_outage
from moldau.spark.pipeline.rules.progress import SetAside, Tally, add_batch

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("moldau.spark.pipeline")

_LATE = "the record came after the watermark had closed its window"
_TIMELESS = "the record has no time, so that it belongs to no window"


class QueryTally:
    """The tally of one query, on disk. Changed by the thread of its batches, read by others."""

    def __init__(self, checkpoint: Checkpoint, query: str) -> None:
        self._checkpoint = checkpoint
        self._query = query
        self._lock = threading.Lock()
        self._kept = checkpoint.find_tally(query)

    @property
    def kept(self) -> Tally:
        with self._lock:
            return self._kept

    def counts(self, batch_id: int) -> bool:
        return self.kept.counts(batch_id)

    def add(self, batch_id: int, found: SetAside) -> None:
        """Keep what a batch has set aside; returns when the disk has it."""
        if not found or self.counts(batch_id):
            return
        tally = add_batch(self.kept, batch_id, found)
        self._checkpoint.write_tally(self._query, tally)
        with self._lock:
            self._kept = tally


class DropCounter:
    """Looks at each batch of one query."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        query: str,
        output_mode: OutputMode,
        kafka: Mapping[str, str],
        tally: QueryTally,
    ) -> None:
        self._pipeline = pipeline
        self._query = query
        self._output_mode = output_mode
        self._kafka = kafka  # the options that lead to the brokers
        self._tally = tally
        self._dead = [one for one in pipeline.sources if one.late == "dead_letter"]
        self._started = threading.Event()
        self._running: StreamingQuery | None = None

    def require_traceable(self, spark: SparkSession, analyzed: JavaObject) -> None:
        """Raise ConfigurationError where what is dropped should be written to dead letters, and
        cannot be traced to records."""
        if not self._dead:
            return
        plan = inline_names(spark, analyzed)
        if not all(map(RecordTracer(spark).can_trace, self._find_places(plan, plan))):
            raise ConfigurationError(
                f"sources.{self._dead[0].name}.late: sink {self._query!r} makes rows in a way that "
                "cannot be traced back to records, such as mapInPandas, so late records cannot be "
                'written to dead letters; set late = "drop" to have such rows counted instead'
            )

    def expect(self) -> None:
        """A query is about to start: the one that was followed, if any, has ended."""
        self._started.clear()

    def follow(self, query: StreamingQuery) -> StreamingQuery:
        """Look at this query, whose first batch may be under way."""
        self._running = query
        self._started.set()
        return query

    def count(self, spark: SparkSession, batch_id: int, *, has_run: bool) -> None:
        """Count what a batch dropped. `has_run` tells whether Spark has worked on it just now; if
        not, it was written by a run that ended before it could count."""
        if self._tally.counts(batch_id):
            return
        execution = self._require_query()._jsq.streamingQuery().lastExecution()
        facts: BatchFacts | None = None
        try:
            facts = read_facts(execution.executedPlan())
            dropped = self._trace(spark, execution, facts, has_run=has_run)
        except Py4JNetworkError:  # Spark is gone; the batch is repeated
            raise
        except Exception as fault:  # the plan has no public face: whatever Spark's next one does
            if self._dead or is_outage(str(fault)):
                raise
            _log.warning(
                "batch %d was not searched for late records: %s",
                batch_id,
                explain_failure(self._query, str(fault)),
            )
            rows = 0 if facts is None else facts.dropped_rows + facts.dropped_further_up
            self._tally.add(batch_id, SetAside(untraced_rows=rows, unsearched_batches=1))
            return
        found = SetAside(untraced_rows=facts.dropped_further_up)
        for is_late in (True, False):
            found += self._set_aside(
                [rows for place, rows in dropped if place.is_late is is_late], is_late
            )
        if facts.dropped_rows and not (found.late_records or found.untraced_rows):
            found += SetAside(untraced_rows=facts.dropped_rows)
        self._tally.add(batch_id, found)

    def _require_query(self) -> StreamingQuery:
        self._started.wait()
        if self._running is None:
            raise InvariantViolation(f"{self._query} counts for no query")
        return self._running

    def _find_places(self, analyzed: JavaObject, optimized: JavaObject) -> list[DropPlace]:
        late = find_late_places(optimized, self._output_mode)
        return [*late, *find_timeless_places(analyzed)]

    def _trace(
        self, spark: SparkSession, execution: JavaObject, facts: BatchFacts, *, has_run: bool
    ) -> list[tuple[DropPlace, DataFrame]]:
        """What is dropped in each place, as frames that read the batch again as far as there."""
        analyzed = inline_names(spark, execution.analyzed())
        places = self._find_places(analyzed, execution.optimizedPlan())
        hit = _choose_hit(places, facts, has_run=has_run)
        if not hit:
            return []
        tracer = RecordTracer(spark)
        traced: list[tuple[DropPlace, DataFrame]] = []
        for place in hit:
            rows = tracer.rows_at(place)
            traced.append((place, rows.filter(_is_dropped(rows, place, facts)).drop(TIME)))
        return traced

    def _set_aside(self, dropped: Sequence[DataFrame], is_late: bool) -> SetAside:
        """See to rows that are dropped for one reason, in one or more places."""
        traced = [rows for rows in dropped if "offset" in rows.columns]
        untraced = [rows for rows in dropped if "offset" not in rows.columns]
        found = SetAside(untraced_rows=sum(rows.count() for rows in untraced))
        if not traced:
            return found
        together = reduce(lambda one, other: one.unionByName(other), traced)
        # A record may be dropped in several places, and from several windows in one of them.
        records = together.dropDuplicates(["topic", "partition", "offset"])
        letters, count = self._see_to(records, _LATE if is_late else _TIMELESS)
        if is_late:
            return found + SetAside(late_records=count, dead_letters=letters)
        return found + SetAside(records_without_time=count, dead_letters=letters)

    def _see_to(self, records: DataFrame, reason: str) -> tuple[int, int]:
        """Write records to dead letters, or let them go; how many were written, and how many there
        were."""
        letters = 0
        for source in self._dead:
            own = records.filter(_is_of(source)).withColumn(REASON, F.lit(reason))
            frame = to_dead_letters(own, self._pipeline.name, sink=self._query)
            letters += write_dead_letters(frame, self._kafka, source.dead_letter or "")
        if len(self._dead) == len(self._pipeline.sources):
            return letters, letters
        rest = reduce(lambda one, source: one & ~_is_of(source), self._dead, F.lit(True))
        return letters, letters + records.filter(rest).count()


def _choose_hit(
    places: Iterable[DropPlace], facts: BatchFacts, *, has_run: bool
) -> list[DropPlace]:
    """The places where something may have been dropped, by what Spark knows of the batch."""
    hit: list[DropPlace] = []
    for place in places:
        if place.is_late:
            is_hit = bool(facts.watermark_ms) and (facts.dropped_rows > 0 or not has_run)
        else:
            is_hit = facts.has_null_time or not place.follows_watermark or not has_run
        if is_hit:
            hit.append(place)
    return hit


def _is_dropped(rows: DataFrame, place: DropPlace, facts: BatchFacts) -> Column:
    if not place.is_late:
        return F.col(TIME).isNull()
    is_window = isinstance(rows.schema[TIME].dataType, StructType)
    time = F.col(TIME)["end"] if is_window else F.col(TIME)
    return time <= F.timestamp_millis(F.lit(facts.watermark_ms))


def _is_of(source: Source) -> Column:
    if source.topic_pattern is not None:
        return F.col("topic").rlike(f"^(?:{source.topic_pattern})$")
    return F.col("topic").isin(*source.topics)
