"""Takes and prints for `moldau consume --queue` until one of its reasons to stop comes true.

A record is accepted when it is printed, and the command ends when the broker knows that. What was
taken and could not be printed is released, and so is everything with `--release`: at the end, or it
would come again at once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.cli.connection_options import security_options
from moldau.cli.output import note
from moldau.cli.progress import Progress
from moldau.cli.record_format import Formatter, show_json
from moldau.cli.record_output import RecordOutput
from moldau.cli.session import CLIENT_ID, command_settings
from moldau.client.admin import AsyncAdmin
from moldau.client.queue import AsyncQueue
from moldau.client.queue_jobs import AsyncJob
from moldau.errors import KafkaError

if TYPE_CHECKING:
    from moldau.cli.record_decoding import RecordDecoding

_TAKE_RECORDS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConsumption:
    """What to print of which share group's records."""

    topic: str
    group_id: str
    formatter: Formatter
    as_json: bool  # with the delivery count, which other formats have no place for
    max_records: int | None = None
    idle_seconds: float | None = None
    releases: bool = False
    decoding: RecordDecoding | None = None  # then it is the formatter; asks others: not on the loop


async def consume_queue(bootstrap: str, consumption: QueueConsumption) -> None:
    """Print until it is time to stop; then tell the broker all, and leave the group."""
    async with AsyncAdmin(bootstrap, command_settings()) as admin:
        found = (await admin.describe_topics([consumption.topic]))[consumption.topic]
        if isinstance(found, KafkaError):
            raise found
    async with AsyncQueue(
        bootstrap,
        group=consumption.group_id,
        topic=consumption.topic,
        client_id=CLIENT_ID,
        max_poll_records=min(consumption.max_records or _TAKE_RECORDS, _TAKE_RECORDS),
        **security_options(),  # type: ignore[arg-type]  # any option's value
    ) as queue:
        if sys.stderr.isatty():
            note(f"taking records of {consumption.topic} for share group {consumption.group_id}")
        await _Taking(queue, consumption).run()


class _Taking:
    def __init__(self, queue: AsyncQueue, consumption: QueueConsumption) -> None:
        self._queue = queue
        self._consumption = consumption
        self._output = RecordOutput()
        self._count = self._size_bytes = 0
        has_end = consumption.max_records is not None
        self._progress = None if sys.stdout.isatty() else Progress(has_end=has_end)

    async def run(self) -> None:
        try:
            async with self._output.while_it_is_read():
                await self._take_all()
        finally:
            if self._progress is not None:
                self._progress.clear()

    async def _take_all(self) -> None:
        """With `--release` jobs are left to the end of the queue, which releases them."""
        consumption = self._consumption
        while consumption.max_records is None or self._count < consumption.max_records:
            limit = _TAKE_RECORDS
            if consumption.max_records is not None:
                limit = min(limit, consumption.max_records - self._count)
            jobs = await self._queue.take_batch(limit, consumption.idle_seconds)
            if not jobs:
                self._explain_nothing()
                return
            jobs.keep()  # whoever reads what is printed may take their time
            await self._print(jobs)
            if not consumption.releases:
                for job in jobs:
                    await job.accept()

    def _explain_nothing(self) -> None:
        """A new share group begins at the end of its topic, which looks like an empty topic."""
        if self._count == 0 and self._consumption.idle_seconds is not None:
            group = self._consumption.group_id
            note(
                f"nothing came for share group {group} within {self._consumption.idle_seconds:g} s "
                "(joining counts, too); a new group takes what is there already after `moldau "
                f"configs alter --group {group} --set share.auto.offset.reset=earliest`"
            )

    async def _print(self, jobs: Sequence[AsyncJob]) -> None:
        if self._consumption.decoding is None:
            text = self._format(jobs)
        else:
            text = await asyncio.to_thread(self._format, jobs)
        await self._output.write(text)
        self._count += len(jobs)
        self._size_bytes += len(text)
        if self._progress is not None:
            self._progress.show(self._count, self._size_bytes)

    def _format(self, jobs: Sequence[AsyncJob]) -> bytes:
        if not self._consumption.as_json:
            return self._consumption.formatter([job.record for job in jobs])
        decoding = self._consumption.decoding
        show = show_json if decoding is None else decoding.show_json
        return b"".join([show(job.record, delivery_count=job.delivery_count) for job in jobs])
