"""Finds the brokers that look after groups and transactional ids, and asks them.

Answers for following a key when its coordinator moves, loads, or is not there for a while. The
requests themselves are the business of `admin_groups` and `admin_transactions`. A shell.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from kio.schema.errors import ErrorCode

from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.connections import BrokerConnection
from moldau.client.rules.addresses import Address
from moldau.client.rules.cluster_metadata import Broker
from moldau.errors import KafkaError
from moldau.wire.apis import FIND_COORDINATOR

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v2.response import (
        FindCoordinatorResponse as SingleCoordinatorResponse,
    )
    from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse

T = TypeVar("T")

GROUP_KEY = 0
TRANSACTION_KEY = 1
"""What a coordinator is asked for by; share groups have a third one."""

_NAMES = {GROUP_KEY: "group", TRANSACTION_KEY: "transactional id"}
_FIRST_WITH_SEVERAL_KEYS = 4
_DROPPABLE = frozenset({"key_type"})


async def find_coordinator(client: ClusterClient, group_id: str) -> Broker:
    """The broker that looks after a group; asks again while there is none."""

    async def find() -> Broker:
        return await find_coordinator_once(client, group_id)

    return await client.retry(find, refresh=())


AskAboutOne = Callable[[BrokerConnection], Awaitable[T]]
AskAboutMany = Callable[[Broker, BrokerConnection, Sequence[str]], Awaitable[Mapping[str, T]]]


async def ask_coordinator(client: ClusterClient, group_id: str, ask: AskAboutOne[T]) -> T:
    """Ask a group's coordinator, wherever it is; `ask` raises when it was the wrong one."""

    async def find_and_ask() -> T:
        broker = await find_coordinator_once(client, group_id)
        return await ask(await client.connect_to_broker(broker.id))

    return await client.retry(find_and_ask, refresh=())


async def ask_coordinators(
    client: ClusterClient,
    group_ids: Collection[str],
    ask: AskAboutMany[T | KafkaError],
    key_type: int = GROUP_KEY,
) -> Mapping[str, T | KafkaError]:
    """Ask each coordinator about its groups, or transactional ids, until each of them has a lasting
    answer."""

    async def ask_about(left: Sequence[str]) -> Mapping[str, T | KafkaError]:
        found = await _find_coordinators(client, left, key_type)
        groups: defaultdict[Broker, list[str]] = defaultdict(list)
        answers: dict[str, T | KafkaError] = {}
        for group_id, broker in found.items():
            if isinstance(broker, KafkaError):
                answers[group_id] = broker
            else:
                groups[broker].append(group_id)
        work = [_connect_and_ask(client, broker, ids, ask) for broker, ids in groups.items()]
        for some in await asyncio.gather(*work):
            answers.update(some)
        return answers

    return await client.retry_each(group_ids, ask_about, refresh=())


async def _connect_and_ask(
    client: ClusterClient,
    broker: Broker,
    group_ids: Sequence[str],
    ask: AskAboutMany[T | KafkaError],
) -> Mapping[str, T | KafkaError]:
    return await ask(broker, await client.connect_to_broker(broker.id), group_ids)


async def find_coordinator_once(
    client: ClusterClient, key: str, key_type: int = GROUP_KEY
) -> Broker:
    """The broker that looks after a group or a transactional id; raises if there is none now."""
    found = (await _find_coordinators(client, (key,), key_type))[key]
    if isinstance(found, KafkaError):
        raise found
    return found


async def _find_coordinators(
    client: ClusterClient, keys: Sequence[str], key_type: int = GROUP_KEY
) -> Mapping[str, Broker | KafkaError]:
    connection = await client.pool.to_any()
    version = connection.choose_version(FIND_COORDINATOR)
    if version >= _FIRST_WITH_SEVERAL_KEYS:
        return await _find_at_once(connection, keys, key_type, version)
    work = [_find_one(connection, key, key_type, version) for key in keys]
    return dict(zip(keys, await asyncio.gather(*work), strict=True))


async def _find_at_once(
    connection: BrokerConnection, keys: Sequence[str], key_type: int, version: int
) -> Mapping[str, Broker | KafkaError]:
    values = {"key_type": key_type, "coordinator_keys": tuple(keys)}
    answer = await connection.call(FIND_COORDINATOR, values, version=version)
    rows = cast("FindCoordinatorResponse", answer).coordinators
    return {str(row.key): _read(row.key, key_type, row) for row in rows}


async def _find_one(
    connection: BrokerConnection, key: str, key_type: int, version: int
) -> Broker | KafkaError:
    values = {"key_type": key_type, "key": key}
    answer = await connection.call(FIND_COORDINATOR, values, _DROPPABLE, version=version)
    return _read(key, key_type, cast("SingleCoordinatorResponse", answer))


def _read(
    key: str, key_type: int, row: Coordinator | SingleCoordinatorResponse
) -> Broker | KafkaError:
    if row.error_code is not ErrorCode.none:
        message = getattr(row, "error_message", None)  # from version 1 on
        return error_for(row.error_code, message, f"{_NAMES[key_type]} {key!r}")
    return Broker(id=row.node_id, address=Address(row.host, row.port))
