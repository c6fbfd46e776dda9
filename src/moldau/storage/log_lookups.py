"""Finds records of a log by their timestamps, in a worker, while the log may change under it.

The one part of a log that other threads than its loop's may call: it looks at the tuple of
segments, which is replaced and never changed, and begins again when the log was truncated
meanwhile, or segments of it were deleted or replaced. A shell: it reads files and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.errors import KafkaError
from moldau.storage.log_flush import LogFlush
from moldau.storage.log_reader import (
    TimestampedOffset,
    find_max_timestamp,
    find_offset_by_timestamp,
)
from moldau.storage.segment import Segment

if TYPE_CHECKING:
    from moldau.storage.log import Log


class LogLookups:
    """The lookups in one log."""

    def __init__(self, log: Log, flush: LogFlush) -> None:
        self._log = log
        self._flush = flush

    def find_offset_by_timestamp(
        self, timestamp_ms: int, unpacked_bytes: int
    ) -> TimestampedOffset | None:
        log = self._log
        return self._look_up(
            lambda segments: find_offset_by_timestamp(
                segments, log.log_start_offset, timestamp_ms, unpacked_bytes
            )
        )

    def find_max_timestamp(self, unpacked_bytes: int) -> TimestampedOffset | None:
        log = self._log
        return self._look_up(
            lambda segments: find_max_timestamp(segments, log.log_start_offset, unpacked_bytes)
        )

    def _look_up(
        self, find: Callable[[Sequence[Segment]], TimestampedOffset | None]
    ) -> TimestampedOffset | None:
        """Run a lookup on the segments as they are; again when the log changed under it."""
        log, flush = self._log, self._flush
        while True:
            log.require_usable()
            segments, truncations = log.segments, flush.truncations
            try:
                found = find(segments)
            except FileNotFoundError as error:
                if segments is log.segments and flush.is_undisturbed(truncations):
                    log.require_usable()  # a deleted log takes its files along
                    raise log.directory.fail(error) from error
            except OSError as error:
                raise log.directory.judge(error) from error
            except KafkaError:  # what was read may be half of one batch and half of another
                if flush.is_undisturbed(truncations):
                    raise
            else:
                if flush.is_undisturbed(truncations):
                    return found
