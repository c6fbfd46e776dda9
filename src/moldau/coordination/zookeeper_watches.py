"""Watches that stay, on top of ZooKeeper's, which are told once and are gone. A shell.

The order is the point: a watch that went off is armed again first, and its callbacks are called
when the server has said so. So whoever is called reads what is new, and what changes after that
reading is told again. That holds too when the watch has gone off once more by then, since the
request that arms it again is sent before what the callbacks ask: so a place that changes without
pause is told of without pause. Watches on the same thing share one at the server.

While there is no connection the server's watches are gone too. When there is one again each is
armed anew, and told if the node differs from what it was when it was armed last. In a renewed
session each is told.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import NamedTuple

from moldau.coordination.port import CoordinationError, NoNodeError
from moldau.coordination.watches import WatchKind
from moldau.coordination.zookeeper_client import Event, Stat, WatchedEvent
from moldau.coordination.zookeeper_link import Link
from moldau.tasks import TaskSupervisor

_log = logging.getLogger("moldau.coordination.zookeeper")

_NO_EVENT = "NONE"  # kazoo's word for a watch that went with its connection


class _Place(NamedTuple):
    kind: WatchKind
    path: str  # as the server knows it


class _Seen(NamedTuple):
    """What a node was when its watch was armed. Differs whenever the watch would have been told."""

    created_id: int
    changed_id: int


_NOTHING = _Seen(-1, -1)
"""The node did not exist."""


class ZookeeperWatch:
    """One watch of somebody."""

    __slots__ = ("_callback", "_cancelled", "_sentry")

    def __init__(self, sentry: _Sentry, callback: Callable[[], None]) -> None:
        self._sentry = sentry
        self._callback = callback
        self._cancelled = False

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._sentry.watches.remove(self)

    def call(self) -> None:
        if not self._cancelled and self._sentry.is_awake:
            self._callback()


class _Sentry:
    """All watches on one place, and the one that they share at the server."""

    def __init__(self, table: ZookeeperWatches, place: _Place) -> None:
        self._table = table
        self._place = place
        self._arming = 0  # counts the requests; only the last one's watch is armed again
        self._seen: _Seen | None = None  # never armed yet
        self._owes = False  # something to tell, as soon as it is armed
        self.watches: list[ZookeeperWatch] = []

    @property
    def is_awake(self) -> bool:
        return self._table.link is not None

    def forget(self) -> None:
        """What was seen, in a session that is over."""
        self._seen = None

    def arm(self, link: Link, *, owes: bool = False) -> None:
        """Send the request before returning: what the caller reads next is read after it."""
        self._owes |= owes
        self._arming += 1
        path, event = self._place.path, self._event_of(link, self._arming)
        see: Callable[[], Coroutine[None, None, _Seen]]
        if self._place.kind is WatchKind.DATA:
            stat = link.call(lambda client: client.exists_async(path, watch=event))
            see = functools.partial(_see_data, stat)
        else:
            children = _watch_children(link, path, event)
            see = functools.partial(self._see_children, link, event, children)
        self._table.tasks.spawn("watch", self._finish_arming(link, see))

    async def _finish_arming(
        self, link: Link, see: Callable[[], Coroutine[None, None, _Seen]]
    ) -> None:
        try:
            seen = await see()
        except CoordinationError as error:
            # Without a connection; it is armed again with the next one.
            self._owes |= self._seen is None
            _log.debug("the watch of %s is not armed: %s", self._place.path, error)
            return
        former = self._seen
        self._owes |= former not in (None, seen)
        self._seen = seen
        if former is not None and former > seen != _NOTHING and link is self._table.link:
            # In one session a node's ids only grow: the server was given older data.
            link.give_up(f"{self._place.path} is older than before, the store was set back")
            return
        if self._owes and link is self._table.link:
            self._owes = False
            self._notify()

    async def _see_children(
        self, link: Link, event: Event, answer: asyncio.Future[tuple[list[str], Stat]]
    ) -> _Seen:
        """The server watches the children of a node that exists; before that, the node itself."""
        path = self._place.path
        while True:
            try:
                _, stat = await answer
            except NoNodeError:
                if await link.call(lambda client: client.exists_async(path, watch=event)) is None:
                    return _NOTHING
            else:
                return _Seen(stat.czxid, stat.pzxid)
            self._owes = True  # it was made between the two
            answer = _watch_children(link, path, event)

    def _event_of(self, link: Link, arming: int) -> Event:
        def on_event(event: WatchedEvent) -> None:  # in kazoo's thread
            if event.type != _NO_EVENT:
                link.post(went_off)

        def went_off() -> None:
            # After an older arming the last one sees the same change, and tells of it.
            if arming == self._arming and link is self._table.link:
                self._table.went_off(self, self._place, link)

        return on_event

    def _notify(self) -> None:
        loop = asyncio.get_running_loop()
        for watch in self.watches:
            loop.call_soon(watch.call)


class ZookeeperWatches:
    """The watches of a `Coordination`, from session to session."""

    def __init__(self) -> None:
        self._sentries: dict[_Place, _Sentry] = {}
        self.link: Link | None = None  # the session's, while it lasts
        self.tasks = TaskSupervisor(self._arm_again)

    def add(self, kind: WatchKind, path: str, callback: Callable[[], None]) -> ZookeeperWatch:
        place = _Place(kind, path)
        sentry = self._sentries.get(place)
        is_new = sentry is None
        if sentry is None:
            sentry = self._sentries[place] = _Sentry(self, place)
        watch = ZookeeperWatch(sentry, callback)
        sentry.watches.append(watch)
        if is_new and self.link is not None:
            sentry.arm(self.link)
        return watch

    def _arm_again(self, name: str, error: BaseException) -> None:
        """A watch that is not armed would miss changes in silence: the next connection arms all."""
        _log.error("%s failed; connecting again to arm it", name, exc_info=error)
        if self.link is not None:
            self.link.cut()

    def attach(self, link: Link) -> None:
        """There is a connection: arm everything."""
        is_renewed = self.link is not link
        self.link = link
        for place, sentry in tuple(self._sentries.items()):
            if sentry.watches:
                if is_renewed:
                    sentry.forget()
                sentry.arm(link, owes=is_renewed)
            else:
                del self._sentries[place]

    def silence(self) -> None:
        """The session is over."""
        self.link = None

    async def close(self) -> None:
        self.link = None
        self._sentries.clear()
        await self.tasks.close()

    def went_off(self, sentry: _Sentry, place: _Place, link: Link) -> None:
        if self._sentries.get(place) is not sentry:
            return
        if sentry.watches:
            sentry.arm(link, owes=True)
        else:
            del self._sentries[place]


async def _see_data(answer: asyncio.Future[Stat | None]) -> _Seen:
    stat = await answer
    return _NOTHING if stat is None else _Seen(stat.czxid, stat.mzxid)


def _watch_children(link: Link, path: str, event: Event) -> asyncio.Future[tuple[list[str], Stat]]:
    return link.call(lambda client: client.get_children_async(path, watch=event, include_data=True))
