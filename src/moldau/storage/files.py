"""The files port, and the only module that opens files.

`RealFiles` is the machine's file system. `moldau.testing.MemoryFiles` is the other implementation:
it fails on request and loses on a crash what was not synced. One contract suite tests both.

Kept deliberately out of the contract: seeking (every read and write names its position), text,
memory maps. What fails raises `OSError`, as the system calls do.

`OpenFiles` bounds how many log files are open at once. The functions at the end are for files with
two names, which a topic shares with its branch.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from moldau.storage.rules.file_names import UNSHARED_SUFFIX

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


# A sync of a gigabyte that waits in memory hands the disk all of it at once, and whoever else needs
# the disk queues behind it. Handed over step by step, nobody waits for more than a step. Linux has
# `sync_file_range` for it, which touches no journal and no cache of the drive, so that it costs
# nothing else; nothing is durable before a sync, which comes afterwards all the same. Elsewhere
# nothing is done. A tiny shell.


STEP_BYTES: Final = 8 << 20
"""Enough to keep a disk busy; a few milliseconds of its time, or some tens of a slow one's."""

_WAIT_WRITE_AND_WAIT: Final = 1 | 2 | 4
_NOT_THE_DISK: Final = frozenset(
    {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.ESPIPE, errno.EOPNOTSUPP, errno.EINTR}
)
"""Not every file system, and not every sandbox, knows the call, or lets it through."""


def write_back(descriptor: int, position: int, length: int) -> None:
    """Wait until the disk has taken a range. Blocks: call it in a worker.

    Raises `OSError` where the disk has failed: the next sync would not tell of it any more.
    """
    call = _find_call()
    if call is None:
        return
    error = call(descriptor, position, length)
    if error and error not in _NOT_THE_DISK:
        raise OSError(error, os.strerror(error))


@cache
def _find_call() -> Callable[[int, int, int], int] | None:
    """Gives the number of an error, or 0."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes  # takes its time, and few segments are so large

        library = ctypes.CDLL(None, use_errno=True)
    except (ImportError, OSError):  # a Python that was built without it, or in one piece
        return None
    found = getattr(library, "sync_file_range", None)
    if found is None:
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

    def call(descriptor: int, position: int, length: int) -> int:
        return (
            ctypes.get_errno() if found(descriptor, position, length, _WAIT_WRITE_AND_WAIT) else 0
        )

    return call


# A segment's log is opened when it is first read or written and stays open while it is in use. When
# too many are open, one that nobody has used for a while is let go (the clock algorithm: a segment
# in use only sets a flag, so the hot path pays one attribute). Letting go drops a reference; slices
# that are being sent keep theirs, and the file closes with the last of them.
#
# A shell. Any thread.


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


# Nothing writes into a closed segment in place: retention removes names, compaction writes new
# files. Only a truncation, or a recovery that cuts damage off, makes a closed segment the last one
# again, which is cut and appended to; it makes a file of its own first (BRA-1).
#
# A shell. It blocks.


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
