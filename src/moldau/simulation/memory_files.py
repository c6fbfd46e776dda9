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
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from threading import RLock
from typing import Final, Literal, NamedTuple

from moldau.clock import Clock
from moldau.simulation.fault_plan import Fault, FaultTable
from moldau.simulation.manual_clock import ManualClock
from moldau.storage.files import Buffer

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

        With a random source part of it survives, possibly torn; see `Disk` for what can
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


# A disk in memory that knows what would survive a power loss.
#
# Every file has two contents: what was written (the page cache, which all readers see) and what was
# synced. Every folder likewise has its entries and its synced entries. Power loss keeps what was
# synced, and of the rest whatever a random source likes, within what real file systems do:
#
# - Data is lost, kept or torn by blocks and sectors, in any order; a file may have its new length
#   while its new blocks are missing, and then they read as zeros.
# - Changes of one folder (create, rename, remove) survive in their order, up to some point, and a
#   change of two folders survives as a whole. Changes of different folders are unrelated.
# - A synced file whose folder was not synced may be gone.
#
# The model behind `MemoryFiles`; it knows neither paths nor errors.


BLOCK_BYTES: Final = 4096
SECTOR_BYTES: Final = 512

_Written = bytes | bytearray | memoryview


class Content:
    """The bytes of one file, whatever its name."""

    __slots__ = ("_dirty", "_synced", "_written", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.modified_ms = modified_ms
        self._written = bytearray()
        self._synced = bytearray()
        self._dirty: set[int] = set()  # numbers of the blocks written since the last sync

    def __len__(self) -> int:
        return len(self._written)

    def read(self, position: int, length: int) -> bytes:
        return bytes(self._written[position : position + length])

    def write(self, position: int, data: _Written) -> None:
        if not len(data):
            return
        if position > len(self._written):
            self._written.extend(bytes(position - len(self._written)))
        self._written[position : position + len(data)] = data
        self._touch(position, position + len(data))

    def truncate(self, size: int) -> None:
        old_size = len(self._written)
        _fit(self._written, size)
        self._touch(min(size, old_size), max(size, old_size))

    def _touch(self, start: int, end: int) -> None:
        self._dirty.update(range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)))

    def sync(self) -> None:
        _fit(self._synced, len(self._written))
        for block in self._dirty:
            self._carry_over(self._synced, block, BLOCK_BYTES)
        self._dirty.clear()

    def fail_sync(self) -> None:
        """As Linux does: what could not be written is forgotten, and the next sync succeeds."""
        self._dirty.clear()

    def lose_power(self, random: Random | None) -> None:
        """Keep what was synced; of the rest nothing, or what the random source likes."""
        if random is not None and (self._dirty or len(self._synced) != len(self._written)):
            self._sync_some(random)
        self._written = bytearray(self._synced)
        self._dirty.clear()

    def _sync_some(self, random: Random) -> None:
        _fit(self._synced, _size_between(len(self._synced), len(self._written), random))
        for block, kept_bytes in _choose_survivors(sorted(self._dirty), random):
            self._carry_over(self._synced, block, kept_bytes)

    def _carry_over(self, target: bytearray, block: int, kept_bytes: int) -> None:
        """Copy the beginning of one block of the written content, as far as the target goes."""
        start = block * BLOCK_BYTES
        end = min(start + kept_bytes, len(target), len(self._written))
        if start < end:
            target[start:end] = self._written[start:end]


def _fit(content: bytearray, size: int) -> None:
    """Cut or fill with zeros."""
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _size_between(synced: int, written: int, random: Random) -> int:
    """A file that shrank has its old or its new length; one that grew, any in between."""
    sizes = [synced, written]
    if synced < written:
        sizes.append(random.randint(synced, written))
    return random.choice(sizes)


def _choose_survivors(blocks: list[int], random: Random) -> Iterator[tuple[int, int]]:
    """Which blocks reached the disk, and how many bytes of each."""
    fate = random.choice(("none", "all", "first ones", "some"))
    if fate == "none":
        return
    if fate == "first ones":
        blocks = blocks[: random.randint(0, len(blocks))]
    for number, block in enumerate(blocks, 1):
        if fate == "some" and random.random() < 0.5:
            continue
        may_tear = fate == "some" or (fate == "first ones" and number == len(blocks))
        torn = may_tear and random.random() < 0.5
        yield block, random.randrange(0, BLOCK_BYTES, SECTOR_BYTES) if torn else BLOCK_BYTES


class Folder:
    """Names of files and folders."""

    __slots__ = ("entries", "synced_entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.synced_entries: dict[str, Node] = {}


Node = Content | Folder


class DiskChange(NamedTuple):
    """A name in a folder gets another meaning, or none."""

    folder: Folder
    name: str
    node: Node | None


class Disk:
    """A tree of folders, and the changes of it that were not synced yet."""

    def __init__(self) -> None:
        self.root = Folder()
        # In the order in which they happened; the changes of one tuple are one atomic step.
        self._unsynced: list[tuple[DiskChange, ...]] = []

    def change(self, *changes: DiskChange) -> None:
        """Make these changes as one step."""
        for change in changes:
            _apply(change, change.folder.entries)
        self._unsynced.append(changes)

    def sync_folder(self, folder: Folder) -> None:
        """Make the folder's changes durable, and those of others that have to come before them."""
        folders = {id(folder)}
        kept: list[tuple[DiskChange, ...]] = []
        durable: list[tuple[DiskChange, ...]] = []
        for step in reversed(self._unsynced):
            if any(id(change.folder) in folders for change in step):
                folders.update(id(change.folder) for change in step)
                durable.append(step)
            else:
                kept.append(step)
        self._unsynced = kept[::-1]
        for step in reversed(durable):
            _sync_step(step)

    def sync_everything(self) -> None:
        for step in self._unsynced:
            _sync_step(step)
        self._unsynced.clear()
        for content in self.contents():
            content.sync()

    def contents(self) -> Iterator[Content]:
        """Every file that has a name, once, in the order of the names."""
        seen: set[int] = set()
        for folder in _walk(self.root):
            for _, node in sorted(folder.entries.items()):
                if isinstance(node, Content) and id(node) not in seen:
                    seen.add(id(node))
                    yield node

    def count_names(self, content: Content) -> int:
        """How many names a file has."""
        folders = _walk(self.root)
        return sum(node is content for folder in folders for node in folder.entries.values())

    def lose_power(self, random: Random | None) -> None:
        if random is not None:
            self._sync_some_changes(random)
        self._unsynced.clear()
        self._forget_unsynced_entries(self.root)
        for content in self.contents():
            content.lose_power(random)

    def _sync_some_changes(self, random: Random) -> None:
        chance_to_survive = random.random()
        cut: set[int] = set()  # folders of which no later change survives
        for step in self._unsynced:
            folders = {id(change.folder) for change in step}
            if folders & cut or random.random() >= chance_to_survive:
                cut |= folders
            else:
                _sync_step(step)

    def _forget_unsynced_entries(self, folder: Folder) -> None:
        folder.entries = dict(folder.synced_entries)
        for node in folder.entries.values():
            if isinstance(node, Folder):
                self._forget_unsynced_entries(node)


def _walk(folder: Folder) -> Iterator[Folder]:
    yield folder
    for _, node in sorted(folder.entries.items()):
        if isinstance(node, Folder):
            yield from _walk(node)


def _sync_step(step: tuple[DiskChange, ...]) -> None:
    for change in step:
        _apply(change, change.folder.synced_entries)


def _apply(change: DiskChange, entries: dict[str, Node]) -> None:
    if change.node is None:
        entries.pop(change.name, None)
    else:
        entries[change.name] = change.node
