"""`compaction-offsets` in the folder of a log: how far its records depend on others behind them.

A round of compaction takes records away group by group, and the checkpoints of the directory hear
of it when it is over. A round that is cut short by a crash has taken some away all the same: a log
that is truncated later must know for the sake of which ones (REP-8), and one that leads which
tombstones it has dropped (REP-9). So a round says it here, durably, before the first record goes.

It may say too much: of a round that was given up, or of what was truncated since. Then a log is
copied that need not be. Not Kafka's, which passes over it. A codec and a tiny shell. It blocks: use
it in a worker.
"""

from __future__ import annotations

import json
import logging
import zlib
from pathlib import Path
from typing import NamedTuple

from moldau.storage.files import Files
from moldau.storage.rules.file_names import COMPACTION_OFFSETS_FILE

_log = logging.getLogger("moldau.storage.cleaner")

_VERSION = 1


class CompactionOffsets(NamedTuple):
    """See `Log.compared_offset` and `Log.dropped_offset`."""

    compared_offset: int = 0
    dropped_offset: int = 0


def write_compaction_offsets(files: Files, folder: Path, offsets: CompactionOffsets) -> None:
    fields = {
        "version": _VERSION,
        "comparedOffset": offsets.compared_offset,
        "droppedOffset": offsets.dropped_offset,
        "crc": _crc_of(offsets),
    }
    content = json.dumps(fields, separators=(",", ":"))
    files.replace(folder / COMPACTION_OFFSETS_FILE, content.encode())


def read_compaction_offsets(files: Files, folder: Path) -> CompactionOffsets:
    """Zeros where the file, which is there, makes no sense."""
    path = folder / COMPACTION_OFFSETS_FILE
    try:
        fields = json.loads(files.read(path))
        found = CompactionOffsets(int(fields["comparedOffset"]), int(fields["droppedOffset"]))
        if min(found) < 0 or fields["crc"] != _crc_of(found):
            raise ValueError(f"it has {fields}")
    except (ValueError, TypeError, KeyError) as error:
        _log.warning("%s is passed over: %s", path, error)
        return CompactionOffsets()
    return found


def _crc_of(offsets: CompactionOffsets) -> int:
    return zlib.crc32(f"{offsets.compared_offset} {offsets.dropped_offset}".encode())
