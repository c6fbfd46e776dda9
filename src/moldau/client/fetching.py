"""One Fetch request to one broker: offsets in, bytes of batches out. No state, no second attempt.

Reading on, following leaders and decoding are `partition_reader`'s business.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast
from uuid import UUID

from kio.schema.errors import ErrorCode

from moldau.client.broker_errors import error_for
from moldau.client.connections import BrokerConnection
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.wire.apis import FETCH

if TYPE_CHECKING:
    from kio.schema.fetch.v17.response import (
        FetchableTopicResponse,
        FetchResponse,
        PartitionData,
    )

NO_EPOCH = -1
UNKNOWN_OFFSET = -1

_LAST_BY_NAME = 12  # from version 13 on topics have ids in place of names (KIP-516)
_NO_SESSION_EPOCH = -1
_CONSUMER = -1
_READ_UNCOMMITTED = 0
_DROPPABLE = frozenset(
    {
        "current_leader_epoch",
        "forgotten_topics_data",
        "last_fetched_epoch",
        "log_start_offset",
        "rack_id",
        "replica_id",
        "session_epoch",
        "session_id",
        "topic",
        "topic_id",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """Kafka's `fetch.*` settings of a consumer."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024


class FetchPosition(NamedTuple):
    """Where to read one partition; the epoch is the one that metadata told, or -1."""

    partition: TopicPartition
    offset: int
    leader_epoch: int = NO_EPOCH


class FetchedPartition(NamedTuple):
    """What the answer has for one partition: whole batches from the offset on, or an error."""

    partition: TopicPartition
    data: bytes
    high_watermark: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    error: KafkaError | None = None


async def fetch(
    connection: BrokerConnection,
    positions: Sequence[FetchPosition],
    topic_ids: Mapping[str, UUID | None],
    settings: FetchSettings,
) -> Sequence[FetchedPartition]:
    """Ask a leader once; waits there until `min_bytes` have come or `max_wait_ms` have passed."""
    by_name = None in topic_ids.values()
    version = connection.choose_version(FETCH, at_most=_LAST_BY_NAME if by_name else None)
    answer = await connection.call(
        FETCH,
        _request_values(positions, topic_ids, settings),
        _DROPPABLE,
        version=version,
        extra_seconds=settings.max_wait_ms / 1000,
    )
    return _read_answer(cast("FetchResponse", answer), topic_ids)


def _request_values(
    positions: Sequence[FetchPosition],
    topic_ids: Mapping[str, UUID | None],
    settings: FetchSettings,
) -> dict[str, object]:
    topics: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
    for position in positions:
        topics[position.partition.topic].append(_partition_values(position, settings))
    return {
        "replica_id": _CONSUMER,
        "max_wait": settings.max_wait_ms,
        "min_bytes": settings.min_bytes,
        "max_bytes": settings.max_bytes,
        "isolation_level": _READ_UNCOMMITTED,
        "session_id": 0,
        "session_epoch": _NO_SESSION_EPOCH,
        "topics": [
            {"topic": name, "topic_id": topic_ids[name], "partitions": rows}
            for name, rows in topics.items()
        ],
        "forgotten_topics_data": (),
        "rack_id": "",
    }


def _partition_values(position: FetchPosition, settings: FetchSettings) -> dict[str, object]:
    return {
        "partition": position.partition.partition,
        "current_leader_epoch": position.leader_epoch,
        "fetch_offset": position.offset,
        "last_fetched_epoch": NO_EPOCH,
        "log_start_offset": UNKNOWN_OFFSET,
        "partition_max_bytes": settings.partition_max_bytes,
    }


def _read_answer(
    answer: FetchResponse, topic_ids: Mapping[str, UUID | None]
) -> Sequence[FetchedPartition]:
    code = getattr(answer, "error_code", ErrorCode.none)  # from version 7 on
    if code is not ErrorCode.none:
        raise error_for(code, None, "fetch")
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return [
        _read_partition(TopicPartition(_name_of(topic, names), row.partition_index), row)
        for topic in answer.responses
        for row in topic.partitions
    ]


def _name_of(topic: FetchableTopicResponse, names: Mapping[UUID | None, str]) -> str:
    if hasattr(topic, "topic_id"):
        return names[topic.topic_id]
    return str(getattr(topic, "topic"))  # noqa: B009  # up to version 12


def _read_partition(partition: TopicPartition, row: PartitionData) -> FetchedPartition:
    if row.error_code is not ErrorCode.none:
        return FetchedPartition(
            partition, b"", error=error_for(row.error_code, None, str(partition))
        )
    return FetchedPartition(
        partition,
        row.records or b"",
        row.high_watermark,
        getattr(row, "log_start_offset", UNKNOWN_OFFSET),  # from version 5 on
    )
