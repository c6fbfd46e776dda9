"""The files port, and the only module that opens files.

`RealFiles` is the machine's file system. `moldau.testing.MemoryFiles` is the other implementation:
it fails on request and loses on a crash what was not synced. One contract suite tests both.

Kept deliberately out of the contract: seeking (every read and write names its position), text,
memory maps. What fails raises `OSError`, as the system calls do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from moldau.storage.write_back import STEP_BYTES, write_back

Buffer = bytes | bytearray | memoryview

SCARCITY = frozenset({errno.EMFILE, errno.ENFILE})
"""The process or the machine has too many files open: no fault of the disk's."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""A disk is full. What is written beside the logs can be given up, and they go on."""


class FailedSyncError(OSError):
    """A file could not be brought to the disk.

    What was on its way is lost then, whatever a later sync says: Linux takes those pages for
    clean. Readers see them until the memory is needed for something else.
    """


_MOST_OPEN_FILES = 10_000
_OWNER_ONLY = 0o700
"""Records are for who runs the broker; a folder that is there already keeps its mode."""

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
"""macOS only: fsync alone leaves data in the drive's cache there, and there is no fdatasync."""


def open_file_budget() -> int:
    """How many files the logs may keep open: half of what the process may, sockets need theirs."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN_FILES if soft_limit < 0 else min(_MOST_OPEN_FILES, soft_limit // 2)


class File(Protocol):
    """An open file. It is closed by `close` or when its last reference goes."""

    @property
    def descriptor(self) -> int | None:
        """What the kernel calls it, for `sendfile`; None where there is no kernel."""
        ...

    def size(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """At most `length` bytes; fewer only at the end of the file."""
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of it, or raise; what a failed write left behind is undefined."""
        ...

    def truncate(self, size: int) -> None: ...

    def write_back(self, end: int) -> None:
        """Have the disk take what lies before `end`, step by step, so that a sync has little left
        to do. Nothing is durable by that. Blocks: call it in a worker."""
        ...

    def sync(self) -> None:
        """Return when the content would survive a power loss. Blocks: call it in a worker."""
        ...

    def close(self) -> None: ...


class FolderLock(Protocol):
    """Held until released, or until the process ends in whatever way."""

    def release(self) -> None: ...


class Files(Protocol):
    """A file system."""

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes the file when it is absent."""
        ...

    def exists(self, path: Path) -> bool:
        """`OSError` when it cannot be known: what is on a failed disk is not absent."""
        ...

    def size(self, path: Path) -> int:
        """Bytes in a file, without opening it; `FileNotFoundError` when it is absent."""
        ...

    def identify(self, path: Path) -> str:
        """Tells a file from its copies, also when those have its name in another folder."""
        ...

    def list_folder(self, path: Path) -> Sequence[str]:
        """The names in a folder, sorted."""
        ...

    def make_folder(self, path: Path) -> None:
        """Make it and its parents; no error when it exists."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Atomic; an existing target file is replaced."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, which must be free: both are the same bytes from then on."""
        ...

    def link_count(self, path: Path) -> int:
        """How many names a file has; `FileNotFoundError` when it is absent."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; no error when it is absent."""
        ...

    def remove_folder(self, path: Path) -> None:
        """Remove a folder and all in it; no error when it is absent."""
        ...

    def modified_ms(self, path: Path) -> int:
        """When the file was last written, in milliseconds since 1970."""
        ...

    def read(self, path: Path) -> bytes: ...

    def replace(self, path: Path, data: bytes) -> None:
        """Put a whole file in place: after a crash it has the old or the new content. Blocks."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Return when renames and removals in it would survive a power loss. Blocks."""
        ...

    def lock(self, path: Path) -> FolderLock | None:
        """Take the lock file for this process, or None when another one holds it."""
        ...

    def capacity_bytes(self, path: Path) -> tuple[int, int]:
        """Total and usable bytes of the volume."""
        ...


class FileSlice(NamedTuple):
    """A range of an open file, handed to the network so that the kernel can move the bytes.

    It keeps the file open, so a segment that is deleted meanwhile is still served to its end.
    A named tuple because one is made for each partition of each fetch.
    """

    file: File
    position: int
    length: int

    @property
    def descriptor(self) -> int | None:
        return self.file.descriptor

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.length)


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_descriptor", "_written_back")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor  # -1 once closed
        self._written_back = 0  # how far the disk has had its bytes; those may have changed since

    @property
    def descriptor(self) -> int | None:
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read_at(self, position: int, length: int) -> bytes:
        first = os.pread(self._descriptor, length, position)
        if len(first) == length or not first:
            return first
        parts = [first]
        missing = length - len(first)
        while missing:
            part = os.pread(self._descriptor, missing, position + length - missing)
            if not part:
                break
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def write_at(self, position: int, data: Buffer) -> None:
        written = os.pwrite(self._descriptor, data, position)
        if written == len(data):
            return
        rest = memoryview(data)[written:]
        while rest:
            written = os.pwrite(self._descriptor, rest, position + len(data) - len(rest))
            if not written:
                raise OSError(errno.EIO, "the file takes no more bytes")
            rest = rest[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def write_back(self, end: int) -> None:
        self._require_open()
        while self._written_back < end:
            length = min(end - self._written_back, STEP_BYTES)
            write_back(self._descriptor, self._written_back, length)
            self._written_back += length

    def _require_open(self) -> None:
        if self._descriptor < 0:  # some calls raise ValueError, and no OSError, for it
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    def sync(self) -> None:
        self._require_open()
        size = self.size()
        if size - self._written_back > STEP_BYTES:
            self.write_back(size)
        self._written_back = size
        if _FULL_SYNC is None:
            os.fdatasync(self._descriptor)
            return
        try:
            fcntl.fcntl(self._descriptor, _FULL_SYNC)
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EINVAL):
                raise
            os.fsync(self._descriptor)  # network and FUSE volumes know no full sync

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


class RealFolderLock:
    """An flock on an open file: the kernel drops it when the process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealFiles:
    """The machine's file system."""

    def open(self, path: Path, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(path, flags, 0o644))

    def exists(self, path: Path) -> bool:
        try:
            os.stat(path)  # noqa: PTH116 Path.exists hides EIO and EACCES from Python 3.14 on
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def size(self, path: Path) -> int:
        return os.stat(path).st_size  # noqa: PTH116 a third of the cost of Path.stat

    def identify(self, path: Path) -> str:
        found = path.stat()
        return f"{found.st_dev:x}:{found.st_ino:x}"

    def list_folder(self, path: Path) -> Sequence[str]:
        return sorted(os.listdir(path))  # noqa: PTH208 names are wanted, not paths

    def make_folder(self, path: Path) -> None:
        path.mkdir(mode=_OWNER_ONLY, parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        target.hardlink_to(source)

    def link_count(self, path: Path) -> int:
        return path.stat().st_nlink

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Somebody may have put the folder elsewhere, with a link in its place, or be removing it
        as well: neither is a failure of the disk."""
        import shutil  # brings three compressors, and many brokers delete nothing

        folder = path.resolve()
        while self.exists(folder):
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder)
        if path.is_symlink():
            path.unlink(missing_ok=True)

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write_at(0, data)
            file.sync()
        finally:
            file.close()
        temporary.replace(path)
        self.sync_folder(path.parent)

    def sync_folder(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path) -> RealFolderLock | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise  # a file system without locks
        return RealFolderLock(descriptor)

    def capacity_bytes(self, path: Path) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
