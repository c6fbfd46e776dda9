"""Share groups on three brokers: what members are given, and what leaders have written down,
outlives the coordinators."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.cluster_stage import Cluster, Machine, play
from moldau.cluster import znodes
from moldau.coordinators.shares.rules.records import (
    DeliveryState,
    SharePartitionKey,
    ShareStateWrite,
    StateBatch,
    StoredShareState,
)
from moldau.errors import (
    ErrorCode,
    FencedLeaderEpochError,
    FencedStateEpochError,
    UnknownTopicError,
)
from moldau.model import GROUP_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC

FIND_COORDINATOR, DELETE_GROUPS, LIST_GROUPS, DELETE_TOPICS = 10, 42, 16, 20
SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE = 76, 77
DESCRIBE_OFFSETS, ALTER_OFFSETS, DELETE_OFFSETS = 90, 91, 92
GROUP = "takers"
CONFIG = {
    "offsets_topic_num_partitions": "1",
    "offsets_topic_replication_factor": "3",
    "share_coordinator_state_topic_num_partitions": "2",
    "share_coordinator_state_topic_replication_factor": "3",
    "share_coordinator_snapshot_update_records_per_snapshot": "2",
    "min_insync_replicas": "2",
}
DONE = StateBatch(0, 4, DeliveryState.ACKNOWLEDGED, 1)


async def begin(cluster: Cluster, partitions: int = 2) -> list[Machine]:
    machines = await cluster.start(1, 2, 3)
    await cluster.create(machines[0], "t", *([1, 2, 3] for _ in range(partitions)))
    await cluster.ask(machines[0], FIND_COORDINATOR, 6, key_type=0, coordinator_keys=(GROUP,))
    await cluster.until(lambda: all(GROUP_OFFSETS_TOPIC in each.image.topics for each in machines))
    return machines


def leader_of(machines: list[Machine], topic: str, partition: int = 0) -> Machine:
    living = [each for each in machines if each.broker is not None]
    leader = living[0].state(topic, partition).leader
    return next(each for each in living if each.id == leader)


async def beat(
    cluster: Cluster, machines: list[Machine], epoch: int, topics: tuple[str, ...] | None = None
) -> Any:
    return await cluster.ask(
        leader_of(machines, GROUP_OFFSETS_TOPIC),
        SHARE_GROUP_HEARTBEAT,
        1,
        group_id=GROUP,
        member_id="a",
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=topics,
    )


def assigned(answer: Any) -> set[int]:
    assert answer.error_code is ErrorCode.none, answer
    return {one for row in answer.assignment.topic_partitions for one in row.partitions}


def key_of(machine: Machine, partition: int = 0) -> SharePartitionKey:
    return SharePartitionKey(GROUP, machine.image.topics["t"].topic_id, partition)


async def kill(cluster: Cluster, machines: list[Machine], victim: Machine) -> None:
    await victim.kill()
    assert victim.session is not None
    victim.session.expire()
    rest = [each for each in machines if each is not victim]
    for topic in (GROUP_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC):
        for number in range(len(rest[0].image.topics[topic].partitions)):
            await cluster.until(
                lambda topic=topic, number=number: all(
                    each.state(topic, number).leader != victim.id for each in rest
                )
            )
            leader = leader_of(rest, topic, number)
            found = leader.services.partitions.find(topic, number)
            assert found is not None
            await cluster.until(lambda found=found: found.state.is_settled)
    await cluster.clock.advance(0.2)


def test_a_member_has_partitions_with_its_first_answer_and_their_state_is_kept() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await begin(cluster)
        joined = await beat(cluster, machines, 0, ("t",))
        assert assigned(joined) == {0, 1}
        for machine in machines:  # whoever leads the partition, wherever its share coordinator is
            for partition in (0, 1):
                key = key_of(machine, partition)
                read = await cluster.during(machine.services.share_persister.read(key, machine.id))
                assert read == StoredShareState(1, -1)
        described = await cluster.ask(
            leader_of(machines, GROUP_OFFSETS_TOPIC),
            SHARE_GROUP_DESCRIBE,
            1,
            group_ids=(GROUP, "others"),
            include_authorized_operations=False,
        )
        group, missing = described.groups
        assert (group.group_state, group.assignor_name) == ("Stable", "simple")
        assert [one.topic_name for one in group.members[0].assignment.topic_partitions] == ["t"]
        assert missing.error_code is ErrorCode.group_id_not_found
        listed = await cluster.ask(
            leader_of(machines, GROUP_OFFSETS_TOPIC),
            LIST_GROUPS,
            5,
            states_filter=(),
            types_filter=("share",),
        )
        assert [(one.group_id, one.group_type) for one in listed.groups] == [(GROUP, "share")]

    play(story, **CONFIG)


def test_what_leaders_write_outlives_the_share_coordinator() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await begin(cluster)
        await beat(cluster, machines, 0, ("t",))
        for number in range(7):  # several snapshots
            for machine in machines:
                batch = DONE._replace(last_offset=number)
                change = ShareStateWrite(1, 3, 0, number + 1, (batch,))
                key = key_of(machine)
                await cluster.during(machine.services.share_persister.write(key, change))
        victim = leader_of(machines, SHARE_GROUP_STATE_TOPIC, 0)
        await kill(cluster, machines, victim)
        rest = [each for each in machines if each is not victim]
        for machine in rest:
            store = machine.services.share_persister
            read = await cluster.during(store.read(key_of(machine), 3))
            assert read == StoredShareState(1, 0, (DONE._replace(last_offset=6),))
            with pytest.raises(FencedLeaderEpochError):
                await cluster.during(
                    store.write(key_of(machine), ShareStateWrite(1, 2, 0, 1, (DONE,)))
                )
            with pytest.raises(FencedStateEpochError):
                await cluster.during(
                    store.write(key_of(machine), ShareStateWrite(0, 3, 0, 1, (DONE,)))
                )
            gone = key_of(machine)._replace(topic_id=UUID(int=5))
            with pytest.raises(UnknownTopicError):
                await cluster.during(store.read(gone, 3))

    play(story, **CONFIG)


def test_a_group_outlives_its_coordinator() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await begin(cluster)
        joined = await beat(cluster, machines, 0, ("t",))
        victim = leader_of(machines, GROUP_OFFSETS_TOPIC)
        await kill(cluster, machines, victim)
        rest = [each for each in machines if each is not victim]
        again = await beat(cluster, rest, joined.member_epoch)
        assert (again.error_code, again.member_epoch) == (ErrorCode.none, joined.member_epoch)
        assert again.assignment is None
        assert assigned(await beat(cluster, rest, 0, ("t",))) == {0, 1}

    play(story, **CONFIG)


def test_offsets_are_described_altered_and_deleted_and_the_group_with_them() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await begin(cluster)
        joined = await beat(cluster, machines, 0, ("t",))
        coordinator = leader_of(machines, GROUP_OFFSETS_TOPIC)
        store = machines[1].services.share_persister
        await cluster.during(store.write(key_of(machines[1]), ShareStateWrite(1, 0, 0, 0, ())))

        async def describe() -> list[tuple[int, int, int]]:
            answer = await cluster.ask(
                coordinator, DESCRIBE_OFFSETS, 1, groups=[{"group_id": GROUP, "topics": None}]
            )
            (group,) = answer.groups
            assert group.error_code is ErrorCode.none
            return [
                (row.partition_index, row.start_offset, row.lag)
                for topic in group.topics
                for row in topic.partitions
            ]

        assert await describe() == [(0, 0, 0), (1, -1, -1)]
        row = {"partition_index": 1, "start_offset": 0}
        alter = {
            "group_id": GROUP,
            "topics": [
                {"topic_name": "t", "partitions": [row]},
                {"topic_name": "none", "partitions": [row]},
            ],
        }
        refused = await cluster.ask(coordinator, ALTER_OFFSETS, 0, **alter)
        assert refused.error_code is ErrorCode.non_empty_group
        left = await beat(cluster, machines, -1)
        assert left.error_code is ErrorCode.none
        altered = await cluster.ask(coordinator, ALTER_OFFSETS, 0, **alter)
        assert altered.error_code is ErrorCode.none
        assert [one.partitions[0].error_code for one in altered.responses] == [
            ErrorCode.none,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert await describe() == [(0, 0, 0), (1, 0, 0)]
        deleted = await cluster.ask(
            coordinator, DELETE_OFFSETS, 0, group_id=GROUP, topics=[{"topic_name": "t"}]
        )
        assert deleted.responses[0].error_code is ErrorCode.none
        assert await describe() == []
        with pytest.raises(UnknownTopicError):
            await cluster.during(store.read(key_of(machines[1]), 9))
        assert assigned(await beat(cluster, machines, 0, ("t",))) == {0, 1}
        await beat(cluster, machines, -1)
        gone = await cluster.ask(coordinator, DELETE_GROUPS, 2, groups_names=(GROUP,))
        assert gone.results[0].error_code is ErrorCode.none
        with pytest.raises(UnknownTopicError):
            await cluster.during(store.read(key_of(machines[1]), 9))
        missing = await cluster.ask(
            coordinator, DESCRIBE_OFFSETS, 1, groups=[{"group_id": GROUP, "topics": None}]
        )
        assert missing.groups[0].error_code is ErrorCode.group_id_not_found
        assert joined.member_epoch > 0

    play(story, **CONFIG)


def test_the_share_coordinator_is_found_by_the_key_of_a_share_partition() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await begin(cluster)
        found = await cluster.ask(
            machines[0],
            FIND_COORDINATOR,
            6,
            key_type=2,
            coordinator_keys=("a:b:AAAAAAAAAAAAAAAAAAAABw:0", "a:0", "a:b:c:0"),
        )
        assert [one.error_code for one in found.coordinators] == [
            ErrorCode.none,
            ErrorCode.invalid_request,
            ErrorCode.invalid_request,
        ]
        assert SHARE_GROUP_STATE_TOPIC in machines[0].image.topics

    play(story, **CONFIG)


def test_the_log_of_states_is_pruned_and_still_says_everything() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await begin(cluster, partitions=1)
        await beat(cluster, machines, 0, ("t",))
        store = machines[0].services.share_persister
        for number in range(20):
            change = ShareStateWrite(1, 0, number, 0, ())
            await cluster.during(store.write(key_of(machines[0]), change))
        await cluster.clock.advance(400)
        starts = [
            found.log.log_start_offset
            for machine in machines
            for number in range(2)
            if (found := machine.services.partitions.find(SHARE_GROUP_STATE_TOPIC, number))
            and found.is_leader
        ]
        assert max(starts) >= 15
        read = await cluster.during(store.read(key_of(machines[0]), 0))
        assert read.start_offset == 19

    play(story, **CONFIG)


def test_states_of_topics_that_were_deleted_while_nobody_had_them_loaded_are_forgotten() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await begin(cluster)
        await beat(cluster, machines, 0, ("t",))
        coordinators = [each.services.share_coordinator for each in machines]

        def keys() -> list[SharePartitionKey]:
            return [key for one in coordinators for shard in one for key in shard.keys]

        assert len(keys()) == 2
        for one in coordinators:  # as if each of them had loaded the state only afterwards
            one.forget_topics = lambda topic_ids: None  # type: ignore[method-assign]
        await cluster.ask(machines[0], DELETE_TOPICS, 5, topic_names=("t",), timeout=1000)
        await cluster.until(lambda: all("t" not in each.image.topics for each in machines))
        await cluster.clock.advance(300)
        assert keys() == []

    play(story, **CONFIG)


def test_the_states_of_a_topic_that_is_only_missing_from_the_metadata_are_kept() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await begin(cluster)
        await beat(cluster, machines, 0, ("t",))
        coordinators = [each.services.share_coordinator for each in machines]
        await cluster.store.session().delete_tree(znodes.topic_path("t"))
        await cluster.until(lambda: all("t" not in each.image.topics for each in machines))
        for _ in range(3):
            await cluster.clock.advance(300)
        kept = [key for one in coordinators for shard in one for key in shard.keys]
        assert len(kept) == 2

    play(story, **CONFIG)
