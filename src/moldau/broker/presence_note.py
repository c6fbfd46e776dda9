"""What a broker notes in each of its data folders about its presence in the cluster.

    {"version":1,"session_id":72057594037927936,"boot_id":"0f1c…","lock":"803:2a41"}

`session_id` is that of its last session with the coordination store. `boot_id` is that of the
machine when all that its logs had lost was told to the cluster: with another one, a log that was
not closed may have lost its end. `lock` tells the folder's lock file from copies of it: who holds
the same one in the same boot of the machine knows that the process of that session is gone, and may
delete the registration that it left behind. In a copy of the folder nobody knows: the broker that
it was copied from may be at work. A codec and a tiny shell; it blocks, so it is used in a worker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from moldau.storage.files import Files
from moldau.storage.rules.file_names import LOCK_FILE

FILE_NAME = "presence.json"
VERSION = 1


class PresenceNote(NamedTuple):
    """See the module."""

    session_id: int
    boot_id: str
    is_of_this_folder: bool = True
    """And not of one that the folder was copied from."""

    def is_of_the_dead(self, boot_id: str) -> bool:
        """Whether its process is surely gone, for who holds the folder's lock in this boot."""
        return self.is_of_this_folder and boot_id != "" and boot_id == self.boot_id


def write_presence_note(files: Files, folder: Path, note: PresenceNote) -> None:
    """Blocks until it is on disk."""
    fields = {
        "version": VERSION,
        "session_id": note.session_id,
        "boot_id": note.boot_id,
        "lock": files.identify(folder / LOCK_FILE),
    }
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
    return PresenceNote(
        session_id=session_id,
        boot_id=boot_id,
        is_of_this_folder=fields.get("lock") == files.identify(folder / LOCK_FILE),
    )
