"""Files with two names: a topic and its branch share closed segments (`log_branch`).

Nothing writes into a closed segment in place: retention removes names, compaction writes new files.
Only a truncation, or a recovery that cuts damage off, makes a closed segment the last one again,
which is cut and appended to; it makes a file of its own first (BRA-1).

A shell. It blocks.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from moldau.storage.files import Files
from moldau.storage.rules.file_names import UNSHARED_SUFFIX

_CHUNK_BYTES: Final = 1 << 20


def link_or_copy(files: Files, source: Path, target: Path) -> int:
    """Give a file a second name, or copy it where the file system knows no links.

    Returns how many bytes were copied. `FileNotFoundError` when the source is absent.
    """
    try:
        files.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        return copy_file(files, source, target)
    return 0


def copy_file(files: Files, source: Path, target: Path, size_bytes: int | None = None) -> int:
    """Copy the first bytes of a file, or all of it, durably; returns how many they are."""
    with contextlib.closing(files.open(source)) as original:
        end = original.size() if size_bytes is None else min(size_bytes, original.size())
        with contextlib.closing(files.open(target, create=True)) as copy:
            copy.truncate(0)
            for position in range(0, end, _CHUNK_BYTES):
                chunk = original.read_at(position, min(_CHUNK_BYTES, end - position))
                copy.write_at(position, chunk)
            copy.sync()
    return end


def copy_shared(files: Files, path: Path, size_bytes: int | None = None) -> Path | None:
    """A copy of a file that has other names, too, of its first bytes or all of them.

    None when it has no other name. What a crash leaves is cleared away when the log is opened.
    The copy has a name that nobody else uses: a `.deleted` file may be shared as well.
    """
    try:
        if files.link_count(path) < 2:
            return None
    except FileNotFoundError:
        return None
    copy = path.with_name(path.name + UNSHARED_SUFFIX)
    try:
        copy_file(files, path, copy, size_bytes)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(copy)
        raise
    return copy


def unshare(files: Files, path: Path, size_bytes: int | None = None) -> bool:
    """Make a file that has other names, too, one of its own; False when it has none."""
    copy = copy_shared(files, path, size_bytes)
    if copy is not None:
        files.rename(copy, path)
    return copy is not None
