"""What each API needs: a user with every right but one of these is refused, with Kafka's error
code, and a user with exactly these rights is not.

`NEEDED` is Kafka's table (Protocol, "Authorization primitives" of its documentation, and KafkaApis
where that says more). It is not derived from the handlers. An API that is new has to be in it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta
from types import ModuleType
from typing import NamedTuple
from unittest.mock import patch

import pytest

from broker.handlers import test_authorization_walk as walk
from broker.handlers import test_streams_handlers as streams
from broker.handlers.handler_bench import CONNECTION, WITH_AUTHORIZER, HandlerBench, with_broker
from moldau.broker.handlers import (
    consumer_group_heartbeat,
    create_acls,
    find_coordinator,
    init_producer_id,
    load_handler,
    share_group_heartbeat,
)
from moldau.coordinators.shares.share_session import MemberKey
from moldau.errors import ErrorCode
from moldau.model import CLUSTER_NAME, AclOperation, AclPermission, AclResourceType, Principal
from moldau.wire.apis import SERVED

O = AclOperation  # noqa: E741 a table of it follows
TOPIC, GROUP, CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
TRANSACTION, USER = AclResourceType.TRANSACTIONAL_ID, AclResourceType.USER

Right = tuple[AclOperation, AclResourceType]

CODES = {
    TOPIC: ErrorCode.topic_authorization_failed,
    GROUP: ErrorCode.group_authorization_failed,
    CLUSTER: ErrorCode.cluster_authorization_failed,
    TRANSACTION: ErrorCode.transactional_id_authorization_failed,
    USER: ErrorCode.delegation_token_authorization_failed,
}


class Need(NamedTuple):
    """One of these rights, and what becomes of a request without any of them."""

    rights: tuple[Right, ...]
    code: ErrorCode | None  # None: the item is left out of the answer


class Case(NamedTuple):
    """A request of an API, in some versions, and what it needs."""

    api: str
    needs: tuple[Need, ...]
    about: str = ""
    versions: tuple[int, int] = (0, 99)
    numbers: Mapping[str, int] = {}
    values: Mapping[str, object] = {}
    name: str = walk.SECRET
    make_group: Callable[[HandlerBench], Awaitable[None]] = walk.make_secret_group
    before_each: Callable[[HandlerBench], object] = lambda bench: None
    options: Mapping[str, str] = {}
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.api} {self.about}".strip()


def one(operation: AclOperation, resource_type: AclResourceType) -> Need:
    return Need(((operation, resource_type),), CODES[resource_type])


def any_of(*rights: Right, code: ErrorCode | None) -> Need:
    return Need(rights, code)


async def make_transactional_id(bench: HandlerBench) -> None:
    await bench.call(find_coordinator, key_type=1, coordinator_keys=(walk.SECRET,))
    await bench.cluster.clock.advance(1.0)
    answer = await bench.call(
        init_producer_id,
        version=5,
        transactional_id=walk.SECRET,
        transaction_timeout=timedelta(seconds=60),
        producer_id=-1,
        producer_epoch=-1,
    )
    assert answer.error_code is ErrorCode.none


def make_member(
    handler: ModuleType, *, leaves: bool = False, **more: object
) -> Callable[..., Awaitable[None]]:
    """A group of a new protocol, with one member that wants the topic."""

    async def make(bench: HandlerBench) -> None:
        values = {
            "group_id": walk.SECRET,
            "member_id": "member",
            "rack_id": None,
            "subscribed_topic_names": (walk.SECRET,),
            **more,
        }
        for epoch in (0, -1) if leaves else (0,):
            answer = await bench.call(handler, member_epoch=epoch, **values)
            assert answer.error_code is ErrorCode.none, answer

    return make


def open_share_session(bench: HandlerBench) -> None:
    member = MemberKey(walk.SECRET, walk.SECRET)
    bench.services.shares.sessions.open(member, walk.Connection())


async def make_streams_member(bench: HandlerBench) -> None:
    answer = await streams.join(
        bench, group_id=walk.SECRET, topology=streams.counting(source=walk.SECRET)
    )
    assert answer.error_code is ErrorCode.none, answer


NEEDED: tuple[Case, ...] = (
    Case("produce", (one(O.WRITE, TRANSACTION), one(O.WRITE, TOPIC))),
    Case("produce", (one(O.WRITE, TOPIC),), "idempotent", values={"transactional_id": None}),
    Case("fetch", (one(O.READ, TOPIC),)),
    Case(
        "fetch",
        (Need(((O.CLUSTER_ACTION, CLUSTER),), CODES[TOPIC]),),
        "of a follower",
        (0, 14),
        {"replica_id": 2},
    ),
    Case("list_offsets", (one(O.DESCRIBE, TOPIC),)),
    Case("metadata", (one(O.DESCRIBE, TOPIC),)),
    Case(
        "metadata",
        (
            one(O.DESCRIBE, TOPIC),
            any_of((O.CREATE, CLUSTER), (O.CREATE, TOPIC), code=CODES[TOPIC]),
        ),
        "of a topic to be created",
        (4, 11),
        values={"allow_auto_topic_creation": True},
        name=walk.ABSENT,
    ),
    Case("offset_commit", (one(O.READ, GROUP), one(O.READ, TOPIC))),
    Case("offset_fetch", (one(O.DESCRIBE, GROUP), one(O.DESCRIBE, TOPIC))),
    Case("find_coordinator", (one(O.DESCRIBE, GROUP),)),
    Case(
        "find_coordinator",
        (one(O.DESCRIBE, TRANSACTION),),
        "of a transactional id",
        (1, 99),
        {"key_type": 1},
    ),
    Case(
        "find_coordinator",
        (one(O.CLUSTER_ACTION, CLUSTER),),
        "of a share partition",
        (6, 99),
        {"key_type": 2},
    ),
    *(
        Case(api, (one(O.READ, GROUP),))
        for api in ("join_group", "heartbeat", "leave_group", "sync_group")
    ),
    Case("describe_groups", (one(O.DESCRIBE, GROUP),)),
    Case(
        "list_groups",
        (any_of((O.DESCRIBE, CLUSTER), (O.DESCRIBE, GROUP), code=None),),
        values={"states_filter": (), "types_filter": ()},
    ),
    Case(
        "create_topics",
        (
            any_of(
                (O.CREATE, CLUSTER),
                (O.CREATE, TOPIC),
                (O.CLUSTER_ACTION, CLUSTER),  # a broker, on behalf of a client
                code=CODES[TOPIC],
            ),
        ),
        values={"configs": ()},
        name=walk.ABSENT,
    ),
    Case("delete_topics", (one(O.DELETE, TOPIC),)),
    Case("delete_records", (one(O.DELETE, TOPIC),)),
    Case(
        "init_producer_id",
        (any_of((O.IDEMPOTENT_WRITE, CLUSTER), (O.WRITE, TOPIC), code=CODES[CLUSTER]),),
        "idempotent",
        values={"transactional_id": None},
    ),
    Case("init_producer_id", (one(O.WRITE, TRANSACTION),)),
    Case(
        "init_producer_id",
        (one(O.WRITE, TRANSACTION), one(O.TWO_PHASE_COMMIT, TRANSACTION)),
        "of two phases",
        (6, 99),
        values={"enable2_pc": True},
        options={"transaction_two_phase_commit_enable": "true"},
    ),
    Case(
        "offset_for_leader_epoch",
        (any_of((O.CLUSTER_ACTION, CLUSTER), (O.DESCRIBE, TOPIC), code=CODES[TOPIC]),),
    ),
    Case(
        "add_partitions_to_txn",
        (one(O.WRITE, TRANSACTION), one(O.WRITE, TOPIC)),
        "of a producer",
        (0, 3),
    ),
    Case("add_partitions_to_txn", (one(O.CLUSTER_ACTION, CLUSTER),), "of a broker", (4, 99)),
    Case("add_offsets_to_txn", (one(O.WRITE, TRANSACTION), one(O.READ, GROUP))),
    Case("end_txn", (one(O.WRITE, TRANSACTION),)),
    Case(
        "write_txn_markers",
        (any_of((O.ALTER, CLUSTER), (O.CLUSTER_ACTION, CLUSTER), code=CODES[CLUSTER]),),
    ),
    Case(
        "txn_offset_commit",
        (one(O.WRITE, TRANSACTION), one(O.READ, GROUP), one(O.READ, TOPIC)),
    ),
    Case("describe_acls", (one(O.DESCRIBE, CLUSTER),)),
    Case("create_acls", (one(O.ALTER, CLUSTER),)),
    Case("delete_acls", (one(O.ALTER, CLUSTER),)),
    *(
        Case(api, (one(operation, kind),), about, numbers={"resource_type": number})
        for api, operation in (
            ("describe_configs", O.DESCRIBE_CONFIGS),
            ("alter_configs", O.ALTER_CONFIGS),
            ("incremental_alter_configs", O.ALTER_CONFIGS),
        )
        for about, number, kind in (
            ("of a topic", 2, TOPIC),
            ("of a broker", 4, CLUSTER),
            ("of a broker's loggers", 8, CLUSTER),
            ("of client metrics", 16, CLUSTER),
            ("of a group", 32, GROUP),
        )
    ),
    Case("alter_replica_log_dirs", (one(O.ALTER, CLUSTER),)),
    Case("describe_log_dirs", (one(O.DESCRIBE, CLUSTER),), versions=(3, 99)),
    Case(
        "describe_log_dirs",
        (any_of((O.DESCRIBE, CLUSTER), code=None),),
        "without a field for the code",
        (0, 2),
    ),
    Case("create_partitions", (one(O.ALTER, TOPIC),)),
    Case(
        "create_delegation_token",
        (one(O.CREATE_TOKENS, USER),),
        "for another user",
        (3, 99),
        values={"owner_principal_type": "User"},
        options={"delegation_token_secret_key": "k"},
        security_protocol="SASL_SSL",
    ),
    Case("delete_groups", (one(O.DELETE, GROUP),)),
    Case("elect_leaders", (one(O.ALTER, CLUSTER),)),
    Case("alter_partition_reassignments", (one(O.ALTER, CLUSTER),)),
    Case("list_partition_reassignments", (one(O.DESCRIBE, CLUSTER),)),
    Case("offset_delete", (one(O.DELETE, GROUP), one(O.READ, TOPIC))),
    Case("describe_client_quotas", (one(O.DESCRIBE_CONFIGS, CLUSTER),)),
    Case("alter_client_quotas", (one(O.ALTER_CONFIGS, CLUSTER),)),
    Case("describe_user_scram_credentials", (one(O.DESCRIBE, CLUSTER),)),
    Case("alter_user_scram_credentials", (one(O.ALTER, CLUSTER),)),
    Case("update_features", (one(O.ALTER, CLUSTER),)),
    Case("describe_producers", (one(O.READ, TOPIC),)),
    Case("unregister_broker", (one(O.ALTER, CLUSTER),)),
    Case("describe_transactions", (one(O.DESCRIBE, TRANSACTION),)),
    Case(
        "list_transactions",
        (any_of((O.DESCRIBE, TRANSACTION), code=None),),
        numbers={"duration_filter": -1},
        values={"state_filters": (), "producer_id_filters": ()},
        make_group=make_transactional_id,
    ),
    Case("consumer_group_heartbeat", (one(O.READ, GROUP), one(O.DESCRIBE, TOPIC))),
    Case(
        "consumer_group_describe",
        (one(O.DESCRIBE, GROUP), one(O.DESCRIBE, TOPIC)),
        make_group=make_member(
            consumer_group_heartbeat,
            instance_id=None,
            rebalance_timeout=60_000,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[],
        ),
    ),
    Case("describe_topic_partitions", (one(O.DESCRIBE, TOPIC),)),
    Case("list_config_resources", (one(O.DESCRIBE_CONFIGS, CLUSTER),)),
    Case("share_group_heartbeat", (one(O.READ, GROUP), one(O.DESCRIBE, TOPIC))),
    Case(
        "share_group_describe",
        (one(O.DESCRIBE, GROUP), one(O.DESCRIBE, TOPIC)),
        make_group=make_member(share_group_heartbeat),
    ),
    Case(
        "share_fetch",
        (one(O.READ, GROUP), one(O.READ, TOPIC)),
        values={"acknowledgement_batches": (), "forgotten_topics_data": ()},
    ),
    Case(
        "share_acknowledge",
        (one(O.READ, GROUP), one(O.READ, TOPIC)),
        numbers={"share_session_epoch": -1},
        before_each=open_share_session,
    ),
    *(
        Case(api, (one(O.CLUSTER_ACTION, CLUSTER),))
        for api in (
            "initialize_share_group_state",
            "read_share_group_state",
            "write_share_group_state",
            "delete_share_group_state",
            "read_share_group_state_summary",
        )
    ),
    *(
        Case(
            api,
            (one(for_group, GROUP), one(for_topic, TOPIC)),
            make_group=make_member(share_group_heartbeat, leaves=True),
        )
        for api, for_group, for_topic in (
            ("describe_share_group_offsets", O.DESCRIBE, O.DESCRIBE),
            ("alter_share_group_offsets", O.READ, O.READ),
            ("delete_share_group_offsets", O.DELETE, O.READ),
        )
    ),
    Case(
        "streams_group_heartbeat",
        (one(O.READ, GROUP), one(O.DESCRIBE, TOPIC)),
    ),
    Case(
        "streams_group_describe",
        (one(O.DESCRIBE, GROUP), one(O.DESCRIBE, TOPIC)),
        make_group=make_streams_member,
    ),
)

WITHOUT_RIGHTS = {
    "api_versions": "every client may know which versions there are",
    "describe_cluster": "every client may know the brokers",
    "sasl_handshake": "the client is not authenticated yet",
    "sasl_authenticate": "the client is not authenticated yet",
    "get_telemetry_subscriptions": "clients push their own metrics",
    "push_telemetry": "clients push their own metrics",
    "renew_delegation_token": "needs the HMAC of the token, and to be its owner or a renewer",
    "expire_delegation_token": "needs the HMAC of the token, and to be its owner or a renewer",
    "describe_delegation_token": "leaves out tokens of others (test_token_handlers.py)",
}


def row(user: Principal, right: Right, permission: AclPermission) -> dict[str, object]:
    operation, resource_type = right
    return {
        "resource_type": resource_type.value,
        "resource_name": CLUSTER_NAME if resource_type is CLUSTER else "*",
        "resource_pattern_type": 3,
        "principal": str(user),
        "host": "*",
        "operation": operation.value,
        "permission_type": permission.value,
    }


class Asking:
    """Sends the request of a case, in each of its versions, as users with some rights."""

    def __init__(self, bench: HandlerBench, case: Case) -> None:
        self._bench = bench
        self._case = case
        self._topic_id = bench.services.image.topics[walk.SECRET].topic_id
        self.handler: ModuleType = load_handler(_API[case.api])

    @property
    def versions(self) -> range:
        first, last = self._case.versions
        api = self.handler.API
        return range(max(first, api.first), min(last, api.last) + 1)

    async def with_all_but(self, need: Need) -> Principal:
        user = Principal("User", "-".join(one.label for right in need.rights for one in right))
        rows = [row(user, (O.ALL, kind), AclPermission.ALLOW) for kind in CODES]
        rows += [row(user, right, AclPermission.DENY) for right in need.rights]
        return await self._grant(user, rows)

    async def with_only(self, number: int) -> Principal:
        """The given one of the rights of each need, where it has so many, or its last."""
        user = Principal("User", f"only-{number}")
        rights = [need.rights[min(number, len(need.rights) - 1)] for need in self._case.needs]
        return await self._grant(user, [row(user, one, AclPermission.ALLOW) for one in rights])

    async def _grant(self, user: Principal, rows: list[dict[str, object]]) -> Principal:
        answer = await self._bench.call(create_acls, creations=rows)
        assert {one.error_code for one in answer.results} == {ErrorCode.none}, answer
        return user

    async def ask(self, version: int, user: Principal) -> walk.Answered:
        case = self._case
        case.before_each(self._bench)
        with ExitStack() as patches:
            patches.enter_context(patch.dict(walk.NUMBERS, case.numbers))
            patches.enter_context(patch.dict(walk.VALUES, case.values))
            protocol = patch.object(CONNECTION, "security_protocol", case.security_protocol)
            patches.enter_context(protocol)
            return await walk.ask(
                self._bench, self.handler, version, case.name, self._topic_id, user
            )


_API = {api.snake_name: api for api in SERVED}


def test_every_api_is_in_the_table() -> None:
    assert {case.api for case in NEEDED} | set(WITHOUT_RIGHTS) == set(_API)


@pytest.mark.parametrize("case", NEEDED, ids=str)
def test_each_right_is_needed_and_no_other(case: Case) -> None:
    async def story(bench: HandlerBench) -> None:
        await walk.make_secret_topic(bench)
        await case.make_group(bench)
        asking = Asking(bench, case)
        for need in case.needs:
            user = await asking.with_all_but(need)
            for version in asking.versions:
                answered = await asking.ask(version, user)
                refused = answered.codes & walk.REFUSALS
                where = f"version {version} as {user}: {answered}"
                if need.code is None:
                    assert not refused, where
                    assert case.name.encode() not in answered.body, where
                elif not refused and answered.by_id:
                    assert walk.HIDING.get(case.api) in answered.codes, where
                else:
                    assert refused == {need.code}, where
        for number in range(max(len(need.rights) for need in case.needs)):
            user = await asking.with_only(number)
            for version in asking.versions:
                answered = await asking.ask(version, user)
                where = f"version {version} as {user}: {answered}"
                assert not answered.codes & walk.REFUSALS, where
                if any(need.code is None for need in case.needs):
                    assert case.name.encode() in answered.body, where

    with_broker(story, **{**WITH_AUTHORIZER, **case.options})
