"""Every handler in the table, in every version that it serves, refuses somebody who may do nothing,
and does not tell whether what was asked for exists.

A handler that is new has to be in `NEEDED`: what it asks the authorizer, as Kafka's does. Without
an entry, or without asking, its tests fail here and say so.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.static.protocol import Entity

from broker.handlers.handler_bench import CONNECTION, WITH_AUTHORIZER, HandlerBench, with_broker
from moldau.broker.api import RequestContext
from moldau.broker.handlers import find_coordinator, join_group, load_handler
from moldau.errors import ErrorCode
from moldau.model import AclOperation, AclResourceType, Principal
from moldau.wire.apis import SERVED
from moldau.wire.headers import RequestHeader, read_request_header
from moldau.wire.layout import layout_of
from moldau.wire.messages import encode_request, encode_response, parse_response
from moldau.wire.shape import fit

MALLORY = Principal("User", "mallory")
SECRET, ABSENT = "secret", "absent"  # of one length: answers differ in nothing else

TOPIC, GROUP, CLUSTER, TRANSACTION = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
)
O = AclOperation  # noqa: E741 a table of it follows

NEEDED: dict[str, set[tuple[AclOperation, AclResourceType]]] = {
    "produce": {(O.WRITE, TRANSACTION)},
    "fetch": {(O.READ, TOPIC)},
    "list_offsets": {(O.DESCRIBE, TOPIC)},
    "metadata": {(O.DESCRIBE, TOPIC)},
    "offset_commit": {(O.READ, GROUP), (O.READ, TOPIC)},
    "offset_fetch": {(O.DESCRIBE, GROUP), (O.DESCRIBE, TOPIC)},
    "find_coordinator": {(O.DESCRIBE, GROUP)},
    "join_group": {(O.READ, GROUP)},
    "heartbeat": {(O.READ, GROUP)},
    "leave_group": {(O.READ, GROUP)},
    "sync_group": {(O.READ, GROUP)},
    "describe_groups": {(O.DESCRIBE, GROUP)},
    "list_groups": {(O.DESCRIBE, CLUSTER), (O.DESCRIBE, GROUP)},
    "create_topics": {(O.CREATE, CLUSTER), (O.CREATE, TOPIC)},
    "delete_topics": {(O.DELETE, TOPIC)},
    "delete_records": {(O.DELETE, TOPIC)},
    "init_producer_id": {(O.WRITE, TRANSACTION)},
    "offset_for_leader_epoch": {(O.CLUSTER_ACTION, CLUSTER), (O.DESCRIBE, TOPIC)},
    "write_txn_markers": {(O.ALTER, CLUSTER), (O.CLUSTER_ACTION, CLUSTER)},
    "txn_offset_commit": {(O.WRITE, TRANSACTION)},
    "add_partitions_to_txn": set(),  # a producer's up to version 3, a broker's from then on
    "add_offsets_to_txn": {(O.WRITE, TRANSACTION)},
    "end_txn": {(O.WRITE, TRANSACTION)},
    "describe_acls": {(O.DESCRIBE, CLUSTER)},
    "create_acls": {(O.ALTER, CLUSTER)},
    "delete_acls": {(O.ALTER, CLUSTER)},
    "describe_configs": {(O.DESCRIBE_CONFIGS, TOPIC)},
    "alter_configs": {(O.ALTER_CONFIGS, TOPIC)},
    "describe_log_dirs": {(O.DESCRIBE, CLUSTER)},
    "consumer_group_describe": {(O.DESCRIBE, GROUP)},
    "consumer_group_heartbeat": {(O.READ, GROUP)},
    "create_partitions": {(O.ALTER, TOPIC)},
    "delete_groups": {(O.DELETE, GROUP)},
    "elect_leaders": {(O.ALTER, CLUSTER)},
    "incremental_alter_configs": {(O.ALTER_CONFIGS, TOPIC)},
    "alter_partition_reassignments": {(O.ALTER, CLUSTER)},
    "list_partition_reassignments": {(O.DESCRIBE, CLUSTER)},
    "offset_delete": {(O.DELETE, GROUP)},
    "describe_cluster": {(O.DESCRIBE, CLUSTER)},
    "describe_producers": {(O.READ, TOPIC)},
    "describe_transactions": {(O.DESCRIBE, TRANSACTION)},
    "list_transactions": set(),  # there is none to be asked about in this walk
    "describe_topic_partitions": {(O.DESCRIBE, TOPIC)},
    "list_config_resources": {(O.DESCRIBE_CONFIGS, CLUSTER)},
    "unregister_broker": {(O.ALTER, CLUSTER)},
    "update_features": {(O.ALTER, CLUSTER)},
    "alter_client_quotas": {(O.ALTER_CONFIGS, CLUSTER)},
    "describe_client_quotas": {(O.DESCRIBE_CONFIGS, CLUSTER)},
    "describe_user_scram_credentials": {(O.DESCRIBE, CLUSTER)},
    "alter_user_scram_credentials": {(O.ALTER, CLUSTER)},
    "alter_replica_log_dirs": {(O.ALTER, CLUSTER)},
    "create_delegation_token": set(),  # for others from version 3 on, and never to strangers
    "renew_delegation_token": set(),  # whoever knows a token's secret, and holds it
    "expire_delegation_token": set(),
    "describe_delegation_token": set(),  # there is none to be asked about in this walk
    "share_group_heartbeat": {(O.READ, GROUP)},
    "share_group_describe": {(O.DESCRIBE, GROUP)},
    "streams_group_heartbeat": {(O.READ, GROUP)},
    "streams_group_describe": {(O.DESCRIBE, GROUP)},
    "share_fetch": {(O.READ, GROUP)},
    "share_acknowledge": {(O.READ, GROUP)},
    "initialize_share_group_state": {(O.CLUSTER_ACTION, CLUSTER)},
    "read_share_group_state": {(O.CLUSTER_ACTION, CLUSTER)},
    "write_share_group_state": {(O.CLUSTER_ACTION, CLUSTER)},
    "delete_share_group_state": {(O.CLUSTER_ACTION, CLUSTER)},
    "read_share_group_state_summary": {(O.CLUSTER_ACTION, CLUSTER)},
    "describe_share_group_offsets": {(O.DESCRIBE, GROUP)},
    "alter_share_group_offsets": {(O.READ, GROUP)},
    "delete_share_group_offsets": {(O.DELETE, GROUP)},
}
"""What each handler has to ask in this walk, at least."""

ANSWERED = {
    "api_versions": "everybody may know which versions there are",
    "describe_cluster": "brokers are no secret; what may be done with the cluster is told by bits",
    "list_groups": "what may not be seen is left out",
    "list_transactions": "what may not be seen is left out",
    "sasl_handshake": "nobody is anybody yet",
    "sasl_authenticate": "nobody is anybody yet",
    "get_telemetry_subscriptions": "as in Kafka, clients tell their own metrics",
    "push_telemetry": "as in Kafka, clients tell their own metrics",
    "describe_log_dirs": "an empty answer before version 3, which has a code for it",
}
"""Handlers that answer somebody who may do nothing without a code that says so, and why."""

REFUSALS = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
        ErrorCode.delegation_token_authorization_failed,
        ErrorCode.delegation_token_request_not_allowed,
    }
)

HIDING = {"metadata": ErrorCode.unknown_topic_id}
"""What a topic is, asked for by its id, to somebody who may not know of it."""

NUMBERS = {
    "replica_id": -1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "pattern_type_filter": 3,
    "resource_pattern_type": 3,
    "operation": 3,
    "permission_type": 3,
    "session_epoch": -1,
    "max_wait": 0,
    "acks": 1,
    "mechanism": 1,
    "iterations": 4096,
    "share_session_epoch": 0,
    "response_partition_limit": 100,
    "endpoint_type": 1,
    "num_partitions": 1,
    "replication_factor": 1,
    "member_epoch": 0,
}
"""Where a zero would mean something else than an honest request."""

VALUES: dict[str, object] = {}
"""Of fields by their names, for tests that need others than an honest request of this walk has."""

NOTHING = {
    "subscribed_topic_regex",
    "records",
    "cursor",
    "assignments",
    "rack_id",
    "rack",
    "state_filters",
}


class Recording:
    """Remembers what was asked about one user."""

    version = 0

    def __init__(self, behind: Any, user: Principal) -> None:
        self._behind = behind
        self._user = user
        self.asked: set[tuple[AclOperation, AclResourceType]] = set()

    def allows(self, principal: Principal, host: str, *asked: Any) -> bool:
        operation, resource_type, _ = asked
        if principal == self._user:
            self.asked.add((operation, resource_type))
        allowed: bool = self._behind.allows(principal, host, *asked)
        return allowed

    def allows_somewhere(self, principal: Principal, host: str, *asked: Any) -> bool:
        allowed: bool = self._behind.allows_somewhere(principal, host, *asked)
        return allowed


class Connection(SimpleNamespace):
    """One among others, also where it is a key: of share sessions."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Answered(NamedTuple):
    asked: frozenset[tuple[AclOperation, AclResourceType]]
    codes: frozenset[ErrorCode]
    body: bytes
    by_id: bool


def values_for(entity: type[Entity], name: str, topic_id: object) -> dict[str, object]:
    """An honest request, in which everything that can be named is named so."""
    layout = layout_of(entity)
    values = {field.name: value_for(field, name, topic_id) for field in layout}
    if any(field.kafka_type == "uuid" for field in layout) and not _has_to_name(entity):
        # By its id or by its name, not by both.
        nullable = {field.name for field in layout if field.is_nullable}
        values.update((key, None) for key in ("name", "topic") if key in nullable)
    return values


def _has_to_name(entity: type[Entity]) -> bool:
    """Metadata can be asked by ids in versions whose answers cannot do without names."""
    return entity.__name__ == "MetadataRequestTopic" and entity.__version__ < 12


def value_for(field: Any, name: str, topic_id: object) -> object:
    if field.name in VALUES:
        return VALUES[field.name]
    if field.name in NOTHING and (field.is_nullable or field.is_array):
        return [] if field.is_array else None
    if field.structure is not None:
        one = values_for(field.structure, name, topic_id)
        return [one] if field.is_array else one
    kind = field.kafka_type
    value: object
    if kind == "string":
        value = name
    elif kind == "uuid":
        value = topic_id
    elif kind == "bool":
        value = field.name.startswith("include_")
    elif kind == "bytes":
        value = b""
    elif kind == "records":
        value = None
    elif kind == "float64":
        value = 1.0
    else:
        value = NUMBERS.get(field.name, 0)
    return [value] if field.is_array else value


def codes_in(entity: Any) -> Iterator[ErrorCode]:
    for field in fields(entity):
        value = getattr(entity, field.name)
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, ErrorCode):
                yield one
            elif hasattr(one, "__dataclass_fields__"):
                yield from codes_in(one)


async def ask(
    bench: HandlerBench,
    handler: ModuleType,
    version: int,
    name: str,
    topic_id: object,
    user: Principal = MALLORY,
) -> Answered:
    key = handler.API.key
    request = fit(
        load_request_schema(key, version),
        values_for(load_request_schema(key, version), name, topic_id),
    )
    recording = Recording(bench.services.authorizer, user)
    services = replace(bench.services, authorizer=recording)
    connection = Connection(
        **{**vars(CONNECTION), "principal": user, "close": lambda reason: None, "id": "c"}
    )
    context = RequestContext(RequestHeader(key, version, 9, "test"), connection, services)
    if handler.API.by_hand:
        frame = memoryview(bytearray(encode_request(request, 9, "test")))[4:]
        _, position = read_request_header(frame)
        chunks = handler.handle_frame(frame, position, context)
        if inspect.isawaitable(chunks):
            chunks = await bench.cluster.during(chunks)
        body = b"".join(bytes(chunk) for chunk in chunks)[4:]
    else:
        values = handler.handle(request, context)
        if inspect.isawaitable(values):
            values = await bench.cluster.during(values)
        response = fit(
            load_response_schema(key, version),
            {"throttle_time": 0, **values},
            handler.API.droppable,
        )
        body = encode_response(response, 9)[4:]
    _, answer = parse_response(key, version, memoryview(body))
    by_id = any(field.kafka_type == "uuid" for field in all_fields(type(request)))
    return Answered(frozenset(recording.asked), frozenset(codes_in(answer)), body, by_id)


def all_fields(entity: type[Entity]) -> Iterator[Any]:
    for field in layout_of(entity):
        yield field
        if field.structure is not None:
            yield from all_fields(field.structure)


async def make_secrets(bench: HandlerBench) -> None:
    """A topic and a group of the name that is asked for."""
    await make_secret_topic(bench)
    await make_secret_group(bench)


async def make_secret_topic(bench: HandlerBench) -> None:
    """And a coordinator for the group."""
    await bench.create(SECRET)
    await bench.call(find_coordinator, key_type=0, coordinator_keys=(SECRET,))
    await bench.cluster.clock.advance(1.0)


async def make_secret_group(bench: HandlerBench) -> None:
    await bench.call(
        join_group,
        version=3,
        group_id=SECRET,
        session_timeout=10_000,
        rebalance_timeout=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"m"}],
    )


failures: dict[str, str] = {}
"""Handlers that could not be walked, and why."""


def answers_of(name: str) -> dict[int, tuple[Answered, Answered]]:
    answers = walk()[name]
    assert name not in failures, failures[name]
    return answers


@cache
def walk() -> dict[str, dict[int, tuple[Answered, Answered]]]:
    """What mallory gets for what exists and for what does not, of every API and version."""
    found: dict[str, dict[int, tuple[Answered, Answered]]] = {}

    async def story(bench: HandlerBench) -> None:
        await make_secrets(bench)
        topic_id = bench.services.image.topics[SECRET].topic_id
        for handler in map(load_handler, SERVED):
            api = handler.API
            answers = found[api.name] = {}
            for version in range(api.first, api.last + 1):
                try:
                    answers[version] = (
                        await ask(bench, handler, version, SECRET, topic_id),
                        await ask(bench, handler, version, ABSENT, topic_id),
                    )
                except Exception as error:  # noqa: BLE001 it fails the tests of this handler
                    failures[api.name] = f"version {version}: {traceback.format_exc()}{error}"
        assert SECRET in bench.services.image.topics, "somebody who may do nothing deleted it"
        assert ABSENT not in bench.services.image.topics, "somebody who may do nothing made it"

    with_broker(story, **WITH_AUTHORIZER)
    return found


NAMES = [api.snake_name for api in SERVED]


@pytest.mark.parametrize("name", NAMES)
def test_a_handler_asks_the_authorizer(name: str) -> None:
    if name in ANSWERED and name not in NEEDED:
        return
    assert name in NEEDED, (
        f"{name} is new: let it authorise as Kafka's KafkaApis does (broker.authorization), and "
        "say in NEEDED what it asks"
    )
    for version, answers in answers_of(name).items():
        missing = NEEDED[name] - answers[0].asked
        assert not missing, f"version {version} does not ask for {missing}"


@pytest.mark.parametrize("name", NAMES)
def test_somebody_who_may_do_nothing_is_refused(name: str) -> None:
    for version, (answered, _) in answers_of(name).items():
        if name in ANSWERED:
            assert SECRET.encode() not in answered.body, f"version {version} names a secret"
        elif name in HIDING and answered.by_id and HIDING[name] in answered.codes:
            continue
        else:
            assert answered.codes & REFUSALS, f"version {version} refuses nothing"


@pytest.mark.parametrize("name", NAMES)
def test_what_exists_is_not_told_from_what_does_not(name: str) -> None:
    for version, (exists, absent) in answers_of(name).items():
        if not exists.by_id:
            told = absent.body.replace(ABSENT.encode(), SECRET.encode())
            assert exists.body == told, f"version {version} tells them apart"
