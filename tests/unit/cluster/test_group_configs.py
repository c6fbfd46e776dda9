"""Configs of groups: stored in the classic way, seen by every broker, and not lost."""

from __future__ import annotations

import json

import pytest

from cluster.stage import Stage, play
from moldau.cluster import znodes
from moldau.config.alterations import ConfigChange, ConfigOperation
from moldau.errors import InvalidConfigError
from moldau.simulation.manual_clock import wait_until_idle

STRANGE = ("a/b", ".", "..", "<default>", "für alle", "100%", "\x00", "a b")


def test_configs_of_a_group_are_stored_announced_and_seen_by_others() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        other = await stage.join(2)
        changes = [ConfigChange(name="a", value="1"), ConfigChange(name="b", value="2")]
        assert await other.admin.alter_group_configs("readers", changes) == {"a": "1", "b": "2"}
        assert other.image.group_config("readers") == {"a": "1", "b": "2"}
        await wait_until_idle()
        assert first.image.group_config("readers") == {"a": "1", "b": "2"}
        node = await first.session.get("/config/groups/readers")
        assert node is not None
        assert json.loads(node.data) == {"version": 1, "config": {"a": "1", "b": "2"}}
        names = await first.session.children(znodes.CONFIG_CHANGES)
        told = await first.session.get(f"{znodes.CONFIG_CHANGES}/{names[-1]}")
        assert told is not None
        assert json.loads(told.data) == {"version": 2, "entity_path": "groups/readers"}
        removal = ConfigChange(name="a", operation=ConfigOperation.DELETE)
        await first.admin.alter_group_configs("readers", [removal])
        await wait_until_idle()
        assert other.image.group_config("readers") == {"b": "2"}
        await first.admin.alter_group_configs("readers", {})
        await wait_until_idle()
        assert not other.image.group_configs

    play(story)


def test_any_text_is_a_group() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        other = await stage.join(2)
        for number, group_id in enumerate(STRANGE):
            await first.admin.alter_group_configs(group_id, {"a": str(number)})
        await wait_until_idle()
        wanted = {group_id: {"a": str(number)} for number, group_id in enumerate(STRANGE)}
        assert other.image.group_configs == wanted
        late = await stage.join(3)
        assert late.image.group_configs == wanted

    play(story)


def test_a_refused_or_validated_change_changes_nothing() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        with pytest.raises(InvalidConfigError):
            await broker.admin.alter_group_configs("readers", {"bad": "1"})
        await broker.admin.alter_group_configs("readers", {"a": "1"}, validate_only=True)
        assert not broker.image.group_configs
        assert await broker.session.get("/config/groups/readers") is None

    play(story)


def test_a_damaged_node_keeps_the_last_good_values_and_a_change_mends_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.alter_group_configs("readers", {"a": "1"})
        await broker.session.set("/config/groups/readers", b"nonsense")
        await broker.publisher.read_again()
        assert broker.image.group_config("readers") == {"a": "1"}
        assert "settings of group readers cannot be read" in caplog.text
        other = await stage.join(2)
        assert not other.image.group_configs
        await broker.admin.alter_group_configs("readers", [ConfigChange(name="b", value="2")])
        await wait_until_idle()
        assert other.image.group_config("readers") == {"a": "1", "b": "2"}

    play(story)


def test_what_changed_while_nobody_listened_is_read_with_a_new_session() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.alter_group_configs("gone", {"a": "1"})
        await broker.admin.alter_group_configs("kept", {"a": "1"})
        broker.publisher.hold()
        writer = stage.store.session()
        await writer.delete("/config/groups/gone")
        await writer.create("/config/groups/new", znodes.encode_config({"a": "2"}))
        await broker.publisher.read_in_new_session()
        assert broker.image.group_configs == {"kept": {"a": "1"}, "new": {"a": "2"}}

    play(story)


def test_many_changes_at_once_by_two_brokers_are_all_kept() -> None:
    async def story(stage: Stage) -> None:
        brokers = [await stage.join_and_lead(1), await stage.join(2)]
        for number in range(20):
            change = ConfigChange(name=f"a{number}", value="1")
            await brokers[number % 2].admin.alter_group_configs("readers", [change])
        await wait_until_idle()
        for broker in brokers:
            assert len(broker.image.group_config("readers")) == 20

    play(story)


def test_a_change_that_another_broker_has_confirmed_is_known_after_a_refresh() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        other = await stage.join(2)
        broker.publisher.hold()  # its watches are silent
        await other.admin.alter_group_configs("readers", {"a": "1"})
        await wait_until_idle()
        assert not broker.image.group_configs
        await broker.publisher.refresh_group_config("readers")
        assert broker.image.group_config("readers") == {"a": "1"}

    play(story)
