"""Registration, controllership, elections and the identity of the cluster."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence

import pytest

from moldau.cluster import znodes
from moldau.cluster.broker_registration import ensure_znodes, generate_broker_id
from moldau.cluster.rules.metadata_image import NO_TOPIC_ID
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.coordination.port import Node
from moldau.errors import ForeignStoreError, NotControllerError, StartupError
from moldau.model import NO_BROKER
from moldau.simulation.manual_clock import wait_until_idle

from .stage import Member, Stage, play


async def state_of(member: Member, topic: str, partition: int) -> dict[str, object]:
    node = await member.session.get(znodes.partition_state_path(topic, partition))
    assert node is not None
    fields = json.loads(node.data)
    assert isinstance(fields, dict)
    return fields


# Identity


def test_the_layout_is_complete_after_the_first_start() -> None:
    async def story(stage: Stage) -> None:
        session = stage.store.session()
        cluster_id = await ensure_znodes(session)
        assert len(cluster_id) == 22
        for path in znodes.PERSISTENT_PATHS:
            assert await session.get(path) is not None, path
        top = ["admin", "brokers", "cluster", "config", "consumers", "isr_change_notification"]
        assert set(top) < set(await session.children("/"))

    play(story)


def test_the_cluster_keeps_its_id() -> None:
    async def story(stage: Stage) -> None:
        first = await ensure_znodes(stage.store.session())
        assert await ensure_znodes(stage.store.session()) == first
        assert await ensure_znodes(stage.store.session(), first) == first

    play(story)


def test_a_new_cluster_takes_the_id_of_the_data_folder() -> None:
    async def story(stage: Stage) -> None:
        wanted = "HApw8pLOT3-qhrqtyo5oFQ"
        assert await ensure_znodes(stage.store.session(), wanted) == wanted
        assert await ensure_znodes(stage.store.session()) == wanted

    play(story)


def test_a_store_that_was_emptied_meanwhile_is_not_laid_out_anew() -> None:
    async def story(stage: Stage) -> None:
        session = stage.store.session()
        cluster_id = await ensure_znodes(session)
        await session.delete_tree(znodes.GROUP_CONFIGS)  # as an older release leaves it
        assert await ensure_znodes(session, cluster_id, may_be_new=False) == cluster_id
        assert await session.get(znodes.GROUP_CONFIGS) is not None
        for name in await session.children("/"):
            await session.delete_tree(f"/{name}")
        with pytest.raises(ForeignStoreError, match="restore it from a backup"):
            await ensure_znodes(session, cluster_id, may_be_new=False)
        assert await session.children("/") == []

    play(story)


def test_a_data_folder_of_another_cluster_stops_the_start() -> None:
    async def story(stage: Stage) -> None:
        await ensure_znodes(stage.store.session())
        with pytest.raises(StartupError, match="belongs to cluster other"):
            await ensure_znodes(stage.store.session(), "other")

    play(story)


def test_brokers_that_start_at_once_agree_on_the_id() -> None:
    async def story(stage: Stage) -> None:
        sessions = [stage.store.session() for _ in range(5)]
        ids = await asyncio.gather(*(ensure_znodes(session) for session in sessions))
        assert len(set(ids)) == 1

    play(story)


def test_a_cluster_id_that_makes_no_sense_stops_the_start() -> None:
    async def story(stage: Stage) -> None:
        session = stage.store.session()
        await session.create("/cluster/id", b"nonsense", parents=True)
        with pytest.raises(StartupError, match="/cluster/id"):
            await ensure_znodes(session)

    play(story)


# Registration


def test_a_broker_is_in_the_image_when_registration_returns() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join(1, rack="a")
        assert broker.image.brokers == {1: broker.broker}
        assert broker.broker.rack == "a"
        node = await broker.session.get("/brokers/ids/1")
        assert node is not None
        assert node.ephemeral_owner == broker.session.session_id
        assert node.created_id == broker.broker.epoch

    play(story)


def test_a_second_broker_of_one_id_is_refused() -> None:
    async def story(stage: Stage) -> None:
        await stage.join(1)
        with pytest.raises(StartupError, match="id 1 is registered already"):
            await stage.join(1)

    play(story)


def test_a_broker_that_comes_back_has_a_higher_epoch() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join(1)
        await first.leave()
        second = await stage.join(1)
        assert second.broker.epoch > first.broker.epoch

    play(story)


def test_generated_ids_are_above_the_reserved_ones_and_never_the_same() -> None:
    async def story(stage: Stage) -> None:
        session = stage.store.session()
        await ensure_znodes(session)
        ids = [await generate_broker_id(session, 1000) for _ in range(3)]
        assert ids == [1001, 1002, 1003]

    play(story)


# Controllership


def test_the_first_broker_becomes_the_controller() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join(1)
        assert broker.image.controller_id == NO_BROKER
        with pytest.raises(NotControllerError, match="none just now"):
            broker.controllership.require_term()
        await broker.lead()
        assert broker.image.controller_id == 1
        assert broker.controllership.require_term().epoch == 1
        node = await broker.session.get("/controller")
        assert node is not None
        assert json.loads(node.data) == {
            "version": 1,
            "brokerid": 1,
            "timestamp": str(stage.clock.now_ms()),
        }

    play(story)


def test_the_second_broker_does_not_become_the_controller() -> None:
    async def story(stage: Stage) -> None:
        await stage.join_and_lead(1)
        other = await stage.join(2)
        assert await other.controller.start() is None
        assert other.controllership.find_term() is None
        assert other.image.controller_id == 1

    play(story)


def test_of_brokers_that_claim_at_once_one_becomes_the_controller() -> None:
    async def story(stage: Stage) -> None:
        members = [await stage.join(number) for number in (1, 2, 3)]
        terms = await asyncio.gather(*(member.controllership.claim() for member in members))
        assert sum(term is not None for term in terms) == 1

    play(story)


def test_each_controller_has_a_higher_epoch_and_the_former_one_is_fenced() -> None:
    async def story(stage: Stage) -> None:
        former = await stage.join_and_lead(1)
        term = former.controllership.require_term()
        await former.session.delete("/controller")  # as ZooKeeper does when a session ends
        successor = await stage.join_and_lead(2)
        assert successor.controllership.require_term().epoch == term.epoch + 1
        with pytest.raises(NotControllerError):
            await former.controllership.transact(term, ())
        await successor.controllership.transact(successor.controllership.require_term(), ())

    play(story)


def test_a_session_that_ends_ends_the_term() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        other = await stage.join(2)
        broker.session.expire()
        await wait_until_idle()
        assert broker.controllership.find_term() is None
        assert other.image.controller_id == NO_BROKER
        assert set(other.image.brokers) == {2}

    play(story)


# Elections


def test_a_restarted_broker_leads_its_partitions_under_a_new_epoch() -> None:
    async def story(stage: Stage) -> None:
        first = await stage.join_and_lead(1)
        await first.admin.create_topic(TopicSpec(name="clicks", partition_count=2))
        await first.leave()
        again = await stage.join_and_lead(1)
        for partition, state in enumerate(again.topic("clicks").partitions):
            assert (state.leader, state.leader_epoch, state.isr) == (1, 1, (1,))
            assert state.version == 1
            assert await state_of(again, "clicks", partition) == {
                "controller_epoch": 1,  # it wrote that itself
                "leader": 1,
                "version": 1,
                "leader_epoch": 1,
                "isr": [1],
            }

    play(story)


def test_a_topic_survives_any_number_of_restarts() -> None:
    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        made = await broker.admin.create_topic(TopicSpec(name="clicks", configs={"a": "1"}))
        for restart in range(1, 4):
            await broker.leave()
            broker = await stage.join_and_lead(1)
            assert broker.topic("clicks").topic_id == made.topic_id
            assert broker.topic("clicks").configs == {"a": "1"}
            assert broker.topic("clicks").partitions[0].leader_epoch == restart

    play(story)


def test_partitions_of_a_broker_that_is_gone_have_no_leader() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        other = await stage.join(2)
        await wait_until_idle()
        await controller.admin.create_topic(TopicSpec(name="alone", assignments={0: [2]}))
        await controller.admin.create_topic(TopicSpec(name="both", assignments={0: [2, 1]}))
        await other.leave()
        await wait_until_idle()
        await controller.elect_leaders()
        (gone,), (moved,) = (controller.topic(name).partitions for name in ("alone", "both"))
        assert (gone.leader, gone.isr, gone.leader_epoch) == (NO_BROKER, (2,), 1)
        assert (moved.leader, moved.isr, moved.leader_epoch) == (1, (1,), 1)

    play(story)


def test_other_brokers_hear_of_elections() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        follower = await stage.join(2)
        leader = await stage.join(3)
        await wait_until_idle()
        await controller.admin.create_topic(TopicSpec(name="clicks", assignments={0: [3, 2]}))
        await wait_until_idle()
        assert follower.topic("clicks").partitions[0].leader == 3
        await leader.leave()
        await wait_until_idle()
        await controller.elect_leaders()
        await wait_until_idle()
        assert follower.topic("clicks").partitions[0].leader == 2
        assert follower.topic("clicks") == controller.topic("clicks")

    play(story)


def test_an_election_overtaken_by_another_write_is_held_again() -> None:
    async def story(stage: Stage) -> None:
        controller = await stage.join_and_lead(1)
        leader, _ = await stage.join(2), await stage.join(3)
        await wait_until_idle()
        await controller.admin.create_topic(TopicSpec(name="clicks", assignments={0: [2, 1, 3]}))
        shrunk = b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,3]}'
        await leader.session.set("/brokers/topics/clicks/partitions/0/state", shrunk)
        await leader.leave()
        await wait_until_idle()
        await controller.elect_leaders()
        state = controller.topic("clicks").partitions[0]
        assert (state.leader, state.isr, state.version) == (3, (3,), 2)

    play(story)


def test_many_partitions_are_elected_in_several_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.cluster.state_writer.MAX_WRITE_BYTES", 1300)

    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        for number in range(4):
            await broker.admin.create_topic(TopicSpec(name=f"t{number}", partition_count=2))
        await broker.leave()
        again = await stage.join_and_lead(1)
        epochs = [p.leader_epoch for t in again.image.topics.values() for p in t.partitions]
        assert epochs == [1] * 8

    play(story)


def test_a_broker_does_not_read_again_what_it_elected_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moldau.cluster.state_writer.MAX_WRITE_BYTES", 1)

    async def story(stage: Stage) -> None:
        broker = await stage.join_and_lead(1)
        await broker.admin.create_topic(TopicSpec(name="clicks", partition_count=3))
        await broker.leave()
        again = await stage.join(1)
        await wait_until_idle()
        read: list[str] = []
        original = again.session.get_many

        async def noting(paths: Sequence[str]) -> Sequence[Node | None]:
            read.extend(paths)
            return await original(paths)

        monkeypatch.setattr(again.session, "get_many", noting)
        await again.lead()
        await wait_until_idle()
        assert [state.leader_epoch for state in again.topic("clicks").partitions] == [1, 1, 1]
        assert not [path for path in read if path.startswith("/brokers/topics/clicks/")]

    play(story)


def test_topics_of_old_tools_get_an_id_and_leaders() -> None:
    async def story(stage: Stage) -> None:
        session = stage.store.session()
        await ensure_znodes(session)
        old = b'{"version":1,"partitions":{"0":[1],"1":[1]}}'
        await session.create("/brokers/topics/old", old)
        broker = await stage.join(1)
        assert broker.topic("old").topic_id == NO_TOPIC_ID
        assert broker.topic("old").partitions[0].leader == NO_BROKER
        await session.create("/brokers/topics/old/partitions")
        await broker.lead()
        topic = broker.topic("old")
        assert topic.topic_id != NO_TOPIC_ID
        assert broker.image.topics_by_id[topic.topic_id] is topic
        assert [(p.leader, p.leader_epoch) for p in topic.partitions] == [(1, 0), (1, 0)]
        fresh = await stage.join(2)
        assert fresh.topic("old") == topic

    play(story)


def test_a_topic_of_an_old_tool_needs_no_folder_for_its_partitions() -> None:
    async def story(stage: Stage) -> None:
        session = stage.store.session()
        await ensure_znodes(session)
        await session.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1]}}')
        broker = await stage.join_and_lead(1)
        assert broker.topic("old").partitions[0].leader == 1

    play(story)


def test_a_broken_topic_does_not_keep_the_others_from_their_leaders(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(stage: Stage) -> None:
        session = stage.store.session()
        await ensure_znodes(session)
        await session.create("/brokers/topics/broken", b"nonsense")
        await session.create("/brokers/topics/whole", b'{"version":1,"partitions":{"0":[1]}}')
        await session.create("/brokers/topics/whole/partitions")
        with caplog.at_level(logging.ERROR):
            broker = await stage.join_and_lead(1)
        assert set(broker.image.topics) == {"whole"}
        assert broker.topic("whole").partitions[0].leader == 1
        assert "/brokers/topics/broken: not JSON" in caplog.text

    play(story)
