"""A note in the folder of a log: what the checkpoints of its directory do not know of it.

Checkpoints are for logs in service. A log that was set aside, that has just been moved to another
directory, or that was made of another one's files comes with a note; it goes when the checkpoints
say the same. A start that finds one believes it.

A codec, and `drop_note`. The others block: run them in a worker.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from moldau.storage.files import Files
from moldau.storage.log_directory import LogDirectory

NOTE_FILE = "set-aside.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNote:
    """What is known of a log that was flushed to its end."""

    log_start_offset: int
    log_end_offset: int
    cleaned_offset: int
    high_watermark: int


def write_note(files: Files, folder: Path, note: LogNote) -> None:
    content = json.dumps({"version": 1, **asdict(note)}, separators=(",", ":"))
    files.replace(folder / NOTE_FILE, content.encode())


def find_note(files: Files, folder: Path) -> LogNote | None:
    """The note in a folder; None also when it makes no sense."""
    try:
        return read_note(files, folder)
    except (ValueError, TypeError):
        return None


def read_note(files: Files, folder: Path) -> LogNote | None:
    """As `find_note`. Raises `ValueError` or `TypeError` when it makes no sense."""
    if not files.exists(folder / NOTE_FILE):
        return None
    fields = json.loads(files.read(folder / NOTE_FILE))
    fields.pop("version", None)
    return LogNote(**{name: int(value) for name, value in fields.items()})


def remove_note(files: Files, folder: Path) -> None:
    """It must not come back with a power loss, when another folder may have one (MOV-3)."""
    files.remove(folder / NOTE_FILE)
    files.sync_folder(folder)


async def drop_note(directory: LogDirectory, folder: Path) -> None:
    """The checkpoints say what it does."""
    try:
        await directory.workers.run(lambda: remove_note(directory.files, folder))
    except OSError as error:
        raise directory.judge(error) from error
