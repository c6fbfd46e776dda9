"""The cleaner: compacts the logs whose `cleanup.policy` names compact, the dirtiest first.

It answers for which log has its turn, how fast the cleaner reads and writes, and for leaving alone
what it cannot read. How a log is measured is in `rules.cleaning_plan`, how it is compacted in
`compaction_round`. A shell, owned by the event loop; one log is cleaned at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from moldau.clock import Clock
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import KafkaError, StorageError
from moldau.metrics.history import EventKind
from moldau.model import Offset, TopicPartition
from moldau.records.codec import LATEST_KEY_BYTES
from moldau.storage.compaction_round import CompactionRound, DisturbedError, RoundTerms
from moldau.storage.disk_pace import DiskPace
from moldau.storage.log import Log
from moldau.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from moldau.storage.rules.cleaning_plan import (
    Cleanable,
    CleaningTerms,
    DirtyLog,
    DirtySegment,
    explain_cleaning,
    find_dirtiest,
    is_due,
    max_keys,
    survey,
)
from moldau.storage.segment import Segment
from moldau.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES

_log = logging.getLogger("moldau.storage.cleaner")

_NEVER_MS = 365 * 24 * 3600 * 1000
"""A `max.compaction.lag.ms` of a year or more needs no look at the age of segments."""

_SMALLEST_SLICE_BYTES = 4096


class _Survey(NamedTuple):
    """A log as it was measured."""

    log: Log
    segments: tuple[Segment, ...]
    truncations: int
    """How often the log had been truncated by then."""
    facts: tuple[DirtySegment, ...]
    cleanable: Cleanable
    terms: CleaningTerms


class Cleaner:
    """Compacts logs when it is told to."""

    def __init__(self, clock: Clock, options: Callable[[], BrokerOptions]) -> None:
        self._clock = clock
        self._options = options
        self._uncleanable: set[Log] = set()  # damaged; until the broker is started again
        self._pace = DiskPace(clock, lambda: options().log_cleaner_io_max_bytes_per_second)

    async def clean_dirtiest(
        self,
        logs: Mapping[TopicPartition, Log],
        high_watermarks: Mapping[TopicPartition, Offset],
    ) -> bool:
        """Compact the log that needs it most; False when none does, or it has to wait."""
        self._uncleanable.intersection_update(logs.values())
        surveys = {
            key: found
            for key, log in tuple(logs.items())
            if key in high_watermarks and self._may_be_dirty(log)
            if (found := await self._survey(log, high_watermarks[key])) is not None
        }
        dirtiest = find_dirtiest({key: found.cleanable for key, found in surveys.items()})
        if dirtiest is None or logs.get(dirtiest) is not surveys[dirtiest].log:
            return False  # there may be another topic's of the same name
        return await self._clean(surveys[dirtiest])

    def _may_be_dirty(self, log: Log) -> bool:
        """Cheap, and enough to pass over most of the logs."""
        return (
            "compact" in log.options.cleanup_policy
            and not log.options.cleanup_suspended
            and log.segments[-1].base_offset > log.cleaned_offset
            and len(log.segments) > 1
            and not log.is_closed
            and not log.is_moving
            and log.directory.failure is None
            and log not in self._uncleanable
        )

    async def _survey(self, log: Log, high_watermark: int) -> _Survey | None:
        """Measure a log; None when there is nothing to do yet."""
        offsets = DirtyLog(
            log.log_start_offset,
            log.log_end_offset,
            log.last_stable_offset(Offset(high_watermark)),
            log.recovery_point,
            log.cleaned_offset,
        )
        segments, truncations, terms = log.segments, log.truncations, _terms_of(log.options)
        try:
            facts = await log.directory.workers.run(lambda: _gather(segments, terms))
        except OSError as error:
            if segments is log.segments and not log.is_closed:
                log.directory.judge(error)
            return None
        cleanable = survey(facts, offsets, terms, self._clock.now_ms())
        if not is_due(cleanable, terms.min_cleanable_dirty_ratio):
            return None
        return _Survey(log, segments, truncations, facts, cleanable, terms)

    async def _clean(self, found: _Survey) -> bool:
        log = found.log
        before_bytes, before_count = log.size_bytes, len(log.segments)
        figures, began = log.directory.figures, self._clock.monotonic()
        try:
            await CompactionRound(
                log,
                found.segments,
                found.truncations,
                found.facts,
                found.cleanable,
                found.terms,
                self._round_terms(),
            ).run()
        except DisturbedError:
            return False
        except StorageError as error:
            _log.warning("%s was not compacted: %s", log.topic_partition, error)
            return False
        except KafkaError as error:
            _log.error("%s cannot be compacted: %s", log.topic_partition, error)
            self._uncleanable.add(log)
            figures.uncleanable = len(self._uncleanable)
            return True
        figures.cleaner_runs += 1
        figures.cleaner_seconds += self._clock.monotonic() - began
        figures.cleaned_bytes_before += before_bytes
        figures.cleaned_bytes_after += log.size_bytes
        first_offset, end_offset = found.cleanable.first_dirty_offset, log.cleaned_offset
        message = (
            f"compacted from offset {first_offset} to {end_offset - 1}, {log.size_bytes} bytes in "
            f"{len(log.segments)} segments are left of {before_bytes} in {before_count}: "
            f"{explain_cleaning(found.cleanable, found.terms)}"
        )
        _log.info("%s: %s", log.topic_partition, message)
        log.directory.history.note(
            EventKind.COMPACTION,
            str(log.topic_partition),
            message,
            first_offset=first_offset,
            end_offset=end_offset,
        )
        return True

    def _round_terms(self) -> RoundTerms:
        options = self._options()
        return RoundTerms(
            now_ms=self._clock.now_ms(),
            max_keys=max_keys(
                options.log_cleaner_dedupe_buffer_size,
                options.log_cleaner_io_buffer_load_factor,
                LATEST_KEY_BYTES,
            ),
            slice_bytes=max(_SMALLEST_SLICE_BYTES, options.log_cleaner_io_buffer_size),
            pace=self._pace.wait,
        )


def _terms_of(options: TopicOptions) -> CleaningTerms:
    return CleaningTerms(
        options.min_cleanable_dirty_ratio,
        options.min_compaction_lag_ms,
        options.max_compaction_lag_ms,
        options.segment_bytes,
        options.segment_index_bytes,
    )


def _gather(segments: tuple[Segment, ...], terms: CleaningTerms) -> tuple[DirtySegment, ...]:
    """Blocks: it may read the ends of indexes."""
    asks_age = terms.max_compaction_lag_ms < _NEVER_MS
    return tuple(
        DirtySegment(
            segment.base_offset,
            segment.size_bytes,
            segment.find_first_timestamp() if asks_age else -1,
            segment.largest_timestamp(),
            len(segment.offset_index) * OFFSET_ENTRY_BYTES,
            len(segment.time_index) * TIME_ENTRY_BYTES,
        )
        for segment in segments
    )
