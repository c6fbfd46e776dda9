"""What producers were promised, compared with what is in the log; two kinds of them on one topic.

librdkafka's (`Load`) and ours (`OwnLoad`) write to the same partitions at the same time, both
idempotent and with acks=all. Afterwards every acknowledged record is at its offset, nothing is
there twice, nothing is out of order, and nothing is there that nobody sent.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import NamedTuple, Protocol, Self

from confluent_kafka import KafkaError, KafkaException, TopicPartition

import moldau
from moldau.errors import MoldauError
from support import confluent_client
from support.load import NumberedLoad
from support.waiting import PATIENCE_SECONDS, eventually

_ABOUT_NEW_LEADERS = (
    KafkaError.OFFSET_NOT_AVAILABLE,  # it does not know yet what is committed
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)


class Promised(Protocol):
    """What a producer sent and was told, by partition; each of its records has another value."""

    @property
    def sent(self) -> Mapping[int, list[bytes]]: ...

    @property
    def acknowledged(self) -> Mapping[int, Mapping[int, bytes]]:
        """By offset."""
        ...

    @property
    def acknowledged_somewhere(self) -> Mapping[int, list[bytes]]:
        """In the log, and the producer was not told at which offset."""
        ...


class OwnLoad(NumberedLoad):
    """By `moldau.Producer`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        most_in_flight: int = 60,
        tag: str = "own record",
        **options: object,
    ) -> None:
        super().__init__(topic, partitions, tag)
        self._room = threading.Semaphore(most_in_flight)
        self._producer = moldau.Producer(
            bootstrap,
            **{
                "acks": "all",
                "linger_ms": 20,
                "request_timeout_ms": 5_000,
                "retry_backoff_ms": 50,
                "retry_backoff_max_ms": 100,
                "delivery_timeout_ms": int(PATIENCE_SECONDS * 1000),
                **options,
            },
        )

    def _wait_for_room(self) -> bool:
        while not self._stopping.is_set() and not self.errors:
            if self._room.acquire(timeout=0.1):
                return True
        return False

    def _send(self, partition: int, value: bytes) -> bool:
        try:
            future = self._producer.send(self._topic, value, partition=partition)
        except MoldauError as error:
            self.errors.append(error)
            return False
        future.add_done_callback(lambda done: self._note(done, value))
        return True

    def _flush(self) -> None:
        self._producer.flush(PATIENCE_SECONDS)

    def _give_up(self) -> None:
        self._producer.close(0)

    def _note(self, done: Future[moldau.RecordMetadata], value: bytes) -> None:
        self._room.release()
        error = done.exception(0)
        if error is not None:
            self.errors.append(error)
            return
        metadata = done.result(0)
        self._acknowledge(metadata.partition, metadata.offset, value)


class BrokenPromises(NamedTuple):
    """How many records; none of anything is how it should be."""

    lost: int  # acknowledged, and not in the log
    displaced: int  # acknowledged, and at another offset
    doubled: int  # more than once in the log
    disordered: int  # behind one that its producer has sent later
    unknown: int  # that nobody sent

    @classmethod
    def none(cls) -> Self:
        return cls(0, 0, 0, 0, 0)


def read_log(bootstrap: str, topic: str, partition: int) -> dict[int, bytes]:
    """Every record of a partition by its offset."""
    where = TopicPartition(topic, partition)
    with confluent_client.consumer(bootstrap) as client:

        def find_bounds() -> tuple[int, int] | None:
            try:
                return client.get_watermark_offsets(where, PATIENCE_SECONDS)
            except KafkaException as error:
                if error.args[0].code() not in _ABOUT_NEW_LEADERS:
                    raise
                return None

        start, end = eventually(find_bounds, "a leader that knows its high watermark")
    got = confluent_client.consume(bootstrap, topic, end - start, partition=partition, start=start)
    return {one.offset: one.value or b"" for one in got}


def find_broken_promises(
    bootstrap: str, topic: str, promised: Collection[Promised], partitions: int = 1
) -> BrokenPromises:
    found = BrokenPromises.none()
    for partition in range(partitions):
        log = read_log(bootstrap, topic, partition)
        one = _compare(log, partition, promised)
        found = BrokenPromises(*(a + b for a, b in zip(found, one, strict=True)))
    return found


def _compare(
    log: Mapping[int, bytes], partition: int, promised: Collection[Promised]
) -> BrokenPromises:
    times = Counter(log.values())
    lost = displaced = disordered = 0
    known: set[bytes] = set()
    for one in promised:
        sent = one.sent.get(partition, [])
        known.update(sent)
        for offset, value in one.acknowledged.get(partition, {}).items():
            if log.get(offset) != value:
                displaced += value in times
                lost += value not in times
                print(f"acknowledged at {offset}: {value!r}")  # noqa: T201 shown with a failure
        lost += sum(value not in times for value in one.acknowledged_somewhere.get(partition, ()))
        place = {value: number for number, value in enumerate(sent)}
        order = [place[value] for _, value in sorted(log.items()) if value in place]
        disordered += sum(later <= earlier for earlier, later in itertools.pairwise(order))
    doubled = sum(count - 1 for count in times.values())
    unknown = sum(value not in known for value in times)
    return BrokenPromises(lost, displaced, doubled, disordered, unknown)
