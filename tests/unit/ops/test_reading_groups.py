"""What is read of groups: all who show a lag show the same one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import pytest

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    SHARE_TYPE,
    GroupDescription,
    GroupOffset,
    GroupState,
    ListedOffset,
    PartitionLag,
    ShareGroupOffset,
)
from moldau.client.rules.cluster_metadata import Address, Broker, PartitionMetadata, TopicMetadata
from moldau.errors import UnknownTopicError
from moldau.model import TopicPartition
from moldau.ops.group_view import describe_groups, read_groups
from moldau.ops.rules.group_lag import GroupView

JOBS, CLICKS, GONE = (TopicPartition(one, 0) for one in ("jobs", "clicks", "gone"))
BROKER = Broker(id=1, address=Address("127.0.0.1", 9092), rack=None)


class Admin:
    """A share group `workers` and a consumer group `readers`."""

    async def describe_groups(self, names: Sequence[str]) -> Mapping[str, GroupDescription]:
        return {name: describe(name) for name in names}

    async def list_share_group_offsets(self, name: str) -> Mapping[TopicPartition, Any]:
        return {
            JOBS: ShareGroupOffset(start_offset=10, lag=3),
            CLICKS: ShareGroupOffset(start_offset=4, lag=None),  # of a broker before KIP-1226
        }

    async def list_group_offsets(self, name: str) -> Mapping[TopicPartition, Any]:
        return {CLICKS: GroupOffset(offset=5), GONE: GroupOffset(offset=7)}

    async def describe_topics(self, names: Collection[str]) -> Mapping[str, Any]:
        partitions = (PartitionMetadata(index=0, leader_id=1),)
        return {
            name: UnknownTopicError(f"there is no topic {name!r}")
            if name == GONE.topic
            else TopicMetadata(name=name, partitions=partitions)
            for name in names
        }

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[Any, Any]:
        assert GONE not in wanted  # the leader of a topic that is gone is waited for
        return {one: ListedOffset(offset=100, timestamp_ms=-1) for one in wanted}

    async def measure_lag(self, wanted: Mapping[TopicPartition, int | None]) -> Mapping[Any, Any]:
        return {
            one: UnknownTopicError() if one == GONE else PartitionLag(log_end_offset=100)
            for one in wanted
        }


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


@pytest.mark.parametrize("is_described", [False, True])
def test_lag_is_what_the_tools_of_kafka_print(is_described: bool) -> None:
    """Not the distance to the end where the coordinator of a share group does not count, nor
    anything for a topic that is gone: kafka-share-groups.sh and kafka-consumer-groups.sh print `-`.
    """
    admin, names = cast("AsyncAdmin", Admin()), ("workers", "readers")

    async def read() -> list[GroupView]:
        if is_described:
            found = await describe_groups(admin, names, with_offsets=True)
            return [one for one in found if isinstance(one, GroupView)]
        return list((await read_groups(admin, names)).values())

    workers, readers = asyncio.run(read())
    rows = [(one.partition, one.committed, one.lag) for one in workers.partitions or ()]
    assert rows == [(CLICKS, 4, None), (JOBS, 10, 3)]
    assert (workers.lag, workers.lags) == (3, {JOBS: 3})
    rows = [(one.partition, one.committed, one.lag) for one in readers.partitions or ()]
    assert rows == [(CLICKS, 5, 95), (GONE, 7, None)]
    assert (readers.lag, readers.ends) == (95, {CLICKS: 100})
