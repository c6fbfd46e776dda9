"""What nearly every test does with a broker: make a topic, put records in, look at what came out.

`RunningBroker` and `RunningCluster` have these. They go over the wire with the shipped client, as a
program would; a client is made for each call, so that nothing of it is left when the broker goes.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from moldau.client.admin.values import BROKER_DEFAULT, NewTopic
from moldau.client.blocking import Admin, Consumer, Producer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.records.record import Headers

_NOTHING: Mapping[str, str] = MappingProxyType({})
_TIMEOUT_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.02
_fresh = itertools.count(1)


class TopicTools:
    """Topics of whatever has a `bootstrap`."""

    @property
    def bootstrap(self) -> str:
        raise NotImplementedError

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        config: Mapping[str, str] = _NOTHING,
    ) -> str:
        """Make a topic, and return its name; without one it gets one that nobody else has."""
        name = name or f"topic-{os.getpid()}-{next(_fresh)}"
        topic = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=config,
        )
        with Admin(self.bootstrap) as admin:
            _raise_if_error(admin.create_topics([topic])[name])
        return name

    def delete_topic(self, name: str) -> None:
        with Admin(self.bootstrap) as admin:
            _raise_if_error(admin.delete_topics([name])[name])

    @contextmanager
    def fresh_topic(self, *, partitions: int = BROKER_DEFAULT) -> Iterator[str]:
        """A topic for the length of a block."""
        name = self.create_topic(partitions=partitions)
        try:
            yield name
        finally:
            self.delete_topic(name)

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Put records into a topic, and return when they are there; text goes as UTF-8."""
        with Producer(self.bootstrap) as producer:
            sent = [
                producer.send(
                    topic,
                    key=_as_bytes(key),
                    value=_as_bytes(value),
                    partition=partition,
                    headers=headers,
                )
                for value in values
            ]
            for one in sent:
                one.result(_TIMEOUT_SECONDS)

    def records(
        self, topic: str, partition: int | None = None, *, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """All that can be read from a topic now: partition by partition, each in order."""
        level = "read_committed" if read_committed else "read_uncommitted"
        with Consumer(self.bootstrap, isolation_level=level) as consumer:
            numbers = [one.index for one in consumer.partitions_for(topic).partitions]
            wanted = [
                TopicPartition(topic, number)
                for number in sorted(numbers)
                if partition is None or number == partition
            ]
            ends = consumer.end_offsets(wanted)
            consumer.assign(wanted)
            consumer.seek_to_beginning()
            found: list[ConsumerRecord] = []
            while any(consumer.position(one) < end for one, end in ends.items()):
                found += consumer.poll(_TIMEOUT_SECONDS)
        found = [one for one in found if one.offset < ends[TopicPartition(topic, one.partition)]]
        return sorted(found, key=lambda one: (one.partition, one.offset))

    def wait_for_records(
        self,
        topic: str,
        count: int = 1,
        *,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        read_committed: bool = False,
    ) -> list[ConsumerRecord]:
        """The records of a topic, when there are so many; raises `TimeoutError` otherwise.

        The topic may be made meanwhile.
        """
        found: list[ConsumerRecord] = []

        def has_enough() -> bool:
            nonlocal found
            with Admin(self.bootstrap) as admin:
                exists = topic in admin.list_topics()
            found = self.records(topic, read_committed=read_committed) if exists else []
            return len(found) >= count

        try:
            wait_until(has_enough, "", timeout_seconds)
        except TimeoutError:
            raise TimeoutError(
                f"{topic} has {len(found)} records after {timeout_seconds:g} s, not {count}"
            ) from None
        return found


def wait_until(condition: Callable[[], bool], what: str, timeout_seconds: float) -> None:
    """Return when the condition holds; `TimeoutError` when it does not in time."""
    pause = threading.Event()
    for _ in range(max(1, int(timeout_seconds / _POLL_SECONDS))):
        if condition():
            return
        pause.wait(_POLL_SECONDS)
    raise TimeoutError(f"{what} did not come true within {timeout_seconds:.0f} s")


def _as_bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _raise_if_error(outcome: object) -> None:
    if isinstance(outcome, KafkaError):
        raise outcome
