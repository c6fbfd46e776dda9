"""The logs of a store by their partitions: those that it serves, and stray ones.

A log is served from the moment in which it can be used until its folder has another name. At most
one is made for a partition at a time.

A log becomes a stray one when a topic of the same name, under another id, needs its folder, and
nobody asked for its deletion (DEL-1). It is kept out of service, and is found again by its topic's
id. Its folder is renamed as Kafka names strays, `clicks-0.<32 digits>-stray`, and gets a note. A
stray folder without a note was made by somebody else and is left alone.

A shell, owned by the event loop. The functions block: run them in a worker.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import DamagedFileError, StartupError, StorageError
from moldau.model import Offset, TopicId, TopicPartition
from moldau.storage.checkpoint_files import (
    LogNote,
    drop_note,
    read_note,
    read_partition_metadata,
    write_note,
)
from moldau.storage.checkpoints import Checkpoints
from moldau.storage.files import Files
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.log_loader import LoadTerms, load_log
from moldau.storage.log_moves import LogMoves
from moldau.storage.rules.file_names import (
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    find_partition_folder,
    partition_folder_name,
    stray_folder_name,
)


class LogTable:
    """See the module."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, Log] = {}
        self._made: dict[TopicPartition, LogDirectory | None] = {}  # right now, by somebody; where
        self.clean_folders: set[Path] = set()  # had the marker of a clean stop
        self.logs: Mapping[TopicPartition, Log] = MappingProxyType(self._logs)

    @contextlib.contextmanager
    def making(self, topic_partition: TopicPartition) -> Iterator[None]:
        """While it lasts, nobody else makes a log of this partition; there must not be one."""
        if topic_partition in self._logs or topic_partition in self._made:
            raise StorageError(f"there is a log of {topic_partition} already")
        self._made[topic_partition] = None
        try:
            yield
        finally:
            del self._made[topic_partition]

    def note_choice(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """A log that is being made is counted in its directory from now on."""
        self._made[topic_partition] = directory

    def count_logs(self, directory: LogDirectory) -> int:
        """Those of a directory, with those that are being made in it."""
        return directory.log_count + sum(one is directory for one in self._made.values())

    def add(self, log: Log) -> None:
        other = self._logs.setdefault(log.topic_partition, log)
        if other is not log:
            raise StartupError(
                f"{log.topic_partition} is in two log directories, {other.folder} and "
                f"{log.folder}; move the one that is out of date away"
            )
        log.directory.log_count += 1
        log.was_closed = log.directory.folder in self.clean_folders
        log.flushing.resume()

    def take_out(self, log: Log, name: str) -> Path:
        """Close a log and give its folder another name; returns that folder."""
        del self._logs[log.topic_partition]
        log.close()
        directory = log.directory
        directory.log_count -= 1
        directory.require_online()
        target = directory.folder / name
        with directory.failing():
            directory.files.rename(log.folder, target)
        directory.checkpoint_soon()
        return target


_log = logging.getLogger("moldau.storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayLog:
    """A log that can be taken back."""

    folder: Path
    topic_id: TopicId
    partition: int  # of the topic; its name may be cut short in the folder's
    note: LogNote


class StrayLogs:
    """Those of one store. What is set aside or taken back is flushed and read from its start."""

    def __init__(
        self,
        table: LogTable,
        checkpoints: Checkpoints,
        moves: LogMoves,
        options: Callable[[], BrokerOptions],
        unique_id: Callable[[], str],
    ) -> None:
        self._table = table
        self._checkpoints = checkpoints
        self._moves = moves
        self._options = options
        self._unique_id = unique_id
        self._found: dict[tuple[TopicId, int], tuple[LogDirectory, StrayLog]] = {}

    def add(self, directory: LogDirectory, found: Iterable[StrayLog]) -> None:
        """What `find_stray_logs` has found in a directory."""
        for one in found:
            self._found[one.topic_id, one.partition] = directory, one

    def has(self, topic_partition: TopicPartition, topic_id: TopicId) -> bool:
        """Whether a log of this topic was set aside."""
        return (topic_id, topic_partition.partition) in self._found

    async def set_aside(self, topic_partition: TopicPartition) -> Path:
        """Make room for another topic of this name, and keep the log; returns its new folder."""
        await self._moves.cancel_move(topic_partition)
        log = self._table.logs[topic_partition]
        directory = log.directory
        note = LogNote(
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            cleaned_offset=log.cleaned_offset,
            high_watermark=self._checkpoints.take_high_watermark(topic_partition),
        )
        await log.shut_down()
        with directory.failing():
            await directory.workers.run(lambda: write_note(directory.files, log.folder, note))
        name = stray_folder_name(topic_partition, self._unique_id())
        folder = self._table.take_out(log, name)
        if log.topic_id is not None:
            number = topic_partition.partition
            one = StrayLog(folder=folder, topic_id=log.topic_id, partition=number, note=note)
            self.add(directory, (one,))
        return folder

    async def restore_log(
        self, topic_partition: TopicPartition, topic_id: TopicId, options: TopicOptions
    ) -> Log | None:
        """Serve a log again that was set aside; nothing else may be in its place.

        None when its folder is gone: people are told that they may remove it.
        """
        directory, one = self._found[topic_id, topic_partition.partition]
        directory.require_online()
        files, note = directory.files, one.note
        folder = directory.folder / partition_folder_name(topic_partition)
        terms = LoadTerms(
            clean_shutdown=False,  # nobody knows who was in the folder meanwhile
            recovery_point=note.log_start_offset,
            log_start_offset=note.log_start_offset,
            producer_expiration_ms=self._options().producer_id_expiration_ms,
            cleaned_offset=note.cleaned_offset,
        )

        def load() -> Log | None:
            if files.exists(one.folder):
                files.rename(one.folder, folder)
                files.sync_folder(directory.folder)
            elif read_partition_metadata(files, folder / PARTITION_METADATA_FILE) != topic_id:
                return None  # else it was renamed before, and could not be opened
            return load_log(directory, folder, topic_partition, options, terms)

        with self._table.making(topic_partition):
            # Else a start that finds it in its place would believe what they say of another topic.
            await self._checkpoints.forget(topic_partition, directory)
            log = await directory.run(load)
        del self._found[topic_id, topic_partition.partition]
        if log is None:
            _log.warning("%s was set aside in %s, which is gone", topic_partition, one.folder)
            return None
        if log.log_end_offset < note.log_end_offset:
            log.has_lost_its_end = True
        self._checkpoints.note_high_watermark(topic_partition, Offset(note.high_watermark))
        self._table.add(log)
        await self._checkpoints.write(directory)
        await drop_note(directory, folder)
        return log


def find_stray_logs(files: Files, folders: Iterable[Path]) -> list[StrayLog]:
    """Those of these folders that can be taken back."""
    found = []
    for folder in folders:
        try:
            one = _read_stray_log(files, folder)
        except (DamagedFileError, ValueError, TypeError) as error:
            _log.warning("%s cannot be taken back by itself: %s", folder, error)
        else:
            if one is not None:
                found.append(one)
    return found


def _read_stray_log(files: Files, folder: Path) -> StrayLog | None:
    named = find_partition_folder(folder.name)
    topic_id = read_partition_metadata(files, folder / PARTITION_METADATA_FILE)
    note = read_note(files, folder)
    if named is None or topic_id is None or note is None:
        return None
    return StrayLog(
        folder=folder, topic_id=topic_id, partition=named.partition.partition, note=note
    )


def clear_folder(
    files: Files, folder: Path, topic_partition: TopicPartition, make_id: Callable[[], str]
) -> None:
    """Of a log that was moved or is not served: a new one must not find its segments."""
    names = files.list_folder(folder) if files.exists(folder) else ()
    if any(name.endswith(LOG_SUFFIX) and files.size(folder / name) for name in names):
        stray = folder.with_name(stray_folder_name(topic_partition, make_id()))
        files.rename(folder, stray)
        _log.error("%s was in the place of a new log, and is kept in %s", folder, stray)
    elif names:
        files.remove_folder(folder)
