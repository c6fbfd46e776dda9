"""A context follows its files, and survives those that are damaged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from moldau.config.listener_options import ListenerOptions
from moldau.config.option import Layers
from moldau.security.certificates import issue, make_authority
from moldau.security.tls import WatchedContext, server_context
from moldau.workers import InlineWorkers

AUTHORITY = make_authority("authority")


def new_store() -> str:
    made = issue(AUTHORITY, "broker", ("localhost",))
    return made.certificate + made.key


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "broker.pem"
    path.write_text(new_store())
    return path


def watch(store: Path) -> WatchedContext[ListenerOptions]:
    options = ListenerOptions.of_listener(
        Layers(static={"ssl.keystore.location": str(store)}), "OUTSIDE"
    )
    return WatchedContext("the listener OUTSIDE", lambda: options, server_context, InlineWorkers())


@pytest.mark.parametrize("left", [0.0, 0.3, 0.7, 0.99], ids=str)
def test_a_damaged_file_leaves_the_former_in_use_until_a_good_one_comes(
    store: Path, left: float, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        watched = watch(store)
        await watched.load()
        former = watched.context
        text = new_store()
        store.write_text(text[: int(len(text) * left)])  # it is being written
        for _ in range(3):
            assert not await watched.refresh()
            assert watched.context is former
        assert len(caplog.messages) == 1, "once"
        assert "the former stay in force" in caplog.messages[0]
        store.write_text(text)
        assert await watched.refresh()
        assert watched.context is not former
        assert not await watched.refresh()

    asyncio.run(story())


def test_a_file_that_is_gone_leaves_the_former_in_use(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        watched = watch(store)
        await watched.load()
        former = watched.context
        store.unlink()
        assert not await watched.refresh()
        assert watched.context is former
        assert "No such file" in caplog.messages[0]

    asyncio.run(story())


def test_a_key_that_is_not_the_certificates_is_refused(store: Path) -> None:
    async def story() -> None:
        watched = watch(store)
        await watched.load()
        former = watched.context
        one, other = issue(AUTHORITY, "a", ("localhost",)), issue(AUTHORITY, "b", ("localhost",))
        store.write_text(one.certificate + other.key)
        assert not await watched.refresh()
        assert watched.context is former

    asyncio.run(story())
