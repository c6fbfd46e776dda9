"""What a follower asks its leader, over a connection between brokers.

Answers for frames and for their time-outs. What the answers mean is for `replica_fetcher`. A shell
over `net.peer`; `LeaderLink` is what a test replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from moldau.config.broker_options import BrokerOptions
from moldau.errors import ErrorCode, MalformedFrameError
from moldau.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, BrokerId, LeaderEpoch, TopicPartition
from moldau.net.peer import Peer
from moldau.wire.apis import FETCH
from moldau.wire.fetch_exchange import (
    FetchAnswer,
    encode_fetch_request,
    encode_offset_question,
    parse_fetch_answer,
    parse_offset_answer,
)
from moldau.wire.fetch_frame import FetchRequest
from moldau.wire.headers import read_response_header, request_prefix

FETCH_VERSION: Final = 16
"""The first with everything a follower says and hears: topic ids, its broker epoch, divergence."""


class LogBounds(NamedTuple):
    """Where a leader's log begins and ends."""

    log_start_offset: int
    log_end_offset: int


class LeaderLink(Protocol):
    """The way to a leader. Raises `ClientError` or `MalformedFrameError` when there is none."""

    async def fetch(self, request: FetchRequest) -> FetchAnswer: ...

    async def find_bounds(
        self, topic_partition: TopicPartition, leader_epoch: LeaderEpoch
    ) -> LogBounds | None:
        """None when the leader refuses."""
        ...

    async def close(self) -> None: ...


class PeerLink:
    """The real one. A `LeaderLink`."""

    def __init__(
        self, peer: Peer, broker_id: BrokerId, options: Callable[[], BrokerOptions]
    ) -> None:
        self._peer = peer
        self._broker_id = broker_id
        self._options = options
        self._client_id = f"broker-{broker_id}-fetcher"

    async def fetch(self, request: FetchRequest) -> FetchAnswer:
        body = encode_fetch_request(FETCH_VERSION, request)
        prefix = request_prefix(FETCH.key, FETCH_VERSION, 0, self._client_id, len(body))
        wait_seconds = request.max_wait_ms / 1000
        frame = await self._ask(prefix + body, extra_seconds=wait_seconds)
        _, position = read_response_header(frame, FETCH.key, FETCH_VERSION)
        return parse_fetch_answer(FETCH_VERSION, frame, position)

    async def find_bounds(
        self, topic_partition: TopicPartition, leader_epoch: LeaderEpoch
    ) -> LogBounds | None:
        offsets = []
        for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            question = encode_offset_question(
                topic_partition.topic,
                topic_partition.partition,
                replica_id=self._broker_id,
                leader_epoch=leader_epoch,
                timestamp=timestamp,
                client_id=self._client_id,
            )
            error_code, offset = parse_offset_answer(await self._ask(question))
            if error_code != ErrorCode.none.value:
                return None
            if offset < 0:
                raise MalformedFrameError(f"a leader's log of {topic_partition} has no offsets")
            offsets.append(offset)
        return LogBounds(*offsets)

    async def _ask(self, frame: bytes, extra_seconds: float = 0.0) -> memoryview:
        timeout_seconds = self._options().replica_socket_timeout_ms / 1000 + extra_seconds
        return await self._peer.ask((frame,), timeout_seconds=timeout_seconds)

    async def close(self) -> None:
        await self._peer.close()
