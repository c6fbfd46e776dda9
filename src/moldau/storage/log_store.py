"""All logs of a broker, in all its log directories.

It answers for opening the folders of `log.dirs` and the logs in them, for making and deleting logs
and for an orderly end. Which there are, in service and out of it, is in `log_table`; those that
begin with another one's records come from `log_branch`. What is written down of them is
kept by `checkpoints`, what goes on in the background by `maintenance`. A folder that fails is
reported once and goes offline; the others go on.

A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from uuid import UUID

from moldau.clock import Clock
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import StartupError, StorageError
from moldau.metrics.figures import StorageFigures
from moldau.metrics.history import History
from moldau.model import BrokerId, Offset, TopicId, TopicPartition
from moldau.storage.checkpoint_files import (
    describe_segments,
    write_clean_marker,
    write_partition_metadata,
)
from moldau.storage.checkpoints import Checkpoints
from moldau.storage.files import Files, FolderLock, OpenFiles, open_file_budget
from moldau.storage.log import Log
from moldau.storage.log_branch import LogBranches
from moldau.storage.log_directory import DirectoryFailures, LogDirectory, RetentionPolicies
from moldau.storage.log_dirs import (
    DirectoryCapacity,
    DirectoryReport,
    FolderTerms,
    InterruptedMoves,
    capacity_of,
    describe_directory,
    load_logs,
    lock_folder,
    note_missed,
    remove_deleted,
    survey_folder,
)
from moldau.storage.log_loader import create_log
from moldau.storage.log_moves import LogMoves
from moldau.storage.log_table import LogTable, StrayLogs, clear_folder
from moldau.storage.maintenance import Maintenance
from moldau.storage.meta_properties import MetaPropertiesEnsemble
from moldau.storage.rules.file_names import (
    INCOMPLETE_FILE,
    LOSS_FILE,
    PARTITION_METADATA_FILE,
    deleted_folder_name,
    partition_folder_name,
    stray_folder_name,
)
from moldau.storage.rules.retention import kafka_policies
from moldau.workers import Workers

_log = logging.getLogger("moldau.storage")

_CLOSED_AT_ONCE = 64
_WRONG_PLACE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT})
"""What an operator mends by another folder, or other rights; not what a broken disk says."""
"""Logs that are flushed at the same time when the store closes; the workers do a few at a time."""


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
        self._table = LogTable()
        self._directories: list[LogDirectory] = []
        self._locks: dict[Path, FolderLock] = {}
        self.logs = self._table.logs
        self.identities = MetaPropertiesEnsemble(self._new_id)
        self.checkpoints = Checkpoints(self.logs)
        self.moves = LogMoves(
            self.logs, self._directories, self.checkpoints, clock, options, self._unique_id
        )
        self.stray_logs = StrayLogs(
            self._table, self.checkpoints, self.moves, options, self._unique_id
        )
        self.branches = LogBranches(self._table, self.checkpoints, options, self._unique_id)
        self._maintenance = Maintenance(self.logs, self.checkpoints, clock, workers, options)

    # Opening

    async def open(self, options_of: Callable[[str], TopicOptions] | None = None) -> None:
        """Lock and load every folder. `options_of` gives the options of a topic by its name.

        Raises `StartupError` when another broker is in a folder or no folder can be used.
        """
        self._loop = asyncio.get_running_loop()
        try:
            surveys: dict[LogDirectory, FolderTerms] = {}
            for folder in self._folders:
                await self._open_folder(folder, surveys)
            note_missed(surveys, self.checkpoints)
            interrupted = InterruptedMoves(surveys, self._directories)
            for directory, terms in surveys.items():
                self.checkpoints.note_high_watermarks(terms.offsets, terms.partition_folders)
                await self._load_if_well(directory, terms, options_of)
            await interrupted.finish_moves(self.logs, self.checkpoints, self.moves, self._unique_id)
            for key in self.logs:  # a move has ended that was interrupted
                self.checkpoints.forget_missed(key)
            await remove_deleted(surveys, self.checkpoints)
            if all(directory.failure is not None for directory in self._directories):
                raise StartupError(
                    f"no log directory can be used: {self._failure_message()}{self._remedy()}"
                )
        except BaseException:
            self._release()
            raise

    async def _open_folder(self, folder: Path, surveys: dict[LogDirectory, FolderTerms]) -> None:
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
            self.stray_logs.add(directory, terms.stray_logs)
            self.checkpoints.add(directory, terms.offsets)
            surveys[directory] = terms
        except OSError as error:
            directory.fail(error)

    async def _load_if_well(
        self,
        directory: LogDirectory,
        terms: FolderTerms,
        options_of: Callable[[str], TopicOptions] | None,
    ) -> None:
        if directory.failure is not None:
            return
        try:
            await self._load_folder(directory, terms, options_of)
        except OSError as error:
            directory.fail(error)

    async def _take_folder(self, directory: LogDirectory) -> FolderTerms:
        files, folder, run = self._files, directory.folder, self._workers.run
        self._locks[folder] = await run(lambda: lock_folder(files, folder))
        await self.identities.read(directory)
        terms = await run(lambda: survey_folder(files, folder))
        if terms.clean_shutdown:
            self._table.clean_folders.add(folder)
        return terms

    async def write_identity(self, broker_id: BrokerId, cluster_id: str) -> None:
        """Check that every folder is this broker's, and make the new ones so."""
        self.identities.check(broker_id, cluster_id)
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
            self._table.add(log)
        vouched = terms.offsets.recovery_points
        if any(log.recovery_point < vouched.get(log.topic_partition, 0) for log in loaded):
            await self.checkpoints.write(directory)  # what is appended now was never flushed

    # Making and deleting logs

    async def create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        options: TopicOptions,
        *,
        is_new: bool = True,
    ) -> Log:
        """Make an empty log in the folder that somebody wanted it in, or that has the fewest.

        `is_new` says that the partition never had a log here. Otherwise, while a folder is
        offline, the log may be in there, and an empty one in its place would deny its records.
        """
        with self._table.making(topic_partition):
            log = await self._create_log(topic_partition, topic_id, options, is_new)
        self._table.add(log)
        return log

    async def _create_log(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        options: TopicOptions,
        is_new: bool,
    ) -> Log:
        if not is_new and any(each.failure is not None for each in self._directories):
            raise StorageError(f"the log of {topic_partition} may be in an offline directory")
        directory = self.moves.pop_requested_directory(topic_partition) or self._choose_directory()
        self._table.note_choice(topic_partition, directory)
        await self.checkpoints.forget(topic_partition, directory)
        folder = directory.folder / partition_folder_name(topic_partition)
        expiration_ms = self._options().producer_id_expiration_ms

        def create() -> Log:
            clear_folder(self._files, folder, topic_partition, self._unique_id)
            self._files.make_folder(folder)
            if topic_id is not None:
                write_partition_metadata(self._files, folder / PARTITION_METADATA_FILE, topic_id)
            return create_log(directory, folder, topic_partition, topic_id, options, expiration_ms)

        return await directory.run(create)

    def _choose_directory(self) -> LogDirectory:
        online = [each for each in self._directories if each.failure is None]
        if not online:
            raise StorageError(f"no log directory can be used: {self._failure_message()}")
        return min(online, key=self._table.count_logs)

    async def delete_log(self, topic_partition: TopicPartition) -> None:
        """Take a log out of service; its files go when `file.delete.delay.ms` is over."""
        await self.moves.cancel_move(topic_partition)
        log = self.logs.get(topic_partition)
        if log is None:
            return
        self.checkpoints.take_high_watermark(topic_partition)
        name = deleted_folder_name(topic_partition, self._unique_id())
        folder = self._table.take_out(log, name)
        delay_ms = log.options.file_delete_delay_ms
        log.directory.remove_later((folder,), delay_ms, are_folders=True)

    async def retire_log(self, topic_partition: TopicPartition) -> Path:
        """Take a log out of service for good, and keep its files; returns their folder."""
        await self.moves.cancel_move(topic_partition)
        self.checkpoints.take_high_watermark(topic_partition)
        name = stray_folder_name(topic_partition, self._unique_id())
        return self._table.take_out(self.logs[topic_partition], name)

    async def accept_incomplete(self, log: Log) -> None:
        """What a log has lost inside is known now, and it is served as it is."""
        log.is_incomplete = False
        await log.directory.run(partial(self._files.remove, log.folder / INCOMPLETE_FILE))

    # Facts

    @property
    def directories(self) -> Sequence[LogDirectory]:
        return tuple(self._directories)

    async def forget_losses(self) -> None:
        """The cluster knows which logs may have holes: the folders need not say so any more."""
        for directory in self._directories:
            if directory.failure is None:
                await self._remove_loss_note(directory.folder)

    async def _remove_loss_note(self, folder: Path) -> None:
        path = folder / LOSS_FILE
        try:
            await self._workers.run(partial(self._files.remove, path))
        except OSError as error:  # the next start reports the loss again
            _log.error("cannot remove %s: %s", path, error)

    async def note_loss_of(self, log: Log) -> None:
        """Let later starts know that a log has lost its end, until the cluster knows it.

        Its topic is away, so nobody can be told. A clean stop does not vouch for it (REP-6).
        """
        log.has_lost_its_end = log.has_loss_note = True
        path = log.folder / LOSS_FILE
        await log.directory.run(partial(self._files.replace, path, b"its topic was away\n"))

    async def forget_loss_of(self, log: Log) -> None:
        """The cluster knows what a log is worth."""
        log.has_loss_note = False
        await self._remove_loss_note(log.folder)

    def is_missed(self, topic_partition: TopicPartition) -> bool:
        """Whether a log had records here, and its folder is gone (LOG-14)."""
        return topic_partition in self.checkpoints.missed

    @property
    def has_offline_folder(self) -> bool:
        return any(directory.failure is not None for directory in self._directories)

    def producer_ids(self) -> Iterator[int]:
        """Of all producers that some log remembers."""
        for log in tuple(self.logs.values()):
            for entry in log.producers:
                yield entry.producer_id

    def logs_in(self, folder: Path) -> tuple[Log, ...]:
        """The logs of one folder, also when it is offline."""
        return tuple(log for log in tuple(self.logs.values()) if log.directory.folder == folder)

    def capacities(self) -> tuple[DirectoryCapacity, ...]:
        """How much room there is. Asks the file system: run it in a worker."""
        return tuple(capacity_of(directory) for directory in tuple(self._directories))

    def describe(self) -> tuple[DirectoryReport, ...]:
        """All folders. Asks the file system for its capacity: run it in a worker."""
        return tuple(
            describe_directory(
                directory, self.logs_in(directory.folder), self.moves.moves_to(directory.folder)
            )
            for directory in self._directories
        )

    # Background

    async def maintain(
        self, high_watermarks: Callable[[], Mapping[TopicPartition, Offset]] | None = None
    ) -> None:
        """Do what is due, again and again, until cancelled.

        `high_watermarks` tells what is committed; without it everything in a log is.
        """
        self.checkpoints.high_watermarks = high_watermarks or self._log_ends
        await asyncio.gather(self._maintenance.run(), self.moves.run())

    def _log_ends(self) -> Mapping[TopicPartition, Offset]:
        """A log that has one replica is committed up to its end."""
        return {key: log.log_end_offset for key, log in self.logs.items()}

    # Ending

    async def close(
        self,
        *,
        broker_epoch: int = -1,
        high_watermarks: Mapping[TopicPartition, Offset] | None = None,
        are_losses_told: bool = True,
    ) -> None:
        """Flush and close every log, and leave the marker of a clean stop where all went well.

        Without `are_losses_told` the cluster does not know what a power loss may have taken: a
        folder that was not clean when it was opened is not clean now (REP-6).
        """
        with contextlib.suppress(StorageError):  # the failure has been reported
            await self.checkpoints.write_high_watermarks(high_watermarks)
        await self.moves.close()
        unclean = await self._shut_down_logs()
        for directory in self._directories:
            was_clean = directory.folder in self._table.clean_folders or not directory.log_count
            if directory.failure is not None or directory in unclean:
                continue
            if are_losses_told or was_clean:
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

        logs = (log for log in self.logs.values() if log.directory.failure is None)
        await asyncio.gather(*map(shut_down, logs))
        return unclean

    async def _finish_folder(self, directory: LogDirectory, broker_epoch: int) -> None:
        await self.checkpoints.write(directory)
        closed = [
            (
                log.topic_partition,
                describe_segments([(each.base_offset, each.size_bytes) for each in log.segments]),
            )
            for log in self.logs_in(directory.folder)
        ]
        write = partial(write_clean_marker, self._files, directory.folder, broker_epoch, closed)
        with directory.failing():
            await self._workers.run(write)

    def _release(self) -> None:
        for log in self.logs.values():
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

    def _remedy(self) -> str:
        failures = [each.failure for each in self._directories]
        if not any(one is not None and one.errno in _WRONG_PLACE for one in failures):
            return ""
        return (
            ". Let the user of this process write there, or name a folder of its own with "
            "--data-dir or log.dirs"
        )

    def _new_id(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

    def _unique_id(self) -> str:
        return self._new_id().hex
