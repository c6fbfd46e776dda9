"""A change that was decided is answered although the replicas here are not what it says yet."""

from __future__ import annotations

import asyncio

import pytest

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.replication.published_images import PublishedImages
from moldau.testing.manual_clock import wait_until_idle

from .test_broker_in_memory import World


async def never_noted(_: PublishedImages, __: MetadataImage) -> None:
    """As while thousands of folders are made, or the disk takes its time."""


def test_whoever_makes_a_topic_does_not_wait_for_slow_disks_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        world = World()
        broker = await world.start()
        monkeypatch.setattr(PublishedImages, "note_applied", never_noted)
        asked = asyncio.create_task(world.create("t"))
        await wait_until_idle()
        assert not asked.done()
        await world.clock.advance(10)  # what the most impatient clients wait
        assert asked.done()
        await asked
        assert "t" in broker.services.image.topics
        await broker.stop()

    asyncio.run(story())
