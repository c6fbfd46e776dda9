"""Streams groups (KIP-1071) on three brokers: the next coordinator goes on where the killed one
was, and topics that are made for a member count for its quota."""

from __future__ import annotations

from typing import Any

from broker.cluster_stage import Cluster, Machine, play
from moldau.errors import ErrorCode
from moldau.model import GROUP_OFFSETS_TOPIC
from moldau.simulation.manual_clock import wait_until_idle

OFFSET_COMMIT, FIND_COORDINATOR, ALTER_CLIENT_QUOTAS = 8, 10, 49
DELETE_GROUPS, STREAMS_GROUP_HEARTBEAT, STREAMS_GROUP_DESCRIBE = 42, 88, 89
GROUP, TOPIC = "counters", "clicks"
CONFIG = {
    "offsets_topic_num_partitions": "1",
    "offsets_topic_replication_factor": "3",
    "default_replication_factor": "3",
    "min_insync_replicas": "2",
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
}
NOT_YET = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
)
Numbers = dict[str, set[int]]


def topic(name: str) -> dict[str, object]:
    return {"name": name, "partitions": 0, "replication_factor": 0, "topic_configs": []}


def subtopology(which: str, **values: object) -> dict[str, object]:
    return {
        "subtopology_id": which,
        "source_topics": (),
        "source_topic_regex": (),
        "state_changelog_topics": [],
        "repartition_sink_topics": (),
        "repartition_source_topics": [],
        "copartition_groups": [],
        **values,
    }


TOPOLOGY = {
    "epoch": 0,
    "subtopologies": [
        subtopology("0", source_topics=(TOPIC,), repartition_sink_topics=("by-user",)),
        subtopology(
            "1",
            repartition_source_topics=[topic("by-user")],
            state_changelog_topics=[topic("changelog")],
        ),
    ],
}


class Member:
    """Says to whoever coordinates what it has, and does what it is told."""

    def __init__(self, cluster: Cluster, member_id: str) -> None:
        self._cluster = cluster
        self.member_id = member_id
        self.epoch = 0
        self.tasks: Numbers = {}

    async def beat(self) -> Any:
        is_joining = self.epoch == 0
        rows = [{"subtopology_id": one, "partitions": tuple(self.tasks[one])} for one in self.tasks]
        answer = await self.say(
            self.epoch,
            rebalance_timeout=60_000 if is_joining else -1,
            topology=TOPOLOGY if is_joining else None,
            active_tasks=rows,
            standby_tasks=(),
            warmup_tasks=(),
            process_id=self.member_id,
        )
        if answer.error_code is ErrorCode.none:
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.tasks = {
                    one.subtopology_id: set(one.partitions) for one in answer.active_tasks
                }
        return answer

    async def say(self, epoch: int, **values: object) -> Any:
        said: dict[str, object] = {
            "group_id": GROUP,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "endpoint_information_epoch": 0,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "topology": None,
            "active_tasks": None,
            "standby_tasks": None,
            "warmup_tasks": None,
            "process_id": None,
            "user_endpoint": None,
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
            "shutdown_application": False,
        }
        return await ask(self._cluster, STREAMS_GROUP_HEARTBEAT, 0, **said | values)

    async def commit(self, partition: int, offset: int) -> ErrorCode:
        row = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        answer = await ask(
            self._cluster,
            OFFSET_COMMIT,
            9,
            group_id=GROUP,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            group_instance_id=None,
            topics=[{"name": TOPIC, "partitions": [row]}],
        )
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code


def coordinator(cluster: Cluster) -> Machine:
    alive = [one for one in cluster.machines.values() if one.broker is not None]
    leader = alive[0].state(GROUP_OFFSETS_TOPIC).leader
    return next((one for one in alive if one.id == leader), alive[0])


async def ask(cluster: Cluster, key: int, version: int, **values: object) -> Any:
    """Of the coordinator, as clients do: again while there is none."""
    for _ in range(200):
        answer = await cluster.ask(coordinator(cluster), key, version, **values)
        if getattr(answer, "error_code", None) not in NOT_YET:
            return answer
        await cluster.clock.advance(0.1)
    raise AssertionError("nobody coordinates the group")


async def settle(cluster: Cluster, *members: Member) -> None:
    for _ in range(20):
        before = [(one.epoch, one.tasks) for one in members]
        for one in members:
            assert (await one.beat()).error_code is ErrorCode.none
        await cluster.clock.advance(0.1)
        if before == [(one.epoch, one.tasks) for one in members] and any(m.tasks for m in members):
            return
    raise AssertionError("the group does not come to rest")


async def coordinate(cluster: Cluster) -> Machine:
    """Three brokers, one of which coordinates."""
    machines = await cluster.start(1, 2, 3)
    await cluster.create(machines[0], TOPIC, [1, 2, 3], [1, 2, 3])
    await cluster.ask(machines[0], FIND_COORDINATOR, 4, key_type=0, coordinator_keys=(GROUP,))
    await cluster.until(lambda: all(GROUP_OFFSETS_TOPIC in each.image.topics for each in machines))
    return machines[0]


async def begin(cluster: Cluster) -> tuple[Member, Member]:
    """Two members that share the tasks."""
    await coordinate(cluster)
    members = Member(cluster, "a"), Member(cluster, "b")
    await settle(cluster, *members)
    return members


async def kill_coordinator(cluster: Cluster) -> Machine:
    killed = coordinator(cluster)
    session = killed.session
    await killed.kill()
    assert session is not None
    session.expire()
    await wait_until_idle()
    await cluster.until(lambda: coordinator(cluster).state(GROUP_OFFSETS_TOPIC).leader != killed.id)
    return killed


async def describe(cluster: Cluster) -> Any:
    answer = await ask(
        cluster,
        STREAMS_GROUP_DESCRIBE,
        0,
        group_ids=(GROUP,),
        include_authorized_operations=False,
    )
    return answer.groups[0]


def test_members_go_on_with_the_next_coordinator_as_if_nothing_had_happened() -> None:
    async def story(cluster: Cluster) -> None:
        a, b = await begin(cluster)
        assert {one: len(a.tasks[one]) for one in a.tasks} == {"0": 1, "1": 1}
        (mine,) = a.tasks["0"]
        assert await a.commit(mine, 7) is ErrorCode.none
        before = [(one.epoch, one.tasks) for one in (a, b)]
        await kill_coordinator(cluster)
        for one in (a, b):
            answer = await one.beat()
            assert (answer.error_code, answer.status) == (ErrorCode.none, ())
        assert [(one.epoch, one.tasks) for one in (a, b)] == before, "nobody had to join again"
        found = await describe(cluster)
        assert (found.group_state, len(found.members)) == ("Stable", 2)
        assert await a.commit(mine, 8) is ErrorCode.none
        a.epoch += 1
        assert await a.commit(mine, 9) is ErrorCode.stale_member_epoch
        assert (await a.beat()).error_code is ErrorCode.fenced_member_epoch

    play(story, **CONFIG)


def test_the_next_coordinator_misses_those_who_are_silent() -> None:
    """The timers of the sessions are its own, and the tasks go to whoever is left."""

    async def story(cluster: Cluster) -> None:
        a, _ = await begin(cluster)
        killed = await kill_coordinator(cluster)
        for _ in range(12):
            assert (await a.beat()).error_code is ErrorCode.none
            await cluster.clock.advance(5.0)
        await settle(cluster, a)
        assert a.tasks == {"0": {0, 1}, "1": {0, 1}}
        # Another one, that was killed before: nothing of what it knew then is left.
        await killed.start()
        await cluster.until(lambda: len(killed.state(GROUP_OFFSETS_TOPIC).isr) == 3)
        await kill_coordinator(cluster)
        epoch = a.epoch
        assert (await a.beat()).error_code is ErrorCode.none
        assert (a.epoch, a.tasks) == (epoch, {"0": {0, 1}, "1": {0, 1}})
        assert (await a.say(-1)).error_code is ErrorCode.none
        assert (await describe(cluster)).group_state == "Empty"
        answer = await ask(cluster, DELETE_GROUPS, 2, groups_names=(GROUP,))
        assert answer.results[0].error_code is ErrorCode.none

    play(story, **CONFIG)


def test_internal_topics_count_for_the_quota_of_whoever_has_them_made() -> None:
    """KIP-599; but heartbeats go on, or the member would lose its session."""

    async def story(cluster: Cluster) -> None:
        machine = await coordinate(cluster)
        entity = {"entity_type": "client-id", "entity_name": "test"}
        rate = {"key": "controller_mutation_rate", "value": 0.1, "remove": False}
        row = {"entity": [entity], "ops": [rate]}
        await cluster.ask(machine, ALTER_CLIENT_QUOTAS, 1, entries=[row], validate_only=False)
        await cluster.clock.advance(1.0)
        # Each broker counts by itself: whoever coordinates is asked for the other topic.
        asked = coordinator(cluster)
        assert await cluster.create(asked, "other", [1], [1], [1]) is ErrorCode.none
        member = Member(cluster, "a")
        answer = await member.beat()
        (status,) = answer.status
        assert status.status_detail.endswith(
            "Creation failed: controller_mutation_rate is exceeded."
        )
        assert answer.throttle_time.total_seconds() == 0
        assert "by-user" not in asked.image.topics
        for _ in range(5):
            await cluster.clock.advance(5.0)
            assert (await member.beat()).error_code is ErrorCode.none
        await settle(cluster, member)
        assert member.tasks == {"0": {0, 1}, "1": {0, 1}}
        refused = await cluster.create(asked, "another", [1])
        assert refused is ErrorCode.throttling_quota_exceeded

    play(story, **CONFIG)
