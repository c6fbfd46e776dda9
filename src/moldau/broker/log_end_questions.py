"""Asks brokers how far their logs go: what an unclean recovery compares (ELR-4). A shell.

By ListOffsets of the latest offset with replica id -2, which any replica answers for its own log
(`broker.handlers.list_offsets`). Kafka's GetReplicaLogInfo asks the same; not every version of the
protocol has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final, cast

from moldau.cluster.log_recovery import Answers, Questions
from moldau.cluster.rules.unclean_recovery import LogEnd
from moldau.errors import ClientError, ErrorCode
from moldau.model import LATEST_TIMESTAMP, BrokerId, TopicPartition
from moldau.net.peer import Peer
from moldau.wire.apis import LIST_OFFSETS
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

if TYPE_CHECKING:
    from kio.schema.list_offsets.v9 import ListOffsetsResponse
    from kio.static.protocol import Payload

_log = logging.getLogger("moldau.broker")

VERSION: Final = 9
ANY_REPLICA: Final = -2
NO_REPLICA: Final = -1
"""Asks as consumers do: the leader answers with its high watermark."""
ASKED_AT_ONCE: Final = 1000  # partitions in one request
TIMEOUT_SECONDS: Final = 2.0
"""So long is an answer waited for; who is slower is not elected this time."""


class LogEndQuestions:
    """`connect` makes the way to a broker, which is closed again when it has answered."""

    def __init__(
        self,
        connect: Callable[[BrokerId], Peer],
        client_id: str,
        *,
        replica_id: int = ANY_REPLICA,
    ) -> None:
        self._connect = connect
        self._client_id = client_id
        self._replica_id = replica_id

    async def ask(self, questions: Questions) -> Answers:
        """The ends that were told in time."""
        brokers = sorted(questions)
        told = await asyncio.gather(*(self._ask(b, questions[b]) for b in brokers))
        answers: dict[TopicPartition, dict[BrokerId, LogEnd]] = {}
        for broker, ends in zip(brokers, told, strict=True):
            for key, end in ends.items():
                answers.setdefault(key, {})[broker] = end
        return answers

    async def _ask(
        self, broker: BrokerId, wanted: Collection[TopicPartition]
    ) -> dict[TopicPartition, LogEnd]:
        peer = self._connect(broker)
        ends: dict[TopicPartition, LogEnd] = {}
        try:
            for some in _parts_of(sorted(wanted)):
                frame = encode_request(_request(some, self._replica_id), 0, self._client_id)
                answer = await peer.ask((frame,), timeout_seconds=TIMEOUT_SECONDS)
                _, response = parse_response(LIST_OFFSETS.key, VERSION, answer)
                ends.update(_ends_of(cast("ListOffsetsResponse", response), broker))
        except ClientError as error:
            _log.info("broker %d does not tell the ends of its logs: %s", broker, error)
        finally:
            await peer.close()
        return ends


def _parts_of(wanted: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(wanted), ASKED_AT_ONCE):
        yield wanted[start : start + ASKED_AT_ONCE]


def _request(wanted: Sequence[TopicPartition], replica_id: int) -> Payload:
    topics: dict[str, list[object]] = {}
    for key in wanted:
        row = {
            "partition_index": key.partition,
            "current_leader_epoch": -1,
            "timestamp": LATEST_TIMESTAMP,
        }
        topics.setdefault(key.topic, []).append(row)
    values = {
        "replica_id": replica_id,
        "isolation_level": 0,
        "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
    }
    return fit(request_class(LIST_OFFSETS.key, VERSION), values)


def _ends_of(
    response: ListOffsetsResponse, broker: BrokerId
) -> Iterator[tuple[TopicPartition, LogEnd]]:
    for topic in response.topics:
        for row in topic.partitions:
            key = TopicPartition(topic.name, row.partition_index)
            if row.error_code is ErrorCode.none:
                yield key, LogEnd(row.leader_epoch, row.offset)
            else:
                _log.info("broker %d has no log of %s to lead: %s", broker, key, row.error_code)
