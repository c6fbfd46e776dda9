"""Writes the dead letters of share groups to their topic (KIP-1191).

A record that was rejected, or delivered too often, is looked up in the log, and what there is to
say of it is appended to the group's dead-letter topic, by its leader, with acks=all, before it
comes to its end in the group. So it is written at least once: a leader that dies in between does it
again.

A topic is used only when its name begins as `errors.deadletterqueue.topic.name.prefix` says and it
has `errors.deadletterqueue.group.enable`: nobody writes to a topic through a share group that is
not meant for it. Where it cannot be used, records come to their end without a letter, and the log
says so, as in Kafka; what passes (no leader, too few replicas) is tried again.

A shell, owned by the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import MetadataImage, TopicState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.coordinators.shares.rules.in_flight import DeadRange
from moldau.errors import ClientError, ErrorCode, KafkaError, LeaderNotAvailableError
from moldau.model import BrokerId, Offset, TopicPartition
from moldau.net.peer import Peer
from moldau.records.batch_header import walk_headers
from moldau.records.record import NewRecord, Record
from moldau.records.record_batch import build_batch, records_of
from moldau.replication.partition import Partition
from moldau.replication.partitions import Partitions
from moldau.storage.files import FileSlice
from moldau.wire.apis import PRODUCE
from moldau.wire.headers import read_response_header, request_prefix
from moldau.wire.produce_frame import encode_produce_request, parse_produce_response
from moldau.workers import Workers

_log = logging.getLogger("moldau.coordinators")

_ENABLED: Final = "errors.deadletterqueue.group.enable"
_ALL_IN_SYNC: Final = -1
_READ_BYTES: Final = 1 << 20
_VERSION: Final = 12


class DeadLetterSender:
    """A `shares.port.DeadLetters`. `connect` makes the way to a broker; `wait_until_committed`
    returns when all that is in the log of a partition is committed, or raises a `KafkaError`."""

    def __init__(
        self,
        *,
        broker_id: BrokerId,
        options: Callable[[], BrokerOptions],
        image: Callable[[], MetadataImage],
        partitions: Partitions,
        clock: Clock,
        workers: Workers,
        create_topic: Callable[[TopicSpec], Awaitable[TopicState]],
        wait_until_committed: Callable[[Partition], Awaitable[None]],
        connect: Callable[[BrokerId], Peer],
    ) -> None:
        self._broker_id = broker_id
        self._options = options
        self._image = image
        self._partitions = partitions
        self._clock = clock
        self._workers = workers
        self._create_topic = create_topic
        self._wait_until_committed = wait_until_committed
        self._connect = connect
        self._peers: dict[BrokerId, Peer] = {}

    async def close(self) -> None:
        for peer in self._peers.values():
            await peer.close()

    async def send(
        self,
        group_id: str,
        source: Partition,
        dead: Sequence[DeadRange],
        settings: DeadLetterSettings,
    ) -> None:
        """Return when the letters are written, or cannot be; raises what passes."""
        topic = await self._find_topic(group_id, settings.topic)
        if topic is None:
            return
        for records in self._slices(source, dead):
            make = partial(self._letters_of, records, source.topic_partition, group_id, dead)
            letters = await self._workers.run(partial(make, settings.copies))
            for batch in _batches(letters, self._most_bytes(topic)):
                await self._append(topic, source.topic_partition.partition, batch)

    # Where to

    async def _find_topic(self, group_id: str, name: str) -> TopicState | None:
        options = self._options()
        prefix = options.errors_deadletterqueue_topic_name_prefix
        if not name.startswith(prefix):
            self._give_up(group_id, name, f"its name does not begin with {prefix!r}")
            return None
        topic = self._image().topics.get(name)
        if topic is None:
            if not options.errors_deadletterqueue_auto_create_topics_enable:
                self._give_up(group_id, name, "there is no such topic")
                return None
            topic = await self._create_topic(TopicSpec(name=name, configs={_ENABLED: "true"}))
        if not TopicOptions.resolve(topic.configs, options).errors_deadletterqueue_group_enable:
            self._give_up(group_id, name, f"it has not set {_ENABLED}")
            return None
        return topic

    def _give_up(self, group_id: str, name: str, why: str) -> None:
        _log.error(
            "dead letters of share group %r cannot be written to %r: %s. Records that are rejected "
            "or were delivered too often come to their end without one",
            group_id,
            name,
            why,
        )

    def _most_bytes(self, topic: TopicState) -> int:
        return TopicOptions.resolve(topic.configs, self._options()).max_message_bytes

    # What

    def _slices(self, source: Partition, dead: Sequence[DeadRange]) -> list[FileSlice]:
        """The batches that have dead records, each once."""
        slices: list[FileSlice] = []
        offset = source.log.log_start_offset
        for first, end, _, _ in sorted(dead):
            offset = Offset(max(offset, first))
            while offset < end:
                read = source.log.read(
                    offset, _READ_BYTES, end_offset=source.high_watermark, min_one=True
                )
                if read.slice is None:
                    break
                slices.append(read.slice)
                offset = Offset(read.end_offset)
        return slices

    def _letters_of(
        self,
        records: FileSlice,
        source: TopicPartition,
        group_id: str,
        dead: Sequence[DeadRange],
        copies: bool,
    ) -> list[NewRecord]:
        """In a worker: batches may be large, and compressed."""
        data = memoryview(records.read())
        now_ms = self._clock.now_ms()
        first, end = min(one.first for one in dead), max(one.end for one in dead)
        letters: list[NewRecord] = []
        for position, header in walk_headers(data):
            if header.is_control or header.next_offset <= first or header.base_offset >= end:
                continue
            rows = records_of(data[position : position + header.size_bytes], header)
            letters += write_letters(source, group_id, rows, dead, copies=copies, now_ms=now_ms)
        return letters

    # Writing

    async def _append(self, topic: TopicState, source_partition: int, batch: bytearray) -> None:
        """As Kafka, to the partition with the source's number, as far as there are so many."""
        image = self._image()
        index = source_partition % len(topic.partitions)
        state = image.find_partition(topic.name, index)
        if state is None or state.leader not in image.brokers:
            raise LeaderNotAvailableError(f"nobody leads {topic.name}-{index}")
        if state.leader == self._broker_id:
            await self._append_here(TopicPartition(topic.name, index), batch)
        else:
            await self._append_there(state.leader, TopicPartition(topic.name, index), batch)

    async def _append_here(self, target: TopicPartition, batch: bytearray) -> None:
        partition = self._partitions.require_leader(*target)
        await partition.append_in_worker(memoryview(batch), _ALL_IN_SYNC)
        await self._wait_until_committed(partition)

    async def _append_there(
        self, leader: BrokerId, target: TopicPartition, batch: bytearray
    ) -> None:
        timeout_ms = self._options().request_timeout_ms
        peer = self._peers.get(leader)
        if peer is None:
            peer = self._peers[leader] = self._connect(leader)
        body = encode_produce_request(
            _VERSION, _ALL_IN_SYNC, timeout_ms, [(target.topic, [(target.partition, batch)])]
        )
        size_bytes = sum(len(one) for one in body)
        client_id = f"broker-{self._broker_id}"
        prefix = request_prefix(PRODUCE.key, _VERSION, 0, client_id, size_bytes)
        frame = [prefix, *(bytes(one) for one in body)]
        try:
            answer = await peer.ask(frame, timeout_seconds=timeout_ms / 1000)
        except ClientError as error:
            raise LeaderNotAvailableError(f"broker {leader} was not reached: {error}") from error
        _, position = read_response_header(answer, PRODUCE.key, _VERSION)
        (told,) = parse_produce_response(_VERSION, answer, position).answers
        if told.error_code != ErrorCode.none.value:
            raise KafkaError(f"{target} of broker {leader}: {ErrorCode(told.error_code).name}")


def _batches(letters: Sequence[NewRecord], most_bytes: int) -> list[bytearray]:
    """Letters in batches that the topic takes; one that is too large by itself goes without the
    record that it is about."""
    if not letters:
        return []
    batch = build_batch(letters)
    if len(batch) <= most_bytes:
        return [batch]
    if len(letters) > 1:
        half = len(letters) // 2
        return [*_batches(letters[:half], most_bytes), *_batches(letters[half:], most_bytes)]
    (one,) = letters
    return [build_batch([NewRecord(one.timestamp_ms, None, None, one.headers[-6:])])]


# The names of the headers are Kafka's. A rule.


TOPIC_HEADER: Final = "__dlq.errors.topic"
PARTITION_HEADER: Final = "__dlq.errors.partition"
OFFSET_HEADER: Final = "__dlq.errors.offset"
GROUP_HEADER: Final = "__dlq.errors.group"
COUNT_HEADER: Final = "__dlq.errors.delivery.count"
MESSAGE_HEADER: Final = "__dlq.errors.message"

_REJECTED: Final = b"The record was rejected by a member of the group."
_TOO_OFTEN: Final = b"The record was delivered as often as the group allows."


class DeadLetterSettings(NamedTuple):
    """What a group has set."""

    topic: str = ""  # none without
    copies: bool = False  # the record too, not only where it is


def write_letters(
    source: TopicPartition,
    group_id: str,
    records: Iterable[Record],
    dead: Sequence[DeadRange],
    *,
    copies: bool,
    now_ms: int,
) -> Iterator[NewRecord]:
    """One for each record that is dead; the others are passed over."""
    for record in records:
        for first, end, delivery_count, is_rejected in dead:
            if first <= record.offset < end:
                yield NewRecord(
                    now_ms,
                    record.key if copies else None,
                    record.value if copies else None,
                    (
                        *(record.headers if copies else ()),
                        (TOPIC_HEADER, source.topic.encode()),
                        (PARTITION_HEADER, str(source.partition).encode()),
                        (OFFSET_HEADER, str(record.offset).encode()),
                        (GROUP_HEADER, group_id.encode()),
                        (COUNT_HEADER, str(delivery_count).encode()),
                        (MESSAGE_HEADER, _REJECTED if is_rejected else _TOO_OFTEN),
                    ),
                )
                break
