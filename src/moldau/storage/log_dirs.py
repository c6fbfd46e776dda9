"""The log directories of a broker as a start finds them, and as people see them.

A folder of `log.dirs` belongs to one process at a time; a second one is refused with a message that
says what to do. The marker of a clean stop is removed before a log is opened, and durably: it must
not vouch for a later crash.

A power loss or a crash in a move between log directories can leave a log in two folders, in one of
which it is out of date, or in one while its records are in another that is offline. Which one is
served is decided before logs are loaded (`InterruptedMoves`; MOV-3, MOV-4).

A shell. What surveys, loads and asks the file system blocks: run it in workers.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moldau.config.topic_options import TopicOptions
from moldau.errors import MoldauError, StartupError, StorageError
from moldau.model import CLUSTER_METADATA_TOPIC, Offset, TopicPartition
from moldau.storage.checkpoint_files import (
    AbortedBySegment,
    CheckpointedOffsets,
    ClosedSegments,
    LogNote,
    drop_note,
    find_note,
    read_aborted,
    read_checkpoints,
    take_clean_marker,
)
from moldau.storage.checkpoints import Checkpoints
from moldau.storage.files import NO_ROOM, Files, FolderLock
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.log_loader import LoadTerms, empty_folder, load_log
from moldau.storage.log_move import LogMove, find_departure, remove_departure, remove_folder
from moldau.storage.log_moves import LogMoves
from moldau.storage.log_table import StrayLog, find_stray_logs
from moldau.storage.rules.file_names import LOCK_FILE, LOSS_FILE, FolderKind, find_partition_folder
from moldau.storage.rules.log_move import Departure, find_replaced, judge_departure
from moldau.storage.rules.recovery_plan import find_missed

_log = logging.getLogger("moldau.storage.recovery")


class FolderTerms(NamedTuple):
    """What a folder said about its logs when it was taken into use."""

    clean_shutdown: bool
    closed: Mapping[TopicPartition, ClosedSegments]
    """What the logs were like at the clean stop, as far as is known."""
    offsets: CheckpointedOffsets
    partition_folders: dict[TopicPartition, Path]
    futures: Sequence[tuple[TopicPartition, Path]]
    """Copies of logs that move here from other directories."""
    notes: Mapping[TopicPartition, LogNote]
    """Of logs that were taken back or moved here just before the broker stopped: the checkpoints
    may not know of them yet."""
    departures: Mapping[TopicPartition, Path]
    """Where logs were about to move to when the broker stopped."""
    stray_logs: Sequence[StrayLog]
    """Out of service, and to be taken back when their topics are there again."""
    aborted: Mapping[TopicPartition, AbortedBySegment]
    """What the transaction indexes of the logs should hold."""
    deleted: Mapping[Path, TopicPartition]
    """Folders of logs whose deletion was under way; a long topic name has lost its end in them."""
    may_have_lost: bool
    """A note is there: a sync failed, or logs lost something that nobody was told of yet."""


def lock_folder(files: Files, folder: Path) -> FolderLock:
    """Keep other brokers out of a folder, which is made when it is absent."""
    if not files.exists(folder):
        files.make_folder(folder)
        files.sync_folder(folder.parent)  # what is flushed in it later must be found again
    lock = files.lock(folder / LOCK_FILE)
    if lock is None:
        raise StartupError(
            f"another broker uses the data folder {folder}; stop it, or give this broker another "
            "folder with --data-dir or log.dirs"
        )
    return lock


def survey_folder(files: Files, folder: Path) -> FolderTerms:
    """Read what is beside the logs, empty what was deleted, and take the clean marker away."""
    partition_folders = {}
    notes = {}
    departures = {}
    futures = []
    strays = []
    deleted = {}
    for name in files.list_folder(folder):
        found = find_partition_folder(name)
        if found is None or found.partition.topic == CLUSTER_METADATA_TOPIC:
            continue
        if found.kind is FolderKind.DELETED:
            deleted[folder / name] = found.partition
            empty_folder(files, folder / name)  # a disk may be full, and nothing can be written
        elif found.kind is FolderKind.CURRENT:
            partition_folders[found.partition] = folder / name
            note = find_note(files, folder / name)
            if note is not None:
                notes[found.partition] = note
            departure = find_departure(files, folder / name)
            if departure is not None:
                departures[found.partition] = departure
        elif found.kind is FolderKind.FUTURE:
            futures.append((found.partition, folder / name))
        else:
            strays.append(folder / name)
    _report_strays(files, strays)
    closed = take_clean_marker(files, folder)
    return FolderTerms(
        clean_shutdown=closed is not None,
        closed=closed or {},
        offsets=read_checkpoints(files, folder),
        partition_folders=partition_folders,
        futures=futures,
        notes=notes,
        departures=departures,
        stray_logs=find_stray_logs(files, strays),
        aborted=read_aborted(files, folder),
        deleted=deleted,
        may_have_lost=files.exists(folder / LOSS_FILE),
    )


def note_missed(surveys: Mapping[LogDirectory, FolderTerms], checkpoints: Checkpoints) -> None:
    """Before anything is written: a log that is gone is gone from all directories (LOG-14)."""
    present = {key for terms in surveys.values() for key in terms.partition_folders}
    deleted = {key for terms in surveys.values() for key in terms.deleted.values()}
    for directory, terms in surveys.items():
        offsets = terms.offsets
        missed = find_missed(offsets.recovery_points, offsets.high_watermarks, present, deleted)
        checkpoints.keep_missed(directory, missed)


async def remove_deleted(
    surveys: Mapping[LogDirectory, FolderTerms], checkpoints: Checkpoints
) -> None:
    """Remove what was deleted before the start, once no checkpoint speaks of it any more: else a
    start after the next crash would miss it (LOG-14)."""
    for directory, terms in surveys.items():
        if directory.failure is None and terms.deleted:
            try:
                for key in terms.deleted.values():
                    await checkpoints.forget_deleted(key, directory)
                work = partial(_remove_folders, directory.files, tuple(terms.deleted))
                await directory.workers.run(work)
            except OSError as error:
                directory.fail(error)
            except StorageError as error:  # the next start tries again
                _log.error("what was deleted is left in %s: %s", directory.folder, error)


def _remove_folders(files: Files, folders: Sequence[Path]) -> None:
    for folder in folders:
        files.remove_folder(folder)


def _report_strays(files: Files, folders: Sequence[Path]) -> None:
    """What is kept takes room, and only a person can say that nobody needs it."""
    for folder in folders:
        _log.warning(
            "%s (%d bytes) is kept and not served: its topic was not there any more, or is another "
            "one; remove the folder if nobody needs its records",
            folder,
            sum(files.size(folder / name) for name in files.list_folder(folder)),
        )


def load_logs(
    directory: LogDirectory,
    waiting: deque[tuple[TopicPartition, Path]],
    terms: FolderTerms,
    options_of: Callable[[str], TopicOptions],
    producer_expiration_ms: int,
) -> list[Log]:
    """Open logs until none is waiting; several workers may share what is waiting."""
    loaded: list[Log] = []
    offsets = terms.offsets
    while True:
        try:
            partition, folder = waiting.popleft()
        except IndexError:
            return loaded
        note = terms.notes.get(partition)  # else the checkpoints know more
        load_terms = LoadTerms(
            clean_shutdown=terms.clean_shutdown,
            recovery_point=offsets.recovery_points.get(partition, 0),
            log_start_offset=max(
                offsets.log_start_offsets.get(partition, 0), note.log_start_offset if note else 0
            ),
            is_start_known=offsets.are_starts_known,
            producer_expiration_ms=producer_expiration_ms,
            cleaned_offset=max(
                offsets.cleaned_offsets.get(partition, 0), note.cleaned_offset if note else 0
            ),
            dropped_offset=offsets.dropped_offsets.get(partition, 0),
            high_watermark=max(
                offsets.high_watermarks.get(partition, 0), note.high_watermark if note else 0
            ),
            may_have_lost=terms.may_have_lost,
            aborted=terms.aborted.get(partition, {}),
            closed=terms.closed.get(partition),
        )
        try:
            loaded.append(
                load_log(directory, folder, partition, options_of(partition.topic), load_terms)
            )
        except MoldauError as error:
            raise StartupError(f"the log in {folder} cannot be opened: {error}") from error


class InterruptedMoves:
    """Of one start: made before logs are loaded, finished when they are.

    Made, it takes out of the surveys what must not be loaded.
    """

    def __init__(
        self, surveys: Mapping[LogDirectory, FolderTerms], directories: Sequence[LogDirectory]
    ) -> None:
        self._surveys = surveys
        self._directories = directories
        self._replaced = _leave_out_replaced(surveys)
        self._lacking = _leave_out_departed(surveys, directories)

    async def finish_moves(
        self,
        logs: Mapping[TopicPartition, Log],
        checkpoints: Checkpoints,
        moves: LogMoves,
        unique_id: Callable[[], str],
    ) -> None:
        for key in self._lacking & logs.keys():
            logs[key].has_lost_its_end = True
            logs[key].directory.note_loss(f"{key} may lack records")
        for directory, key, old_folder in self._replaced:
            if key in logs:  # else it is the only one that can be read
                await _remove_replaced(directory, key, old_folder, unique_id())
        for directory, terms in self._surveys.items():
            await self._write_down(directory, terms, logs, checkpoints)
            for key in terms.departures.keys() & terms.partition_folders.keys():
                await _remove_departure(directory, terms.partition_folders[key])
        for directory, terms in self._surveys.items():
            if directory.failure is None:
                await moves.resume((key, directory, at) for key, at in terms.futures)

    async def _write_down(
        self,
        directory: LogDirectory,
        terms: FolderTerms,
        logs: Mapping[TopicPartition, Log],
        checkpoints: Checkpoints,
    ) -> None:
        """Let checkpoints say what notes do, which go then.

        A note tells a log from what it has replaced, which may be in a directory that is offline:
        then it stays.
        """
        here = {key: note for key, note in terms.notes.items() if key in logs}
        for key, note in here.items():
            known = checkpoints.find_high_watermark(key)
            checkpoints.note_high_watermark(key, Offset(max(known, note.high_watermark)))
        if not here or any(each.failure is not None for each in self._directories):
            return
        await checkpoints.write(directory)
        await checkpoints.write_high_watermarks()
        for key in here:
            await drop_note(directory, logs[key].folder)


def _leave_out_replaced(
    surveys: Mapping[LogDirectory, FolderTerms],
) -> list[tuple[LogDirectory, TopicPartition, Path]]:
    """Take logs out of the surveys that were moved to another directory; returns their folders.

    The broker stopped after the copy had taken the log's place and before the old folder was gone
    (MOV-3). A log that is there twice for another reason is left for who loads them to refuse.
    """
    places: dict[TopicPartition, list[LogDirectory]] = {}
    for directory, terms in surveys.items():
        for key in terms.partition_folders:
            places.setdefault(key, []).append(directory)
    replaced = []
    for key, directories in places.items():
        if len(directories) > 1:
            has_note = {each: key in surveys[each].notes for each in directories}
            replaced += [(each, key) for each in find_replaced(has_note)]
    return [
        (directory, key, surveys[directory].partition_folders.pop(key))
        for directory, key in replaced
    ]


def _leave_out_departed(
    surveys: Mapping[LogDirectory, FolderTerms], directories: Sequence[LogDirectory]
) -> set[TopicPartition]:
    """Take logs out of the surveys that may be in a directory that is offline (MOV-4); returns
    those that are served though they may lack records."""
    has_offline = any(each.failure is not None for each in directories)
    known = {each.folder.absolute() for each in directories}
    lacking = set()
    for terms in surveys.values():
        for key, target in terms.departures.items():
            folder = terms.partition_folders.get(key)
            if folder is None:
                continue
            match judge_departure(
                is_target_known=target in known, has_offline_directory=has_offline
            ):
                case Departure.UNKNOWN:
                    _log.error(
                        "%s is not served: its log was about to move to %s, and a log directory "
                        "is offline",
                        folder,
                        target,
                    )
                    del terms.partition_folders[key]
                case Departure.BEYOND_REACH:
                    _log.error(
                        "%s may lack records: its log was about to move to %s, which is none of "
                        "the log directories any more",
                        folder,
                        target,
                    )
                    lacking.add(key)
                case Departure.NOT_DONE:
                    pass
    return lacking


async def _remove_replaced(
    directory: LogDirectory, topic_partition: TopicPartition, folder: Path, unique_id: str
) -> None:
    """Return when it will not be found again: the note that tells the two apart goes next."""
    with contextlib.suppress(StorageError):  # then the directory is offline, and the note stays
        remove_folder(directory, folder, topic_partition, unique_id)
    with contextlib.suppress(StorageError), directory.failing():
        await directory.workers.run(lambda: directory.files.sync_folder(directory.folder))


async def _remove_departure(directory: LogDirectory, folder: Path) -> None:
    """It was not replaced."""
    if directory.failure is None:
        with contextlib.suppress(StorageError), directory.failing():
            await directory.workers.run(lambda: remove_departure(directory.files, folder))


_MAKE_ROOM = (
    "Make room on the disk and start the broker again: what it acknowledged is there. Topics keep "
    "less with retention.bytes or retention.ms"
)
_REPAIR = "Repair or replace the disk and start the broker again"


class DirectoryCapacity(NamedTuple):
    """The disk of one log directory; -1 where it does not tell."""

    folder: Path
    online: bool
    total_bytes: int
    usable_bytes: int


class FutureReport(NamedTuple):
    """A copy that is to take the place of its log in another directory."""

    size_bytes: int
    offset_lag: int


class DirectoryReport(NamedTuple):
    """One log directory as DescribeLogDirs shows it."""

    folder: Path
    online: bool
    total_bytes: int
    usable_bytes: int
    sizes: Mapping[TopicPartition, int]
    """Bytes of each log in it."""
    futures: Mapping[TopicPartition, FutureReport]
    """The copies in it of logs that move here."""


def capacity_of(directory: LogDirectory) -> DirectoryCapacity:
    """Asks the file system."""
    total_bytes = usable_bytes = -1
    is_online = directory.failure is None
    if is_online:
        with contextlib.suppress(OSError):
            total_bytes, usable_bytes = directory.files.capacity_bytes(directory.folder)
    return DirectoryCapacity(directory.folder, is_online, total_bytes, usable_bytes)


def describe_directory(
    directory: LogDirectory, logs: Iterable[Log], moves: Iterable[LogMove]
) -> DirectoryReport:
    """`logs` are in it, `moves` lead to it. Asks the file system."""
    capacity = capacity_of(directory)
    return DirectoryReport(
        folder=directory.folder,
        online=capacity.online,
        total_bytes=capacity.total_bytes,
        usable_bytes=capacity.usable_bytes,
        sizes={log.topic_partition: log.size_bytes for log in logs},
        futures={
            move.topic_partition: FutureReport(move.size_bytes, move.offset_lag) for move in moves
        },
    )


def find_failure_of_all(directories: Sequence[LogDirectory]) -> str | None:
    """Why no log directory is left, and what to do; None while one is."""
    failures = [one.failure for one in directories if one.failure is not None]
    if len(failures) < len(directories):
        return None
    reasons = "; ".join(f"{one.folder}: {one.failure}" for one in directories)
    is_full = any(failure.errno in NO_ROOM for failure in failures)
    return f"no log directory is left ({reasons}). {_MAKE_ROOM if is_full else _REPAIR}"
