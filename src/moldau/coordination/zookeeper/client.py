"""Coordination by ZooKeeper: the port over kazoo. A shell, imported only where it is used.

One `Session` at a time; `renew` takes the next one. Reads are answered by the server
that the session is connected to: never older than what this session wrote or was told of by a
watch, but maybe older than what another session has just written. Versions guard what is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from moldau.clock import Clock
from moldau.coordination.port import (
    ANY_VERSION,
    CoordinationError,
    Create,
    Delete,
    NoAccessError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    StoreLostError,
    Watch,
)
from moldau.coordination.tree import ROOT, WatchKind, parent_of
from moldau.coordination.zookeeper.kazoo_client import (
    READS_AT_ONCE,
    AccessEntry,
    Found,
    Kazoo,
    Requests,
    Result,
    Stat,
    UnknownRequestError,
    access_list,
    check_operations,
    path_and_parents,
    read_many,
    to_node,
    translate,
)
from moldau.coordination.zookeeper.session import Heartbeats, Session, ZookeeperWatches
from moldau.coordination.zookeeper.settings import ZookeeperSettings
from moldau.errors import StartupError
from moldau.tasks import TaskSupervisor
from moldau.workers import Workers

_log = logging.getLogger("moldau.coordination.zookeeper")

_DELETED_AT_ONCE = 1_000  # nodes of a tree in one transaction
_FAILED_READS = 2
"""A server before 3.6 ends the connection over a request for many reads: so many, and no more of
them in this session. One may be by chance."""

_ATTEMPTS = 10  # at something that others undo in the middle of it

T = TypeVar("T")


class ZookeeperClient:
    """The `Coordination` port. Belongs to one event loop."""

    def __init__(self, settings: ZookeeperSettings, clock: Clock, workers: Workers) -> None:
        self._settings = settings
        self._clock = clock
        self._workers = workers
        self._requests = Requests(settings)
        self._watches = ZookeeperWatches()
        self._on_end: list[Callable[[], None]] = []
        self._is_started = False  # the present session, for those outside
        self._closed = False
        self._failed_reads = 0  # of many nodes at once, since one that succeeded
        self._renewing = asyncio.Lock()
        self._tasks = TaskSupervisor(self._on_probe_failed)
        self._make_session()

    @classmethod
    async def open(
        cls, settings: ZookeeperSettings, *, clock: Clock, workers: Workers
    ) -> ZookeeperClient:
        """Begin a session. Raises `StartupError` that says what to do."""
        session = cls(settings, clock, workers)
        try:
            await session._start()
        except BaseException as error:
            await session.close()
            if isinstance(error, CoordinationError):
                raise StartupError(
                    f"{error}; is it running? `moldau zookeeper start` runs one, and --zookeeper "
                    "names another"
                ) from error
            raise
        return session

    # The session

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def lease_end(self) -> float:
        return -math.inf if self._session.is_lost else self._heartbeats.lease_end

    def on_session_end(self, callback: Callable[[], None]) -> None:
        self._on_end.append(callback)

    async def renew(self) -> None:
        async with self._renewing:
            if self._session.is_lost and not self._closed:
                await self._session.close()
            if self._session.is_lost and not self._closed:
                self._make_session()
                await self._start()
        self._require_open()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._heartbeats.stop()
        await self._tasks.close()
        await self._watches.close()
        await self._session.close()

    def _make_session(self) -> None:
        self._is_started = False
        self._failed_reads = 0
        self._session = Session(
            self._settings,
            self._clock,
            self._workers,
            on_attached=self._on_attached,
            on_detached=self._on_detached,
            on_lost=self._on_lost,
        )
        self._heartbeats = Heartbeats(self._session, self._clock, self._settings.full_path(ROOT))

    async def _start(self) -> None:
        """Return with a lease, and with the path that everything is kept under."""
        try:
            await self._session.open()
            await self._heartbeats.wait_until_confirmed(self._settings.connection_timeout_seconds)
            await self._make_root()
            self._require_alive()
        except BaseException as error:
            self._session.is_lost = True  # as a session that has ended: to be renewed
            self._heartbeats.stop()
            self._watches.detach()
            await self._session.close()
            self._require_open()
            if isinstance(error, SessionExpiredError):
                raise StoreLostError(f"the session ended as it began: {error}") from error
            raise
        self._is_started = True

    async def _make_root(self) -> None:
        for full_path in path_and_parents(self._settings.root):
            exists = functools.partial(_exists, full_path)
            if await self._session.call(exists) is None:
                await self._make_plain(full_path)

    async def _make_plain(self, full_path: str) -> None:
        try:
            await self._session.call(lambda client: self._requests.make_plain(client, full_path))
        except NodeExistsError:
            return

    # Events of the session

    def _on_attached(self, session: Session) -> None:
        if session is self._session and not self._closed:
            self._watches.attach(session)
            self._heartbeats.start()

    def _on_detached(self, session: Session) -> None:
        if session is self._session and not self._closed:
            self._schedule_probe(session)

    def _schedule_probe(self, session: Session, *, was_found: bool = False) -> None:
        def probe() -> None:
            if session is self._session and not (
                self._closed or session.is_attached or session.is_lost
            ):
                self._tasks.spawn("look for ZooKeeper", self._probe(session, was_found))

        self._clock.call_later(session.timeout_seconds, probe)

    async def _probe(self, session: Session, was_found: bool) -> None:
        """The session has been without a connection for long: is it that nobody is there?

        A server refuses a session that has seen later writes than it has itself: for ever, if it
        was restored from a backup. Then a new session finds it at once. If one did a whole
        time-out ago as well, this one is over in any case: a server that has it has ended it.
        """
        other = Session(self._settings, self._clock, self._workers)
        try:
            await other.open()
        except StoreLostError:
            is_found = False
        else:
            is_found = True
        finally:
            await other.close()
        if session is not self._session or session.is_attached:
            return
        if is_found and was_found:
            session.give_up("ZooKeeper answers, but not in this session; was it restored?")
        else:
            self._schedule_probe(session, was_found=is_found)

    def _on_probe_failed(self, name: str, error: BaseException) -> None:
        """Nobody else would find out that a session is over which the server does not know."""
        _log.error("%s failed, and is done again soon", name, exc_info=error)
        self._schedule_probe(self._session)

    def _on_lost(self, session: Session) -> None:
        if session is not self._session or self._closed:
            return
        self._heartbeats.stop()
        self._watches.detach()
        if self._is_started:
            for callback in self._on_end:
                asyncio.get_running_loop().call_soon(callback)

    # Reading

    async def get(self, path: str) -> Node | None:
        full_path = self._settings.full_path(path)
        try:
            return to_node(await self._session.call(lambda client: client.get_async(full_path)))
        except NoNodeError:
            return None

    async def get_many(self, paths: Sequence[str]) -> Sequence[Node | None]:
        full_paths = [self._settings.full_path(path) for path in paths]
        if len(paths) > 1 and self._failed_reads < _FAILED_READS:
            try:
                nodes = await self._get_at_once(full_paths)
            except (UnknownRequestError, StoreLostError) as error:
                self._failed_reads += 1
                _log.info("nodes are read one by one: %s", error)
                with contextlib.suppress(StoreLostError):  # it may be ending only now
                    return await self._get_one_by_one(full_paths)
            else:
                self._failed_reads = 0
                return nodes
        return await self._get_one_by_one(full_paths)

    async def _get_one_by_one(self, full_paths: Sequence[str]) -> list[Node | None]:
        answers = await self._ask_many([functools.partial(_get, path) for path in full_paths])
        return [None if answer is None else to_node(answer) for answer in answers]

    async def _get_at_once(self, full_paths: Sequence[str]) -> list[Node | None]:
        """In few requests, which follow each other in this order."""
        requests = [
            functools.partial(_read_many, full_paths[start : start + READS_AT_ONCE])
            for start in range(0, len(full_paths), READS_AT_ONCE)
        ]
        answers = await self._ask_many(requests)
        return [_node_or_none(found) for answer in answers for found in answer or ()]

    async def children(self, path: str) -> Sequence[str]:
        full_path = self._settings.full_path(path)
        try:
            names, _ = await self._session.call(functools.partial(_children, full_path))
        except NoNodeError:
            return []
        return sorted(names)

    async def _ask_many(self, requests: Sequence[Callable[[Kazoo], Result[T]]]) -> list[T | None]:
        """All answers in order; None where there is no node. One request follows the other."""
        answers = await asyncio.gather(
            *(self._session.call(request) for request in requests), return_exceptions=True
        )
        found: list[T | None] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                if not isinstance(answer, NoNodeError):
                    raise answer
                found.append(None)
            else:
                found.append(answer)
        return found

    # Writing

    async def transact(self, operations: Sequence[Operation]) -> Sequence[str]:
        check_operations(operations)
        if not operations:
            self._require_alive()
            return []
        results = await self._session.call(lambda client: self._requests.commit(client, operations))
        return self._requests.created_paths(operations, results)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        operation = Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential)
        check_operations((operation,))
        if path == ROOT and not sequential:
            self._require_alive()
            raise NodeExistsError("/ exists already")
        try:
            full_path = await self._session.call(
                lambda client: self._requests.create(client, operation)
            )
        except NoNodeError:
            if not parents:
                raise
            return await self._create_with_parents(operation)
        return self._settings.own_path(full_path)

    async def _create_with_parents(self, operation: Create) -> str:
        """In one transaction: nobody sees the parents without the node."""
        ways = path_and_parents(parent_of(operation.path))
        for _ in range(_ATTEMPTS):
            nodes = await self.get_many(ways)
            missing = [
                Create(path=path) for path, node in zip(ways, nodes, strict=True) if node is None
            ]
            try:
                return (await self.transact([*missing, operation]))[-1]
            except NoNodeError:
                continue  # a parent was deleted in the meantime
            except NodeExistsError:
                if not missing:
                    raise
        raise StoreLostError(f"the parents of {operation.path} come and go")

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        full_path = self._settings.full_path(path)
        stat = await self._session.call(lambda client: client.set_async(full_path, data, version))
        return stat.version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        check_operations((Delete(path=path),))
        full_path = self._settings.full_path(path)
        await self._session.call(lambda client: client.delete_async(full_path, version))

    async def delete_tree(self, path: str) -> None:
        check_operations((Delete(path=path),))
        for _ in range(_ATTEMPTS):
            doomed = await self._paths_of_tree(path)
            try:
                for start in range(0, len(doomed), _DELETED_AT_ONCE):
                    chunk = doomed[start : start + _DELETED_AT_ONCE]
                    await self.transact([Delete(path=below) for below in chunk])
            except (NoNodeError, NotEmptyError):
                continue  # others make or delete nodes there
            return
        raise NotEmptyError(f"nodes below {path} are made as fast as they are deleted")

    async def _paths_of_tree(self, path: str) -> list[str]:
        """Children before their parents; empty when there is no such node."""
        if await self.get(path) is None:
            return []
        found, level = [path], [path]
        while level:
            requests = [functools.partial(_children, self._settings.full_path(p)) for p in level]
            answers = await self._ask_many(requests)
            level = [
                f"{parent}/{name}"
                for parent, answer in zip(level, answers, strict=True)
                if answer is not None
                for name in answer[0]
            ]
            found += level
        return found[::-1]

    # Beside the port

    async def call(self, path: str, request: Callable[[Kazoo, str], Result[T]]) -> T:
        """Ask ZooKeeper for what no other store has; `request` is given the full path."""
        full_path = self._settings.full_path(path)
        return await self._session.call(lambda client: request(client, full_path))

    # Watches

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        self._require_alive()
        return self._watches.add(WatchKind.DATA, self._settings.full_path(path), callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        self._require_alive()
        return self._watches.add(WatchKind.CHILDREN, self._settings.full_path(path), callback)

    def _require_open(self) -> None:
        if self._closed:
            raise SessionExpiredError("the session was closed")

    def _require_alive(self) -> None:
        self._require_open()
        if self._session.is_lost:
            raise SessionExpiredError(f"session {self.session_id:#x} is over")


def _read_many(full_paths: Sequence[str], client: Kazoo) -> Result[list[Found]]:
    return read_many(client, full_paths)


def _node_or_none(found: Found) -> Node | None:
    if not isinstance(found, Exception):
        return to_node(found)
    error = translate(found)
    if isinstance(error, NoNodeError):
        return None
    raise error


def _get(full_path: str, client: Kazoo) -> Result[tuple[bytes | None, Stat]]:
    return client.get_async(full_path)


def _exists(full_path: str, client: Kazoo) -> Result[Stat | None]:
    return client.exists_async(full_path)


def _children(full_path: str, client: Kazoo) -> Result[tuple[list[str], Stat]]:
    return client.get_children_async(full_path, include_data=True)


# Gives nodes that are there already the access lists that new ones get, or opens them again.
#
# What Kafka's `zookeeper-security-migration` does. It can be done while brokers work, again, and by
# somebody who goes on where another was cut off: each node is looked at by itself, and one whose
# list is right is left alone. A shell.


_AT_ONCE: Final = 500
_WORLD: Final = "world"

_Right = tuple[int, str, str]
"""Permissions as bits, the scheme, and who it is in that scheme."""


class AccessMigration:
    """One run over the nodes of a cluster. Used by one task."""

    def __init__(self, session: ZookeeperClient, *, is_protected: bool) -> None:
        """Protected nodes belong to whom the session has shown to be."""
        self._session = session
        self._is_protected = is_protected
        # What ZooKeeper writes for the maker of a node; not known before the first one is written.
        self._owners: frozenset[_Right] | None = None if is_protected else frozenset()
        self.seen = 0
        self.changed = 0
        self.refused: list[str] = []  # nodes that belong to somebody else

    async def run(self, roots: Sequence[str]) -> None:
        """Set the lists of these nodes and of all below them, parents first. The root stands for
        itself alone: what is below it and not named may be somebody else's."""
        level = list(roots)
        while level:
            below: list[str] = []
            start = 0
            while start < len(level):
                count = 1 if self._owners is None else _AT_ONCE
                paths = level[start : start + count]
                found = await asyncio.gather(*map(self._migrate, paths))
                below += [child for children in found for child in children]
                start += count
            level = below

    async def _migrate(self, path: str) -> list[str]:
        """Its children, to be done next."""
        try:
            await self._set_list(path)
            self.seen += 1
            names = [] if path == ROOT else await self._session.children(path)
        except NoAccessError:
            self.refused.append(path)
            return []
        except NoNodeError:
            return []  # deleted meanwhile, or never made
        return [f"{path}/{name}" for name in names]

    async def _set_list(self, path: str) -> None:
        former = await self._read(path)
        wanted = access_list(path, is_protected=self._is_protected)
        if self._owners is not None and former == self._expected(wanted):
            return
        await self._session.call(path, functools.partial(_set_access_list, acl=wanted))
        if self._owners is None:
            written = await self._read(path)
            self._owners = frozenset(one for one in written if one[1] != _WORLD)
            self.changed += written != former
        else:
            self.changed += 1

    def _expected(self, wanted: Sequence[AccessEntry]) -> frozenset[_Right]:
        """The list as ZooKeeper keeps it."""
        named = _rights(one for one in wanted if one.id.scheme == _WORLD)
        return named | (self._owners or frozenset())

    async def _read(self, path: str) -> frozenset[_Right]:
        entries, _ = await self._session.call(path, _get_access_list)
        return _rights(entries)


def _rights(entries: Iterable[AccessEntry]) -> frozenset[_Right]:
    return frozenset((one.perms, one.id.scheme, one.id.id) for one in entries)


def _get_access_list(client: Kazoo, full_path: str) -> Result[tuple[Sequence[AccessEntry], Stat]]:
    return client.get_acls_async(full_path)


def _set_access_list(client: Kazoo, full_path: str, *, acl: Sequence[AccessEntry]) -> Result[Stat]:
    return client.set_acls_async(full_path, acl)
