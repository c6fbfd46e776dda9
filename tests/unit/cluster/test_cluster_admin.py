from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import pytest

from moldau.cluster import broker_registration, znodes
from moldau.cluster.rules.metadata_image import NO_TOPIC_ID
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.alterations import ConfigChange, ConfigOperation
from moldau.coordination.port import BadVersionError, Coordination, Node, Operation, StoreLostError
from moldau.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    NotControllerError,
    RequestTimedOutError,
    TopicExistsError,
    UnknownTopicError,
)
from moldau.model import BrokerId
from moldau.simulation.manual_clock import wait_until_idle

from .stage import Member, Stage, play

NAMES = "abcdefghijklmnopqrst"


async def require(session: Coordination, path: str) -> Node:
    node = await session.get(path)
    assert node is not None, path
    return node


async def fields(session: Coordination, path: str) -> object:
    return json.loads((await require(session, path)).data)


def interrupt(
    monkeypatch: pytest.MonkeyPatch, member: Member, meanwhile: Callable[[], Awaitable[object]]
) -> None:
    """Let something happen once, between what the member read and what it writes next."""
    original = member.session.transact
    happenings = [meanwhile]

    async def transact(operations: Sequence[Operation]) -> Sequence[str]:
        while happenings:
            await happenings.pop()()
        return await original(operations)

    monkeypatch.setattr(member.session, "transact", transact)


# Creating


def test_a_topic_is_there_when_the_call_returns() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        made = await broker.admin.create_topic(TopicSpec(name="clicks", partition_count=2))
        assert broker.topic("clicks") is made
        assert broker.image.topics_by_id[made.topic_id] is made
        assert [p.leader for p in made.partitions] == [1, 1]
        assert broker.seen[-1][2] == {"clicks"}

    play(story)


def test_a_topic_is_stored_in_the_classic_nodes() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        spec = TopicSpec(name="clicks", partition_count=2, configs={"retention.ms": "1"})
        await broker.admin.create_topic(spec)
        session = broker.session
        assert await fields(session, "/brokers/topics/clicks") == {
            "version": 3,
            "topic_id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "partitions": {"0": [1], "1": [1]},
            "adding_replicas": {},
            "removing_replicas": {},
        }
        assert await fields(session, "/brokers/topics/clicks/partitions/1/state") == {
            "controller_epoch": 1,
            "leader": 1,
            "version": 1,
            "leader_epoch": 0,
            "isr": [1],
        }
        assert await fields(session, "/config/topics/clicks") == {
            "version": 1,
            "config": {"retention.ms": "1"},
        }

    play(story)


def test_what_the_call_returns_is_what_a_fresh_reading_finds() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        spec = TopicSpec(name="clicks", partition_count=2, configs={"retention.ms": "1"})
        made = await broker.admin.create_topic(spec)
        grown = await broker.admin.create_partitions("clicks", 3)
        other = await stage.join(2)
        assert other.topic("clicks") == grown == broker.topic("clicks")
        assert grown.topic_id == made.topic_id

    play(story)


def test_of_two_creations_of_one_name_one_is_told_that_it_exists() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        specs = [TopicSpec(name="clicks", partition_count=n) for n in (1, 2)]
        results = await asyncio.gather(
            *map(broker.admin.create_topic, specs), return_exceptions=True
        )
        errors = [result for result in results if isinstance(result, Exception)]
        assert [type(error) for error in errors] == [TopicExistsError]
        made = next(result for result in results if not isinstance(result, BaseException))
        assert broker.topic("clicks") == made
        with pytest.raises(TopicExistsError):
            await broker.admin.create_topic(specs[0])

    play(story)


def test_many_topics_are_made_at_once() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        specs = [TopicSpec(name=f"topic-{number}") for number in range(50)]
        await asyncio.gather(*map(broker.admin.create_topic, specs))
        assert len(broker.image.topics) == 50
        assert len(broker.image.topics_by_id) == 50

    play(story)


def test_validating_only_says_what_would_be_made_and_makes_nothing() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        version = broker.image.version
        spec = TopicSpec(name="clicks", partition_count=2)
        planned = await broker.admin.create_topic(spec, validate_only=True)
        assert len(planned.partitions) == 2
        assert planned.topic_id == NO_TOPIC_ID
        assert await broker.session.get("/brokers/topics/clicks") is None
        assert broker.image.version == version
        with pytest.raises(InvalidPartitionsError):
            await broker.admin.create_topic(
                TopicSpec(name="clicks", partition_count=0), validate_only=True
            )

    play(story)


def test_a_topic_with_a_bad_config_is_not_made() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        with pytest.raises(InvalidConfigError, match="bad=1 is wrong"):
            await broker.admin.create_topic(TopicSpec(name="clicks", configs={"bad": "1"}))
        assert await broker.session.get("/brokers/topics/clicks") is None

    play(story)


def test_a_config_left_behind_by_a_former_topic_is_replaced() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        stale = znodes.encode_config({"retention.ms": "1"})
        await broker.session.create("/config/topics/clicks", stale)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        assert broker.topic("clicks").configs == {}
        assert (await require(broker.session, "/config/topics/clicks")).version == 1

    play(story)


def test_a_topic_that_the_image_left_out_as_broken_exists_all_the_same() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.session.create("/brokers/topics/clicks", b"nonsense")
        await wait_until_idle()
        assert "clicks" not in broker.image.topics
        with pytest.raises(TopicExistsError):
            await broker.admin.create_topic(TopicSpec(name="clicks"))

    play(story)


def test_replicas_are_spread_over_the_living_brokers() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await stage.join(2)
        await stage.join(3)
        await wait_until_idle()
        spec = TopicSpec(name="clicks", partition_count=3, replication_factor=2)
        made = await broker.admin.create_topic(spec)
        assert [p.replicas for p in made.partitions] == [(1, 2), (2, 3), (3, 1)]
        assert [p.leader for p in made.partitions] == [1, 2, 3]
        assert [p.isr for p in made.partitions] == [(1, 2), (2, 3), (3, 1)]

    play(story)


# Deleting


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        made = await broker.admin.create_topic(TopicSpec(name="clicks", partition_count=3))
        await broker.session.create("/admin/delete_topics/clicks")
        assert await broker.admin.delete_topic("clicks") == made
        assert not broker.image.topics
        assert not broker.image.topics_by_id
        for path in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
            assert await broker.session.children(path) == []
        assert broker.seen[-1][2] == {"clicks"}

    play(story)


def test_a_topic_made_again_has_another_id_and_begins_anew() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        first = await broker.admin.create_topic(TopicSpec(name="clicks", configs={"a": "1"}))
        await broker.admin.delete_topic("clicks")
        second = await broker.admin.create_topic(TopicSpec(name="clicks"))
        assert first.topic_id != second.topic_id
        assert second.configs == {}
        assert set(broker.image.topics_by_id) == {second.topic_id}

    play(story)


def test_deleting_an_unknown_topic_is_refused_also_the_second_time() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        results = await asyncio.gather(
            broker.admin.delete_topic("clicks"),
            broker.admin.delete_topic("clicks"),
            broker.admin.delete_topic("views"),
            return_exceptions=True,
        )
        errors = [type(result) for result in results if isinstance(result, BaseException)]
        assert errors == [UnknownTopicError] * 2

    play(story)


def test_creating_growing_and_deleting_at_once_ends_in_one_state() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        await asyncio.gather(
            broker.admin.create_partitions("clicks", 4),
            broker.admin.delete_topic("clicks"),
            broker.admin.create_topic(TopicSpec(name="clicks", partition_count=2)),
            broker.admin.alter_topic_configs("clicks", [ConfigChange(name="a", value="1")]),
            return_exceptions=True,
        )
        await wait_until_idle()
        fresh = await stage.join(2)
        assert fresh.image.topics == broker.image.topics
        assert fresh.image.topics_by_id == broker.image.topics_by_id

    play(story)


# Growing


def test_a_topic_grows_and_its_old_partitions_stay_as_they_were() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        before = await broker.admin.create_topic(TopicSpec(name="clicks", partition_count=2))
        grown = await broker.admin.create_partitions("clicks", 3)
        assert grown.partitions[:2] == before.partitions
        assert grown.partitions[2].leader == 1
        assert broker.topic("clicks") is grown
        paths = await broker.session.children("/brokers/topics/clicks/partitions")
        assert paths == ["0", "1", "2"]

    play(story)


def test_new_partitions_can_be_assigned_by_hand() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await stage.join(2)
        await wait_until_idle()
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        grown = await broker.admin.create_partitions("clicks", 3, [[2], [1]])
        assert [p.leader for p in grown.partitions] == [1, 2, 1]

    play(story)


def test_growth_can_be_validated_only() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        before = await broker.admin.create_topic(TopicSpec(name="clicks"))
        planned = await broker.admin.create_partitions("clicks", 3, validate_only=True)
        assert len(planned.partitions) == 3
        assert broker.topic("clicks") == before
        with pytest.raises(InvalidPartitionsError):
            await broker.admin.create_partitions("clicks", 1, validate_only=True)

    play(story)


def test_an_unknown_topic_does_not_grow() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        with pytest.raises(UnknownTopicError, match="there is no topic 'clicks'"):
            await broker.admin.create_partitions("clicks", 2)

    play(story)


def test_of_two_who_grow_a_topic_to_one_size_the_second_is_refused() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        results = await asyncio.gather(
            broker.admin.create_partitions("clicks", 3),
            broker.admin.create_partitions("clicks", 3),
            return_exceptions=True,
        )
        errors = [type(result) for result in results if isinstance(result, BaseException)]
        assert errors == [InvalidPartitionsError]
        assert len(broker.topic("clicks").partitions) == 3

    play(story)


def test_growth_begins_with_what_is_stored_not_with_an_older_image() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        made = await broker.admin.create_topic(TopicSpec(name="clicks"))
        stored = znodes.TopicAssignment(
            topic_id=made.topic_id, replicas=((BrokerId(1),), (BrokerId(2),))
        )
        writer = stage.store.session()  # does not tell anybody
        await writer.set("/brokers/topics/clicks", znodes.encode_topic(stored))
        grown = await broker.admin.create_partitions("clicks", 3)
        assert [state.replicas for state in grown.partitions] == [(1,), (2,), (1,)]
        assert broker.topic("clicks") == grown

    play(story)


def test_a_topic_that_goes_while_it_grows_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        writer = stage.store.session()
        interrupt(monkeypatch, broker, lambda: writer.delete_tree("/brokers/topics/clicks"))
        with pytest.raises(UnknownTopicError):
            await broker.admin.create_partitions("clicks", 3)
        assert "clicks" not in broker.image.topics

    play(story)


# Configs


def test_configs_of_a_topic_are_changed_stored_and_announced() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks", configs={"a": "1", "b": "2"}))
        changes = [
            ConfigChange(name="a", value="3"),
            ConfigChange(name="b", operation=ConfigOperation.DELETE),
            ConfigChange(name="cleanup.policy", value="compact", operation=ConfigOperation.APPEND),
        ]
        expected = {"a": "3", "cleanup.policy": "delete,compact"}
        assert await broker.admin.alter_topic_configs("clicks", changes) == expected
        assert broker.topic("clicks").configs == expected
        stored = await fields(broker.session, "/config/topics/clicks")
        assert stored == {"version": 1, "config": expected}
        change = "/config/changes/config_change_0000000000"
        assert await fields(broker.session, change) == {
            "version": 2,
            "entity_path": "topics/clicks",
        }

    play(story)


def test_configs_of_a_topic_are_replaced_as_a_whole() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks", configs={"a": "1", "b": "2"}))
        await broker.admin.alter_topic_configs("clicks", {"c": "3"})
        assert broker.topic("clicks").configs == {"c": "3"}

    play(story)


def test_a_bad_config_changes_nothing() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks", configs={"a": "1"}))
        changes = [ConfigChange(name="a", value="2"), ConfigChange(name="bad", value="1")]
        with pytest.raises(InvalidConfigError):
            await broker.admin.alter_topic_configs("clicks", changes)
        assert broker.topic("clicks").configs == {"a": "1"}
        assert await broker.session.children("/config/changes") == []

    play(story)


def test_config_changes_can_be_validated_only() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        changes = [ConfigChange(name="a", value="2")]
        await broker.admin.alter_topic_configs("clicks", changes, validate_only=True)
        await broker.admin.alter_broker_configs(None, {"a": "1"}, validate_only=True)
        assert broker.topic("clicks").configs == {}
        assert broker.image.default_broker_config == {}
        bad = [ConfigChange(name="bad", value="2")]
        with pytest.raises(InvalidConfigError):
            await broker.admin.alter_topic_configs("clicks", bad, validate_only=True)

    play(story)


def test_a_change_that_changes_nothing_is_not_announced() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks", configs={"a": "1"}))
        await broker.admin.alter_topic_configs("clicks", [ConfigChange(name="a", value="1")])
        assert await broker.session.children("/config/changes") == []

    play(story)


def test_configs_of_an_unknown_topic_are_refused() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        change = [ConfigChange(name="a", value="1")]
        with pytest.raises(UnknownTopicError):
            await broker.admin.alter_topic_configs("clicks", change)
        assert await broker.session.get("/config/topics/clicks") is None

    play(story)


def test_many_changes_at_once_are_all_kept() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        await asyncio.gather(
            *(
                broker.admin.alter_topic_configs("clicks", [ConfigChange(name=name, value="1")])
                for name in NAMES
            )
        )
        assert broker.topic("clicks").configs == dict.fromkeys(NAMES, "1")
        stored = await require(broker.session, "/config/topics/clicks")
        assert znodes.decode_config("/", stored.data) == dict.fromkeys(NAMES, "1")

    play(story)


def test_a_change_by_another_broker_at_the_same_moment_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        other = await stage.join(2)
        by_other = [ConfigChange(name="b", value="2")]
        interrupt(monkeypatch, broker, lambda: other.admin.alter_topic_configs("clicks", by_other))
        await broker.admin.alter_topic_configs("clicks", [ConfigChange(name="a", value="1")])
        await wait_until_idle()
        for member in (broker, other):
            assert member.topic("clicks").configs == {"a": "1", "b": "2"}

    play(story)


def test_a_topic_that_goes_meanwhile_leaves_no_config_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        await controller.admin.create_topic(TopicSpec(name="clicks"))
        other = await stage.join(2)
        await other.session.delete("/config/topics/clicks")  # so that it has to be made
        interrupt(monkeypatch, other, lambda: controller.admin.delete_topic("clicks"))
        with pytest.raises(UnknownTopicError):
            await other.admin.alter_topic_configs("clicks", [ConfigChange(name="a", value="1")])
        assert await controller.session.get("/config/topics/clicks") is None

    play(story)


def test_configs_of_one_broker_and_of_all_are_kept_apart() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.alter_broker_configs(None, [ConfigChange(name="a", value="all")])
        await broker.admin.alter_broker_configs(BrokerId(1), [ConfigChange(name="a", value="one")])
        assert broker.image.default_broker_config == {"a": "all"}
        assert broker.image.broker_configs == {1: {"a": "one"}}
        assert await broker.session.children("/config/brokers") == ["1", "<default>"]
        await broker.admin.alter_broker_configs(BrokerId(1), {})
        assert broker.image.broker_config(BrokerId(1)) == {}
        assert broker.image.broker_config(None) == {"a": "all"}

    play(story)


def test_a_config_node_that_makes_no_sense_is_mended_by_a_change() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks", configs={"retention.ms": "7"}))
        await broker.session.set("/config/topics/clicks", b"nonsense")
        change = ConfigChange(name="retention.bytes", value="9")
        configs = await broker.admin.alter_topic_configs("clicks", [change])
        assert configs == {"retention.ms": "7", "retention.bytes": "9"}
        node = await broker.session.get("/config/topics/clicks")
        assert node is not None
        assert znodes.decode_config("", node.data) == configs

    play(story)


# Not the controller, and other trouble


def test_only_the_controller_changes_topics() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        await controller.admin.create_topic(TopicSpec(name="clicks"))
        other = await stage.join(2)
        with pytest.raises(NotControllerError, match="broker 1 is"):
            await other.admin.create_topic(TopicSpec(name="views"))
        with pytest.raises(NotControllerError):
            await other.admin.delete_topic("clicks")
        with pytest.raises(NotControllerError):
            await other.admin.create_partitions("clicks", 2)
        await other.admin.alter_topic_configs("clicks", [ConfigChange(name="a", value="1")])
        await wait_until_idle()
        assert controller.topic("clicks").configs == {"a": "1"}

    play(story)


def test_a_controller_that_was_replaced_changes_nothing_any_more() -> None:
    async def story(stage: Stage) -> None:
        former = await stage.join_and_lead(1)
        await former.session.set(znodes.CONTROLLER_EPOCH, b"2")  # by its successor
        with pytest.raises(NotControllerError, match="has been replaced"):
            await former.admin.create_topic(TopicSpec(name="clicks"))
        assert await former.session.get("/brokers/topics/clicks") is None
        assert former.controllership.find_term() is None

    play(story)


def test_a_broker_without_a_session_is_not_the_controller() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))
        broker.session.expire()
        await wait_until_idle()
        with pytest.raises(NotControllerError):
            await broker.admin.create_topic(TopicSpec(name="views"))
        with pytest.raises(NotControllerError, match="left the cluster"):
            await broker.admin.alter_topic_configs("clicks", {})

    play(story)


def test_a_store_that_cannot_be_written_is_a_time_out_to_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)

        async def fail(operations: object) -> None:
            raise StoreLostError("the disk is full")

        monkeypatch.setattr(broker.session, "transact", fail)
        with pytest.raises(RequestTimedOutError, match="the disk is full"):
            await broker.admin.create_topic(TopicSpec(name="clicks"))
        assert not broker.image.topics

    play(story)


def test_a_race_that_is_lost_again_and_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks"))

        async def lose(operations: object) -> None:
            raise BadVersionError("always late")

        monkeypatch.setattr(broker.session, "transact", lose)
        with pytest.raises(RequestTimedOutError, match="always late"):
            await broker.admin.create_partitions("clicks", 2)

    play(story)


def test_topic_ids_never_look_like_a_flag_on_a_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    candidates = iter([UUID(bytes=b"\xfb" + bytes(15)), UUID(bytes=b"\x01" + bytes(15))])
    monkeypatch.setattr(broker_registration, "uuid4", lambda: next(candidates))
    assert broker_registration.new_topic_id().bytes[0] == 1
