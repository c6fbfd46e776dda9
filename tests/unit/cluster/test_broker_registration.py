"""Brokers that are away are expected back until they are unregistered."""

from __future__ import annotations

import pytest

from moldau.cluster import znodes
from moldau.cluster.broker_registration import BrokerRegistration
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.metadata_image import BrokerState
from moldau.coordination.port import ANY_VERSION
from moldau.errors import BrokerIdNotRegisteredError, InvalidRequestError
from moldau.model import BrokerId
from moldau.simulation.manual_clock import SkewedClock

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


@pytest.mark.parametrize("skew_ms", [-90_000, 0, 90_000])
def test_a_broker_learns_from_its_registration_how_far_its_clock_is_off(skew_ms: int) -> None:
    async def story(stage: Stage) -> None:
        await stage.join(1)
        session, clock = stage.store.session(), SkewedClock(stage.clock, skew_ms)
        publisher = MetadataPublisher(session, clock, "cluster")
        registration = BrokerRegistration(session, clock, publisher)
        for _ in range(2):  # also where an answer was lost, and the registration is there already
            await registration.register(BrokerState(id=BrokerId(7), endpoints=()))
            assert publisher.store_now_ms() == stage.clock.now_ms()
            await stage.clock.advance(5)
            assert publisher.store_now_ms() == stage.clock.now_ms()
        await session.close()

    play(story)


@pytest.mark.parametrize(
    ("skew_ms", "ahead_ms"), [(0, 0), (-2_000, 0), (2_000, 0), (-9_000, 6_000)]
)
def test_a_slow_registration_shows_no_difference_that_the_wait_explains(
    skew_ms: int, ahead_ms: int
) -> None:
    async def story(stage: Stage) -> None:
        await stage.join(1)
        session, clock = stage.store.session(), SkewedClock(stage.clock, skew_ms)
        publisher = MetadataPublisher(session, clock, "cluster")
        create = session.create

        async def create_slowly(path: str, data: bytes, *, ephemeral: bool = False) -> str:
            await stage.clock.advance(3)
            made = await create(path, data, ephemeral=ephemeral)
            await stage.clock.advance(3)
            return made

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session, "create", create_slowly)
            registration = BrokerRegistration(session, clock, publisher)
            await registration.register(BrokerState(id=BrokerId(7), endpoints=()))
        assert publisher.store_ahead_ms == ahead_ms
        await session.close()

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
        path = znodes.registered_broker_path(BrokerId(2))
        assert await first.session.get(path) is not None

    play(story)
