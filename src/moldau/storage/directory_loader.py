"""Takes one folder of `log.dirs` into use: lock, clean-shutdown marker, checkpoints, logs.

A folder belongs to one process at a time; a second one is refused with a message that says what to
do. The marker of a clean stop is removed before a log is opened, and durably: it must not vouch for
a later crash.

A shell. It blocks: run it in workers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moldau.config.topic_options import TopicOptions
from moldau.errors import MoldauError, StartupError, StorageError
from moldau.model import CLUSTER_METADATA_TOPIC, TopicPartition
from moldau.storage.aborted_checkpoint import AbortedBySegment, read_aborted
from moldau.storage.checkpoint_files import CheckpointedOffsets, read_checkpoints
from moldau.storage.checkpoints import Checkpoints
from moldau.storage.clean_marker import ClosedSegments, take_clean_marker
from moldau.storage.files import Files, FolderLock
from moldau.storage.folder_tidying import empty_folder
from moldau.storage.future_log import find_departure
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.log_note import LogNote, find_note
from moldau.storage.recovery import LoadTerms, load_log
from moldau.storage.rules.file_names import (
    LOCK_FILE,
    LOSS_FILE,
    FolderKind,
    find_partition_folder,
)
from moldau.storage.rules.missed_logs import find_missed
from moldau.storage.set_aside import AsideLog, find_aside

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
    aside: Sequence[AsideLog]
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
        aside=find_aside(files, strays),
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
