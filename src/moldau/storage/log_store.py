"""All logs of a broker, in all its log directories.

It answers for opening the folders of `log.dirs` and the logs in them, for making and deleting logs
and for an orderly end. What is written down of them is kept by `checkpoints`, what goes on in the
background by `maintenance`. A folder that fails is reported once and goes offline; the others go
on.

A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from moldau.clock import Clock
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import StartupError, StorageError
from moldau.metrics.history import History
from moldau.metrics.storage_figures import StorageFigures
from moldau.model import BrokerId, Offset, TopicId, TopicPartition
from moldau.storage.checkpoints import Checkpoints
from moldau.storage.directory_identity import DirectoryIdentities
from moldau.storage.directory_loader import (
    FolderTerms,
    load_logs,
    lock_folder,
    survey_folder,
    write_clean_marker,
)
from moldau.storage.files import Files, FolderLock, open_file_budget
from moldau.storage.log import Log
from moldau.storage.log_directory import DirectoryFailures, LogDirectory, RetentionPolicies
from moldau.storage.maintenance import Maintenance
from moldau.storage.open_files import OpenFiles
from moldau.storage.partition_metadata import write_partition_metadata
from moldau.storage.recovery import LoadTerms, create_log, load_log
from moldau.storage.rules.file_names import (
    LOSS_FILE,
    PARTITION_METADATA_FILE,
    deleted_folder_name,
    partition_folder_name,
    stray_folder_name,
)
from moldau.storage.segment_retention import kafka_policies
from moldau.storage.set_aside import AsideLog, AsideNote, remove_note, write_note
from moldau.workers import Workers

_log = logging.getLogger(__name__)

_CLOSED_AT_ONCE = 64
"""Logs that are flushed at the same time when the store closes; the workers do a few at a time."""


class DirectoryCapacity(NamedTuple):
    """The disk of one log directory; -1 where it does not tell."""

    folder: Path
    online: bool
    total_bytes: int
    usable_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryReport:
    """One log directory as DescribeLogDirs shows it."""

    folder: Path
    online: bool
    total_bytes: int
    usable_bytes: int
    sizes: Mapping[TopicPartition, int]
    """Bytes of each log in it."""


class LogStore:
    """The logs of one broker. `open` once, `close` once.

    store = LogStore(folders, files=..., clock=..., workers=..., options=..., failures=...)
    await store.open()                       # locks the folders before anything is in them
    store.identities.cluster_id              # what meta.properties says; None when new
    await store.write_identity(broker_id, cluster_id)
    ... store.maintain(partitions.high_watermarks) ...      # a task
    await store.close()
    """

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        files: Files,
        clock: Clock,
        workers: Workers,
        options: Callable[[], BrokerOptions],
        failures: DirectoryFailures,
        random: Random | None = None,
        retention_policies: RetentionPolicies = kafka_policies,
        figures: StorageFigures | None = None,
        history: History | None = None,
    ) -> None:
        self.figures = figures or StorageFigures()
        self._history = history
        self._folders = folders
        self._files = files
        self._clock = clock
        self._workers = workers
        self._options = options
        self._failures = failures
        self._retention_policies = retention_policies
        self._random = random or Random()  # noqa: S311 jitter and folder names, no secrets
        self._open_files = OpenFiles(files, open_file_budget())
        self._logs: dict[TopicPartition, Log] = {}
        self._creating: set[TopicPartition] = set()
        self._directories: list[LogDirectory] = []
        self._locks: dict[Path, FolderLock] = {}
        self._clean_folders: set[Path] = set()  # had the marker of a clean stop
        self._aside: dict[tuple[TopicId, int], tuple[LogDirectory, AsideLog]] = {}
        self.logs: Mapping[TopicPartition, Log] = MappingProxyType(self._logs)
        self.identities = DirectoryIdentities(self._new_id)
        self.checkpoints = Checkpoints(self.logs)
        self._maintenance = Maintenance(self.logs, self.checkpoints, clock, workers, options)

    # Opening

    async def open(self, options_of: Callable[[str], TopicOptions] | None = None) -> None:
        """Lock and load every folder. `options_of` gives the options of a topic by its name.

        Raises `StartupError` when another broker is in a folder or no folder can be used.
        """
        self._loop = asyncio.get_running_loop()
        try:
            for folder in self._folders:
                await self._open_folder(folder, options_of)
            if all(directory.failure is not None for directory in self._directories):
                raise StartupError(f"no log directory can be used: {self._failure_message()}")
        except BaseException:
            self._release()
            raise

    async def _open_folder(
        self, folder: Path, options_of: Callable[[str], TopicOptions] | None
    ) -> None:
        directory = LogDirectory(
            folder,
            self._open_files,
            self._workers,
            self._clock,
            random=self._random,
            on_failure=self._report_failure,
            figures=self.figures,
            history=self._history,
        )
        directory.retention_policies = self._retention_policies
        self._maintenance.watch(directory)
        self._directories.append(directory)
        try:
            terms = await self._take_folder(directory)
            for one in terms.aside:
                self._aside[one.topic_id, one.partition] = directory, one
            self.checkpoints.add(directory, terms.offsets)
            await self._load_folder(directory, terms, options_of)
        except OSError as error:
            directory.fail(error)

    async def _take_folder(self, directory: LogDirectory) -> FolderTerms:
        files, folder, run = self._files, directory.folder, self._workers.run
        self._locks[folder] = await run(lambda: lock_folder(files, folder))
        await self.identities.read(directory)
        terms = await run(lambda: survey_folder(files, folder))
        if terms.clean_shutdown:
            self._clean_folders.add(folder)
        return terms

    async def write_identity(self, broker_id: BrokerId, cluster_id: str) -> None:
        """Check that every folder is this broker's, and make the new ones so."""
        for directory in self._directories:
            if directory.failure is None:
                await self.identities.claim(directory, broker_id, cluster_id)

    async def _load_folder(
        self,
        directory: LogDirectory,
        terms: FolderTerms,
        options_of: Callable[[str], TopicOptions] | None,
    ) -> None:
        options = self._options()
        defaults = TopicOptions.resolve({}, options)
        waiting = deque(terms.partition_folders.items())

        def load() -> list[Log]:
            return load_logs(
                directory,
                waiting,
                terms,
                options_of or (lambda _: defaults),
                options.producer_id_expiration_ms,
            )

        threads = min(options.num_recovery_threads_per_data_dir, len(waiting))
        jobs = (self._workers.run(load) for _ in range(threads))
        loaded: list[Log] = []
        # Whatever one meets, all have to end: they write into the folder.
        for outcome in await asyncio.gather(*jobs, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
            loaded += outcome
        for log in loaded:
            self._add(log)
        vouched = terms.offsets.recovery_points
        if any(log.recovery_point < vouched.get(log.topic_partition, 0) for log in loaded):
            await self.checkpoints.write(directory)  # what is appended now was never flushed

    def _add(self, log: Log) -> None:
        other = self._logs.setdefault(log.topic_partition, log)
        if other is not log:
            raise StartupError(
                f"{log.topic_partition} is in two log directories, {other.folder} and "
                f"{log.folder}; move the one that is out of date away"
            )
        log.directory.log_count += 1
        log.flushing.resume()

    # Making and deleting logs

    async def create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        options: TopicOptions,
        *,
        is_new: bool = True,
    ) -> Log:
        """Make an empty log in the folder that has the fewest.

        `is_new` says that the partition never had a log here. Otherwise, while a folder is
        offline, the log may be in there, and an empty one in its place would deny its records.
        """
        if topic_partition in self._logs or topic_partition in self._creating:
            raise StorageError(f"there is a log of {topic_partition} already")
        if not is_new and any(each.failure is not None for each in self._directories):
            raise StorageError(f"the log of {topic_partition} may be in an offline directory")
        directory = self._choose_directory()
        await self.checkpoints.forget(topic_partition, directory)
        folder = directory.folder / partition_folder_name(topic_partition)
        expiration_ms = self._options().producer_id_expiration_ms

        def create() -> Log:
            self._prepare_folder(folder, topic_id)
            return create_log(directory, folder, topic_partition, topic_id, options, expiration_ms)

        self._creating.add(topic_partition)
        try:
            log = await self._workers.run(create)
        except OSError as error:
            raise directory.judge(error) from error
        finally:
            self._creating.discard(topic_partition)
        self._add(log)
        return log

    def _prepare_folder(self, folder: Path, topic_id: TopicId | None) -> None:
        self._files.make_folder(folder)
        if topic_id is not None:
            write_partition_metadata(self._files, folder / PARTITION_METADATA_FILE, topic_id)

    def _choose_directory(self) -> LogDirectory:
        online = [each for each in self._directories if each.failure is None]
        if not online:
            raise StorageError(f"no log directory can be used: {self._failure_message()}")
        return min(online, key=attrgetter("log_count"))

    async def delete_log(self, topic_partition: TopicPartition) -> None:
        """Take a log out of service; its files go when `file.delete.delay.ms` is over."""
        log = self._logs.get(topic_partition)
        if log is None:
            return
        self.checkpoints.take_high_watermark(topic_partition)
        name = deleted_folder_name(topic_partition, self._new_id().hex)
        folder = self._take_out(log, name)
        delay_ms = log.options.file_delete_delay_ms
        log.directory.remove_later((folder,), delay_ms, are_folders=True)

    async def set_aside(self, topic_partition: TopicPartition) -> Path:
        """Make room for another topic of this name, and keep the log; returns its new folder."""
        log = self._logs[topic_partition]
        note = AsideNote(
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            cleaned_offset=log.cleaned_offset,
            high_watermark=self.checkpoints.take_high_watermark(topic_partition),
        )
        await log.shut_down()
        try:
            await self._workers.run(lambda: write_note(self._files, log.folder, note))
        except OSError as error:
            raise log.directory.fail(error) from error
        folder = self._take_out(log, stray_folder_name(topic_partition, self._new_id().hex))
        if log.topic_id is not None:
            one = AsideLog(
                folder=folder,
                topic_id=log.topic_id,
                partition=topic_partition.partition,
                note=note,
            )
            self._aside[log.topic_id, topic_partition.partition] = log.directory, one
        return folder

    def has_aside(self, topic_partition: TopicPartition, topic_id: TopicId) -> bool:
        """Whether a log of this topic was set aside."""
        return (topic_id, topic_partition.partition) in self._aside

    async def take_back(
        self, topic_partition: TopicPartition, topic_id: TopicId, options: TopicOptions
    ) -> Log:
        """Serve a log again that was set aside; nothing else may be in its place."""
        directory, one = self._aside[topic_id, topic_partition.partition]
        directory.require_online()
        folder = directory.folder / partition_folder_name(topic_partition)
        terms = LoadTerms(
            clean_shutdown=False,  # nobody knows who was in the folder meanwhile
            recovery_point=one.note.log_start_offset,
            log_start_offset=one.note.log_start_offset,
            producer_expiration_ms=self._options().producer_id_expiration_ms,
            cleaned_offset=one.note.cleaned_offset,
        )

        def load() -> Log:
            self._files.rename(one.folder, folder)
            self._files.sync_folder(directory.folder)
            return load_log(directory, folder, topic_partition, options, terms)

        self._creating.add(topic_partition)
        try:
            log = await self._workers.run(load)
        except OSError as error:
            raise directory.judge(error) from error
        finally:
            self._creating.discard(topic_partition)
        if log.log_end_offset < one.note.log_end_offset:
            log.has_lost_its_end = True
        del self._aside[topic_id, topic_partition.partition]
        self.checkpoints.note_high_watermark(topic_partition, Offset(one.note.high_watermark))
        self._add(log)
        await self.checkpoints.write(directory)
        try:
            await self._workers.run(lambda: remove_note(self._files, folder))
        except OSError as error:
            raise directory.judge(error) from error
        return log

    def _take_out(self, log: Log, name: str) -> Path:
        del self._logs[log.topic_partition]
        log.close()
        directory = log.directory
        directory.log_count -= 1
        directory.require_online()
        target = directory.folder / name
        try:
            self._files.rename(log.folder, target)
        except OSError as error:
            raise directory.fail(error) from error
        directory.checkpoint_soon()
        return target

    # Facts

    @property
    def directories(self) -> Sequence[LogDirectory]:
        return tuple(self._directories)

    def was_closed(self, topic_partition: TopicPartition) -> bool:
        """Whether a log was flushed and closed in good order before this broker opened it."""
        log = self._logs.get(topic_partition)
        return log is not None and log.directory.folder in self._clean_folders

    async def forget_losses(self) -> None:
        """The cluster knows which logs may have holes: the folders need not say so any more."""
        for directory in self._directories:
            if directory.failure is None:
                path = directory.folder / LOSS_FILE
                try:
                    await self._workers.run(partial(self._files.remove, path))
                except OSError as error:  # then the next start tells it once more
                    _log.error("cannot remove %s: %s", path, error)

    @property
    def has_offline_folder(self) -> bool:
        return any(directory.failure is not None for directory in self._directories)

    def producer_ids(self) -> Iterator[int]:
        """Of all producers that some log remembers."""
        for log in tuple(self._logs.values()):
            for entry in log.producers:
                yield entry.producer_id

    def logs_in(self, folder: Path) -> tuple[Log, ...]:
        """The logs of one folder, also when it is offline."""
        return tuple(log for log in tuple(self._logs.values()) if log.directory.folder == folder)

    def capacities(self) -> tuple[DirectoryCapacity, ...]:
        """How much room there is. Asks the file system: run it in a worker."""
        return tuple(_capacity_of(directory) for directory in tuple(self._directories))

    def describe(self) -> tuple[DirectoryReport, ...]:
        """All folders. Asks the file system for its capacity: run it in a worker."""
        return tuple(self._describe(directory) for directory in self._directories)

    def _describe(self, directory: LogDirectory) -> DirectoryReport:
        capacity = _capacity_of(directory)
        return DirectoryReport(
            folder=directory.folder,
            online=capacity.online,
            total_bytes=capacity.total_bytes,
            usable_bytes=capacity.usable_bytes,
            sizes={log.topic_partition: log.size_bytes for log in self.logs_in(directory.folder)},
        )

    # Background

    async def maintain(
        self, high_watermarks: Callable[[], Mapping[TopicPartition, Offset]] | None = None
    ) -> None:
        """Do what is due, again and again, until cancelled.

        `high_watermarks` tells what is committed; without it everything in a log is.
        """
        self.checkpoints.high_watermarks = high_watermarks or self._log_ends
        await self._maintenance.run()

    def _log_ends(self) -> Mapping[TopicPartition, Offset]:
        """A log that has one replica is committed up to its end."""
        return {key: log.log_end_offset for key, log in self._logs.items()}

    # Ending

    async def close(
        self,
        *,
        broker_epoch: int = -1,
        high_watermarks: Mapping[TopicPartition, Offset] | None = None,
    ) -> None:
        """Flush and close every log, and leave the marker of a clean stop where all went well."""
        with contextlib.suppress(StorageError):  # the failure has been reported
            await self.checkpoints.write_high_watermarks(high_watermarks)
        unclean = await self._shut_down_logs()
        for directory in self._directories:
            if directory.failure is None and directory not in unclean:
                with contextlib.suppress(StorageError):
                    await self._finish_folder(directory, broker_epoch)
        self._release()

    async def _shut_down_logs(self) -> set[LogDirectory]:
        """Returns the directories with a log that could not be flushed, for whatever reason."""
        gate = asyncio.Semaphore(_CLOSED_AT_ONCE)
        unclean: set[LogDirectory] = set()

        async def shut_down(log: Log) -> None:
            async with gate:
                try:
                    await log.shut_down()
                except StorageError as error:
                    unclean.add(log.directory)
                    if log.directory.failure is None:  # else that was told already, for all of them
                        _log.error("%s was not flushed: %s", log.topic_partition, error)

        logs = (log for log in self._logs.values() if log.directory.failure is None)
        await asyncio.gather(*map(shut_down, logs))
        return unclean

    async def _finish_folder(self, directory: LogDirectory, broker_epoch: int) -> None:
        await self.checkpoints.write(directory)
        files = self._files
        try:
            await self._workers.run(
                lambda: write_clean_marker(files, directory.folder, broker_epoch)
            )
        except OSError as error:
            raise directory.fail(error) from error

    def _release(self) -> None:
        for log in self._logs.values():
            log.close()
        for lock in self._locks.values():
            lock.release()
        self._locks.clear()

    # Failures

    def _report_failure(self, folder: Path, error: OSError) -> None:
        """May be called in a worker; the broker hears of it on the event loop."""
        self._loop.call_soon_threadsafe(self._failures.directory_failed, folder, error)

    def _failure_message(self) -> str:
        return "; ".join(f"{each.folder}: {each.failure}" for each in self._directories)

    def _new_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)


def _capacity_of(directory: LogDirectory) -> DirectoryCapacity:
    total_bytes = usable_bytes = -1
    is_online = directory.failure is None
    if is_online:
        with contextlib.suppress(OSError):
            total_bytes, usable_bytes = directory.files.capacity_bytes(directory.folder)
    return DirectoryCapacity(directory.folder, is_online, total_bytes, usable_bytes)
