"""A producer at work while things happen to its broker, and the check of what it was promised."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping
from typing import Self

from confluent_kafka import KafkaError, Message, TopicPartition

from support import confluent_client
from support.waiting import PATIENCE_SECONDS, eventually


class NumberedLoad(ABC):
    """Sends numbered records in a thread of its own, round robin over the partitions.

    The producer is idempotent and retries for as long as it takes: every record must be
    acknowledged in the end, exactly once and in its order.
    """

    def __init__(self, topic: str, partitions: int, tag: str) -> None:
        """`tag` tells its records from those of others."""
        self._tag = tag.encode()
        self._topic = topic
        self._partitions = partitions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=tag)
        self.sent: dict[int, list[bytes]] = defaultdict(list)  # by partition
        self.acknowledged: dict[int, dict[int, bytes]] = defaultdict(dict)  # by partition, offset
        self.acknowledged_somewhere: dict[int, list[bytes]] = defaultdict(list)
        """By partition: the producer was not told at which offset (see `Load`)."""
        self.errors: list[object] = []
        self.count = 0  # acknowledged so far

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._give_up()

    def finish(self) -> None:
        """Send no more, and wait until everything that was sent is acknowledged."""
        self._end()
        self._flush()
        assert not self.errors, self.errors[:3]

    def wait_for_more(self, count: int) -> None:
        """Until so many more records are acknowledged."""
        target = self.count + count
        eventually(
            lambda: self.count >= target or self.errors,
            lambda: f"{target} records acknowledged, there are {self.count}",
        )
        assert not self.errors, self.errors[:3]

    def _end(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while self._wait_for_room():
            partition = number % self._partitions
            value = b"%s %d " % (self._tag, number) + b"." * (number * 7919 % 200)
            if not self._send(partition, value):
                return
            self.sent[partition].append(value)
            number += 1

    def _acknowledge(self, partition: int, offset: int, value: bytes) -> None:
        former = self.acknowledged[partition].setdefault(offset, value)
        if former != value:
            self.errors.append(f"{former!r} and {value!r} were both acknowledged at {offset}")
        self.count += 1

    @abstractmethod
    def _wait_for_room(self) -> bool:
        """Whether to go on."""

    @abstractmethod
    def _send(self, partition: int, value: bytes) -> bool:
        """False when it cannot be."""

    @abstractmethod
    def _flush(self) -> None: ...

    @abstractmethod
    def _give_up(self) -> None:
        """What is not acknowledged need not be."""


class Load(NumberedLoad):
    """By librdkafka.

    When a batch is answered with an error that another attempt may mend, and one behind it in the
    sequence is acknowledged before that attempt, librdkafka concludes that the first one is in the
    log, does not send it again, and reports its records as delivered, without an offset.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        most_in_flight: int = 1_000,
        tag: str = "record",
        **options: object,
    ) -> None:
        super().__init__(topic, partitions, tag)
        self._most_in_flight = most_in_flight
        self._producer = confluent_client.producer(
            bootstrap,
            **{
                "enable_idempotence": True,
                "acks": "all",
                "linger_ms": 1,
                "batch_num_messages": 50,
                "reconnect_backoff_ms": 10,
                "reconnect_backoff_max_ms": 100,
                **options,
            },
        )

    def _wait_for_room(self) -> bool:
        self._producer.poll(0)
        while len(self._producer) >= self._most_in_flight and not self._stopping.is_set():
            self._producer.poll(0.01)
        return not self._stopping.is_set()

    def _send(self, partition: int, value: bytes) -> bool:
        self._producer.produce(self._topic, value, partition=partition, on_delivery=self._note)
        return True

    def _flush(self) -> None:
        left = self._producer.flush(PATIENCE_SECONDS)
        assert not left, f"{left} records were never acknowledged; errors: {self.errors[:3]}"

    def _give_up(self) -> None:
        self._producer.purge()

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        value = message.value()
        assert value is not None
        partition, offset = message.partition(), message.offset()
        if offset is None:
            self.acknowledged_somewhere[partition].append(value)
            self.count += 1
        else:
            self._acknowledge(partition, offset, value)


def assert_log_is_what_was_sent(bootstrap: str, topic: str, load: Load) -> None:
    """Contents and order exact, nothing twice, each record at the offset that was promised."""
    for partition, values in load.sent.items():
        got = confluent_client.consume(bootstrap, topic, len(values), partition=partition)
        assert [one.value for one in got] == values
        assert [one.offset for one in got] == list(range(len(values)))
        promised = load.acknowledged[partition]
        assert len(promised) + len(load.acknowledged_somewhere[partition]) == len(values)
        assert promised.items() <= {one.offset: one.value for one in got}.items()
        with confluent_client.consumer(bootstrap) as client:
            end = client.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE_SECONDS)
        assert end == (0, len(values))


class Tail:
    """A consumer at work while things happen to its broker: what it sees, it sees once."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._assigned = [TopicPartition(topic, number, 0) for number in range(partitions)]
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail")
        self.seen: dict[int, list[bytes]] = defaultdict(list)  # by partition
        self.failure: AssertionError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_until_seen(self, sent: Mapping[int, list[bytes]]) -> None:
        eventually(
            lambda: self.failure or all(len(self.seen[key]) >= len(sent[key]) for key in sent),
            lambda: f"seen {[len(values) for values in self.seen.values()]}",
        )
        if self.failure is not None:
            raise self.failure
        assert dict(self.seen) == dict(sent)

    def _run(self) -> None:
        with confluent_client.consumer(
            self._bootstrap,
            auto_offset_reset="error",
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=100,
        ) as client:
            client.assign(self._assigned)
            while not self._stopping.is_set() and self.failure is None:
                for message in client.consume(500, 0.05):
                    self._note(message)

    def _note(self, message: Message) -> None:
        if message.error() is not None:
            if message.topic() is not None:
                self.failure = AssertionError(str(message.error()))
            return
        values = self.seen[message.partition()]
        if message.offset() != len(values):
            self.failure = AssertionError(
                f"offset {message.offset()} of partition {message.partition()} "
                f"came after {len(values) - 1}"
            )
        values.append(message.value() or b"")
