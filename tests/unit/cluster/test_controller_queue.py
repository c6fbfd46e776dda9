"""The controller at work: brokers come and go, tools and clients ask for things."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from moldau.cluster import znodes
from moldau.cluster.broker_registration import ensure_znodes
from moldau.cluster.controller import ControllerSettings
from moldau.cluster.rules.leader_election import LogEnd, PlannedState
from moldau.cluster.rules.metadata_image import NO_TOPIC_ID
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.alterations import ConfigChange
from moldau.coordination.port import Operation, StoreLostError
from moldau.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidReplicaAssignmentError,
    KafkaError,
    NoReassignmentInProgressError,
    NotControllerError,
    PreferredLeaderNotAvailableError,
    TopicExistsError,
    UnknownTopicError,
)
from moldau.model import NO_BROKER, BrokerId, TopicPartition
from moldau.simulation.manual_clock import wait_until_idle

from .stage import Member, Stage, play

CLICKS_0 = TopicPartition("clicks", 0)


async def make(member: Member, *replicas: Sequence[int], name: str = "clicks") -> None:
    await member.admin.create_topic(TopicSpec(name=name, assignments=dict(enumerate(replicas))))
    await wait_until_idle()


async def end(member: Member) -> None:
    """The broker is gone from one moment to the next."""
    member.session.expire()
    await wait_until_idle()


async def back(stage: Stage, broker_id: int) -> Member:
    member = await stage.join(broker_id)
    await member.serve()
    await wait_until_idle()
    return member


def leaders(member: Member, name: str = "clicks") -> list[tuple[int, tuple[int, ...], int]]:
    return [(p.leader, p.isr, p.leader_epoch) for p in member.topic(name).partitions]


async def set_isr(member: Member, *isr: int, partition: int = 0) -> None:
    topic = member.topic("clicks")
    former = topic.partitions[partition]
    state = replace(former, isr=tuple(BrokerId(broker) for broker in isr))
    assert await member.states.write([PlannedState(topic, partition, former, state)])
    await wait_until_idle()


# Brokers and the controller


def test_a_duty_that_fails_does_not_end_the_controller() -> None:
    async def story(stage: Stage) -> None:
        one, two, _ = await stage.cluster(1, 2, 3)
        await make(one, [2, 3, 1])
        elections = one.controller.elections
        elect = elections.elect

        async def stumble(*_: object) -> None:
            elections.elect = elect
            raise ValueError("a bug")

        elections.elect = stumble
        await end(two)
        await stage.clock.advance(1.0)
        assert leaders(one) == [(3, (3, 1), 1)]

    play(story)


def test_leaders_of_a_dead_broker_are_replaced_and_it_leaves_the_other_sets() -> None:
    async def story(stage: Stage) -> None:
        one, two, three = await stage.cluster(1, 2, 3)
        await make(one, [2, 3, 1], [3, 1, 2])
        await make(one, [2], name="alone")
        await end(two)
        for member in (one, three):
            assert leaders(member) == [(3, (3, 1), 1), (3, (3, 1), 0)]
            assert leaders(member, "alone") == [(NO_BROKER, (2,), 1)]

    play(story)


def test_another_broker_takes_over_when_the_controller_dies() -> None:
    async def story(stage: Stage) -> None:
        one, two, three = await stage.cluster(1, 2, 3)
        await make(one, [1, 2, 3])
        await end(one)
        assert two.image.controller_id == three.image.controller_id != 1
        assert leaders(three) == [(2, (2, 3), 1)]
        await make(two if two.image.controller_id == 2 else three, [3], name="later")

    play(story)


def test_controllers_that_die_one_after_the_other_leave_nothing_undone() -> None:
    async def story(stage: Stage) -> None:
        members = await stage.cluster(1, 2, 3, 4)
        await make(members[0], [1, 2, 3, 4])
        for member in members[:3]:
            await end(member)
        assert leaders(members[3]) == [(4, (4,), 3)]

    play(story)


def test_a_partition_without_a_leader_gets_one_when_its_broker_is_back() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await make(one, [2])
        await end(two)
        assert leaders(one) == [(NO_BROKER, (2,), 1)]
        again = await back(stage, 2)
        assert leaders(one) == leaders(again) == [(2, (2,), 2)]

    play(story)


def test_a_partition_without_a_leader_gets_one_when_its_state_changes() -> None:
    async def story(stage: Stage) -> None:
        one, two, three = await stage.cluster(1, 2, 3)
        await make(one, [2, 3])
        await set_isr(two, 2)
        await end(two)
        assert leaders(one) == [(NO_BROKER, (2,), 1)]
        await set_isr(three, 2, 3)
        assert leaders(one) == [(3, (3,), 2)]

    play(story)


def test_unclean_leaders_are_elected_as_soon_as_it_is_allowed() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2, logs={1: LogEnd(0, 5)})
        await make(one, [2, 1])
        await set_isr(two, 2)
        await end(two)
        assert leaders(one)[0][0] == NO_BROKER
        change = ConfigChange(name="recovery", value="aggressive")
        await one.admin.alter_topic_configs("clicks", [change])
        await wait_until_idle()
        assert leaders(one) == [(1, (1,), 2)]

    play(story)


def test_deleting_the_node_of_the_controller_makes_a_new_term() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await two.session.delete("/controller")
        await wait_until_idle()
        epochs = [
            term.epoch
            for member in (one, two)
            if (term := member.controllership.find_term()) is not None
        ]
        assert epochs == [2]

    play(story)


def test_a_claim_whose_answer_was_lost_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Stage) -> None:
        one = await stage.join(1)
        original = one.session.transact

        async def transact(operations: Sequence[Operation]) -> Sequence[str]:
            await original(operations)
            monkeypatch.setattr(one.session, "transact", original)
            raise StoreLostError("nobody answers")

        monkeypatch.setattr(one.session, "transact", transact)
        await one.serve()
        assert one.controllership.find_term() is None
        await stage.clock.advance(1.0)
        await wait_until_idle()
        assert one.controllership.require_term().epoch == 1

    play(story)


def test_duties_that_wait_for_the_store_are_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Stage) -> None:
        one, other = await stage.join(1), await stage.join(2)
        original = one.session.transact

        async def transact(operations: Sequence[Operation]) -> Sequence[str]:
            raise StoreLostError("the disk is full")

        for outage in (1, 2):
            monkeypatch.setattr(one.session, "transact", transact)
            if outage == 1:
                await one.serve()
            else:
                await other.session.delete(znodes.CONTROLLER)
            for _ in range(20):
                await stage.clock.advance(1.0)
                await wait_until_idle()
            assert caplog.text.count("will be retried: the disk is full") == outage
            monkeypatch.setattr(one.session, "transact", original)
            await stage.clock.advance(1.0)
            await wait_until_idle()
            assert one.controllership.find_term() is not None

    with caplog.at_level(logging.WARNING):
        play(story)


def test_a_controller_that_stops_lets_another_one_take_over_at_once() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await one.stop()
        await wait_until_idle()
        assert two.image.controller_id == 2
        assert set(two.image.brokers) == {1, 2}

    play(story)


def test_a_broker_that_is_not_registered_does_not_claim() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await two.session.delete("/brokers/ids/2")
        await end(one)
        assert two.image.controller_id == NO_BROKER

    play(story)


# Old tools


def test_a_topic_that_an_old_tool_makes_gets_an_id_and_leaders_everywhere() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        tool = stage.store.session()
        await tool.create("/config/topics/clicks", b'{"version":1,"config":{"a":"1"}}')
        old = b'{"version":1,"partitions":{"0":[2,1],"1":[1,2]}}'
        await tool.create("/brokers/topics/clicks", old)
        await wait_until_idle()
        assert leaders(two) == [(2, (2, 1), 0), (1, (1, 2), 0)]
        assert two.topic("clicks") == one.topic("clicks")
        assert two.topic("clicks").topic_id != NO_TOPIC_ID
        assert two.topic("clicks").configs == {"a": "1"}

    play(story)


def test_partitions_that_an_old_tool_adds_get_leaders_everywhere() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await make(one, [1, 2])
        tool = stage.store.session()
        node = await tool.get("/brokers/topics/clicks")
        assert node is not None
        fields = json.loads(node.data)
        fields["partitions"]["1"] = [2, 1]
        await tool.set("/brokers/topics/clicks", json.dumps(fields).encode())
        await wait_until_idle()
        assert leaders(two) == leaders(one) == [(1, (1, 2), 0), (2, (2, 1), 0)]

    play(story)


def test_a_config_that_an_old_tool_changes_is_in_force_everywhere() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await make(one, [1])
        tool = stage.store.session()
        await tool.set("/config/topics/clicks", b'{"version":1,"config":{"a":"7"}}')
        change = b'{"version":2,"entity_path":"topics/clicks"}'
        await tool.create("/config/changes/config_change_", change, sequential=True)
        await wait_until_idle()
        assert one.topic("clicks").configs == two.topic("clicks").configs == {"a": "7"}

    play(story)


# Deleting topics


async def deleting_with_two_away(stage: Stage) -> Member:
    one, two, _ = await stage.cluster(1, 2, 3)
    await make(one, [1, 2, 3], [3, 1, 2])
    await end(two)
    await one.admin.delete_topic("clicks")
    await wait_until_idle()
    return one


def test_a_topic_is_gone_for_everybody_while_a_replica_is_away() -> None:
    async def story(stage: Stage) -> None:
        one = await deleting_with_two_away(stage)
        for member in (one, stage.members[2]):
            assert "clicks" not in member.image.topics
            assert set(member.image.deleting) == {"clicks"}
        with pytest.raises(UnknownTopicError):
            await one.admin.delete_topic("clicks")
        with pytest.raises(TopicExistsError):
            await one.admin.create_topic(TopicSpec(name="clicks"))

    play(story)


def test_a_deletion_is_finished_when_the_replica_is_back() -> None:
    async def story(stage: Stage) -> None:
        one = await deleting_with_two_away(stage)
        assert await one.session.get("/brokers/topics/clicks") is not None
        again = await stage.join(2)
        assert set(again.image.deleting) == {"clicks"}  # so that it can delete its log
        await again.serve()
        await wait_until_idle()
        for member in (one, again, stage.members[2]):
            assert not member.image.deleting
        for path in (znodes.topic_path, znodes.topic_config_path, znodes.delete_topic_path):
            assert await one.session.get(path("clicks")) is None
        await make(one, [1, 2, 3])

    play(story)


def test_a_new_controller_finishes_what_the_old_one_began() -> None:
    async def story(stage: Stage) -> None:
        one = await deleting_with_two_away(stage)
        three = stage.members[2]
        await end(one)
        assert three.image.controller_id == 3
        await back(stage, 1)
        await back(stage, 2)
        assert await three.session.get("/brokers/topics/clicks") is None
        assert not three.image.deleting

    play(story)


def test_a_topic_that_a_tool_wants_deleted_is_deleted() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await make(one, [1, 2])
        await stage.store.session().create("/admin/delete_topics/clicks")
        await wait_until_idle()
        assert not two.image.topics
        assert await one.session.children("/brokers/topics") == []
        assert await one.session.children("/admin/delete_topics") == []

    play(story)


def test_a_request_to_delete_is_dropped_where_deletion_is_disabled() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        one.settings = two.settings = ControllerSettings(deletes_topics=False)
        await make(one, [1, 2])
        tool = stage.store.session()
        await tool.create("/admin/delete_topics/clicks")
        await tool.create("/admin/delete_topics/unknown")
        await two.publisher.refresh_topics(("clicks",))
        assert "clicks" in two.image.topics  # a mere request is no deletion
        await wait_until_idle()
        assert "clicks" in one.image.topics
        assert await one.session.children("/admin/delete_topics") == []

    play(story)


def test_a_large_topic_is_deleted_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.cluster.topic_deletion.PARTITIONS_PER_WRITE", 3)
    monkeypatch.setattr("moldau.cluster.topic_deletion.DELETIONS_PER_WRITE", 5)

    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await make(one, *([[1, 2]] * 10))
        await one.admin.delete_topic("clicks")
        await wait_until_idle()
        assert await one.session.children("/brokers/topics") == []
        assert not two.image.topics
        assert not two.image.deleting

    play(story)


# Making large topics


def test_a_large_topic_is_made_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.cluster.cluster_admin.MAX_WRITE_BYTES", 2000)
    monkeypatch.setattr("moldau.cluster.state_writer.MAX_WRITE_BYTES", 2000)

    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        sizes: list[int] = []
        original = one.session.transact

        async def transact(operations: Sequence[Operation]) -> Sequence[str]:
            sizes.append(len(operations))
            return await original(operations)

        monkeypatch.setattr(one.session, "transact", transact)
        made = await one.admin.create_topic(
            TopicSpec(name="clicks", partition_count=20, replication_factor=2)
        )
        assert all(state.leader in (1, 2) for state in made.partitions)
        grown = await one.admin.create_partitions("clicks", 40)
        assert all(state.leader in (1, 2) for state in grown.partitions)
        assert max(sizes) < 20
        await wait_until_idle()
        assert two.topic("clicks") == one.topic("clicks")
        assert {state.version for state in two.topic("clicks").partitions} == {0}

    play(story)


def test_a_controller_that_dies_while_it_makes_a_large_topic_leaves_no_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moldau.cluster.cluster_admin.MAX_WRITE_BYTES", 2000)

    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        original = one.session.transact

        async def transact(operations: Sequence[Operation]) -> Sequence[str]:
            paths = await original(operations)
            one.session.expire()
            return paths

        monkeypatch.setattr(one.session, "transact", transact)
        with pytest.raises(KafkaError):
            await one.admin.create_topic(
                TopicSpec(name="clicks", partition_count=20, replication_factor=2)
            )
        await wait_until_idle()
        assert [state.leader for state in two.topic("clicks").partitions] == [2] * 20

    play(story)


# Moving partitions


async def caught_up(member: Member, *isr: int, partition: int = 0) -> None:
    """What the leader writes when a follower has everything."""
    await set_isr(member, *isr, partition=partition)


def test_a_partition_moves_when_its_new_replicas_are_in_sync() -> None:
    async def story(stage: Stage) -> None:
        one, two, three = await stage.cluster(1, 2, 3)
        await make(one, [1, 2])
        assert await one.admin.alter_reassignments({CLICKS_0: [3, 2]}) == {CLICKS_0: None}
        await wait_until_idle()
        state = three.topic("clicks").partitions[0]
        assert (state.replicas, state.adding_replicas, state.removing_replicas) == (
            (3, 2, 1),
            (3,),
            (1,),
        )
        assert set(one.admin.list_reassignments(None)) == {CLICKS_0}
        await caught_up(one, 1, 2, 3)
        state = two.topic("clicks").partitions[0]
        assert (state.replicas, state.adding_replicas, state.removing_replicas) == ((3, 2), (), ())
        assert leaders(two) == [(3, (2, 3), 2)]
        assert one.admin.list_reassignments(None) == {}

    play(story)


def test_a_new_controller_goes_on_with_a_move() -> None:
    async def story(stage: Stage) -> None:
        one, two, three = await stage.cluster(1, 2, 3)
        await make(one, [2])
        await one.admin.alter_reassignments({CLICKS_0: [3]})
        await end(one)
        await caught_up(two, 2, 3)
        assert three.topic("clicks").partitions[0].replicas == (3,)
        assert leaders(two) == [(3, (3,), 2)]

    play(story)


def test_a_move_can_be_cancelled() -> None:
    async def story(stage: Stage) -> None:
        one, _, three = await stage.cluster(1, 2, 3)
        await make(one, [1, 2])
        await one.admin.alter_reassignments({CLICKS_0: [3]})
        assert await one.admin.alter_reassignments({CLICKS_0: None}) == {CLICKS_0: None}
        await wait_until_idle()
        state = three.topic("clicks").partitions[0]
        assert (set(state.replicas), state.adding_replicas) == ({1, 2}, ())
        outcome = await one.admin.alter_reassignments({CLICKS_0: None})
        assert isinstance(outcome[CLICKS_0], NoReassignmentInProgressError)

    play(story)


def test_a_leader_that_adds_a_replica_while_it_is_taken_away_loses_the_race() -> None:
    async def story(stage: Stage) -> None:
        one, two, _ = await stage.cluster(1, 2, 3)
        await make(one, [2])
        await one.admin.alter_reassignments({CLICKS_0: [2, 3]})
        await wait_until_idle()
        topic = two.topic("clicks")
        former = topic.partitions[0]
        adding = PlannedState(topic, 0, former, replace(former, isr=(BrokerId(2), BrokerId(3))))
        await one.admin.alter_reassignments({CLICKS_0: None})
        assert not await two.states.write([adding])
        assert leaders(one) == [(2, (2,), 2)]

    play(story)


def test_each_partition_of_a_request_succeeds_or_fails_on_its_own() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await make(one, [1], [1])
        outcomes = await one.admin.alter_reassignments(
            {
                CLICKS_0: [2],
                TopicPartition("clicks", 1): [9],
                TopicPartition("clicks", 5): [2],
                TopicPartition("other", 0): [2],
            }
        )
        assert outcomes[CLICKS_0] is None
        assert isinstance(outcomes[TopicPartition("clicks", 1)], InvalidReplicaAssignmentError)
        assert isinstance(outcomes[TopicPartition("clicks", 5)], UnknownTopicError)
        assert isinstance(outcomes[TopicPartition("other", 0)], UnknownTopicError)
        with pytest.raises(NotControllerError):
            await two.admin.alter_reassignments({CLICKS_0: [1]})
        with pytest.raises(NotControllerError):
            two.admin.list_reassignments(None)

    play(story)


def test_the_node_of_the_old_tool_moves_partitions_and_goes_when_they_have_arrived() -> None:
    async def story(stage: Stage) -> None:
        one, *_ = await stage.cluster(1, 2, 3)
        await make(one, [1], [1])
        wanted = [
            {"topic": "clicks", "partition": 0, "replicas": [2]},
            {"topic": "clicks", "partition": 1, "replicas": [3]},
            {"topic": "unknown", "partition": 0, "replicas": [3]},
        ]
        data = json.dumps({"version": 1, "partitions": wanted}).encode()
        tool = stage.store.session()
        await tool.create("/admin/reassign_partitions", data)
        await wait_until_idle()
        await caught_up(one, 1, 2)
        node = await tool.get("/admin/reassign_partitions")
        assert node is not None
        assert json.loads(node.data)["partitions"] == wanted[1:2]
        await caught_up(one, 1, 3, partition=1)
        assert [p.replicas for p in one.topic("clicks").partitions] == [(2,), (3,)]
        assert await tool.get("/admin/reassign_partitions") is None

    play(story)


def test_a_node_of_the_old_tools_that_makes_no_sense_is_taken_away() -> None:
    async def story(stage: Stage) -> None:
        one, _ = await stage.cluster(1, 2)
        tool = stage.store.session()
        for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
            await tool.create(path, b"nonsense")
            await wait_until_idle()
            assert await tool.get(path) is None
        assert one.controllership.find_term() is not None

    play(story)


# Elections that are asked for


async def led_by_the_second(stage: Stage) -> Member:
    """A partition that prefers broker 2, which was away and is in sync again."""
    one, two = await stage.cluster(1, 2)
    await make(one, [2, 1])
    await end(two)
    await back(stage, 2)
    await set_isr(one, 1, 2)
    assert leaders(one) == [(1, (1, 2), 1)]
    return one


def test_preferred_leaders_come_back_when_somebody_asks() -> None:
    async def story(stage: Stage) -> None:
        one = await led_by_the_second(stage)
        assert await one.admin.elect_leaders([CLICKS_0]) == {CLICKS_0: None}
        assert leaders(one) == [(2, (1, 2), 2)]
        again = await one.admin.elect_leaders([CLICKS_0])
        assert isinstance(again[CLICKS_0], ElectionNotNeededError)
        assert await one.admin.elect_leaders(None) == {}

    play(story)


def test_preferred_leaders_come_back_when_an_old_tool_asks() -> None:
    async def story(stage: Stage) -> None:
        one = await led_by_the_second(stage)
        data = b'{"version":1,"partitions":[{"topic":"clicks","partition":0}]}'
        tool = stage.store.session()
        await tool.create("/admin/preferred_replica_election", data)
        await wait_until_idle()
        assert leaders(one) == [(2, (1, 2), 2)]
        assert await tool.get("/admin/preferred_replica_election") is None

    play(story)


def test_preferred_leaders_come_back_by_themselves_after_a_while() -> None:
    async def story(stage: Stage) -> None:
        one = await led_by_the_second(stage)
        await stage.clock.advance(299.0)
        await wait_until_idle()
        assert leaders(one)[0][0] == 1
        await stage.clock.advance(2.0)
        await wait_until_idle()
        assert leaders(one)[0][0] == 2

    play(story)


def test_preferred_leaders_stay_away_where_rebalancing_is_disabled() -> None:
    async def story(stage: Stage) -> None:
        one = await led_by_the_second(stage)
        one.settings = ControllerSettings(rebalances=False)
        await stage.clock.advance(1000.0)
        await wait_until_idle()
        assert leaders(one)[0][0] == 1

    play(story)


def test_an_election_says_why_it_did_not_happen() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await make(one, [2, 1])
        await make(one, [2], name="alone")
        await end(two)
        absent = TopicPartition("alone", 0)
        preferred = await one.admin.elect_leaders([CLICKS_0, absent])
        assert isinstance(preferred[CLICKS_0], PreferredLeaderNotAvailableError)
        unclean = await one.admin.elect_leaders([CLICKS_0, absent], unclean=True)
        assert isinstance(unclean[CLICKS_0], ElectionNotNeededError)
        assert isinstance(unclean[absent], EligibleLeadersNotAvailableError)

    play(story)


def test_an_unclean_leader_is_elected_when_somebody_asks() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await make(one, [2, 1])
        await set_isr(two, 2)
        await end(two)
        assert await one.admin.elect_leaders(None, unclean=True) == {CLICKS_0: None}
        assert leaders(one) == [(1, (1,), 2)]

    play(story)


def test_the_notes_about_failed_disks_are_taken_away() -> None:
    async def story(stage: Stage) -> None:
        one, two = await stage.cluster(1, 2)
        await ensure_znodes(two.session)
        event = b'{"version":1,"broker":2,"event":1}'
        await two.session.create(znodes.LOG_DIR_EVENT_PREFIX, event, sequential=True)
        await wait_until_idle()
        assert await one.session.children(znodes.LOG_DIR_EVENTS) == []

    play(story)


# What a new controller of many partitions asks of the store


class CountedSession:
    """Notes the requests of a member from now on, watches aside."""

    def __init__(self, member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[str] = []
        for name in ("get", "get_many", "children", "transact", "create", "set", "delete"):
            inner = getattr(member.session, name)
            monkeypatch.setattr(member.session, name, self._counting(name, inner))

    def _counting(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.requests.append(name)
            return inner(*arguments, **options)

        return call


@pytest.mark.parametrize(("topics", "partitions"), [(1, 1_000), (200, 5)])
def test_a_new_controller_of_many_partitions_asks_few_things_of_the_store(
    topics: int, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request is a wait on a busy broker; nobody leads a third of the partitions meanwhile."""

    async def story(stage: Stage) -> None:
        first, second, third = await stage.cluster(1, 2, 3)
        for number in range(topics):
            replicas = [([1, 2], [2, 3], [3, 2])[n % 3] for n in range(partitions)]
            await make(first, *replicas, name=f"clicks-{number}")
        counts = [CountedSession(member, monkeypatch) for member in (second, third)]
        await end(first)
        assert second.image.controller_id == 2
        for member in (second, third):
            for number in range(topics):
                states = member.topic(f"clicks-{number}").partitions
                assert all(state.leader in (2, 3) for state in states)
        for counted in counts:
            assert len(counted.requests) <= 25, counted.requests

    play(story)


def test_what_an_old_tool_wrote_while_there_was_no_controller_is_found() -> None:
    async def story(stage: Stage) -> None:
        first, second = await stage.cluster(1, 2)
        await make(first, [1, 2])
        tool = stage.store.session()
        node = await tool.get(znodes.topic_path("clicks"))
        assert node is not None
        fields = json.loads(node.data)
        fields["partitions"]["1"] = [2, 1]
        first.session.expire()
        await tool.set(znodes.topic_path("clicks"), json.dumps(fields).encode())
        assert (len(second.topic("clicks").partitions), second.image.controller_id) == (
            1,
            NO_BROKER,
        )
        await wait_until_idle()
        assert second.image.controller_id == 2
        assert leaders(second)[1] == (2, (2,), 0)

    play(story)
