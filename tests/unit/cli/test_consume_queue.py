"""`moldau consume --queue`: what is being printed stays locked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from moldau.cli.consume_run import QueueConsumption, _Taking
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.queue.jobs import AsyncJob, AsyncJobBatch
from moldau.client.queue.rules.in_flight import InFlightRecord
from moldau.model import AcknowledgeType


class Hands:
    """In the place of a queue, its core and the terminal: three records, once."""

    def __init__(self) -> None:
        self.acquired = [
            InFlightRecord(
                ConsumerRecord("clicks", 0, offset, 0, b"", b""), (UUID(int=7), 0), 1, 1, 30.0
            )
            for offset in range(3)
        ]
        self.were_kept: list[bool] = []

    async def take_batch(self, limit: int, timeout: float | None) -> AsyncJobBatch:
        taken = [] if self.were_kept else self.acquired
        core: Any = self
        return AsyncJobBatch([AsyncJob(core, one, confirms=False) for one in taken])

    def acknowledge_record(
        self, record: InFlightRecord, kind: AcknowledgeType, done: object
    ) -> None:
        record.kind = kind

    @contextlib.asynccontextmanager
    async def while_it_is_read(self) -> AsyncIterator[None]:
        yield

    async def write(self, text: bytes) -> None:
        self.were_kept = [one.is_kept for one in self.acquired]


@pytest.mark.parametrize("releases", [False, True])
def test_locks_are_renewed_while_records_are_printed(releases: bool) -> None:
    async def run() -> None:
        hands: Any = Hands()
        consumption = QueueConsumption(
            topic="clicks",
            group_id="g",
            formatter=lambda records: b"",
            as_json=False,
            releases=releases,
        )
        taking = _Taking(hands, consumption)
        taking._output = hands
        await taking.run()
        assert hands.were_kept == [True] * 3
        said = None if releases else AcknowledgeType.ACCEPT
        assert [one.kind for one in hands.acquired] == [said] * 3

    asyncio.run(run())


def test_who_gets_nothing_is_told_where_a_new_group_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def run() -> None:
        hands: Any = Hands()
        hands.were_kept = [True]  # all are taken
        consumption = QueueConsumption(
            topic="clicks",
            group_id="g",
            formatter=lambda records: b"",
            as_json=False,
            idle_seconds=1.0,
        )
        taking = _Taking(hands, consumption)
        taking._output = hands
        await taking.run()

    asyncio.run(run())
    assert "nothing came for share group g within 1 s" in capsys.readouterr().err
