"""The coordination port: what ZooKeeper gives, in the few words that Moldau needs of it.

Nodes at slash-separated paths, each with data and a version; writes in one transaction with
version checks; ephemeral nodes that live as long as a session; sequential nodes; watches. The
embedded store (one broker alone, SQLite) and ZooKeeper (kazoo) both pass one contract suite.

Differences from ZooKeeper's own interface, on purpose: a watch stays until it is cancelled (the
implementation arms it again); it says *that* something changed, not what, since several changes
may be told at once; a missing parent is made on the way (`create` with `parents`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

ANY_VERSION = -1


class CoordinationError(Exception):
    """The root of what the port raises."""


class NoNodeError(CoordinationError):
    """The path does not exist (or the parent of a node to be made)."""


class NodeExistsError(CoordinationError):
    """The path exists already."""


class BadVersionError(CoordinationError):
    """The node changed since its version was read: somebody else was faster."""


class NotEmptyError(CoordinationError):
    """A node with children cannot be deleted."""


class EphemeralParentError(CoordinationError):
    """An ephemeral node cannot have children."""


class NoAccessError(CoordinationError):
    """The store's access lists do not let this session read or write the node."""


class SessionExpiredError(CoordinationError):
    """The session is over: ephemeral nodes are gone, and this broker must stop leading."""


class StoreLostError(CoordinationError):
    """Nobody answered in time; whether the write happened is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node as it was read."""

    data: bytes
    version: int  # counts the writes to data; starts at 0
    created_id: int  # czxid: grows with every node made, in the whole store
    modified_ms: int
    ephemeral_owner: int  # 0 for a node that stays


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False  # ten digits are appended to the path


@dataclass(frozen=True, slots=True, kw_only=True)
class SetData:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Fail the transaction unless the node has this version."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


def write_over(path: str, former: Node | None, data: bytes) -> Operation:
    """Write a node that was read, unless another session changed it since."""
    if former is None:
        return Create(path=path, data=data)
    return SetData(path=path, data=data, version=former.version)


class Watch(Protocol):
    def cancel(self) -> None: ...


class Coordination(Protocol):
    """One session with the store, and after its end, when renewed, another.

    Between the end and `renew` every call raises `SessionExpiredError`, and watches are silent.
    """

    async def get(self, path: str) -> Node | None: ...

    async def get_many(self, paths: Sequence[str]) -> Sequence[Node | None]:
        """Many reads for the price of one wait; not a snapshot: one is read after the other.

        Without paths there is nothing to ask and nothing to wait for.
        """
        ...

    async def children(self, path: str) -> Sequence[str]:
        """Names of the children, sorted; empty when the node does not exist."""
        ...

    async def transact(self, operations: Sequence[Operation]) -> Sequence[str]:
        """All or nothing, in order. Returns the path of each created node ('' for the others).

        Raises the error of the first operation that cannot be done.
        """
        ...

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str: ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Returns the new version."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def delete_tree(self, path: str) -> None:
        """The node and all below it; no error when it is absent."""
        ...

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back on the loop after the node was made, changed or deleted.

        It is in force for whatever this session reads after this call: set it, then read.
        """
        ...

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back on the loop after a child was made or deleted; in force as above."""
        ...

    def on_session_end(self, callback: Callable[[], None]) -> None:
        """Call back on the loop whenever a session is lost for good; closing it is no loss."""
        ...

    @property
    def session_id(self) -> int: ...

    @property
    def lease_end(self) -> float:
        """Until then, in seconds of the clock's `monotonic`, the session cannot be over.

        Who acts on the session's behalf (a leader) compares it with the time at every act, since
        a process that was paused, or slept with its machine, hears of the session's end only
        after others have. It moves on
        while the store answers, does not go back within one session, and is `-inf` after its end.
        """
        ...

    async def renew(self) -> None:
        """Begin a new session after the last one was lost; nothing while it is not lost.

        Watches stay armed, and each is told once, since nobody knows what it has missed; callbacks
        of `on_session_end` stay too. Raises `StoreLostError` when the store does not answer
        (try again) and `SessionExpiredError` after `close`.
        """
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes go."""
        ...
