"""A file system in memory that fails on request and crashes on request.

Implements `moldau.storage.files.Files`. Where the real one asks the kernel, this one asks a
`Disk`, which keeps apart what was written and what was synced:

    files = MemoryFiles(clock)
    ...                                    # run the code under test on it
    files.crash_process()                  # kill -9: what was written stays
    files.lose_power(Random(seed))         # what was not synced may be gone, or torn
    files.fail_next("sync", errno.EIO, path_matching="*.log")
    files.set_capacity(10_000)             # the disk is full after so many bytes

Files opened before a crash raise `OSError` after it, and locks are free again. It may be used from
several threads, since syncs run in workers. Slow disks are not modelled.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import RLock
from typing import Final, Literal, NamedTuple

from moldau.clock import Clock
from moldau.storage.files import Buffer
from moldau.testing.manual_clock import ManualClock
from moldau.testing.memory_disk import Content, Disk, DiskChange, Folder, Node
from moldau.testing.seeded_faults import Fault, FaultTable

FileOperation = Literal[
    "*",
    "open",
    "read",
    "write",
    "truncate",
    "sync",
    "list_folder",
    "make_folder",
    "rename",
    "link",
    "remove",
    "sync_folder",
    "lock",
]

_LARGE_DISK_BYTES: Final = 1 << 40


class DiskFault(NamedTuple):
    """How an operation fails."""

    error: int  # an errno
    kept_bytes: int  # of a write: how much of it is there nevertheless


class MemoryFile:
    """An open file of `MemoryFiles`."""

    __slots__ = ("_content", "_files", "_path", "_process")

    def __init__(self, files: MemoryFiles, path: Path, content: Content, process: int) -> None:
        self._files = files
        self._path = path  # by which it was opened, for faults
        self._content: Content | None = content  # None once closed
        self._process = process

    @property
    def descriptor(self) -> int | None:
        return None

    def size(self) -> int:
        return len(self._require())

    def read_at(self, position: int, length: int) -> bytes:
        with self._files.guard:
            content = self._require()
            self._files.meet("read", self._path)
            return content.read(position, length)

    def write_at(self, position: int, data: Buffer) -> None:
        with self._files.guard:
            content = self._require()
            fault = self._files.find_write_fault(self._path, content, position, len(data))
            if fault is not None:
                data = memoryview(data)[: fault.kept_bytes]
            content.write(position, data)
            content.modified_ms = self._files.now_ms()
            if fault is not None:
                raise _error(fault.error, self._path)

    def truncate(self, size: int) -> None:
        with self._files.guard:
            content = self._require()
            self._files.meet("truncate", self._path)
            content.truncate(size)
            content.modified_ms = self._files.now_ms()

    def write_back(self, end: int) -> None:
        """Nothing that a crash would not undo."""
        self._require()

    def sync(self) -> None:
        with self._files.guard:
            content = self._require()
            try:
                self._files.meet("sync", self._path)
            except OSError:
                content.fail_sync()
                raise
            content.sync()

    def close(self) -> None:
        with self._files.guard:
            if self._content is not None:
                self._content = None
                self._files.forget_open_file(self._process)

    def _require(self) -> Content:
        if self._content is None or self._process != self._files.process:
            raise _error(errno.EBADF, self._path)
        return self._content

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # not fully made
            self.close()


class MemoryFolderLock:
    """A lock of `MemoryFiles`."""

    def __init__(self, files: MemoryFiles, content: Content) -> None:
        self._files = files
        self._content = content

    def release(self) -> None:
        self._files.unlock(self._content, self)


class MemoryFiles:
    """A file system of one machine, used by one process at a time."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        capacity_bytes: int | None = None,
        random: Random | None = None,
    ) -> None:
        """`random` decides faults that have a chance; the default clock stands still."""
        self._clock = clock or ManualClock()
        self._disk = Disk()
        self._capacity_bytes = capacity_bytes  # None: room for everything
        self._faults: FaultTable[DiskFault] = FaultTable(random)
        self._locks: dict[int, MemoryFolderLock] = {}  # by the identity of the locked content
        self.guard = RLock()
        self.process = 0  # counts the crashes; handles belong to one process
        self.open_files = 0  # handles of this process that were not closed: a way to find leaks

    # The port

    def open(self, path: Path, *, create: bool = False) -> MemoryFile:
        with self.guard:
            self.meet("open", path)
            content = self._open_content(path, create)
            self.open_files += 1
            return MemoryFile(self, path, content, self.process)

    def _open_content(self, path: Path, create: bool) -> Content:
        node = self._find(path)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            node = Content(self.now_ms())
            self._disk.change(DiskChange(self._require_folder(path.parent), path.name, node))
        if isinstance(node, Folder):
            raise _error(errno.EISDIR, path)
        return node

    def exists(self, path: Path) -> bool:
        with self.guard:
            try:
                return self._find(path) is not None
            except NotADirectoryError:
                return False

    def size(self, path: Path) -> int:
        with self.guard:
            return len(self._require_content(path))

    def identify(self, path: Path) -> str:
        with self.guard:
            self._require_content(path)
            return str(path)  # a copy on the same disk is elsewhere

    def list_folder(self, path: Path) -> Sequence[str]:
        with self.guard:
            self.meet("list_folder", path)
            return sorted(self._require_folder(path).entries)

    def make_folder(self, path: Path) -> None:
        with self.guard:
            self.meet("make_folder", path)
            if isinstance(self._find(path), Content):
                raise _error(errno.EEXIST, path)
            folder = self._disk.root
            for name in _names(path):
                folder = self._folder_inside(folder, name)

    def _folder_inside(self, folder: Folder, name: str) -> Folder:
        found = folder.entries.get(name)
        if isinstance(found, Folder):
            return found
        made = Folder()
        self._disk.change(DiskChange(folder, name, made))
        return made

    def rename(self, source: Path, target: Path) -> None:
        with self.guard:
            self.meet("rename", source)
            node = self._require(source)
            old_folder, new_folder = map(self._require_folder, (source.parent, target.parent))
            replaced = new_folder.entries.get(target.name)
            if replaced is node:
                return
            if isinstance(node, Folder) and source in target.parents:
                raise _error(errno.EINVAL, target)
            _check_replaceable(node, replaced, target)
            self._disk.change(
                DiskChange(old_folder, source.name, None), DiskChange(new_folder, target.name, node)
            )

    def link(self, source: Path, target: Path) -> None:
        with self.guard:
            self.meet("link", target)
            content = self._require_content(source)
            folder = self._require_folder(target.parent)
            if target.name in folder.entries:
                raise _error(errno.EEXIST, target)
            self._disk.change(DiskChange(folder, target.name, content))

    def link_count(self, path: Path) -> int:
        with self.guard:
            return self._disk.count_names(self._require_content(path))

    def remove(self, path: Path) -> None:
        with self.guard:
            self.meet("remove", path)
            node = self._find(path)
            if isinstance(node, Folder):
                raise _error(errno.EISDIR, path)
            if node is not None:
                self._disk.change(DiskChange(self._require_folder(path.parent), path.name, None))

    def remove_folder(self, path: Path) -> None:
        with self.guard:
            node = self._find(path)
            if node is None:
                return
            if isinstance(node, Content):
                raise _error(errno.ENOTDIR, path)
            for name, child in sorted(node.entries.items()):
                if isinstance(child, Folder):
                    self.remove_folder(path / name)
                else:
                    self.remove(path / name)
            self.meet("remove", path)
            self._disk.change(DiskChange(self._require_folder(path.parent), path.name, None))

    def modified_ms(self, path: Path) -> int:
        with self.guard:
            return self._require_content(path).modified_ms

    def read(self, path: Path) -> bytes:
        with self.guard:
            self.meet("open", path)
            self.meet("read", path)
            content = self._require_content(path)
            return content.read(0, len(content))

    def replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write_at(0, data)
            file.sync()
        finally:
            file.close()
        self.rename(temporary, path)
        self.sync_folder(path.parent)

    def sync_folder(self, path: Path) -> None:
        with self.guard:
            self.meet("sync_folder", path)
            self._disk.sync_folder(self._require_folder(path))

    def lock(self, path: Path) -> MemoryFolderLock | None:
        with self.guard:
            self.meet("lock", path)
            content = self._open_content(path, create=True)
            if id(content) in self._locks:
                return None
            lock = self._locks[id(content)] = MemoryFolderLock(self, content)
            return lock

    def capacity_bytes(self, path: Path) -> tuple[int, int]:
        with self.guard:
            self._require(path)
            total = _LARGE_DISK_BYTES if self._capacity_bytes is None else self._capacity_bytes
            return total, max(0, total - self.used_bytes())

    # Faults

    def crash_process(self) -> None:
        """Kill the process: its open files and locks are gone; what it wrote is there."""
        with self.guard:
            self.process += 1
            self.open_files = 0
            self._locks.clear()

    def lose_power(self, random: Random | None = None) -> None:
        """Switch the machine off and on: what was not synced is gone.

        With a random source part of it survives, possibly torn; see `memory_disk` for what can
        happen. The same source and the same history give the same disk.
        """
        with self.guard:
            self.crash_process()
            self._disk.lose_power(random)

    def sync_everything(self) -> None:
        """Make all that is there durable, as if it had been there for a long time."""
        with self.guard:
            self._disk.sync_everything()

    def set_capacity(self, capacity_bytes: int | None) -> None:
        """Writes that would need more raise ENOSPC, after writing the part that has room.

        None takes the limit away.
        """
        self._capacity_bytes = capacity_bytes

    def peek(self, path: Path) -> bytes | None:
        """What a file holds, or None; no fault is met. For tests that look from outside."""
        with self.guard:
            node = self._find(path)
            return node.read(0, len(node)) if isinstance(node, Content) else None

    def peek_folder(self, path: Path) -> Sequence[str]:
        """The names in a folder, if it is there; no fault is met."""
        with self.guard:
            node = self._find(path)
            return sorted(node.entries) if isinstance(node, Folder) else ()

    def used_bytes(self) -> int:
        """The sizes of all files that have a name."""
        with self.guard:
            return sum(map(len, self._disk.contents()))

    def fail_next(
        self,
        operation: FileOperation,
        error: int = errno.EIO,
        *,
        path_matching: str = "*",
        skip: int = 0,
        count: int | None = 1,
        chance: float = 1.0,
        kept_bytes: int = 0,
    ) -> Fault[DiskFault]:
        """Let the next `count` operations (None: all) on paths matching a shell pattern fail.

        The first `skip` of them pass, and the others fail with this `chance`. A failing write
        leaves its first `kept_bytes` in the file: a torn write. After a failed sync, what it
        should have made durable never becomes so (as on Linux), though readers still see it.
        """
        return self._faults.add(
            operation,
            DiskFault(error, kept_bytes),
            matching=path_matching,
            skip=skip,
            count=count,
            chance=chance,
        )

    def clear_faults(self) -> None:
        self._faults.clear()

    # For its open files and locks

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def meet(self, operation: FileOperation, path: Path) -> None:
        """Raise what this operation was told to raise."""
        fault = self._faults.find(operation, str(path))
        if fault is not None:
            raise _error(fault.error, path)

    def find_write_fault(
        self, path: Path, content: Content, position: int, length: int
    ) -> DiskFault | None:
        fault = self._faults.find("write", str(path))
        if fault is not None or self._capacity_bytes is None:
            return fault
        growth = position + length - len(content)
        if growth > 0:
            missing = self.used_bytes() + growth - self._capacity_bytes
            if missing > 0:
                return DiskFault(errno.ENOSPC, max(0, length - missing))
        return None

    def forget_open_file(self, process: int) -> None:
        if process == self.process:
            self.open_files -= 1

    def unlock(self, content: Content, lock: MemoryFolderLock) -> None:
        with self.guard:
            if self._locks.get(id(content)) is lock:
                del self._locks[id(content)]

    # Paths

    def _find(self, path: Path) -> Node | None:
        node: Node = self._disk.root
        for name in _names(path):
            if isinstance(node, Content):
                raise _error(errno.ENOTDIR, path)
            found = node.entries.get(name)
            if found is None:
                return None
            node = found
        return node

    def _require(self, path: Path) -> Node:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _require_content(self, path: Path) -> Content:
        node = self._require(path)
        if isinstance(node, Folder):
            raise _error(errno.EISDIR, path)
        return node

    def _require_folder(self, path: Path) -> Folder:
        node = self._require(path)
        if isinstance(node, Content):
            raise _error(errno.ENOTDIR, path)
        return node


def _names(path: Path) -> tuple[str, ...]:
    """The way from the root, which is always there: `/` is no name in it."""
    return path.parts[1:] if path.anchor else path.parts


def _check_replaceable(node: Node, replaced: Node | None, target: Path) -> None:
    """What rename(2) refuses."""
    if isinstance(replaced, Folder):
        if isinstance(node, Content):
            raise _error(errno.EISDIR, target)
        if replaced.entries:
            raise _error(errno.ENOTEMPTY, target)
    elif isinstance(replaced, Content) and isinstance(node, Folder):
        raise _error(errno.ENOTDIR, target)


def _error(code: int, path: Path) -> OSError:
    """The subclass that belongs to the code, as the system calls raise it."""
    return OSError(code, os.strerror(code), str(path))
