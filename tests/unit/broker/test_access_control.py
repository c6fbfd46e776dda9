"""Access control in a cluster: lists reach every broker, outlive all of them, and hold among
brokers too."""

from __future__ import annotations

from broker.cluster_stage import Cluster, Machine, play
from broker.handlers.handler_bench import WITH_AUTHORIZER
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.errors import ErrorCode
from moldau.model import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    Principal,
    ResourcePattern,
)
from moldau.records.record_batch import build_batch

ALICE = Principal("User", "alice")
CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS = 30, 31, 29

READ_CLICKS = {
    "resource_type": 2,
    "resource_name": "clicks",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ANYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def may_read(machine: Machine) -> bool:
    authorizer = machine.services.authorizer
    assert authorizer is not None
    return authorizer.allows(ALICE, "h", AclOperation.READ, AclResourceType.TOPIC, "clicks")


def test_a_change_on_one_broker_reaches_all_of_them() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await cluster.start(1, 2, 3)
        assert not any(map(may_read, machines))
        answer = await cluster.ask(machines[2], CREATE_ACLS, 3, creations=[READ_CLICKS])
        assert answer.results[0].error_code is ErrorCode.none
        assert may_read(machines[2]), "the broker that was asked obeys before it answers"
        await cluster.until(lambda: all(map(may_read, machines)))
        answer = await cluster.ask(machines[0], DELETE_ACLS, 3, filters=[ANYTHING])
        assert len(answer.filter_results[0].matching_acls) == 1
        await cluster.until(lambda: not any(map(may_read, machines)))

    play(story, **WITH_AUTHORIZER)


def test_lists_are_in_force_when_a_broker_comes_back() -> None:
    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.ask(machine, CREATE_ACLS, 3, creations=[READ_CLICKS])
        await machine.stop()
        await machine.start()
        assert may_read(machine)
        await machine.kill()
        await machine.start()
        assert may_read(machine)

    play(story, **WITH_AUTHORIZER)


def test_a_broker_that_lost_its_session_learns_what_it_missed() -> None:
    async def story(cluster: Cluster) -> None:
        first, second = await cluster.start(1, 2)
        assert second.session is not None
        second.session.expire()
        await cluster.ask(first, CREATE_ACLS, 3, creations=[READ_CLICKS])
        await cluster.until(lambda: may_read(second))

    play(story, **WITH_AUTHORIZER)


def test_brokers_that_may_act_for_the_cluster_replicate_and_others_do_not() -> None:
    async def story(cluster: Cluster) -> None:
        # Nobody is a super user: brokers, which are anonymous here, need an entry of their own.
        first, second = await cluster.start(1, 2)
        spec = TopicSpec(name="clicks", partition_count=1, replication_factor=2)
        await first.services.admin.create_topic(spec)
        await cluster.until(lambda: "clicks" in second.image.topics)
        state = first.state("clicks")
        assert len(state.isr) == 2
        binding = AclBinding(
            ResourcePattern(AclResourceType.CLUSTER, "kafka-cluster"),
            AclEntry("User:ANONYMOUS", AclPermission.ALLOW, AclOperation.CLUSTER_ACTION),
        )
        leader = cluster.machines[state.leader]
        follower = first if leader is second else second

        def copied() -> int:
            replica = follower.services.partitions.require_any_replica("clicks", 0)
            return replica.log.log_end_offset

        partition = leader.services.partitions.require_leader("clicks", 0)
        partition.append_as_leader(memoryview(build_batch([(1, None, b"v", ())])), 1)
        for _ in range(40):
            await cluster.clock.advance(0.05)
        assert copied() == 0, "a broker without CLUSTER_ACTION is refused as a follower"
        await first.services.acls.add([binding])
        await cluster.until(lambda: copied() == 1)

    play(story, authorizer_class_name=WITH_AUTHORIZER["authorizer_class_name"])
