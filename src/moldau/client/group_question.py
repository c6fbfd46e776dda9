"""The question that describes groups of the newer protocols: consumer, share and streams groups
each have an API of their own, and ask and answer alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from moldau.client.connections import BrokerConnection
from moldau.errors import UnsupportedByBrokerError
from moldau.wire.apis import Api


async def ask_for_groups(
    connection: BrokerConnection, api: Api, group_ids: Sequence[str]
) -> Sequence[Any]:
    """A row of each group, as the answer of this API has it; none where a broker knows no such
    groups."""
    try:
        version = connection.choose_version(api)
    except UnsupportedByBrokerError:
        return ()
    if not group_ids:
        return ()
    values = {"group_ids": tuple(group_ids), "include_authorized_operations": False}
    answer: Any = await connection.call(api, values, version=version)
    rows: Sequence[Any] = answer.groups
    return rows
