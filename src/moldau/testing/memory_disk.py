"""A disk in memory that knows what would survive a power loss.

Every file has two contents: what was written (the page cache, which all readers see) and what was
synced. Every folder likewise has its entries and its synced entries. Power loss keeps what was
synced, and of the rest whatever a random source likes, within what real file systems do:

- Data is lost, kept or torn by blocks and sectors, in any order; a file may have its new length
  while its new blocks are missing, and then they read as zeros.
- Changes of one folder (create, rename, remove) survive in their order, up to some point, and a
  change of two folders survives as a whole. Changes of different folders are unrelated.
- A synced file whose folder was not synced may be gone.

The model behind `MemoryFiles`; it knows neither paths nor errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

BLOCK_BYTES: Final = 4096
SECTOR_BYTES: Final = 512

Buffer = bytes | bytearray | memoryview


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

    def write(self, position: int, data: Buffer) -> None:
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
