"""Logs that were set aside: out of service, kept, and found again by their topic's id.

A log gives way when a topic of the same name, under another id, needs its folder, and nobody asked
for its deletion (DEL-1). Its folder is renamed as Kafka names strays, `clicks-0.<32 digits>-stray`,
and gets a note in it with what the checkpoints of the directory knew of the log: they are for logs
in service. A folder without a note was set aside by somebody else and is left alone.

A codec and a tiny shell. It blocks: run it in a worker.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from moldau.errors import DamagedFileError
from moldau.model import TopicId
from moldau.storage.files import Files
from moldau.storage.partition_metadata import read_partition_metadata
from moldau.storage.rules.file_names import PARTITION_METADATA_FILE, find_partition_folder

_log = logging.getLogger(__name__)

NOTE_FILE = "set-aside.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideNote:
    """What was known of a log when it was set aside. It was flushed to its end then."""

    log_start_offset: int
    log_end_offset: int
    cleaned_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AsideLog:
    """A log that can be taken back."""

    folder: Path
    topic_id: TopicId
    partition: int  # of the topic; its name may be cut short in the folder's
    note: AsideNote


def write_note(files: Files, folder: Path, note: AsideNote) -> None:
    content = json.dumps({"version": 1, **asdict(note)}, separators=(",", ":"))
    files.replace(folder / NOTE_FILE, content.encode())


def find_aside(files: Files, folders: Iterable[Path]) -> list[AsideLog]:
    """Those of these folders that can be taken back."""
    found = []
    for folder in folders:
        try:
            one = _read(files, folder)
        except (DamagedFileError, ValueError, TypeError) as error:
            _log.warning("%s cannot be taken back by itself: %s", folder, error)
        else:
            if one is not None:
                found.append(one)
    return found


def _read(files: Files, folder: Path) -> AsideLog | None:
    named = find_partition_folder(folder.name)
    topic_id = read_partition_metadata(files, folder / PARTITION_METADATA_FILE)
    if named is None or topic_id is None or not files.exists(folder / NOTE_FILE):
        return None
    note = _decode_note(files.read(folder / NOTE_FILE))
    return AsideLog(
        folder=folder, topic_id=topic_id, partition=named.partition.partition, note=note
    )


def find_note(files: Files, folder: Path) -> AsideNote | None:
    """The note in a folder that is in its place again: its process ended before it was removed."""
    if not files.exists(folder / NOTE_FILE):
        return None
    try:
        return _decode_note(files.read(folder / NOTE_FILE))
    except (ValueError, TypeError):
        return None


def _decode_note(data: bytes) -> AsideNote:
    fields = json.loads(data)
    fields.pop("version", None)
    return AsideNote(**{name: int(value) for name, value in fields.items()})


def remove_note(files: Files, folder: Path) -> None:
    files.remove(folder / NOTE_FILE)


def size_bytes(files: Files, folder: Path) -> int:
    """Of all files in a folder, for telling how much is kept."""
    return sum(files.size(folder / name) for name in files.list_folder(folder))
