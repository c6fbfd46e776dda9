"""Groups on a whole broker, with virtual time, crashes and cut connections."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from group_world import (
    ALTER_CONFIGS,
    DELETE_GROUPS,
    DELETE_TOPICS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    JOIN,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC,
    World,
    run,
)

from moldau.broker.server import BrokerServer
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.state_writer import StateWriter
from moldau.coordinators.groups.coordinator import GroupCoordinator
from moldau.coordinators.groups.rules.share_group import ShareGroup
from moldau.errors import ErrorCode, NotLeaderError
from moldau.model import GROUP_OFFSETS_TOPIC, LeaderEpoch
from moldau.replication.partition import Partition
from moldau.simulation.manual_clock import wait_until_idle

WEEK_SECONDS = 7 * 24 * 3600


def parked(groups: GroupCoordinator) -> int:
    return sum(shard.waiting_count for shard in groups)


def test_many_clients_at_once_make_one_topic() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        clients = [await world.connect() for _ in range(20)]
        answers = await asyncio.gather(
            *(client.ask(FIND_COORDINATOR, 2, key="g", key_type=0) for client in clients)
        )
        assert {answer.error_code for answer in answers} == {ErrorCode.none}
        assert {(answer.node_id, answer.host, answer.port) for answer in answers} == {
            (1, "broker", 9092)
        }
        topic = broker.services.image.topics[GROUP_OFFSETS_TOPIC]
        assert len(topic.partitions) == 4
        assert topic.configs["cleanup.policy"] == "compact"
        await broker.stop()

    run(story)


def test_a_client_that_goes_away_does_not_take_the_topic_along() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        hasty, patient = await world.connect(), await world.connect()
        await hasty.send(FIND_COORDINATOR, 2, key="g", key_type=0)
        await patient.send(FIND_COORDINATOR, 2, key="g", key_type=0)
        await hasty.channel.close()
        answer = await patient.receive(FIND_COORDINATOR, 2)
        assert answer.error_code is ErrorCode.none
        await broker.stop()

    run(story)


def test_more_replicas_than_brokers_is_told_and_not_for_ever() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        answer = await client.ask(FIND_COORDINATOR, 2, key="g", key_type=0)
        assert answer.error_code is ErrorCode.coordinator_not_available
        assert (await client.join()).error_code is ErrorCode.coordinator_not_available
        await broker.stop()

    run(story, offsets_topic_replication_factor="3")


def test_several_coordinators_are_found_at_once() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        answer = await client.ask(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["a", "b"])
        assert [(one.key, one.node_id) for one in answer.coordinators] == [("a", 1), ("b", 1)]
        answer = await client.ask(FIND_COORDINATOR, 6, key_type=2, coordinator_keys=["t"])
        assert answer.coordinators[0].error_code is ErrorCode.invalid_request
        await broker.stop()

    run(story)


def test_a_join_makes_the_topic_too() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        assert (await client.join()).generation_id == 1
        await broker.stop()

    run(story)


async def raise_epochs(broker: BrokerServer, world: World, by: int) -> None:
    """As a step of a reassignment does that leaves the leader in its place (CTL-3)."""
    publisher = broker.services.publisher
    topic = publisher.image.topics[GROUP_OFFSETS_TOPIC]
    plan = [
        PlannedState(
            topic, number, state, replace(state, leader_epoch=LeaderEpoch(state.leader_epoch + by))
        )
        for number, state in enumerate(topic.partitions)
    ]
    assert world.store is not None
    session = world.store.session()
    assert await StateWriter(session, publisher).write(plan)
    await broker.services.wait_until_applied()
    await wait_until_idle()
    await session.close()


@pytest.mark.parametrize(("by", "is_kept"), [(1, True), (2, False)])
def test_groups_stay_while_their_leader_goes_on_under_the_next_epoch(
    by: int, is_kept: bool
) -> None:
    """Where an epoch was skipped, another broker may have led: then the log is read again."""

    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await world.create(client, "t")
        member_id = await client.work()
        assert await client.commit("t", 7, member_id=member_id, generation=1) is ErrorCode.none
        shards = set(broker.services.groups)
        await raise_epochs(broker, world, by)
        after = set(broker.services.groups)
        assert (after == shards) is is_kept
        assert await client.beat(member_id) is ErrorCode.none
        assert await client.commit("t", 8, member_id=member_id, generation=1) is ErrorCode.none
        assert await client.fetch() == {"t": 8}
        await broker.stop()

    run(story)


def test_positions_and_members_survive_a_crash() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await world.create(client, "t")
        member_id = await client.work()
        assert await client.commit("t", 5, member_id=member_id, generation=1) is ErrorCode.none
        await world.crash(broker)

        broker = await world.start()
        client = await world.connect()
        assert await client.beat(member_id) is ErrorCode.none
        answer = await client.ask(
            OFFSET_FETCH, 5, group_id="g", topics=[{"name": "t", "partition_indexes": [0, 1]}]
        )
        found, missing = answer.topics[0].partitions
        assert (found.committed_offset, found.committed_leader_epoch) == (5, 3)
        assert (found.metadata, missing.committed_offset) == ("noted", -1)
        await broker.stop()

    run(story)


@pytest.mark.parametrize("seed", range(5))
def test_a_commit_that_was_flushed_survives_a_power_loss(seed: int) -> None:
    """`flush.messages` of the offsets topic is kept to: acknowledged means on the disk."""

    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await world.create(client, "t")
        await client.ask(FIND_COORDINATOR, 2, key="g", key_type=0)
        resource = {
            "resource_type": 2,
            "resource_name": GROUP_OFFSETS_TOPIC,
            "configs": [
                {"name": "flush.messages", "value": "1"},
                {"name": "cleanup.policy", "value": "compact"},
            ],
        }
        await client.ask(ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        await wait_until_idle()
        world.files.sync_everything()
        for offset in range(5):
            assert await client.commit("t", offset) is ErrorCode.none
        world.files.lose_power(Random(seed))
        await world.crash(broker)

        await world.start()
        client = await world.connect()
        assert await client.fetch() == {"t": 4}

    run(story)


def test_a_parked_join_whose_connection_closes_leaves_nothing_behind() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        groups = broker.services.groups
        worker, ghost = await world.connect(), await world.connect()
        member_id = await worker.work()
        await ghost.send_join()
        await wait_until_idle()
        assert parked(groups) == 1
        await ghost.channel.close()
        await wait_until_idle()
        assert parked(groups) == 0
        assert await worker.beat(member_id) is ErrorCode.rebalance_in_progress
        await world.clock.advance(9)
        assert await worker.beat(member_id) is ErrorCode.rebalance_in_progress
        await world.clock.advance(2)  # its session is over
        assert (await worker.join(member_id=member_id)).generation_id == 2
        answer = await worker.ask(DESCRIBE_GROUPS, 4, groups=["g"], include_authorized_operations=0)
        assert [one.member_id for one in answer.groups[0].members] == [member_id]
        assert answer.groups[0].authorized_operations == -(2**31)
        answer = await worker.ask(DESCRIBE_GROUPS, 4, groups=["g"], include_authorized_operations=1)
        assert answer.groups[0].authorized_operations == 3400
        await broker.stop()

    run(story)


def test_a_broker_stops_while_members_wait() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        groups = broker.services.groups
        worker, other = await world.connect(), await world.connect()
        await worker.work()
        await other.send_join()
        await wait_until_idle()
        await broker.stop()
        assert parked(groups) == 0
        assert not world.clock.pending_timers
        assert not world.files.open_files

    run(story)


def test_a_week_after_the_last_member_has_gone_the_positions_go_too() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await world.create(client, "t")
        await client.commit("t", 5)
        await world.clock.advance(WEEK_SECONDS - 3600)
        client = await world.connect()
        assert await client.fetch() == {"t": 5}
        await world.clock.advance(2 * 3600)
        client = await world.connect()
        assert await client.fetch() == {}
        answer = await client.ask(LIST_GROUPS, 2)
        assert answer.groups == ()
        await broker.stop()

    run(story, connections_max_idle_ms=str(WEEK_SECONDS * 2000))


def test_groups_that_go_to_another_broker_while_groups_are_listed_are_left_out() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await world.create(client, "t")
        names = {f"g{number}" for number in range(8)}
        for name in names:
            await client.commit("t", 5, group=name)
        gone = broker.services.groups.require_shard("g0")
        lost = set(gone.group_ids)
        assert lost < names
        gone.close()  # as when another broker leads its partition from now on
        answer = await client.ask(LIST_GROUPS, 2)
        assert answer.error_code is ErrorCode.none
        assert {one.group_id for one in answer.groups} == names - lost
        await broker.stop()

    run(story)


def test_positions_go_with_their_topic() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await world.create(client, "t")
        await world.create(client, "u")
        await client.commit("t", 5)
        await client.commit("u", 6)
        await client.ask(DELETE_TOPICS, 3, topic_names=["t"], timeout=1000)
        await wait_until_idle()
        assert await client.fetch() == {"u": 6}
        await world.create(client, "t")
        assert await client.fetch() == {"u": 6}
        assert await client.commit("gone", 7) is ErrorCode.unknown_topic_or_partition
        await world.crash(broker)
        await world.start()
        client = await world.connect()
        assert await client.fetch() == {"u": 6}, "the removal was not logged"

    run(story)


def test_a_failed_disk_is_no_coordinator() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client, other = await world.connect(), await world.connect()
        await world.create(client, "t")
        member_id = await client.work()
        await other.send_join()
        await wait_until_idle()
        world.files.fail_next("write", errno.EIO, path_matching="*.log", kept_bytes=30)
        assert await client.commit("t", 5, member_id=member_id, generation=1) in (
            ErrorCode.not_coordinator,
            ErrorCode.kafka_storage_error,
        )
        assert (await other.receive(JOIN, 3)).error_code is ErrorCode.not_coordinator
        assert await client.beat(member_id) is ErrorCode.not_coordinator
        await world.crash(broker)

    run(story)


def test_before_the_topic_is_made_nobody_is_a_coordinator() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        assert await client.beat("somebody") is ErrorCode.not_coordinator
        answer = await client.ask(OFFSET_FETCH, 5, group_id="g", topics=None)
        assert answer.error_code is ErrorCode.not_coordinator
        wanted = [{"name": "t", "partition_indexes": [0, 1]}]
        answer = await client.ask(OFFSET_FETCH, 1, group_id="g", topics=wanted)
        assert [one.error_code for one in answer.topics[0].partitions] == [
            ErrorCode.not_coordinator
        ] * 2
        assert (await client.ask(LIST_GROUPS, 2)).groups == ()
        await broker.stop()

    run(story)


def test_groups_are_listed_by_state_and_type() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        worker, client = await world.connect(), await world.connect()
        await world.create(client, "t")
        await worker.work("busy")
        await client.commit("t", 5, group="lone")

        async def listed(states: list[str], types: list[str]) -> set[tuple[str, str, str, str]]:
            answer = await client.ask(LIST_GROUPS, 5, states_filter=states, types_filter=types)
            return {
                (one.group_id, one.protocol_type, one.group_state, one.group_type)
                for one in answer.groups
            }

        busy = ("busy", "consumer", "Stable", "classic")
        lone = ("lone", "", "Empty", "classic")
        assert await listed([], []) == {busy, lone}
        assert await listed(["stable"], []) == {busy}
        assert await listed(["Empty", "Dead"], ["Classic"]) == {lone}
        assert await listed([], ["consumer"]) == set()
        await broker.stop()

    run(story)


def test_groups_that_are_not_there_are_described_as_dead() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await client.ask(FIND_COORDINATOR, 2, key="g", key_type=0)
        (old,) = (
            await client.ask(DESCRIBE_GROUPS, 5, groups=["g"], include_authorized_operations=False)
        ).groups
        assert (old.error_code, old.group_state) == (ErrorCode.none, "Dead")
        (new,) = (
            await client.ask(DESCRIBE_GROUPS, 6, groups=["g"], include_authorized_operations=False)
        ).groups
        assert (new.error_code, new.group_state) == (ErrorCode.group_id_not_found, "Dead")
        assert "'g'" in new.error_message
        await broker.stop()

    run(story)


def test_groups_and_positions_are_deleted() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await world.create(client, "t")
        await client.commit("t", 5)
        answer = await client.ask(
            OFFSET_DELETE,
            0,
            group_id="g",
            topics=[
                {"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 9}]},
                {"name": "none", "partitions": [{"partition_index": 0}]},
            ],
        )
        unknown = ErrorCode.unknown_topic_or_partition
        assert [[one.error_code for one in topic.partitions] for topic in answer.topics] == [
            [ErrorCode.none, unknown],
            [unknown],
        ]
        assert await client.fetch() == {}

        await client.commit("t", 6)
        answer = await client.ask(DELETE_GROUPS, 1, groups_names=["g", "h"])
        assert [(one.group_id, one.error_code) for one in answer.results] == [
            ("g", ErrorCode.none),
            ("h", ErrorCode.group_id_not_found),
        ]
        await broker.stop()

    run(story)


def test_positions_are_committed_and_fetched_by_topic_id() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await world.create(client, "t")
        topic_id = broker.services.image.topics["t"].topic_id
        partition = {
            "partition_index": 0,
            "committed_offset": 5,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        other_id = UUID(int=topic_id.int ^ 1)
        answer = await client.ask(
            OFFSET_COMMIT,
            10,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                {"topic_id": topic_id, "partitions": [partition]},
                {"topic_id": other_id, "partitions": [partition]},
            ],
        )
        assert [topic.partitions[0].error_code for topic in answer.topics] == [
            ErrorCode.none,
            ErrorCode.unknown_topic_id,
        ]
        (group,) = broker.services.groups.each_group()
        assert not isinstance(group, ShareGroup)
        committed = group.offsets.find("t", 0)
        assert committed is not None
        assert (committed.topic_id, committed.names_topic_id) == (topic_id, True)
        wanted = [
            {"topic_id": topic_id, "partition_indexes": [0]},
            {"topic_id": other_id, "partition_indexes": [0]},
        ]
        answer = await client.ask(
            OFFSET_FETCH,
            10,
            groups=[
                {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": wanted},
                {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None},
            ],
            require_stable=True,
        )
        some, everything = answer.groups
        assert [topic.partitions[0].error_code for topic in some.topics] == [
            ErrorCode.none,
            ErrorCode.unknown_topic_id,
        ]
        assert some.topics[0].partitions[0].committed_offset == 5
        (only,) = everything.topics
        assert (only.topic_id, only.partitions[0].committed_offset) == (topic_id, 5)
        await broker.stop()

    run(story)


def test_a_topic_may_stand_in_a_request_twice() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await world.create(client, "t")
        await client.commit("t", 5)
        wanted = [
            {"name": "t", "partition_indexes": [0]},
            {"name": "t", "partition_indexes": [1, 0]},
        ]
        answer = await client.ask(OFFSET_FETCH, 5, group_id="g", topics=wanted)
        assert [[one.committed_offset for one in topic.partitions] for topic in answer.topics] == [
            [5],
            [-1, 5],
        ]
        await broker.stop()

    run(story)


def test_limits_follow_the_brokers_options() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        assert (await client.join("g")).error_code is ErrorCode.invalid_session_timeout
        await broker.stop()

    run(story, group_min_session_timeout_ms="20000")


def test_groups_whose_log_was_written_in_part_are_loaded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the coordinator answers is what its log says, also after an append that failed."""

    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        await world.create(client, "t")
        assert await client.commit("t", 5) is ErrorCode.none
        original = Partition.append_internal

        def tear(partition: Partition, *batches: bytearray) -> None:
            original(partition, *batches)
            monkeypatch.undo()
            raise NotLeaderError("half of it is written")

        monkeypatch.setattr(Partition, "append_internal", tear)
        assert await client.commit("t", 6) is not ErrorCode.none
        await wait_until_idle()
        assert await client.fetch() == {"t": 6}
        assert await client.commit("t", 7) is ErrorCode.none
        assert await client.fetch() == {"t": 7}
        await broker.stop()

    run(story, offsets_topic_num_partitions="1")


LARGE = b"a" * (6 << 20)


def test_a_large_assignment_is_answered_as_kafka_answers_it() -> None:
    """What cannot be logged is refused with an error that clients end on; the group goes on."""

    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        joined = await client.join()
        synced = await client.ask(
            SYNC,
            1,
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[{"member_id": joined.member_id, "assignment": LARGE}],
        )
        assert synced.error_code is ErrorCode.unknown_server_error
        assert await client.work("h")
        await broker.stop()

    run(story)


def test_a_large_assignment_is_served_where_the_offsets_topic_takes_it() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        joined = await client.join()
        synced = await client.ask(
            SYNC,
            1,
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[{"member_id": joined.member_id, "assignment": LARGE}],
        )
        assert synced.error_code is ErrorCode.none
        assert synced.assignment == LARGE
        await broker.stop()

    run(story, message_max_bytes=str(8 << 20))


def test_metadata_that_could_never_be_logged_is_not_kept() -> None:
    async def story(world: World) -> None:
        broker = await world.start()
        client = await world.connect()
        joined = await client.ask(
            JOIN,
            3,
            group_id="g",
            session_timeout=10_000,
            rebalance_timeout=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": LARGE}],
        )
        assert joined.error_code is ErrorCode.unknown_server_error
        assert not [id for shard in broker.services.groups for id in shard.group_ids]
        await broker.stop()

    run(story)
