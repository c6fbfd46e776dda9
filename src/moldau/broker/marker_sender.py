"""Sends markers of transactions to the leaders of their partitions, until every one is written.

For each broker there is one request at a time with all markers that wait for it; this broker's own
partitions are asked without a socket. A marker that could not be written is sent again after a
pause, to whoever leads then; a coordinator that was replaced stops (TXN-3).

A shell, owned by the event loop; `is_ended` is a rule.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from moldau.broker.inter_broker import send_request
from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import ClientError, ErrorCode, KafkaError
from moldau.model import BrokerId, TopicId, TopicPartition
from moldau.net.peer import Peer
from moldau.tasks import was_discarded
from moldau.wire.apis import WRITE_TXN_MARKERS
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

if TYPE_CHECKING:
    from kio.schema.write_txn_markers.v2 import WriteTxnMarkersRequest, WriteTxnMarkersResponse

    from moldau.coordinators.transactions.coordinator import MarkerOrder

_log = logging.getLogger("moldau.coordinators")

VERSION: Final = 2
PAUSE_SECONDS: Final = 0.1
GONE_SECONDS: Final = 10.0
"""A marker waits so long for a topic that is not in the image, also if it was deleted: a topic of
the same name may have been created that the image does not have yet."""
# A transaction begins by its coordinator's clock, a topic is deleted by the store's. They are taken
# to differ by no more than this.
CLOCKS_APART_MS: Final = 300_000
MARKERS_AT_ONCE: Final = 1000


def is_ended(error: ErrorCode) -> bool:
    """Whether a partition that answers this needs the marker no more. One that knows a later epoch
    of the producer has had this transaction's end; everything else is tried again."""
    return error in (ErrorCode.none, ErrorCode.invalid_producer_epoch)


class _Part(NamedTuple):
    """Partitions of one order that go together."""

    order: MarkerOrder
    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[str, TopicId] = MappingProxyType({})  # by name, as the image had them
    missing_since: float | None = None  # monotonic; the image does not have these partitions


class MarkerSender:
    """`send` as often as needed, `close` once."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        image: Callable[[], MetadataImage],
        clock: Clock,
        connect: Callable[[BrokerId], Peer],
        timeout_ms: Callable[[], int],
        write_here: Callable[[WriteTxnMarkersRequest], Awaitable[Mapping[str, object]]],
        spawn: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._clock = clock
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._write_here = write_here
        self._spawn = spawn
        self._waiting: dict[BrokerId, list[_Part]] = {}  # by leader
        self._sending: set[BrokerId] = set()  # brokers that are being asked
        self._peers: dict[BrokerId, Peer] = {}

    def send(self, order: MarkerOrder) -> None:
        self._route(_Part(order, tuple(sorted(order.markers.partitions))))

    async def close(self) -> None:
        self._waiting.clear()
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            await peer.close()

    # Routing

    def _route(self, part: _Part) -> None:
        """Put partitions on the way to their leaders."""
        order = part.order
        if not order.is_wanted():
            return
        image = self._image()
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        leaderless: list[TopicPartition] = []
        missing: list[TopicPartition] = []
        topic_ids = dict(part.topic_ids)
        for one in part.partitions:
            topic = image.topics.get(one.topic)
            state = None if topic is None else topic.find_partition(one.partition)
            if topic is None or state is None:
                missing.append(one)
                continue
            topic_ids[one.topic] = topic.topic_id
            if state.leader not in image.brokers:
                leaderless.append(one)
            else:
                by_leader.setdefault(state.leader, []).append(one)
        for leader, partitions in by_leader.items():
            self._waiting.setdefault(leader, []).append(_Part(order, tuple(partitions), topic_ids))
            self._begin(leader)
        if leaderless:
            self._route_later(_Part(order, tuple(leaderless), topic_ids))
        if missing:
            self._miss(_Part(order, tuple(missing), topic_ids, part.missing_since), image)

    def _miss(self, part: _Part, image: MetadataImage) -> None:
        """Partitions of a deleted topic need no marker. Others are waited for: a topic that is not
        in the image may come back, with the open transaction in its log (DEL-1)."""
        now = self._clock.monotonic()
        since = now if part.missing_since is None else part.missing_since
        deleted = frozenset(one for one in part.partitions if _is_deleted(one, part, image))
        if now - since < GONE_SECONDS or not deleted:
            self._route_later(part._replace(missing_since=since))
            return
        transactional_id = part.order.markers.transactional_id
        names = ", ".join(map(str, sorted(deleted)))
        _log.info("transactional id %s: %s was deleted: no marker", transactional_id, names)
        left = tuple(one for one in part.partitions if one not in deleted)
        if left:
            self._route_later(part._replace(partitions=left, missing_since=since))
        part.order.on_written(deleted)

    def _route_later(self, part: _Part) -> None:
        self._clock.call_later(PAUSE_SECONDS, lambda: self._route(part))

    # Asking

    def _begin(self, leader: BrokerId) -> None:
        if leader not in self._sending:
            self._sending.add(leader)
            self._spawn(f"markers for broker {leader}", self._drain(leader))

    async def _drain(self, leader: BrokerId) -> None:
        """Until nothing waits for this broker."""
        try:
            while waiting := self._waiting.get(leader):
                parts, self._waiting[leader] = (
                    waiting[:MARKERS_AT_ONCE],
                    waiting[MARKERS_AT_ONCE:],
                )
                wanted = [part for part in parts if part.order.is_wanted()]
                if wanted:
                    await self._ask(leader, wanted)
        finally:
            self._sending.discard(leader)

    async def _ask(self, leader: BrokerId, parts: Sequence[_Part]) -> None:
        values = {"markers": [_values_of(part) for part in parts]}
        try:
            if leader == self._broker_id:
                request = fit(request_class(WRITE_TXN_MARKERS.key, VERSION), values)
                answer = await self._write_here(cast("WriteTxnMarkersRequest", request))
                results = [dict(_local_results(one)) for one in _rows(answer["markers"])]
            else:
                results = await self._ask_peer(leader, values)
        except (ClientError, KafkaError) as error:
            _log.info("broker %d did not write markers: %s", leader, error)
            results = []
        except Exception as error:  # whatever it is: nobody else would end these transactions
            if was_discarded(error):
                raise
            _log.error("markers for broker %d failed: %s", leader, error, exc_info=error)
            results = []
        for index, part in enumerate(parts):
            self._conclude(part, results[index] if index < len(results) else {})

    async def _ask_peer(
        self, leader: BrokerId, values: Mapping[str, object]
    ) -> list[dict[TopicPartition, ErrorCode]]:
        peer = self._peers.get(leader)
        if peer is None:
            peer = self._peers[leader] = self._connect(leader)
        response: WriteTxnMarkersResponse = await send_request(
            peer,
            WRITE_TXN_MARKERS,
            VERSION,
            values,
            client_id=f"broker-{self._broker_id}",
            timeout_seconds=self._timeout_ms() / 1000,
        )
        return [
            {
                TopicPartition(topic.name, row.partition_index): row.error_code
                for topic in marker.topics
                for row in topic.partitions
            }
            for marker in response.markers
        ]

    def _conclude(self, part: _Part, results: Mapping[TopicPartition, ErrorCode]) -> None:
        written: list[TopicPartition] = []
        again: list[TopicPartition] = []
        for one in part.partitions:
            error = results.get(one, ErrorCode.unknown_server_error)
            (written if is_ended(error) else again).append(one)
            if error is ErrorCode.transaction_coordinator_fenced:
                _log.warning("%s has a marker of a later coordinator", one)
        if again:
            self._route_later(part._replace(partitions=tuple(again)))
        if written:
            part.order.on_written(frozenset(written))


def _is_deleted(one: TopicPartition, part: _Part, image: MetadataImage) -> bool:
    """The transaction log names topics without their ids. Where the image never had the topic, it
    counts as deleted if one of its name was deleted after the transaction began: a deletion before
    that was of a former topic, and the transaction's own may come back."""
    topic_id = part.topic_ids.get(one.topic)
    since_ms = part.order.markers.started_ms - CLOCKS_APART_MS
    is_unreadable = topic_id is None and one.topic in image.unreadable
    return not is_unreadable and image.was_deleted(one.topic, topic_id, since_ms)


def _values_of(part: _Part) -> dict[str, object]:
    markers = part.order.markers
    topics: dict[str, list[int]] = {}
    for topic, partition in part.partitions:
        topics.setdefault(topic, []).append(partition)
    return {
        "producer_id": markers.producer.producer_id,
        "producer_epoch": markers.producer.producer_epoch,
        "transaction_result": markers.commit,
        "topics": [
            {"name": name, "partition_indexes": numbers} for name, numbers in topics.items()
        ],
        "coordinator_epoch": part.order.coordinator_epoch,
        "transaction_version": markers.version,
    }


def _rows(values: object) -> Sequence[Mapping[str, object]]:
    return cast("Sequence[Mapping[str, object]]", values)


def _local_results(marker: Mapping[str, object]) -> Iterator[tuple[TopicPartition, ErrorCode]]:
    for topic in _rows(marker["topics"]):
        for row in _rows(topic["partitions"]):
            number, error = row["partition_index"], row["error_code"]
            yield (
                TopicPartition(str(topic["name"]), cast("int", number)),
                cast("ErrorCode", error),
            )
