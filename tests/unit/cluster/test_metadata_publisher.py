from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest

from moldau.cluster import znodes
from moldau.cluster.change_notifications import KEPT_SECONDS, PURGE_SECONDS
from moldau.cluster.metadata_publisher import RETRY_SECONDS
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.alterations import ConfigChange
from moldau.coordination.embedded import EmbeddedSession
from moldau.coordination.port import Create, Node, Operation, StoreLostError
from moldau.model import BrokerId
from moldau.simulation.manual_clock import wait_until_idle

from .stage import Stage, play


def test_everything_is_read_at_the_start() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1, rack="a")
        await first.admin.create_topic(TopicSpec(name="clicks", configs={"a": "1"}))
        await first.admin.alter_broker_configs(None, [ConfigChange(name="x", value="1")])
        await first.admin.alter_broker_configs(BrokerId(7), [ConfigChange(name="y", value="2")])
        second = await stage.join(2)
        image = second.image
        assert image.cluster_id == first.image.cluster_id
        assert image.controller_id == 1
        assert image.brokers[BrokerId(1)] == first.broker
        assert image.topics == first.image.topics
        assert image.topics_by_id == first.image.topics_by_id
        assert image.default_broker_config == {"x": "1"}
        assert image.broker_configs == {7: {"y": "2"}}

    play(story)


def test_topics_made_and_deleted_by_others_are_seen() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        other = await stage.join(2)
        made = await controller.admin.create_topic(TopicSpec(name="clicks"))
        await wait_until_idle()
        assert other.topic("clicks") == made
        old, new, changed = other.seen[-1]
        assert changed == {"clicks"}
        assert "clicks" not in old.topics
        assert new is other.image
        await controller.admin.delete_topic("clicks")
        await wait_until_idle()
        assert "clicks" not in other.image.topics
        assert other.seen[-1][2] == {"clicks"}

    play(story)


def test_a_topic_deleted_and_made_again_by_others_is_seen_as_the_new_one() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        other = await stage.join(2)
        await controller.admin.create_topic(TopicSpec(name="clicks"))
        await wait_until_idle()
        await controller.admin.delete_topic("clicks")
        again = await controller.admin.create_topic(TopicSpec(name="clicks"))
        await wait_until_idle()
        assert other.topic("clicks") == again
        assert set(other.image.topics_by_id) == {again.topic_id}

    play(story)


def test_the_creation_time_of_a_topic_stays_while_it_grows_and_is_new_when_it_is_recreated() -> (
    None
):
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        other = await stage.join(2)

        def times() -> set[int]:
            return {one.topic("clicks").created_ms for one in (controller, other)}

        await controller.admin.create_topic(TopicSpec(name="clicks"))
        created_ms = stage.clock.now_ms()
        await stage.clock.advance(1)
        await controller.admin.create_partitions("clicks", 5)
        await wait_until_idle()
        assert times() == {created_ms}
        await controller.admin.delete_topic("clicks")
        await stage.clock.advance(1)
        await controller.admin.create_topic(TopicSpec(name="clicks"))
        await wait_until_idle()
        assert times() == {created_ms + 2_000}
        late = await stage.join(3)
        assert late.topic("clicks").created_ms == created_ms + 2_000

    play(story)


def test_the_controller_does_not_take_a_topic_for_younger_than_the_store_does() -> None:
    """A commit that came while the controller waited for the store is for the new topic."""

    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        transact, begun_ms = EmbeddedSession.transact, stage.clock.now_ms()

        async def answer_late(
            session: EmbeddedSession, operations: Sequence[Operation]
        ) -> Sequence[str]:
            written = await transact(session, operations)
            await stage.clock.advance(3)
            return written

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EmbeddedSession, "transact", answer_late)
            controller.publisher.hold()  # it learns of its own changes by the answers alone
            made = await controller.admin.create_topic(TopicSpec(name="clicks"))
            await controller.admin.delete_topic("clicks")
        late = await stage.join(2)
        deleted_ms = controller.image.find_deletion_ms("clicks", made.topic_id)
        assert deleted_ms == late.image.find_deletion_ms("clicks", made.topic_id)
        assert deleted_ms == late.image.find_deletion_ms("clicks", None)
        assert made.created_ms == begun_ms

    play(story)


def test_partitions_added_by_others_are_seen() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        await controller.admin.create_topic(TopicSpec(name="clicks"))
        other = await stage.join(2)
        grown = await controller.admin.create_partitions("clicks", 5)
        await wait_until_idle()
        assert other.topic("clicks") == grown

    play(story)


def test_configs_changed_by_others_are_seen() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        await controller.admin.create_topic(TopicSpec(name="clicks"))
        other = await stage.join(2)
        admin = other.admin
        await admin.alter_topic_configs("clicks", [ConfigChange(name="a", value="1")])
        await admin.alter_broker_configs(None, [ConfigChange(name="b", value="2")])
        await admin.alter_broker_configs(BrokerId(1), [ConfigChange(name="c", value="3")])
        await wait_until_idle()
        assert controller.topic("clicks").configs == {"a": "1"}
        assert controller.image.broker_config(None) == {"b": "2"}
        assert controller.image.broker_config(BrokerId(1)) == {"c": "3"}
        assert controller.image.topics == other.image.topics

    play(story)


def test_brokers_that_come_and_go_are_seen() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        second = await stage.join(2)
        await wait_until_idle()
        assert first.image.brokers == {1: first.broker, 2: second.broker}
        await second.leave()
        await wait_until_idle()
        assert set(first.image.brokers) == {1}

    play(story)


def test_a_broker_that_came_back_at_another_address_is_seen() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        second = await stage.join(2)
        await wait_until_idle()
        await second.leave()
        again = await stage.join(2, rack="new")
        await wait_until_idle()
        assert first.image.brokers[BrokerId(2)] == again.broker

    play(story)


def test_a_change_of_its_own_is_published_once() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await wait_until_idle()
        broker.seen.clear()
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        await broker.admin.create_partitions("clicks", 2)
        await broker.admin.alter_topic_configs("clicks", [ConfigChange(name="a", value="1")])
        await broker.admin.alter_broker_configs(None, [ConfigChange(name="a", value="1")])
        await broker.admin.delete_topic("clicks")
        await wait_until_idle()
        assert [changed for _, _, changed in broker.seen] == [
            {"clicks"},
            {"clicks"},
            {"clicks"},
            set(),
            {"clicks"},
        ]
        assert [new.version - old.version for old, new, _ in broker.seen] == [1] * 5

    play(story)


def test_images_follow_each_other_without_a_gap() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        other = await stage.join(2)
        for number in range(5):
            await controller.admin.create_topic(TopicSpec(name=f"t{number}"))
        await wait_until_idle()
        for member in (controller, other):
            for (_, earlier, _), (later, _, _) in zip(member.seen, member.seen[1:], strict=False):
                assert earlier is later

    play(story)


def test_the_number_of_watches_does_not_depend_on_the_topics() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        other = await stage.join(2)
        for number in range(20):
            await broker.admin.create_topic(TopicSpec(name=f"t{number}", partition_count=3))
        await wait_until_idle()
        assert len(stage.store.watches._all_of(other.session)) == 5

    play(story)


def test_a_broker_that_joins_does_not_read_old_notifications(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        await first.admin.create_topic(TopicSpec(name="clicks"))
        for number in range(1, 4):
            await first.admin.create_partitions("clicks", 1 + number)
            await first.admin.alter_topic_configs("clicks", {"a": str(number)})
        second = await stage.join(2)
        read: list[str] = []
        original = second.session.get_many

        async def noting(paths: Sequence[str]) -> Sequence[Node | None]:
            read.extend(paths)
            return await original(paths)

        monkeypatch.setattr(second.session, "get_many", noting)
        await first.admin.create_partitions("clicks", 9)
        await first.admin.alter_topic_configs("clicks", {})
        await wait_until_idle()
        assert [path for path in read if "_change_" in path] == [
            "/isr_change_notification/isr_change_0000000003",
            "/config/changes/config_change_0000000003",
        ]

    play(story)


def test_a_stopped_publisher_hears_nothing_more() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        other = await stage.join(2)
        await wait_until_idle()
        await other.publisher.stop()
        image = other.image
        await controller.admin.create_topic(TopicSpec(name="clicks"))
        await wait_until_idle()
        assert other.image is image

    play(story)


def test_a_reading_that_was_overtaken_by_a_change_is_thrown_away() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        await wait_until_idle()
        original = broker.session.get_many
        read, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(paths: list[str]) -> object:
            nodes = await original(paths)
            if any(path.startswith("/config/topics/") for path in paths) and not read.is_set():
                read.set()  # has read the state of before
                await go_on.wait()
            return nodes

        broker.session.get_many = slowly  # type: ignore[method-assign, assignment]
        reading = asyncio.ensure_future(broker.publisher.refresh_topics(["clicks"]))
        await read.wait()
        await broker.admin.alter_topic_configs("clicks", [ConfigChange(name="a", value="1")])
        grown = await broker.admin.create_partitions("clicks", 2)
        broker.seen.clear()
        go_on.set()
        await reading
        await wait_until_idle()
        assert broker.topic("clicks") == grown
        assert not broker.seen  # not even for a moment was an older state published

    play(story)


def test_a_store_that_does_not_answer_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        other = await stage.join(2)
        await wait_until_idle()
        original = other.session.children
        failures = iter([True, True, False])

        async def flaky(path: str) -> object:
            if next(failures, False):
                raise StoreLostError("no answer")
            return await original(path)

        monkeypatch.setattr(other.session, "children", flaky)
        made = await controller.admin.create_topic(TopicSpec(name="clicks"))
        await wait_until_idle()
        assert "clicks" not in other.image.topics
        await stage.clock.advance(2 * RETRY_SECONDS)
        assert other.topic("clicks") == made
        assert "no answer" in caplog.text

    play(story)


def test_a_notification_that_makes_no_sense_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        writer = stage.store.session()
        with caplog.at_level(logging.ERROR):
            await writer.transact(
                [
                    Create(path=znodes.CONFIG_CHANGE_PREFIX, data=b"{", sequential=True),
                    Create(path=znodes.ISR_CHANGE_PREFIX, data=b"[]", sequential=True),
                ]
            )
            await wait_until_idle()
        assert "config_change_0000000000: not JSON" in caplog.text
        assert "isr_change_0000000000: not a JSON object" in caplog.text
        await writer.set("/config/topics/clicks", znodes.encode_config({"a": "1"}))
        change = znodes.encode_config_change(znodes.ConfigEntity("topics", "clicks"))
        await writer.create(znodes.CONFIG_CHANGE_PREFIX, change, sequential=True)
        await wait_until_idle()
        assert broker.topic("clicks").configs == {"a": "1"}

    play(story)


def test_changes_of_clients_users_and_unknown_topics_disturb_nobody() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await wait_until_idle()
        image = broker.image
        writer = stage.store.session()
        for entity in (
            znodes.ConfigEntity("users", "alice"),
            znodes.ConfigEntity("clients", "app"),
            znodes.ConfigEntity("brokers", "not-a-number"),
            znodes.ConfigEntity("topics", "unknown"),
        ):
            data = znodes.encode_config_change(entity)
            await writer.create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)
        await wait_until_idle()
        assert broker.image is image

    play(story)


def test_a_topic_whose_nodes_break_keeps_its_last_good_state() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        made = await broker.admin.create_topic(TopicSpec(name="clicks"))
        await broker.session.set("/brokers/topics/clicks/partitions/0/state", b"nonsense")
        await broker.publisher.refresh_topics(["clicks"])
        assert broker.topic("clicks") == made

    play(story)


def test_notifications_are_deleted_when_everybody_has_had_time_to_read_them() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        await broker.admin.alter_topic_configs("clicks", {"a": "1"})
        await wait_until_idle()
        await stage.clock.advance(KEPT_SECONDS - 1)
        await broker.admin.alter_topic_configs("clicks", {"a": "2"})
        await wait_until_idle()
        names = await broker.session.children(znodes.CONFIG_CHANGES)
        assert names == ["config_change_0000000000", "config_change_0000000001"]
        await stage.clock.advance(1)
        await broker.admin.alter_topic_configs("clicks", {"a": "3"})
        await wait_until_idle()
        names = await broker.session.children(znodes.CONFIG_CHANGES)
        assert names == ["config_change_0000000001", "config_change_0000000002"]
        assert broker.topic("clicks").configs == {"a": "3"}

    play(story)


def test_what_a_change_costs_does_not_grow_with_the_changes_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change each second for ten minutes: never are more listed than those of a few seconds."""

    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        other = await stage.join(2)
        await controller.admin.create_topic(TopicSpec(name="clicks"))
        listed: list[int] = []
        children = other.session.children

        async def counting(path: str) -> Sequence[str]:
            found = await children(path)
            if path == znodes.CONFIG_CHANGES:
                listed.append(len(found))
            return found

        monkeypatch.setattr(other.session, "children", counting)
        for number in range(600):
            await controller.admin.alter_topic_configs("clicks", {"a": str(number)})
            await wait_until_idle()
            assert other.topic("clicks").configs == {"a": str(number)}
            await stage.clock.advance(1.0)
        assert max(listed) <= KEPT_SECONDS + PURGE_SECONDS + 2
        assert len(listed) <= 600 * 1.5

    play(story)


def test_a_broker_that_has_missed_notifications_reads_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was too slow: what named the change is gone, and only the newest is there."""

    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        slow = await stage.join(2)
        for name in ("clicks", "orders"):
            await controller.admin.create_topic(TopicSpec(name=name))
        await controller.admin.alter_topic_configs("clicks", {"a": "0"})
        await wait_until_idle()
        changes = slow.publisher._config_changes
        last_read = changes._last_read
        await controller.admin.alter_topic_configs("orders", {"a": "1"})
        await wait_until_idle()
        former = slow.image.topics["orders"]
        slow.publisher._publish_topics([replace(former, configs={})], ())  # it has not heard
        changes._last_read = last_read
        for number in range(2):
            await controller.admin.alter_topic_configs("clicks", {"a": f"{number}"})
        names = await controller.session.children(znodes.CONFIG_CHANGES)
        for name in names[:-1]:
            await controller.session.delete(f"{znodes.CONFIG_CHANGES}/{name}")
        changes._last_read = last_read
        await slow.publisher._refresh_configs()
        assert slow.image.topics["orders"].configs == {"a": "1"}
        assert "were missed" in caplog.text

    play(story)


def test_an_expired_session_ends_the_reading_quietly(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        other = await stage.join(2)
        await wait_until_idle()
        image = other.image
        await controller.admin.create_topic(TopicSpec(name="clicks"))
        other.session.expire()
        await wait_until_idle()
        assert other.image is image
        assert not caplog.records

    play(story)


def test_only_the_states_that_changed_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        other = await stage.join(2)
        await wait_until_idle()
        await first.admin.create_topic(
            TopicSpec(name="clicks", partition_count=50, replication_factor=2)
        )
        await wait_until_idle()
        read: list[str] = []
        original = other.session.get_many

        async def noting(paths: Sequence[str]) -> Sequence[Node | None]:
            read.extend(paths)
            return await original(paths)

        monkeypatch.setattr(other.session, "get_many", noting)
        topic = first.topic("clicks")
        plan = [
            PlannedState(
                topic, n, state := topic.partitions[n], replace(state, isr=(state.leader,))
            )
            for n in (7, 40)
        ]
        assert await first.states.write(plan)
        await wait_until_idle()
        assert other.topic("clicks") == first.topic("clicks")
        assert [path for path in read if path.startswith("/brokers/topics")] == [
            "/brokers/topics/clicks/partitions/7/state",
            "/brokers/topics/clicks/partitions/40/state",
            "/brokers/topics/clicks",
        ]

    play(story)


def test_states_of_a_topic_made_again_are_not_mixed_with_those_of_the_former_one() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        other = await stage.join(2)
        await wait_until_idle()
        spec = TopicSpec(name="clicks", partition_count=5, replication_factor=2)
        await first.admin.create_topic(spec)
        await wait_until_idle()
        topic = first.topic("clicks")
        state = replace(topic.partitions[3], isr=(topic.partitions[3].leader,))
        await first.states.write([PlannedState(topic, 3, topic.partitions[3], state)])
        await first.admin.delete_topic("clicks")
        await first.admin.create_topic(spec)
        await wait_until_idle()
        assert other.topic("clicks") == first.topic("clicks")
        assert {len(state.isr) for state in other.topic("clicks").partitions} == {2}

    play(story)
