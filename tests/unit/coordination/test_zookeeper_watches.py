"""Watches that stay, over a link whose answers and events the test hands out itself."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("kazoo")

from moldau.coordination.tree import WatchKind
from moldau.coordination.zookeeper.kazoo_client import Event, WatchedEvent
from moldau.coordination.zookeeper.session import Session, ZookeeperWatches


class HandLink:
    """Keeps what was asked, until the test answers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Event, asyncio.Future[Any]]] = []

    def call(self, request: Callable[[Any], Event]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked.append((request(self), future))
        return future

    def exists_async(self, path: str, watch: Event) -> Event:
        return watch

    def post(self, function: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(function)

    # What the server says to the last arming: its answer, and the event of a change after it

    def answer(self, zxid: int) -> None:
        stat = SimpleNamespace(czxid=1, mzxid=zxid)
        self.post(functools.partial(self.asked[-1][1].set_result, stat))

    def change(self) -> None:
        self.asked[-1][0](WatchedEvent("CHANGED", "CONNECTED", "/a"))


def play(story: Callable[[HandLink, ZookeeperWatches], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        link, watches = HandLink(), ZookeeperWatches()
        watches.attach(cast("Session", link))
        await story(link, watches)
        await watches.close()

    asyncio.run(asyncio.wait_for(run(), 30))


async def steps_of_the_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_node_that_changes_without_pause_is_told_of() -> None:
    """Each arming is answered when its watch has gone off again: as on a loop that is busy."""

    async def story(link: HandLink, watches: ZookeeperWatches) -> None:
        rings: list[int] = []
        watches.add(WatchKind.DATA, "/a", lambda: rings.append(len(link.asked)))
        for zxid in range(10):
            assert len(link.asked) == zxid + 1
            link.answer(zxid)
            link.change()
            await steps_of_the_loop()
        assert len(rings) >= 9
        # Whoever is told asks after the watch is armed again.
        assert rings == sorted(set(rings))
        assert rings[0] >= 2

    play(story)


def test_a_change_is_told_when_the_watch_is_in_force_again() -> None:
    async def story(link: HandLink, watches: ZookeeperWatches) -> None:
        rings: list[int] = []
        watches.add(WatchKind.DATA, "/a", lambda: rings.append(len(link.asked)))
        link.answer(1)
        await steps_of_the_loop()
        link.change()
        await steps_of_the_loop()
        assert (len(link.asked), rings) == (2, [])
        link.answer(2)
        await steps_of_the_loop()
        assert rings == [2]

    play(story)
