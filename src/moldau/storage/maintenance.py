"""What a log store does in the background: flushing, retention, compaction, checkpoints, removals.

Each job runs in its own rhythm on the clock that was handed in. A job that fails is reported and
runs again at its next time; none ends the others. Work that logs ask for (flush this, remove
that) is taken up as soon as they ask. A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from moldau.clock import Clock, Timer
from moldau.config.broker_options import BrokerOptions
from moldau.errors import StorageError
from moldau.model import TopicPartition
from moldau.storage.checkpoints import Checkpoints
from moldau.storage.files import SCARCITY, Files
from moldau.storage.log import Log
from moldau.storage.log_cleaner import LogCleaner
from moldau.storage.log_directory import LogDirectory, Removal
from moldau.storage.log_loader import empty_folder
from moldau.storage.rules.file_names import find_partition_folder
from moldau.tasks import TaskSupervisor
from moldau.workers import Workers

_log = logging.getLogger("moldau.storage")

_LOGS_PER_TURN = 50
"""How many logs are looked at before the event loop may serve somebody else."""
_AGAIN_MS = 10_000
"""After this, what too many open files have hindered is tried again."""


class Maintenance:
    """The background jobs of one store."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, Log],
        checkpoints: Checkpoints,
        clock: Clock,
        workers: Workers,
        options: Callable[[], BrokerOptions],
    ) -> None:
        self._logs = logs
        self._checkpoints = checkpoints
        self._clock = clock
        self._workers = workers
        self._options = options
        self._work: dict[LogDirectory, asyncio.Event] = {}
        self._tasks = TaskSupervisor(_report)
        self._cleaner = LogCleaner(clock, options)
        self._timers: set[Timer] = set()  # of files that wait for their removal

    def watch(self, directory: LogDirectory) -> None:
        """Serve a directory's logs once `run` runs."""
        self._work[directory] = work = asyncio.Event()
        directory.wake = work.set

    async def run(self) -> None:
        """Until cancelled."""
        is_discarded = False  # with its loop, on which nothing can be waited for any more
        try:
            await asyncio.gather(
                *(self._serve_logs(directory, work) for directory, work in self._work.items()),
                self._repeat(
                    self.apply_retention, lambda options: options.log_retention_check_interval_ms
                ),
                self._repeat(
                    self.compact_logs, lambda options: max(1, options.log_cleaner_backoff_ms)
                ),
                self._repeat(self._checkpoints.write_all, _checkpoint_interval_ms),
                self._repeat(
                    self._checkpoints.write_high_watermarks,
                    lambda options: options.replica_high_watermark_checkpoint_interval_ms,
                ),
                self._repeat(
                    self.expire_producers,
                    lambda options: options.producer_id_expiration_check_interval_ms,
                ),
            )
        except GeneratorExit:
            is_discarded = True
            raise
        finally:
            for timer in self._timers:  # what is left over is removed by the next start
                timer.cancel()
            if not is_discarded:
                await self._tasks.close()

    async def _repeat(
        self,
        job: Callable[[], Coroutine[Any, Any, None]],
        interval_ms: Callable[[BrokerOptions], int],
    ) -> None:
        while True:
            await self._clock.sleep(interval_ms(self._options()) / 1000)
            await self._attempt(job.__name__, job())

    async def _attempt(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a job, however it ends; the supervisor reports a failure."""
        await asyncio.wait([self._tasks.spawn(name, work)])

    async def _serve_logs(self, directory: LogDirectory, work: asyncio.Event) -> None:
        while True:
            await work.wait()
            work.clear()
            await self._attempt("serve_logs", self._serve(directory))

    async def _serve(self, directory: LogDirectory) -> None:
        removals, directory.to_remove = directory.to_remove, []
        for removal in removals:
            self._remove_later(directory, removal)
        logs, directory.to_flush = directory.to_flush, {}
        await asyncio.gather(*(_flush(log.flush()) for log in logs))
        if directory.offsets_changed and directory.failure is None:
            directory.offsets_changed = False
            await self._checkpoints.write(directory)

    def _remove_later(self, directory: LogDirectory, removal: Removal) -> None:
        def due() -> None:
            self._timers.discard(timer)
            self._tasks.spawn("remove_files", self._remove(directory, removal))

        timer = self._clock.call_later(removal.delay_ms / 1000, due)
        self._timers.add(timer)

    async def _remove(self, directory: LogDirectory, removal: Removal) -> None:
        files = directory.files
        if directory.failure is not None:
            return
        try:
            if removal.are_folders:
                await self._workers.run(lambda: _empty_all(files, removal.paths))
                for path in removal.paths:
                    await self._forget_deleted(directory, path)
            await self._workers.run(lambda: _remove_all(files, removal))
        except StorageError as error:  # of a checkpoint
            if directory.failure is not None:
                raise
            self._remove_again(directory, removal, error)
        except OSError as error:
            if error.errno not in SCARCITY:
                raise directory.judge(error) from error
            self._remove_again(directory, removal, error)  # it has to be opened to be removed

    def _remove_again(
        self, directory: LogDirectory, removal: Removal, error: StorageError | OSError
    ) -> None:
        _log.warning("%s stays for now: %s", removal.paths[0], error)
        delay_ms = max(removal.delay_ms, _AGAIN_MS)
        self._remove_later(directory, removal._replace(delay_ms=delay_ms))

    async def _forget_deleted(self, directory: LogDirectory, folder: Path) -> None:
        found = find_partition_folder(folder.name)
        if found is not None:
            await self._checkpoints.forget_deleted(found.partition, directory)

    # Jobs

    async def apply_retention(self) -> None:
        high_watermarks = self._checkpoints.high_watermarks()
        now_ms = self._clock.now_ms()
        for number, (key, log) in enumerate(tuple(self._logs.items()), start=1):
            if key in high_watermarks:
                await _delete_old_segments(log, now_ms, high_watermarks[key])
            if number % _LOGS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def compact_logs(self) -> None:
        """One after the other, the dirtiest first, until none is dirty enough."""
        while self._options().log_cleaner_enable and any(
            map(_may_be_compacted, self._logs.values())
        ):
            high_watermarks = self._checkpoints.high_watermarks()
            if not await self._cleaner.clean_dirtiest(self._logs, high_watermarks):
                return

    async def expire_producers(self) -> None:
        expiration_ms, now_ms = self._options().producer_id_expiration_ms, self._clock.now_ms()
        for number, log in enumerate(tuple(self._logs.values()), start=1):
            log.producers.remove_expired(expiration_ms, now_ms)
            if number % _LOGS_PER_TURN == 0:
                await asyncio.sleep(0)


def _may_be_compacted(log: Log) -> bool:
    return len(log.segments) > 1 and "compact" in log.options.cleanup_policy


async def _delete_old_segments(log: Log, now_ms: int, high_watermark: int) -> None:
    """As many as there are, with a turn for others in between."""
    with contextlib.suppress(StorageError):  # closed, or reported with its directory
        deleted = log.delete_old_segments(now_ms, high_watermark)
        while deleted:
            await asyncio.sleep(0)
            deleted = log.delete_old_segments(now_ms, high_watermark)


async def _flush(flush: Awaitable[None]) -> None:
    with contextlib.suppress(StorageError):  # reported when its directory failed
        await flush


def _empty_all(files: Files, folders: Iterable[Path]) -> None:
    for folder in folders:
        empty_folder(files, folder)


def _remove_all(files: Files, removal: Removal) -> None:
    remove = files.remove_folder if removal.are_folders else files.remove
    for path in removal.paths:
        remove(path)


def _report(name: str, error: BaseException) -> None:
    if isinstance(error, StorageError):  # of a full disk, say: no fault of the job
        _log.warning("the job %s failed: %s", name, error)
    else:
        _log.error("the job %s failed", name, exc_info=error)


def _checkpoint_interval_ms(options: BrokerOptions) -> int:
    return min(
        options.log_flush_offset_checkpoint_interval_ms,
        options.log_flush_start_offset_checkpoint_interval_ms,
    )
