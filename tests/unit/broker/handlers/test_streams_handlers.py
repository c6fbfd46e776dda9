"""StreamsGroupHeartbeat and StreamsGroupDescribe by hand, and what other APIs say of streams
groups."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers.handler_bench import WITH_AUTHORIZER, HandlerBench, with_broker
from moldau.broker.handlers import (
    create_acls,
    delete_groups,
    describe_configs,
    describe_groups,
    find_coordinator,
    incremental_alter_configs,
    list_groups,
    offset_commit,
    offset_fetch,
    streams_group_describe,
    streams_group_heartbeat,
)
from moldau.errors import ErrorCode
from moldau.model import AclOperation, AclPermission, AclResourceType, PatternType

GROUP = "counters"
MISSING_INTERNAL_TOPICS = 3
AT_ONCE = {
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
}


def topic(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    pairs = [{"key": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": 0,
        "topic_configs": pairs,
    }


def subtopology(which: str, **values: Any) -> dict[str, Any]:
    return {
        "subtopology_id": which,
        "source_topics": [],
        "source_topic_regex": [],
        "state_changelog_topics": [],
        "repartition_sink_topics": [],
        "repartition_source_topics": [],
        "copartition_groups": [],
        **values,
    }


def counting(source: str = "clicks") -> dict[str, Any]:
    return {
        "epoch": 0,
        "subtopologies": [
            subtopology("0", source_topics=[source], repartition_sink_topics=["by-user"]),
            subtopology(
                "1",
                repartition_source_topics=[topic("by-user")],
                state_changelog_topics=[topic("changelog", cleanup_policy="compact")],
            ),
        ],
    }


async def beat(bench: HandlerBench, epoch: int, **values: Any) -> Any:
    said: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "a",
        "member_epoch": epoch,
        "endpoint_information_epoch": -1,
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
    return await bench.call(streams_group_heartbeat, **said | values)


async def join(bench: HandlerBench, **values: Any) -> Any:
    said: dict[str, Any] = {
        "rebalance_timeout": 60_000,
        "topology": counting(),
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "process_id": "p",
        "user_endpoint": {"host": "here", "port": 60_000},
        "client_tags": [{"key": "zone", "value": "north"}],
    }
    return await beat(bench, 0, **said | values)


async def coordinate(bench: HandlerBench) -> None:
    await bench.call(find_coordinator, key_type=0, coordinator_keys=(GROUP,))
    await bench.cluster.clock.advance(1.0)


async def settle(bench: HandlerBench) -> Any:
    """A member with its tasks."""
    await coordinate(bench)
    answer = await join(bench)
    assert answer.error_code is ErrorCode.none, answer
    return await beat(bench, answer.member_epoch)


def test_internal_topics_are_made_and_tasks_are_given() -> None:
    async def story(bench: HandlerBench) -> None:
        await coordinate(bench)
        first = await join(bench)
        assert first.error_code is ErrorCode.none
        assert [one.status_code for one in first.status] == [MISSING_INTERNAL_TOPICS]
        assert first.active_tasks == ()
        topics = bench.services.image.topics
        assert {name: len(topics[name].partitions) for name in ("by-user", "changelog")} == {
            "by-user": 2,
            "changelog": 2,
        }
        assert topics["changelog"].configs == {"cleanup.policy": "compact"}
        answer = await beat(bench, first.member_epoch)
        assert answer.status == ()
        tasks = {one.subtopology_id: one.partitions for one in answer.active_tasks}
        assert tasks == {"0": (0, 1), "1": (0, 1)}
        (row,) = answer.partitions_by_user_endpoint
        assert (row.user_endpoint.host, row.user_endpoint.port) == ("here", 60_000)
        assert {one.topic for one in row.active_partitions} == {"clicks", "by-user"}

    with_broker(story, **AT_ONCE)


def test_a_group_is_described() -> None:
    async def story(bench: HandlerBench) -> None:
        await settle(bench)
        answer = await bench.call(
            streams_group_describe, group_ids=[GROUP, "none"], include_authorized_operations=False
        )
        group, none = answer.groups
        assert none.error_code is ErrorCode.group_id_not_found
        assert none.topology is None
        assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
        (zero, one) = group.topology.subtopologies
        assert zero.source_topics == ("clicks",)
        assert zero.repartition_sink_topics == ("by-user",)
        assert [(it.name, it.partitions) for it in one.state_changelog_topics] == [("changelog", 2)]
        (member,) = group.members
        assert (member.member_id, member.member_epoch, member.process_id) == ("a", 3, "p")
        assert member.client_host == "/10.0.0.1"
        assert [(tag.key, tag.value) for tag in member.client_tags] == [("zone", "north")]
        assert [it.partitions for it in member.assignment.active_tasks] == [(0, 1), (0, 1)]
        assert member.target_assignment == member.assignment

    with_broker(story, **AT_ONCE)


def test_other_apis_say_what_kind_of_group_it_is() -> None:
    async def story(bench: HandlerBench) -> None:
        await settle(bench)
        listed = await bench.call(list_groups, states_filter=["stable"], types_filter=["Streams"])
        (row,) = listed.groups
        assert (row.group_id, row.protocol_type, row.group_type) == (GROUP, "streams", "streams")
        described = await bench.call(
            describe_groups, groups=[GROUP], include_authorized_operations=False
        )
        assert described.groups[0].error_code is ErrorCode.group_id_not_found
        deleted = await bench.call(delete_groups, groups_names=[GROUP])
        assert deleted.results[0].error_code is ErrorCode.non_empty_group
        assert (await beat(bench, -1)).member_epoch == -1
        deleted = await bench.call(delete_groups, groups_names=[GROUP])
        assert deleted.results[0].error_code is ErrorCode.none
        assert (await beat(bench, 3)).error_code is ErrorCode.group_id_not_found

    with_broker(story, **AT_ONCE)


def test_offsets_are_committed_and_fetched_with_epochs() -> None:
    async def story(bench: HandlerBench) -> None:
        epoch = (await settle(bench)).member_epoch
        topic_id = bench.services.image.topics["clicks"].topic_id
        partition = {
            "partition_index": 0,
            "committed_offset": 7,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }

        async def commit(at: int) -> ErrorCode:
            answer = await bench.call(
                offset_commit,
                group_id=GROUP,
                generation_id_or_member_epoch=at,
                member_id="a",
                group_instance_id=None,
                topics=[{"topic_id": topic_id, "partitions": [partition]}],
            )
            code: ErrorCode = answer.topics[0].partitions[0].error_code
            return code

        assert await commit(epoch) is ErrorCode.none
        assert await commit(epoch + 1) is ErrorCode.stale_member_epoch
        rows = [{"topic_id": topic_id, "partition_indexes": [0]}]

        async def fetch(at: int) -> Any:
            group = {"group_id": GROUP, "member_id": "a", "member_epoch": at, "topics": rows}
            answer = await bench.call(offset_fetch, groups=[group], require_stable=True)
            return answer.groups[0]

        found = await fetch(epoch)
        assert found.topics[0].partitions[0].committed_offset == 7
        assert (await fetch(epoch + 1)).error_code is ErrorCode.stale_member_epoch

    with_broker(story, **AT_ONCE)


@pytest.mark.parametrize(
    ("name", "message"), [("__consumer_offsets", "internal topics"), ("not a name", "character")]
)
def test_topologies_name_topics_that_there_can_be(name: str, message: str) -> None:
    async def story(bench: HandlerBench) -> None:
        await coordinate(bench)
        answer = await join(bench, topology=counting(name))
        assert answer.error_code is ErrorCode.streams_invalid_topology
        assert message in answer.error_message
        assert answer.status is None

    with_broker(story, **AT_ONCE)


def test_a_broker_that_does_not_serve_the_protocol_says_so() -> None:
    async def story(bench: HandlerBench) -> None:
        answer = await join(bench)
        assert answer.error_code is ErrorCode.unsupported_version
        assert "streams" in answer.error_message

    with_broker(story, group_coordinator_rebalance_protocols="classic")


def test_why_an_internal_topic_could_not_be_made_is_told() -> None:
    async def story(bench: HandlerBench) -> None:
        await coordinate(bench)
        topology = counting()
        sources = [topic("by-user", cleanup_policy="nonsense")]
        topology["subtopologies"][1]["repartition_source_topics"] = sources
        answer = await join(bench, topology=topology)
        (status,) = answer.status
        assert status.status_code == MISSING_INTERNAL_TOPICS
        assert "; Creation failed: by-user (" in status.status_detail
        assert "changelog" in bench.services.image.topics
        answer = await beat(bench, answer.member_epoch)
        assert "Creation failed: by-user (" in answer.status[0].status_detail, "it is told again"

    with_broker(story, **AT_ONCE)


def test_nobody_branches_a_topic_through_an_internal_one() -> None:
    """The controller would be asked in the name of the broker, which may read everything."""

    async def story(bench: HandlerBench) -> None:
        await coordinate(bench)
        topology = counting()
        branch = topic("by-user", **{"moldau.branch.of": "clicks"})
        topology["subtopologies"][1]["repartition_source_topics"] = [branch]
        answer = await join(bench, topology=topology)
        assert "by-user (an internal topic is no branch" in answer.status[0].status_detail
        assert "by-user" not in bench.services.image.topics

    with_broker(story, **AT_ONCE)


def test_settings_of_the_group_are_followed() -> None:
    async def story(bench: HandlerBench) -> None:
        await settle(bench)

        async def change(value: str) -> ErrorCode:
            config = {"name": "streams.num.standby.replicas", "config_operation": 0, "value": value}
            answer = await bench.call(
                incremental_alter_configs,
                resources=[{"resource_type": 32, "resource_name": GROUP, "configs": [config]}],
                validate_only=False,
            )
            code: ErrorCode = answer.responses[0].error_code
            return code

        assert await change("3") is ErrorCode.invalid_config, "group.streams.max.standby.replicas"
        assert await change("1") is ErrorCode.none
        wanted = {
            "resource_type": 32,
            "resource_name": GROUP,
            "configuration_keys": ["streams.num.standby.replicas", "streams.session.timeout.ms"],
        }
        answer = await bench.call(
            describe_configs,
            resources=[wanted],
            include_synonyms=False,
            include_documentation=False,
        )
        values = {one.name: one.value for one in answer.results[0].configs}
        assert values == {
            "streams.num.standby.replicas": "1",
            "streams.session.timeout.ms": "45000",
        }
        await join(bench, member_id="b", process_id="q")
        answer = await beat(bench, 3, active_tasks=[], standby_tasks=[], warmup_tasks=[])
        assert [one.subtopology_id for one in answer.standby_tasks] == ["1"]

    with_broker(story, **AT_ONCE)


# Who may


async def allow(
    bench: HandlerBench, kind: AclResourceType, name: str, operation: AclOperation
) -> None:
    row = {
        "resource_type": kind.value,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL.value,
        "principal": "User:ann",
        "host": "*",
        "operation": operation.value,
        "permission_type": AclPermission.ALLOW.value,
    }
    answer = await bench.call(create_acls, creations=[row])
    assert answer.results[0].error_code is ErrorCode.none
    await bench.cluster.clock.advance(1.0)


def test_members_need_the_group_and_its_topics() -> None:
    async def story(bench: HandlerBench) -> None:
        await coordinate(bench)
        ann = bench.as_user("ann")
        assert (await join(ann)).error_code is ErrorCode.group_authorization_failed
        await allow(bench, AclResourceType.GROUP, GROUP, AclOperation.READ)
        assert (await join(ann)).error_code is ErrorCode.topic_authorization_failed
        for name in ("clicks", "by-user", "changelog"):
            await allow(bench, AclResourceType.TOPIC, name, AclOperation.DESCRIBE)
        answer = await join(ann)
        assert answer.error_code is ErrorCode.none
        detail = answer.status[0].status_detail
        assert "Unauthorized to CREATE on topics by-user, changelog." in detail
        assert "by-user" not in bench.services.image.topics
        for name in ("by-user", "changelog"):
            await allow(bench, AclResourceType.TOPIC, name, AclOperation.CREATE)
        answer = await beat(ann, answer.member_epoch)
        assert "by-user" in bench.services.image.topics
        assert (await beat(ann, answer.member_epoch)).status == ()

    with_broker(story, **AT_ONCE, **WITH_AUTHORIZER)


def test_who_may_not_see_a_topic_does_not_see_the_group() -> None:
    async def story(bench: HandlerBench) -> None:
        await settle(bench)
        ann = bench.as_user("ann")

        async def describe() -> Any:
            answer = await ann.call(
                streams_group_describe, group_ids=[GROUP], include_authorized_operations=True
            )
            return answer.groups[0]

        assert (await describe()).error_code is ErrorCode.group_authorization_failed
        await allow(bench, AclResourceType.GROUP, GROUP, AclOperation.DESCRIBE)
        refused = await describe()
        assert refused.error_code is ErrorCode.topic_authorization_failed
        assert refused.topology is None
        assert refused.members == ()
        for name in ("clicks", "by-user", "changelog"):
            await allow(bench, AclResourceType.TOPIC, name, AclOperation.DESCRIBE)
        group = await describe()
        assert group.error_code is ErrorCode.none
        assert group.authorized_operations == 1 << AclOperation.DESCRIBE.value

    with_broker(story, **AT_ONCE, **WITH_AUTHORIZER)
