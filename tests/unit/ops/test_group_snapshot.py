"""What is seen of groups: the lag of a share group is the one that its coordinator counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    SHARE_TYPE,
    GroupDescription,
    GroupOffset,
    GroupState,
    ListedOffset,
    ShareGroupOffset,
)
from moldau.client.rules.cluster_metadata import Address, Broker
from moldau.model import TopicPartition
from moldau.ops.cluster_survey import read_groups

JOBS, CLICKS = TopicPartition("jobs", 0), TopicPartition("clicks", 0)
BROKER = Broker(id=1, address=Address("127.0.0.1", 9092), rack=None)


class Admin:
    """A share group `workers` and a consumer group `readers`."""

    async def describe_groups(self, names: Sequence[str]) -> Mapping[str, GroupDescription]:
        return {name: describe(name) for name in names}

    async def list_share_group_offsets(self, name: str) -> Mapping[TopicPartition, Any]:
        return {
            JOBS: ShareGroupOffset(start_offset=10, lag=3),
            CLICKS: ShareGroupOffset(start_offset=None, lag=None),
        }

    async def list_group_offsets(self, name: str) -> Mapping[TopicPartition, Any]:
        return {CLICKS: GroupOffset(offset=5)}

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[Any, Any]:
        return {one: ListedOffset(offset=100, timestamp_ms=-1) for one in wanted}


def describe(name: str) -> GroupDescription:
    kind = SHARE_TYPE if name == "workers" else "consumer"
    return GroupDescription(
        group_id=name,
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol="simple",
        coordinator=BROKER,
        type=kind,
    )


def test_the_lag_of_a_share_group_is_what_its_coordinator_counts() -> None:
    admin = cast("AsyncAdmin", Admin())
    looks = asyncio.run(read_groups(admin, ("workers", "readers")))
    assert looks["workers"].lag == 3
    assert looks["workers"].lags == {JOBS: 3}
    assert looks["readers"].lag == 95
