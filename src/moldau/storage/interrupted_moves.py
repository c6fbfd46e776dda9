"""What a start finds of moves between log directories that the last process did not finish.

A power loss or a crash can leave a log in two folders, in one of which it is out of date, or in one
while its records are in another that is offline. Which one is served is decided here before logs
are loaded (MOV-3, MOV-4; the rules are in `rules.log_move`); afterwards what told them apart is
written down or removed, and copies that had begun go on.

A shell, owned by the store's `open`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from moldau.errors import StorageError
from moldau.model import Offset, TopicPartition
from moldau.storage.checkpoints import Checkpoints
from moldau.storage.directory_loader import FolderTerms
from moldau.storage.future_log import remove_departure
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.log_move import remove_folder
from moldau.storage.log_moves import LogMoves
from moldau.storage.log_note import drop_note
from moldau.storage.rules.log_move import Departure, find_replaced, judge_departure

_log = logging.getLogger("moldau.storage.recovery")


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

    async def finish(
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
    try:
        await directory.workers.run(lambda: directory.files.sync_folder(directory.folder))
    except OSError as error:
        directory.fail(error)


async def _remove_departure(directory: LogDirectory, folder: Path) -> None:
    """It was not replaced."""
    if directory.failure is None:
        try:
            await directory.workers.run(lambda: remove_departure(directory.files, folder))
        except OSError as error:
            directory.fail(error)
