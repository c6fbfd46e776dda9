"""Access control at work: what single operations open, and what stays hidden."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from broker.handlers.handler_bench import WITH_AUTHORIZER, HandlerBench, with_broker
from moldau.broker.handlers import (
    add_partitions_to_txn,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_topics,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    share_group_heartbeat,
)
from moldau.errors import ErrorCode
from moldau.model import AclOperation, AclPermission, AclResourceType, PatternType

O, T = AclOperation, AclResourceType  # noqa: E741 they stand in every line
NAME = "kafka-cluster"
DENIED = ErrorCode.topic_authorization_failed


async def grant(
    bench: HandlerBench,
    operation: AclOperation,
    resource_type: AclResourceType = T.TOPIC,
    name: str = "clicks",
    *,
    principal: str = "User:alice",
    pattern: PatternType = PatternType.LITERAL,
    permission: AclPermission = AclPermission.ALLOW,
    host: str = "*",
) -> None:
    row = {
        "resource_type": resource_type.value,
        "resource_name": name,
        "resource_pattern_type": pattern.value,
        "principal": principal,
        "host": host,
        "operation": operation.value,
        "permission_type": permission.value,
    }
    answer = await bench.call(create_acls, creations=[row])
    assert answer.results[0].error_code is ErrorCode.none, answer.results[0].error_message


def filter_row(**more: object) -> dict[str, object]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **more,
    }


async def names(bench: HandlerBench, *topics: str) -> dict[str, ErrorCode]:
    """What Metadata says of these topics, or of all."""
    rows = [{"topic_id": None, "name": name} for name in topics] or None
    answer = await bench.call(
        metadata,
        topics=rows,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return {topic.name: topic.error_code for topic in answer.topics}


async def latest(bench: HandlerBench, topic: str = "clicks") -> ErrorCode:
    row = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    answer = await bench.call(
        list_offsets,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": topic, "partitions": [row]}],
        timeout=1_000,
    )
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def test_a_list_is_made_shown_and_taken_away() -> None:
    async def story(bench: HandlerBench) -> None:
        root = bench.as_user("root")
        await grant(root, O.READ)
        await grant(root, O.READ)  # once more changes nothing
        await grant(root, O.ALL, name="orders.", pattern=PatternType.PREFIXED)
        answer = await root.call(describe_acls, **filter_row())
        assert [(one.resource_name, one.pattern_type) for one in answer.resources] == [
            ("clicks", 3),
            ("orders.", 4),
        ]
        (acl,) = answer.resources[0].acls
        assert (acl.principal, acl.host, acl.operation, acl.permission_type) == (
            "User:alice",
            "*",
            3,
            3,
        )
        matching = filter_row(
            resource_type_filter=2, resource_name_filter="orders.eu", pattern_type_filter=2
        )
        answer = await root.call(describe_acls, **matching)
        assert [one.resource_name for one in answer.resources] == ["orders."]
        answer = await root.call(delete_acls, filters=[matching, filter_row(operation=4)])
        first, second = answer.filter_results
        assert [one.resource_name for one in first.matching_acls] == ["orders."]
        assert second.matching_acls == ()
        answer = await root.call(describe_acls, **filter_row())
        assert [one.resource_name for one in answer.resources] == ["clicks"]

    with_broker(story, **WITH_AUTHORIZER)


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_name": ""},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"permission_type": 1},
        {"principal": "alice"},
        {"host": ""},
        {"resource_type": 4},
    ],
)
def test_a_binding_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    async def story(bench: HandlerBench) -> None:
        row = {
            "resource_type": 2,
            "resource_name": "clicks",
            "resource_pattern_type": 3,
            "principal": "User:alice",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
            **change,
        }
        answer = await bench.call(create_acls, creations=[row])
        assert answer.results[0].error_code is ErrorCode.invalid_request
        assert answer.results[0].error_message
        assert not bench.services.image.acls

    with_broker(story, **WITH_AUTHORIZER)


def test_without_an_authorizer_there_are_no_lists() -> None:
    async def story(bench: HandlerBench) -> None:
        answer = await bench.call(describe_acls, **filter_row())
        assert answer.error_code is ErrorCode.security_disabled
        answer = await bench.call(delete_acls, filters=[filter_row()])
        assert answer.filter_results[0].error_code is ErrorCode.security_disabled

    with_broker(story)


def test_a_topic_is_seen_by_those_who_may_describe_it() -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.create("views")
        alice = bench.as_user("alice")
        assert await names(alice) == {}
        assert await names(alice, "clicks", "nowhere") == {"clicks": DENIED, "nowhere": DENIED}
        await grant(bench, O.READ)
        assert await names(alice) == {"clicks": ErrorCode.none}
        assert await names(alice, "clicks", "views") == {"clicks": ErrorCode.none, "views": DENIED}
        assert await latest(alice) is ErrorCode.none
        assert await latest(alice, "views") is DENIED
        await grant(bench, O.READ, permission=AclPermission.DENY, host="10.0.0.9")
        await grant(bench, O.DESCRIBE, permission=AclPermission.DENY, host="10.0.0.9")
        assert await latest(bench.as_user("alice", "10.0.0.9")) is DENIED
        assert await latest(alice) is ErrorCode.none

    with_broker(story, **WITH_AUTHORIZER)


def test_a_topic_asked_for_by_its_id_is_not_known_to_who_may_not_describe_it() -> None:
    async def story(bench: HandlerBench) -> None:
        topic_id = bench.services.image.topics["clicks"].topic_id

        async def ask(user: HandlerBench) -> Any:
            answer = await user.call(
                metadata,
                topics=[{"topic_id": topic_id, "name": None}],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
            return answer.topics[0]

        alice = bench.as_user("alice")
        hidden = await ask(alice)
        assert (hidden.error_code, hidden.name) == (ErrorCode.unknown_topic_id, None)
        await grant(bench, O.DESCRIBE)
        assert (await ask(alice)).name == "clicks"

    with_broker(story, **WITH_AUTHORIZER)


def test_topics_are_made_on_demand_for_who_may_create_them() -> None:
    async def story(bench: HandlerBench) -> None:
        alice = bench.as_user("alice")
        await grant(bench, O.DESCRIBE, name="new", pattern=PatternType.PREFIXED)

        async def ask(name: str) -> ErrorCode:
            answer = await alice.call(
                metadata,
                topics=[{"topic_id": None, "name": name}],
                allow_auto_topic_creation=True,
                include_topic_authorized_operations=False,
            )
            code: ErrorCode = answer.topics[0].error_code
            return code

        assert await ask("new-1") is DENIED
        assert "new-1" not in bench.services.image.topics
        await grant(bench, O.CREATE, name="new-1")
        assert await ask("new-1") is ErrorCode.none
        assert await ask("new-2") is DENIED
        await grant(bench, O.CREATE, T.CLUSTER, NAME)
        assert await ask("new-2") is ErrorCode.none

    with_broker(story, **WITH_AUTHORIZER)


def test_topics_are_created_and_deleted_by_who_may() -> None:
    async def story(bench: HandlerBench) -> None:
        alice = bench.as_user("alice")
        refused = await alice.create("views")
        assert refused.error_code is DENIED
        assert refused.error_message == "User:alice lacks Create on Topic:views"
        await grant(bench, O.CREATE, name="views")
        made = await alice.create("views")
        assert made.error_code is ErrorCode.none
        assert (made.num_partitions, made.configs) == (-1, ())
        assert made.topic_config_error_code == DENIED.value
        await grant(bench, O.DESCRIBE_CONFIGS, name="views", principal="User:*")
        topic_id = bench.services.image.topics["views"].topic_id

        async def delete(**row: object) -> Any:
            answer = await alice.call(delete_topics, topics=[row], timeout=1_000)
            return answer.responses[0]

        by_id = await delete(name=None, topic_id=topic_id)
        assert (by_id.error_code, by_id.name, by_id.error_message) == (DENIED, None, None)
        assert (await delete(name="views", topic_id=None)).error_code is DENIED
        assert (await delete(name="nowhere", topic_id=None)).error_code is DENIED
        await grant(bench, O.DELETE, name="views")
        assert (await delete(name=None, topic_id=topic_id)).name == "views"
        assert "views" not in bench.services.image.topics

    with_broker(story, **WITH_AUTHORIZER)


def test_a_topic_is_branched_by_who_may_read_it() -> None:
    async def story(bench: HandlerBench) -> None:
        alice = bench.as_user("alice")
        await grant(bench, O.CREATE, name="trial")

        async def branch(source: str) -> Any:
            row = {
                "name": "trial",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [],
                "configs": [{"name": "moldau.branch.of", "value": source}],
            }
            answer = await alice.call(
                create_topics, topics=[row], timeout=1_000, validate_only=False
            )
            return answer.topics[0]

        bench.append("clicks", b"secret")
        refused = await branch("clicks")
        assert refused.error_code is DENIED
        assert refused.error_message == "User:alice lacks Read on Topic:clicks"
        assert (await branch("nowhere")).error_code is DENIED  # nor is it told what there is
        await grant(bench, O.READ, name="clicks")
        assert (await branch("clicks")).error_code is ErrorCode.none
        assert bench.services.partitions.require_leader("trial", 0).high_watermark == 1

    with_broker(story, **WITH_AUTHORIZER)


def test_create_topics_tells_the_configs_to_who_may_see_them() -> None:
    async def story(bench: HandlerBench) -> None:
        alice = bench.as_user("alice")
        await grant(bench, O.CREATE, name="views")
        await grant(bench, O.ALTER_CONFIGS, name="views")
        for version in (4, create_topics.API.last):
            answer = await alice.call(
                create_topics,
                version,
                topics=[
                    {
                        "name": "views",
                        "num_partitions": 1,
                        "replication_factor": 1,
                        "assignments": [],
                        "configs": [],
                    }
                ],
                timeout=1_000,
                validate_only=True,
            )
            assert answer.topics[0].error_code is ErrorCode.none
        assert answer.topics[0].configs

    with_broker(story, **WITH_AUTHORIZER)


def test_groups_are_joined_and_seen_by_who_may() -> None:
    async def story(bench: HandlerBench) -> None:
        alice = bench.as_user("alice")

        async def find(user: HandlerBench) -> ErrorCode:
            answer = await user.call(find_coordinator, key_type=0, coordinator_keys=("g",))
            await bench.cluster.clock.advance(1.0)
            code: ErrorCode = answer.coordinators[0].error_code
            return code

        async def join(user: HandlerBench) -> ErrorCode:
            answer = await user.call(
                join_group,
                group_id="g",
                session_timeout=10_000,
                rebalance_timeout=60_000,
                member_id="",
                group_instance_id=None,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b"m"}],
                reason=None,
            )
            code: ErrorCode = answer.error_code
            return code

        async def listed(user: HandlerBench) -> list[str]:
            answer = await user.call(list_groups, states_filter=(), types_filter=())
            return [group.group_id for group in answer.groups]

        denied = ErrorCode.group_authorization_failed
        assert await find(alice) is denied
        assert await join(alice) is denied
        await grant(bench, O.READ, T.GROUP, "g")
        assert await find(alice) is ErrorCode.none
        assert await join(alice) is ErrorCode.member_id_required
        assert await commit(bench, "clicks") is ErrorCode.none
        assert await listed(alice) == ["g"]
        assert await listed(bench.as_user("bob")) == []
        assert await commit(bench.as_user("bob"), "clicks") is denied
        assert await commit(alice, "clicks") is DENIED
        await grant(bench, O.READ)
        assert await commit(alice, "clicks") is ErrorCode.none
        assert await commit(alice, "nowhere") is DENIED
        described = await alice.call(
            describe_groups, groups=("g",), include_authorized_operations=True
        )
        assert described.groups[0].authorized_operations == 1 << O.READ | 1 << O.DESCRIBE
        bob = await bench.as_user("bob").call(
            describe_groups, groups=("g", "h"), include_authorized_operations=True
        )
        assert {one.error_code for one in bob.groups} == {denied}

    with_broker(story, **WITH_AUTHORIZER)


async def commit(bench: HandlerBench, topic: str) -> ErrorCode:
    row = {
        "partition_index": 0,
        "committed_offset": 1,
        "committed_leader_epoch": 0,
        "committed_metadata": "",
    }
    answer = await bench.call(
        offset_commit,
        version=9,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": topic, "partitions": [row]}],
    )
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def test_committed_offsets_of_hidden_topics_are_left_out() -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.create("views")
        await bench.call(find_coordinator, key_type=0, coordinator_keys=("g",))
        await bench.cluster.clock.advance(1.0)
        for topic in ("clicks", "views"):
            assert await commit(bench, topic) is ErrorCode.none
        await grant(bench, O.READ, T.GROUP, "g")
        await grant(bench, O.DESCRIBE, name="views")
        alice = bench.as_user("alice")

        async def fetch(topics: Any) -> Any:
            group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
            answer = await alice.call(offset_fetch, version=9, groups=[group], require_stable=False)
            return answer.groups[0].topics

        assert [topic.name for topic in await fetch(None)] == ["views"]
        rows = [{"name": name, "partition_indexes": (0,)} for name in ("clicks", "views")]
        first, second = await fetch(rows)
        assert first.partitions[0].error_code is DENIED
        assert second.partitions[0].committed_offset == 1

    with_broker(story, **WITH_AUTHORIZER)


def test_a_consumer_subscribes_to_topics_that_it_may_describe() -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.call(find_coordinator, key_type=0, coordinator_keys=("g",))
        await bench.cluster.clock.advance(1.0)
        await grant(bench, O.READ, T.GROUP, "g")

        async def beat(*topics: str) -> ErrorCode:
            answer = await bench.as_user("alice").call(
                consumer_group_heartbeat,
                group_id="g",
                member_id="member-1",
                member_epoch=0,
                instance_id=None,
                rack_id=None,
                rebalance_timeout=60_000,
                subscribed_topic_names=topics,
                subscribed_topic_regex=None,
                server_assignor=None,
                topic_partitions=[],
            )
            code: ErrorCode = answer.error_code
            return code

        assert await beat("clicks") is DENIED
        await grant(bench, O.READ)
        assert await beat("clicks") is ErrorCode.none
        assert await beat("clicks", "nowhere") is DENIED

    with_broker(story, **WITH_AUTHORIZER)


def test_an_expression_gives_a_consumer_topics_that_it_may_describe() -> None:
    pytest.importorskip("re2", reason="install moldau[regex]")

    async def story(bench: HandlerBench) -> None:
        await bench.create("views")
        await bench.call(find_coordinator, key_type=0, coordinator_keys=("g",))
        await bench.cluster.clock.advance(1.0)
        await grant(bench, O.READ, T.GROUP, "g")
        await grant(bench, O.DESCRIBE, name="views")
        answer = await bench.as_user("alice").call(
            consumer_group_heartbeat,
            group_id="g",
            member_id="member-1",
            member_epoch=0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=60_000,
            subscribed_topic_names=None,
            subscribed_topic_regex=".*",
            server_assignor=None,
            topic_partitions=[],
        )
        given = {row.topic_id for row in answer.assignment.topic_partitions}
        assert given == {bench.services.image.topics["views"].topic_id}

    with_broker(story, **WITH_AUTHORIZER)


def test_who_may_write_anywhere_has_a_producer_id() -> None:
    async def story(bench: HandlerBench) -> None:
        async def init(**more: object) -> ErrorCode:
            values = {
                "transactional_id": None,
                "transaction_timeout": 1_000,
                "producer_id": -1,
                "producer_epoch": -1,
                **more,
            }
            answer = await bench.as_user("alice").call(init_producer_id, version=4, **values)
            code: ErrorCode = answer.error_code
            return code

        assert await init() is ErrorCode.cluster_authorization_failed
        await grant(bench, O.WRITE)
        assert await init() is ErrorCode.none
        denied = ErrorCode.transactional_id_authorization_failed
        assert await init(transactional_id="t") is denied
        await grant(bench, O.WRITE, T.TRANSACTIONAL_ID, "t")
        assert await init(transactional_id="t") is not denied

    with_broker(story, **WITH_AUTHORIZER)


def test_operations_are_told_by_the_lists() -> None:
    async def story(bench: HandlerBench) -> None:
        alice = bench.as_user("alice")
        await grant(bench, O.WRITE)
        bits = 1 << O.WRITE | 1 << O.DESCRIBE
        answer = await alice.call(
            metadata,
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        assert [topic.topic_authorized_operations for topic in answer.topics] == [bits]
        answer = await alice.call(
            describe_topic_partitions, topics=[], response_partition_limit=10, cursor=None
        )
        assert [topic.topic_authorized_operations for topic in answer.topics] == [bits]

        async def cluster(user: HandlerBench) -> int:
            answer = await user.call(
                describe_cluster,
                include_cluster_authorized_operations=True,
                endpoint_type=1,
                include_fenced_brokers=False,
            )
            told: int = answer.cluster_authorized_operations
            return told

        assert await cluster(alice) == 0
        await grant(bench, O.ALTER, T.CLUSTER, NAME)
        assert await cluster(alice) == 1 << O.ALTER | 1 << O.DESCRIBE
        assert await cluster(bench) == 8096

    with_broker(story, **WITH_AUTHORIZER)


def test_configs_of_each_kind_are_described_by_who_may() -> None:
    async def story(bench: HandlerBench) -> None:
        alice = bench.as_user("alice")

        async def describe(kind: int, name: str) -> ErrorCode:
            row = {"resource_type": kind, "resource_name": name, "configuration_keys": ()}
            answer = await alice.call(
                describe_configs,
                resources=[row],
                include_synonyms=False,
                include_documentation=False,
            )
            code: ErrorCode = answer.results[0].error_code
            return code

        cluster = ErrorCode.cluster_authorization_failed
        assert await describe(2, "clicks") is DENIED
        assert await describe(2, "nowhere") is DENIED
        assert await describe(4, "1") is cluster
        assert await describe(32, "g") is ErrorCode.group_authorization_failed
        await grant(bench, O.ALTER_CONFIGS)
        await grant(bench, O.DESCRIBE_CONFIGS, T.CLUSTER, NAME)
        await grant(bench, O.DESCRIBE_CONFIGS, T.GROUP, "g")
        assert await describe(2, "clicks") is ErrorCode.none
        assert await describe(4, "1") is ErrorCode.none
        assert await describe(32, "g") is ErrorCode.none

    with_broker(story, **WITH_AUTHORIZER)


def test_denials_and_changes_are_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    async def story(bench: HandlerBench) -> None:
        caplog.clear()
        await bench.as_user("mallory").create("views")
        await grant(bench, O.READ)
        assert await names(bench.as_user("mallory")) == {}  # a shorter list is no denial

    with caplog.at_level(logging.INFO, "moldau.audit"):
        with_broker(story, **WITH_AUTHORIZER)
    told = [record.getMessage() for record in caplog.records if record.name == "moldau.audit"]
    assert told == [
        "denied: User:mallory from 10.0.0.1 may not Create Topic:views (CreateTopics)",
        "failed: User:mallory from 10.0.0.1, CreateTopics Topic:views: TOPIC_AUTHORIZATION_FAILED",
        "changed: User:ANONYMOUS from 10.0.0.1, CreateAcls Allow User:alice from * to Read "
        "Topic:clicks",
    ]


def test_the_audit_log_names_the_options_that_were_changed_and_no_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(bench: HandlerBench) -> None:
        caplog.clear()

        async def alter(validate_only: bool, *pairs: tuple[str, str]) -> None:
            configs = [{"name": n, "value": v, "config_operation": 0} for n, v in pairs]
            row = {"resource_type": 4, "resource_name": "1", "configs": configs}
            await bench.call(
                incremental_alter_configs, resources=[row], validate_only=validate_only
            )

        await alter(True, ("ssl.key.password", "hunter2"))
        await alter(False, ("ssl.key.password", "hunter2"), ("max.connections", "5000"))
        await alter(True, ("max.connections", "many hunters"))

    with caplog.at_level(logging.INFO, "moldau.audit"):
        with_broker(story, **WITH_AUTHORIZER)
    told = [record.getMessage() for record in caplog.records if record.name == "moldau.audit"]
    changed = "IncrementalAlterConfigs Broker:1 "
    assert told == [
        f"changed: User:ANONYMOUS from 10.0.0.1, {changed}(ssl.key.password, max.connections)",
        f"failed: User:ANONYMOUS from 10.0.0.1, {changed}(max.connections): INVALID_CONFIG",
    ]
    assert "hunter" not in "".join(told)


def test_everybody_is_let_in_where_there_is_no_list_if_the_broker_says_so() -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.create("views")
        bob = bench.as_user("bob")
        assert set(await names(bob)) == {"clicks", "views"}
        await grant(bench, O.READ)
        assert set(await names(bob)) == {"views"}

    with_broker(story, **WITH_AUTHORIZER, allow_everyone_if_no_acl_found="true")


def test_a_page_of_topic_partitions_has_the_topics_that_the_client_may_describe() -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.create("views")
        await grant(bench, O.DESCRIBE, name="views")
        alice = bench.as_user("alice")

        async def describe(*topics: str) -> dict[str, ErrorCode]:
            answer = await alice.call(
                describe_topic_partitions,
                topics=[{"name": name} for name in topics],
                response_partition_limit=10,
                cursor=None,
            )
            return {topic.name: topic.error_code for topic in answer.topics}

        assert await describe() == {"views": ErrorCode.none}
        assert await describe("clicks", "views") == {"clicks": DENIED, "views": ErrorCode.none}

    with_broker(story, **WITH_AUTHORIZER)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_to_a_transaction_by_who_may_write(version: int) -> None:
    async def story(bench: HandlerBench) -> None:
        async def add() -> ErrorCode:
            answer = await bench.as_user("alice").call(
                add_partitions_to_txn,
                version=version,
                v3_and_below_transactional_id="t",
                v3_and_below_producer_id=1,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=[{"name": "clicks", "partitions": (0,)}],
            )
            rows = answer.results_by_topic_v3_and_below[0].results_by_partition
            code: ErrorCode = rows[0].partition_error_code
            return code

        denied = ErrorCode.transactional_id_authorization_failed
        assert await add() is denied
        await grant(bench, O.WRITE)
        assert await add() is denied  # WRITE of the topic alone
        await grant(bench, O.WRITE, T.TRANSACTIONAL_ID, "t")
        assert await add() not in (denied, DENIED)
        await grant(bench, O.WRITE, permission=AclPermission.DENY)
        assert await add() is DENIED

    with_broker(story, **WITH_AUTHORIZER)


def test_a_consumer_group_is_described_to_who_may_describe_its_topics() -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.call(find_coordinator, key_type=0, coordinator_keys=("g",))
        await bench.cluster.clock.advance(1.0)
        answer = await bench.call(
            consumer_group_heartbeat,
            group_id="g",
            member_id="member-1",
            member_epoch=0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=60_000,
            subscribed_topic_names=("clicks",),
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[],
        )
        assert answer.error_code is ErrorCode.none
        await grant(bench, O.DESCRIBE, T.GROUP, "g")

        async def describe() -> tuple[ErrorCode, int]:
            answer = await bench.as_user("alice").call(
                consumer_group_describe, group_ids=("g",), include_authorized_operations=False
            )
            return answer.groups[0].error_code, len(answer.groups[0].members)

        assert await describe() == (DENIED, 0)
        await grant(bench, O.DESCRIBE)
        assert await describe() == (ErrorCode.none, 1)

    with_broker(story, **WITH_AUTHORIZER)


def test_a_transaction_is_described_with_the_topics_that_the_client_may_describe() -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.create("views")
        await bench.call(find_coordinator, key_type=1, coordinator_keys=("t",))
        await bench.cluster.clock.advance(1.0)
        producer = await bench.call(
            init_producer_id,
            version=5,
            transactional_id="t",
            transaction_timeout=timedelta(seconds=60),
            producer_id=-1,
            producer_epoch=-1,
        )
        assert producer.error_code is ErrorCode.none
        added = await bench.call(
            add_partitions_to_txn,
            version=3,
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[
                {"name": "clicks", "partitions": (0, 1)},
                {"name": "views", "partitions": (0,)},
            ],
        )
        for topic in added.results_by_topic_v3_and_below:
            for row in topic.results_by_partition:
                assert row.partition_error_code is ErrorCode.none
        await grant(bench, O.DESCRIBE, T.TRANSACTIONAL_ID, "t")

        async def describe() -> dict[str, tuple[int, ...]]:
            answer = await bench.as_user("alice").call(
                describe_transactions, transactional_ids=("t",)
            )
            (found,) = answer.transaction_states
            assert found.error_code is ErrorCode.none
            assert found.transaction_state == "Ongoing"
            return {topic.topic: topic.partitions for topic in found.topics}

        assert await describe() == {}
        await grant(bench, O.DESCRIBE)
        assert await describe() == {"clicks": (0, 1)}
        await grant(bench, O.DESCRIBE, name="views")
        assert await describe() == {"clicks": (0, 1), "views": (0,)}

    with_broker(story, **WITH_AUTHORIZER)


def test_offsets_of_a_share_group_are_shown_of_topics_that_the_client_may_describe() -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.call(find_coordinator, key_type=0, coordinator_keys=("g",))
        await bench.cluster.clock.advance(1.0)
        values = {"group_id": "g", "member_id": "m", "rack_id": None}
        epoch = 0
        for _ in range(50):  # until the share coordinator keeps the states
            answer = await bench.call(
                share_group_heartbeat,
                member_epoch=epoch,
                subscribed_topic_names=("clicks",),
                **values,  # type: ignore[arg-type]
            )
            assert answer.error_code is ErrorCode.none
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                break
            await bench.cluster.clock.advance(0.2)
        await grant(bench, O.DESCRIBE, T.GROUP, "g")

        async def describe() -> list[str]:
            answer = await bench.as_user("alice").call(
                describe_share_group_offsets, groups=[{"group_id": "g", "topics": None}]
            )
            (group,) = answer.groups
            assert group.error_code is ErrorCode.none
            return [topic.topic_name for topic in group.topics]

        assert await describe() == []
        await grant(bench, O.DESCRIBE)
        assert await describe() == ["clicks"]

    with_broker(story, **WITH_AUTHORIZER)
