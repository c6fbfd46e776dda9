"""Takes one folder of `log.dirs` into use: lock, clean-shutdown marker, checkpoints, logs.

A folder belongs to one process at a time; a second one is refused with a message that says what to
do. The marker of a clean stop is removed before a log is opened, and durably: it must not vouch for
a later crash.

A shell. It blocks: run it in workers.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from moldau.config.topic_options import TopicOptions
from moldau.errors import MoldauError, StartupError
from moldau.model import TopicPartition
from moldau.model.topic_names import CLUSTER_METADATA_TOPIC
from moldau.storage.checkpoint_files import CheckpointedOffsets, read_checkpoints
from moldau.storage.files import Files, FolderLock
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.recovery import LoadTerms, load_log
from moldau.storage.rules.file_names import (
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    LOSS_FILE,
    FolderKind,
    find_partition_folder,
)
from moldau.storage.set_aside import AsideLog, find_aside, find_note
from moldau.storage.set_aside import size_bytes as folder_bytes

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTerms:
    """What a folder said about its logs when it was taken into use."""

    clean_shutdown: bool
    offsets: CheckpointedOffsets
    partition_folders: Mapping[TopicPartition, Path]
    aside: Sequence[AsideLog]
    """Out of service, and to be taken back when their topics are there again."""
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
    """Read what is beside the logs, remove what was deleted, and take the clean marker away."""
    partition_folders = {}
    strays = []
    for name in files.list_folder(folder):
        found = find_partition_folder(name)
        if found is None or found.partition.topic == CLUSTER_METADATA_TOPIC:
            continue
        if found.kind is FolderKind.DELETED:
            files.remove_folder(folder / name)
        elif found.kind is FolderKind.CURRENT:
            partition_folders[found.partition] = folder / name
        else:
            strays.append(folder / name)
    _report_strays(files, strays)
    marker = folder / CLEAN_SHUTDOWN_FILE
    clean_shutdown = files.exists(marker)
    if clean_shutdown:
        files.remove(marker)
        files.sync_folder(folder)
    return FolderTerms(
        clean_shutdown=clean_shutdown,
        offsets=read_checkpoints(files, folder),
        partition_folders=partition_folders,
        aside=find_aside(files, strays),
        may_have_lost=files.exists(folder / LOSS_FILE),
    )


def _report_strays(files: Files, folders: Sequence[Path]) -> None:
    """What is kept takes room, and only a person can say that nobody needs it."""
    for folder in folders:
        _log.warning(
            "%s (%d bytes) is kept and not served: its topic was not there any more, or is another "
            "one; remove the folder if nobody needs its records",
            folder,
            folder_bytes(files, folder),
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
        note = find_note(directory.files, folder)  # else the checkpoints know more
        load_terms = LoadTerms(
            clean_shutdown=terms.clean_shutdown,
            recovery_point=offsets.recovery_points.get(partition, 0),
            log_start_offset=max(
                offsets.log_start_offsets.get(partition, 0), note.log_start_offset if note else 0
            ),
            producer_expiration_ms=producer_expiration_ms,
            cleaned_offset=max(
                offsets.cleaned_offsets.get(partition, 0), note.cleaned_offset if note else 0
            ),
            high_watermark=offsets.high_watermarks.get(partition, 0),
            may_have_lost=terms.may_have_lost,
        )
        try:
            loaded.append(
                load_log(directory, folder, partition, options_of(partition.topic), load_terms)
            )
        except MoldauError as error:
            raise StartupError(f"the log in {folder} cannot be opened: {error}") from error


def write_clean_marker(files: Files, folder: Path, broker_epoch: int) -> None:
    """Promise the next start that there is nothing to recover."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.replace(folder / CLEAN_SHUTDOWN_FILE, content.encode())
