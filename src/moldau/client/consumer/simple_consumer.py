"""The low-level consumer: one broker, the offset in every call, no state but the connection.

    with SimpleConsumer("127.0.0.1:9092") as consumer:
        found = consumer.fetch("clicks", 0, offset=0)
        found.records, found.next_offset

It does not look for leaders, does not retry, and remembers nothing of what was read: whoever wants
one of these has reasons. `Consumer` does all of it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, cast

from moldau.client.blocking_face import ClosedAtExit
from moldau.client.cluster import connection_settings
from moldau.client.connections import BrokerConnection, open_connection
from moldau.client.consumer.delegate import read_time_ms
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord, decode_batch, split_batches
from moldau.client.rules.arguments import require_kind
from moldau.client.rules.broker_errors import error_for, read_code
from moldau.client.rules.cluster_metadata import parse_address
from moldau.clock import Clock, SystemClock
from moldau.config.client_options import ConsumerOptions
from moldau.errors import ClosedClientError, ConfigurationError, ErrorCode, KafkaError
from moldau.model import CONSUMER, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_OFFSET, TopicPartition
from moldau.net.port import Network
from moldau.net.sockets import SocketNetwork
from moldau.wire.apis import FETCH, LIST_OFFSETS
from moldau.wire.fetch_exchange import (
    FINAL_EPOCH,
    AnsweredPartition,
    encode_fetch_request,
    parse_fetch_answer,
)
from moldau.wire.fetch_frame import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from kio.schema.list_offsets.v7.response import ListOffsetsResponse

_LAST_BY_NAME = 12  # later versions name topics by ids, which this consumer does not look up
_SPECIAL = {"earliest": EARLIEST_TIMESTAMP, "latest": LATEST_TIMESTAMP}
_LIST_DROPPABLE = frozenset({"current_leader_epoch", "isolation_level", "timeout"})


class FetchedRecords(NamedTuple):
    """What a broker has of one partition from an offset on."""

    records: list[ConsumerRecord]
    next_offset: int
    """Where to fetch next; behind the last record, and behind what is not for users."""
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class AsyncSimpleConsumer(ClosedAtExit):
    """Fetches from one broker; used by the tasks of one loop. `async with` closes it."""

    def __init__(
        self,
        broker: str,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        **options: object,
    ) -> None:
        require_kind(broker, str, "broker", "its address, like '127.0.0.1:9092'")
        self._address = parse_address(broker)
        self._options = ConsumerOptions.read(options)
        self._clock: Clock = clock or SystemClock()
        self._network = network or SocketNetwork(self._clock)
        self._connection: BrokerConnection | None = None
        self._connecting = asyncio.Lock()
        self._is_closed = False

    async def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            await self._connection.close()

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int | None = None
    ) -> FetchedRecords:
        """The records from this offset on, at least one batch if there is any.

        Waits up to `fetch.max.wait.ms` for `fetch.min.bytes`. Raises what the broker says:
        NotLeaderError, OffsetOutOfRangeError, …
        """
        wanted = TopicPartition(topic, partition)
        (found,) = (await self.fetch_many({wanted: offset}, max_bytes=max_bytes)).values()
        if isinstance(found, KafkaError):
            raise found
        return found

    async def fetch_many(
        self, offsets: Mapping[TopicPartition, int], *, max_bytes: int | None = None
    ) -> Mapping[TopicPartition, FetchedRecords | KafkaError]:
        """As `fetch`, of several partitions in one request; `max_bytes` is for each of them."""
        connection = await self._connect()
        version = connection.choose_version(FETCH, at_most=_LAST_BY_NAME)
        body = encode_fetch_request(version, self._request(offsets, max_bytes))
        wait_seconds = self._options.fetch_max_wait_ms / 1000
        raw = await connection.exchange(FETCH, version, (body,), extra_seconds=wait_seconds)
        answer = parse_fetch_answer(version, raw.frame, raw.position)
        if answer.error_code:
            raise error_for(read_code(answer.error_code), None, "fetch")
        found: dict[TopicPartition, FetchedRecords | KafkaError] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name or "", row.partition)
                found[partition] = self._read(partition, offsets[partition], row)
        return found

    async def find_offset(
        self, topic: str, partition: int, time: int | datetime | str
    ) -> int | None:
        """By time (milliseconds since 1970, or a datetime): the first record that is not older,
        None if there is none. Or `"earliest"` or `"latest"`, which is the end."""
        timestamp = _SPECIAL.get(time) if isinstance(time, str) else read_time_ms(time)
        if timestamp is None:
            raise ConfigurationError(f"{time!r} is no time; it is not earliest or latest either")
        row = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
        values = {
            "replica_id": CONSUMER,
            "isolation_level": int(self._reads_committed),
            "topics": [{"name": topic, "partitions": [row]}],
            "timeout": self._options.request_timeout_ms,
        }
        connection = await self._connect()
        answer = await connection.call(LIST_OFFSETS, values, _LIST_DROPPABLE)
        ((found,),) = [one.partitions for one in cast("ListOffsetsResponse", answer).topics]
        if found.error_code is not ErrorCode.none:
            raise error_for(found.error_code, None, str(TopicPartition(topic, partition)))
        return None if found.offset == NO_OFFSET else int(found.offset)

    @property
    def _reads_committed(self) -> bool:
        return self._options.isolation_level == "read_committed"

    def _request(
        self, offsets: Mapping[TopicPartition, int], max_bytes: int | None
    ) -> FetchRequest:
        options = self._options
        limit = options.max_partition_fetch_bytes if max_bytes is None else max_bytes
        topics: defaultdict[str, list[FetchPartition]] = defaultdict(list)
        for partition, offset in offsets.items():
            row = FetchPartition(partition.partition, -1, offset, -1, -1, limit)
            topics[partition.topic].append(row)
        return FetchRequest(
            replica_id=CONSUMER,
            replica_epoch=-1,
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            isolation_level=int(self._reads_committed),
            session_id=0,
            session_epoch=FINAL_EPOCH,
            topics=[FetchTopic(name, None, rows) for name, rows in topics.items()],
            forgotten_topics=[],
            rack_id="",
            cluster_id=None,
        )

    def _read(
        self, partition: TopicPartition, offset: int, row: AnsweredPartition
    ) -> FetchedRecords | KafkaError:
        if row.error_code:
            return error_for(read_code(row.error_code), None, str(partition))
        aborted = row.aborted_transactions if self._reads_committed else None
        found = split_batches(row.records, offset, aborted)
        records: list[ConsumerRecord] = []
        for batch in found.batches:
            records += decode_batch(batch, partition, offset, check_crc=self._options.check_crcs)
        return FetchedRecords(
            records,
            found.next_offset,
            row.high_watermark,
            row.last_stable_offset,
            row.log_start_offset,
        )

    async def _connect(self) -> BrokerConnection:
        if self._is_closed:
            raise ClosedClientError("the consumer is closed")
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                settings = connection_settings(self._options)
                self._connection = await open_connection(
                    self._network, self._clock, self._address, settings
                )
            return self._connection
