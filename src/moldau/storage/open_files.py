"""A bounded number of open log files, shared by all segments of a store.

A segment's log is opened when it is first read or written and stays open while it is in use. When
too many are open, one that nobody has used for a while is let go (the clock algorithm: a segment
in use only sets a flag, so the hot path pays one attribute). Letting go drops a reference; slices
that are being sent keep theirs, and the file closes with the last of them.

A shell. Any thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from pathlib import Path
from typing import Protocol

from moldau.storage.files import SCARCITY, File, Files


class FileHolder(Protocol):
    """Has at most one open file."""

    file: File | None
    recently_used: bool


class OpenFiles:
    """Opens files for their holders and takes the idle ones back."""

    def __init__(self, files: Files, limit: int = 2000) -> None:
        self.files = files
        self._limit = limit
        self._holders: deque[FileHolder] = deque()  # each has a file; the next to be judged first
        self._changing = threading.Lock()

    def __len__(self) -> int:
        return len(self._holders)

    def open(self, holder: FileHolder, path: Path) -> File:
        """The holder's file, opened if it is not."""
        with self._changing:
            file = holder.file
            if file is None:
                self._make_room(self._limit - 1)
                file = self._open(path)
                holder.file = file
                self._holders.append(holder)
            holder.recently_used = True
            return file

    def let_go(self, holder: FileHolder) -> None:
        """Forget the holder's file now."""
        with self._changing:
            if holder.file is not None:
                holder.file = None
                self._holders.remove(holder)

    def require_room(self, path: Path, count: int) -> None:
        """Raise OSError unless so many files more can be open at once. `path` is one that exists.

        For what cannot be undone once it has begun, and opens files on its way.
        """
        with self._changing, contextlib.ExitStack() as opened:
            for _ in range(count):
                opened.callback(self._open(path).close)

    def _open(self, path: Path) -> File:
        try:
            return self.files.open(path)
        except OSError as error:
            if error.errno not in SCARCITY:
                raise
        self._make_room(len(self._holders) // 2)  # sockets have taken more than their share
        return self.files.open(path)

    def _make_room(self, kept: int) -> None:
        while len(self._holders) > max(0, kept):
            holder = self._holders.popleft()
            if holder.recently_used:
                holder.recently_used = False
                self._holders.append(holder)
            else:
                holder.file = None
