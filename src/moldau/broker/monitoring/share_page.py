"""What members of share groups hold of the partitions that are led here, for `/shares`. A shell."""

from __future__ import annotations

import asyncio
from typing import Final

from moldau.broker.services import Services
from moldau.shares.rules.delivery_census import take_census

_RUNS_PER_TURN: Final = 1000
"""Runs of records that are alike, walked through before others have the loop; a partition may have
thousands."""
MOST_ROWS: Final = 10_000


async def describe_shares(services: Services, group_id: str | None) -> list[dict[str, object]]:
    """A row for each partition of a group, or of all; those that are loaded."""
    rows: list[dict[str, object]] = []
    left = _RUNS_PER_TURN
    for share in tuple(services.shares.partitions):
        left -= 1
        if left <= 0:
            left = _RUNS_PER_TURN
            await asyncio.sleep(0)
        in_flight = share.in_flight
        if in_flight is None or (group_id is not None and share.key.group_id != group_id):
            continue
        if len(rows) == MOST_ROWS:
            break
        runs = tuple(in_flight.runs)
        left -= len(runs)
        census = take_census(runs, services.clock.monotonic())
        rows.append(
            {
                "group": share.key.group_id,
                "topic": share.partition.topic_partition.topic,
                "partition": share.partition.topic_partition.partition,
                "start_offset": in_flight.start_offset,
                "end_offset": in_flight.end_offset,
                **census._asdict(),
            }
        )
    return rows
