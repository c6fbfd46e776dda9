"""The tree of nodes and what a transaction makes of it: ZooKeeper's semantics. A rule.

A `Tree` is what is known to be stored. A `Draft` lies on top of a tree, or of another draft, and
holds what has changed: a transaction is carried out on a draft of its own, which is merged when all
of its operations were possible and dropped when one was not. Nothing is applied to the tree before
it has been written; writing is the store's work.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar

from moldau.coordination.port import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
)

K = TypeVar("K")
V = TypeVar("V")

ROOT = "/"


class Entry(NamedTuple):
    """A node and what is known of its children."""

    node: Node
    children_made: int = 0  # in all its time, so that a sequential name never comes twice
    child_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureParents:
    """Make every missing node above the path."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTree:
    """Delete the node and all below it, if it is there."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSession:
    """Delete the ephemeral nodes of a session."""

    session_id: int


class Change(NamedTuple):
    """What became of a path; None where there was or is no node."""

    path: str
    before: Entry | None
    after: Entry | None


TreeOperation = Operation | EnsureParents | DeleteTree | EndSession


class TreeOutcome(NamedTuple):
    """Of one operation: the path of the node made, or the version of the node written."""

    path: str = ""
    version: int = -1


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def check_path(path: str) -> None:
    """Only code can make a wrong path, so this is a `ValueError`, not an answer of the store."""
    if path != ROOT and (path[:1] != "/" or path[-1:] == "/" or "//" in path):
        raise ValueError(f"{path!r} is not a path: it begins with '/' and has no empty name")


def check_operation(operation: TreeOperation) -> None:
    """As above: what no code of ours asks for."""
    if isinstance(operation, EndSession):
        return
    check_path(operation.path)
    if operation.path == ROOT and isinstance(operation, Delete | DeleteTree):
        raise ValueError("the root cannot be deleted")


class Base(Protocol):
    """What a draft lies upon."""

    last_id: int

    def find(self, path: str) -> Entry | None: ...

    def paths_below(self, path: str) -> set[str]: ...

    def paths_owned_by(self, session_id: int) -> set[str]: ...


class Tree:
    """The stored nodes, with the indexes that reading needs."""

    def __init__(self, entries: dict[str, Entry] | None = None, last_id: int = 0) -> None:
        root = Entry(Node(data=b"", version=0, created_id=0, modified_ms=0, ephemeral_owner=0))
        self._entries: dict[str, Entry] = {ROOT: root}
        self._children: dict[str, set[str]] = {}  # names of the children; no empty sets
        self._owned: dict[int, set[str]] = {}  # paths of the ephemeral nodes of a session
        self.last_id = last_id  # of the node made last: node ids only grow
        self.apply(entries or {})

    def find(self, path: str) -> Entry | None:
        return self._entries.get(path)

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def paths_below(self, path: str) -> set[str]:
        found: set[str] = set()
        folders = [path]
        while folders:
            folder = folders.pop()
            prefix = "" if folder == ROOT else folder
            below = [f"{prefix}/{name}" for name in self._children.get(folder, ())]
            found.update(below)
            folders += below
        return found

    def paths_owned_by(self, session_id: int) -> set[str]:
        return set(self._owned.get(session_id, ()))

    def apply(self, changed: dict[str, Entry | None] | dict[str, Entry]) -> None:
        """Take over what a draft changed, after it was stored."""
        for path, entry in changed.items():
            former = self._entries.pop(path, None)
            if former is not None:
                self._unlink(path, former)
            if entry is not None:
                self._entries[path] = entry
                self._link(path, entry)

    def _link(self, path: str, entry: Entry) -> None:
        if path != ROOT:
            parent, _, name = path.rpartition("/")
            self._children.setdefault(parent or ROOT, set()).add(name)
        if entry.node.ephemeral_owner:
            self._owned.setdefault(entry.node.ephemeral_owner, set()).add(path)

    def _unlink(self, path: str, entry: Entry) -> None:
        parent, _, name = path.rpartition("/")
        _discard(self._children, parent or ROOT, name)
        _discard(self._owned, entry.node.ephemeral_owner, path)


class Draft:
    """Changes that are not stored yet, on top of `base`."""

    def __init__(self, base: Base, now_ms: int) -> None:
        self._base = base
        self._now_ms = now_ms
        self.changed: dict[str, Entry | None] = {}
        self.last_id = base.last_id

    def find(self, path: str) -> Entry | None:
        return self.changed[path] if path in self.changed else self._base.find(path)

    def paths_below(self, path: str) -> set[str]:
        prefix = path if path == ROOT else f"{path}/"
        paths = self._base.paths_below(path)
        paths.update(changed for changed in self.changed if changed.startswith(prefix))
        return {found for found in paths - {path} if self.find(found) is not None}

    def paths_owned_by(self, session_id: int) -> set[str]:
        paths = self._base.paths_owned_by(session_id) | self.changed.keys()
        return {
            path
            for path in paths
            if (entry := self.find(path)) is not None and entry.node.ephemeral_owner == session_id
        }

    def changes(self) -> list[Change]:
        return [Change(path, self._base.find(path), entry) for path, entry in self.changed.items()]

    def merge_into(self, lower: Draft) -> None:
        lower.changed.update(self.changed)
        lower.last_id = self.last_id

    def perform(self, operations: Iterable[TreeOperation], session_id: int) -> list[TreeOutcome]:
        """Carry out all of them, or raise the error of the first that is not possible."""
        return [self._perform(operation, session_id) for operation in operations]

    def _perform(self, operation: TreeOperation, session_id: int) -> TreeOutcome:
        match operation:
            case Create():
                return self._create(operation, session_id if operation.ephemeral else 0)
            case SetData():
                return self._set_data(operation)
            case Delete():
                self._require_version(operation.path, operation.version)
                self._delete(operation.path)
            case Check():
                self._require_version(operation.path, operation.version)
            case EnsureParents():
                self._ensure(parent_of(operation.path))
            case DeleteTree():
                self._delete_all({*self.paths_below(operation.path), operation.path})
            case EndSession():
                self._delete_all(self.paths_owned_by(operation.session_id))
        return TreeOutcome()

    def _create(self, operation: Create, owner: int) -> TreeOutcome:
        path = operation.path
        parent_path = parent_of(path)
        parent = self._require(parent_path)
        if parent.node.ephemeral_owner:
            raise EphemeralParentError(f"{parent_path} is ephemeral and cannot have children")
        if operation.sequential:
            path = f"{path}{parent.children_made:010d}"
        if self.find(path) is not None:
            raise NodeExistsError(f"{path} exists already")
        node, made, count = parent  # `_replace` takes three times as long
        self.changed[parent_path] = Entry(node, made + 1, count + 1)
        self.last_id += 1
        node = Node(
            data=operation.data,
            version=0,
            created_id=self.last_id,
            modified_ms=self._now_ms,
            ephemeral_owner=owner,
        )
        self.changed[path] = Entry(node)
        return TreeOutcome(path, 0)

    def _set_data(self, operation: SetData) -> TreeOutcome:
        entry = self._require_version(operation.path, operation.version)
        version = entry.node.version + 1
        node = replace(entry.node, data=operation.data, version=version, modified_ms=self._now_ms)
        self.changed[operation.path] = entry._replace(node=node)
        return TreeOutcome(version=version)

    def _delete(self, path: str) -> None:
        if self._require(path).child_count:
            raise NotEmptyError(f"{path} has children")
        parent_path = parent_of(path)
        parent = self._require(parent_path)
        self.changed[parent_path] = parent._replace(child_count=parent.child_count - 1)
        self.changed[path] = None

    def _delete_all(self, paths: Iterable[str]) -> None:
        # Backwards in order of the names: children before their parents, and always the same.
        for path in sorted(paths, reverse=True):
            if self.find(path) is not None:
                self._delete(path)

    def _ensure(self, path: str) -> None:
        missing = [p for p in _path_and_parents(path) if self.find(p) is None]
        for parent in reversed(missing):
            self._create(Create(path=parent), owner=0)

    def _require(self, path: str) -> Entry:
        entry = self.find(path)
        if entry is None:
            raise NoNodeError(f"{path} does not exist")
        return entry

    def _require_version(self, path: str, version: int) -> Entry:
        entry = self._require(path)
        if version not in (ANY_VERSION, entry.node.version):
            raise BadVersionError(
                f"{path} has version {entry.node.version}, and version {version} was expected"
            )
        return entry


def _path_and_parents(path: str) -> Iterator[str]:
    while path != ROOT:
        yield path
        path = parent_of(path)


def _discard(index: dict[K, set[V]], key: K, value: V) -> None:
    members = index.get(key)
    if members is not None:
        members.discard(value)
        if not members:
            del index[key]


class TreeWriter(ABC):
    """A session with a store that knows the operations of `tree`."""

    @abstractmethod
    async def submit(self, operations: Sequence[TreeOperation]) -> Sequence[TreeOutcome]:
        """All or nothing, in order, as `transact`."""

    async def transact(self, operations: Sequence[Operation]) -> Sequence[str]:
        return [outcome.path for outcome in await self.submit(operations)]

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        create = Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential)
        first = (EnsureParents(path=path),) if parents else ()
        return (await self.submit((*first, create)))[-1].path

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return (await self.submit((SetData(path=path, data=data, version=version),)))[0].version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.submit((Delete(path=path, version=version),))

    async def delete_tree(self, path: str) -> None:
        await self.submit((DeleteTree(path=path),))


# Watches. A watch that has been fired and not called yet is not fired again: one call tells of both
# changes, as the port allows. It is called from the loop's own queue, never from inside the change,
# and watches are called in the order in which they were set, so that simulations repeat to the
# step. The watches of a session that was lost are silent until it is renewed.


class WatchKind(Enum):
    DATA = auto()
    CHILDREN = auto()


class WatchTable:
    """All watches of a store."""

    def __init__(self) -> None:
        # By path, of each kind; no empty lists.
        self._of_data: dict[str, list[EmbeddedWatch]] = {}
        self._of_children: dict[str, list[EmbeddedWatch]] = {}

    def add(
        self, owner: object, kind: WatchKind, path: str, callback: Callable[[], None]
    ) -> EmbeddedWatch:
        by_path = self._of_data if kind is WatchKind.DATA else self._of_children
        watch = EmbeddedWatch(by_path, path, owner, callback)
        by_path.setdefault(path, []).append(watch)
        return watch

    def remove_all_of(self, owner: object) -> None:
        for watch in self._all_of(owner):
            watch.cancel()

    def silence_all_of(self, owner: object) -> None:
        for watch in self._all_of(owner):
            watch.silence()

    def wake_all_of(self, owner: object) -> None:
        """Arm them again and tell each, since it may have missed something."""
        for watch in self._all_of(owner):
            watch.wake()

    def _all_of(self, owner: object) -> list[EmbeddedWatch]:
        both = chain(self._of_data.values(), self._of_children.values())
        return [watch for watches in both for watch in watches if watch.owner is owner]

    def fire_data(self, path: str) -> None:
        for watch in self._of_data.get(path, ()):
            watch.fire()

    def fire_children(self, path: str) -> None:
        for watch in self._of_children.get(path, ()):
            watch.fire()


class EmbeddedWatch:
    """One watch. It stays until it is cancelled or its owner is closed."""

    __slots__ = ("_callback", "_cancelled", "_path", "_pending", "_silent", "_table", "owner")

    def __init__(
        self,
        table: dict[str, list[EmbeddedWatch]],
        path: str,
        owner: object,
        callback: Callable[[], None],
    ) -> None:
        self.owner = owner
        self._table = table
        self._path = path
        self._callback = callback
        self._pending = False
        self._cancelled = False
        self._silent = False

    def cancel(self) -> None:
        self._cancelled = True
        watches = self._table.get(self._path, [])
        if self in watches:
            watches.remove(self)
            if not watches:
                del self._table[self._path]

    def silence(self) -> None:
        self._silent = True

    def wake(self) -> None:
        self._silent = False
        self.fire()

    def fire(self) -> None:
        if not self._pending and not self._silent:
            self._pending = True
            asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        self._pending = False
        if not self._cancelled and not self._silent:
            self._callback()
