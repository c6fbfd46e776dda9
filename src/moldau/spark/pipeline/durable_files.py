"""Files that are there whole or not at all, also after a crash. A shell."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Put a file in place, or another in place of it."""
    temporary = _write_temporary(path, text)
    temporary.replace(path)
    sync_folder(path.parent)


def create_whole(path: Path, text: str) -> bool:
    """Put a file in place unless there is one; whether it was put there."""
    temporary = _write_temporary(path, text)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return True


def find_text(path: Path) -> str | None:
    """The content of a file, or None where there is none."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def is_there(path: Path) -> bool:
    """Whether a path exists; `OSError` when it cannot be known. From Python 3.14 on, `Path.exists`
    is False then."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    return True


def sync_files(paths: Iterable[Path]) -> None:
    """Have the disk take what others wrote."""
    for path in paths:
        _sync(path)


def sync_folder(path: Path) -> None:
    """Have the disk take names that were added to a folder or changed in it."""
    _sync(path)


def _write_temporary(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return temporary


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
