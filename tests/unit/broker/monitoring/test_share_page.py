"""What `/shares` tells, and that nobody waits for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import moldau.broker.monitoring.endpoint as page
from moldau.broker.api import Services
from moldau.broker.monitoring.endpoint import describe_shares
from moldau.coordinators.shares.rules.in_flight_state import InFlightBatch
from moldau.model import TopicPartition
from moldau.testing import ManualClock


def services_with(partitions: int, runs: int) -> Services:
    lot = SimpleNamespace(is_final=True)
    found = [
        SimpleNamespace(
            key=SimpleNamespace(group_id="jobs" if number % 2 else "others"),
            partition=SimpleNamespace(topic_partition=TopicPartition("clicks", number)),
            in_flight=SimpleNamespace(
                runs=iter([InFlightBatch(one, one + 1, lot) for one in range(runs)]),
                start_offset=0,
                end_offset=runs,
            ),
        )
        for number in range(partitions)
    ]
    shares = SimpleNamespace(partitions=found)
    return cast(Services, SimpleNamespace(shares=shares, clock=ManualClock()))


def test_a_group_is_told_of_alone() -> None:
    rows = asyncio.run(describe_shares(services_with(4, 2), "jobs"))
    assert [(row["group"], row["partition"]) for row in rows] == [("jobs", 1), ("jobs", 3)]
    assert [row["done"] for row in rows] == [2, 2]


def test_others_have_the_loop_between_partitions_of_many_records() -> None:
    async def story() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        assert len(await describe_shares(services_with(20, page._RUNS_PER_TURN), None)) == 20
        counting.cancel()
        return turns

    assert asyncio.run(story()) >= 19
