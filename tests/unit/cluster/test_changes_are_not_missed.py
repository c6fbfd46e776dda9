"""Changes that come while metadata is read, or whose reading fails, are seen in the end."""

from __future__ import annotations

import pytest

from moldau.cluster import znodes
from moldau.cluster.change_notifications import KEPT_SECONDS, ChangeNotifications
from moldau.cluster.metadata_publisher import RETRY_SECONDS, MetadataPublisher
from moldau.cluster.metadata_reader import MetadataReader
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.alterations import ConfigChange
from moldau.coordination.port import StoreLostError
from moldau.simulation.manual_clock import SkewedClock, wait_until_idle

from .stage import Stage, play


def test_what_changes_while_everything_is_read_at_the_start_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join(1)
        session = stage.store.session()
        publisher = MetadataPublisher(session, stage.clock, first.image.cluster_id)
        read_image = MetadataReader.read_image

        async def read_and_be_overtaken(self: MetadataReader, cluster_id: str) -> MetadataImage:
            image = await read_image(self, cluster_id)
            if self is publisher._reader:
                await first.lead()
                await first.admin.create_topic(TopicSpec(name="clicks"))
                await wait_until_idle()  # the watches have told of it
            return image

        monkeypatch.setattr(MetadataReader, "read_image", read_and_be_overtaken)
        await publisher.start()
        await wait_until_idle()
        assert publisher.image.controller_id == 1
        assert "clicks" in publisher.image.topics
        await publisher.stop()
        await session.close()

    play(story)


def test_a_notified_change_whose_reading_fails_is_read_later() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        await controller.admin.create_topic(TopicSpec(name="clicks"))
        other = await stage.join(2)
        original = other.session.get_many
        failures: list[str] = []

        async def fail_once(paths: list[str]) -> object:
            if any(path.startswith("/config/topics/") for path in paths) and not failures:
                failures.append(paths[0])
                raise StoreLostError("nobody answers")
            return await original(paths)

        other.session.get_many = fail_once  # type: ignore[method-assign, assignment]
        await controller.admin.alter_topic_configs("clicks", [ConfigChange(name="a", value="1")])
        await wait_until_idle()
        assert failures
        await stage.clock.advance(2 * RETRY_SECONDS)
        assert other.topic("clicks").configs == {"a": "1"}

    play(story)


def test_a_broker_whose_clock_is_ahead_leaves_new_notifications_to_the_others() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        session = stage.store.session()
        ahead = SkewedClock(stage.clock, round(2000 * KEPT_SECONDS))
        notifications = ChangeNotifications(
            session, ahead, znodes.CONFIG_CHANGES, znodes.decode_config_change
        )
        await first.admin.alter_broker_configs(None, [ConfigChange(name="x", value="1")])
        assert len((await notifications.read_new()).found) == 1
        assert len(await session.children(znodes.CONFIG_CHANGES)) == 1
        await session.close()

    play(story)


def test_a_name_that_was_to_be_skipped_is_another_notifications_in_a_store_that_was_set_back() -> (
    None
):
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        session = stage.store.session()
        notifications = ChangeNotifications(
            session, stage.clock, znodes.CONFIG_CHANGES, znodes.decode_config_change
        )
        notifications.skip_notification(
            f"{znodes.CONFIG_CHANGES}/config_change_0000000000"
        )  # and never read
        await notifications.skip_to_end()  # in a new session
        await first.admin.alter_broker_configs(None, [ConfigChange(name="x", value="1")])
        assert await session.children(znodes.CONFIG_CHANGES) == ["config_change_0000000000"]
        assert len((await notifications.read_new()).found) == 1
        await session.close()

    play(story)
