"""What a broker notes in each of its data folders about its presence in the cluster.

    {"version":1,"session_id":72057594037927936,"boot_id":"0f1c…"}

`session_id` is that of its last session with the coordination store: a registration that this
session left behind is the broker's own and may be deleted. `boot_id` is that of the machine when
all that its logs had lost was told to the cluster: with another one, a log that was not closed may
have lost its end. A codec and a tiny shell; it blocks, so it is used in a worker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from moldau.storage.files import Files

FILE_NAME = "presence.json"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceNote:
    """See the module."""

    session_id: int
    boot_id: str


def write_presence_note(files: Files, folder: Path, note: PresenceNote) -> None:
    """Blocks until it is on disk."""
    fields = {"version": VERSION, "session_id": note.session_id, "boot_id": note.boot_id}
    files.replace(folder / FILE_NAME, json.dumps(fields, separators=(",", ":")).encode())


def find_presence_note(files: Files, folder: Path) -> PresenceNote | None:
    """None where there is none that can be read: then nothing is known."""
    path = folder / FILE_NAME
    if not files.exists(path):
        return None
    try:
        fields: object = json.loads(files.read(path))
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    session_id, boot_id = fields.get("session_id"), fields.get("boot_id")
    if type(session_id) is not int or not isinstance(boot_id, str):
        return None
    return PresenceNote(session_id=session_id, boot_id=boot_id)
