"""`log-start-offset` in the folder of a log: where it begins, if that is inside its first segment.

Not Kafka's, which passes over it. Where DeleteRecords has moved the start of a log is only in
`log-start-offset-checkpoint` until whole segments can go; without that file, what was deleted is
there again, and so it is with Kafka. Here the log's own folder says it too, with a checksum, and is
believed when the checkpoint of its directory is missing or damaged; else that one knows more: it
may be newer, or a Kafka's. A codec and a tiny shell. It blocks: use it in a worker.
"""

from __future__ import annotations

import json
import logging
import zlib
from pathlib import Path

from moldau.storage.files import Files
from moldau.storage.rules.file_names import LOG_START_OFFSET_FILE

_log = logging.getLogger("moldau.storage")

_VERSION = 1


def write_log_start(files: Files, folder: Path, offset: int | None) -> None:
    """Note where a log begins; None where its segments tell."""
    path = folder / LOG_START_OFFSET_FILE
    if offset is None:
        files.remove(path)
    else:
        fields = {"version": _VERSION, "logStartOffset": offset, "crc": _crc_of(offset)}
        files.replace(path, json.dumps(fields, separators=(",", ":")).encode())


def read_log_start(files: Files, folder: Path) -> int:
    """0 where nothing is noted, or what is noted makes no sense."""
    path = folder / LOG_START_OFFSET_FILE
    if not files.exists(path):
        return 0
    try:
        fields = json.loads(files.read(path))
        offset = int(fields["logStartOffset"])
        if offset < 0 or fields["crc"] != _crc_of(offset):
            raise ValueError(f"it has {fields}")
    except (ValueError, TypeError, KeyError) as error:
        _log.warning("%s is passed over: %s", path, error)
        return 0
    return offset


def _crc_of(offset: int) -> int:
    return zlib.crc32(str(offset).encode())
