"""Brokers that are away are expected back until they are unregistered."""

from __future__ import annotations

import pytest

from moldau.cluster import layout
from moldau.coordination.port import ANY_VERSION
from moldau.errors import BrokerIdNotRegisteredError, InvalidRequestError
from moldau.model import BrokerId

from .stage import Stage, play


def test_who_is_expected_back_is_read_from_the_store() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join(1)
        second = await stage.join(2, rack="r2")
        assert await first.publisher.read_away_brokers() == []
        await second.leave()
        (away,) = await first.publisher.read_away_brokers()
        assert (away.id, away.rack) == (2, "r2")
        await stage.join(2, rack="r3")
        assert await first.publisher.read_away_brokers() == []

    play(story)


def test_a_broker_is_unregistered_once_and_only_while_it_is_away() -> None:
    async def story(stage: Stage) -> None:
        first, second = await stage.join(1), await stage.join(2)
        with pytest.raises(InvalidRequestError, match="broker 2 is alive"):
            await first.admin.unregister_broker(BrokerId(2))
        await second.leave()
        await first.admin.unregister_broker(BrokerId(2))
        assert await first.publisher.read_away_brokers() == []
        with pytest.raises(BrokerIdNotRegisteredError):
            await first.admin.unregister_broker(BrokerId(2))

    play(story)


def test_a_broker_that_registers_meanwhile_stays_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Stage) -> None:
        first, second = await stage.join(1), await stage.join(2)
        await second.leave()
        original = first.session.delete

        async def delete(path: str, version: int = ANY_VERSION) -> None:
            await stage.join(2)
            await original(path, version)

        monkeypatch.setattr(first.session, "delete", delete)
        with pytest.raises(InvalidRequestError, match="try again"):
            await first.admin.unregister_broker(BrokerId(2))
        path = layout.registered_broker_path(BrokerId(2))
        assert await first.session.get(path) is not None

    play(story)
