"""Members of consumer groups, one thread each, with any of the clients inside.

A member subscribes, reads until it is told to stop, and notes what it got and what it is assigned.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

from support.waiting import PATIENCE_SECONDS, eventually

_POLL_MS = 50
_KAFKA_PYTHON_POLL_MS = 1_000
"""When its poll ends while an assignment is on the way, kafka-python 3.0 loses the assignment."""

_COMMIT_ATTEMPTS = 100

REFUSED_COMMITS = (
    aiokafka.errors.CommitFailedError,
    aiokafka.errors.IllegalGenerationError,
    aiokafka.errors.RebalanceInProgressError,
    aiokafka.errors.UnknownMemberIdError,
    kafka.errors.CommitFailedError,
    kafka.errors.RebalanceInProgressError,
    confluent_kafka.KafkaException,
)


class Seen(NamedTuple):
    """A record that a member got."""

    partition: int
    offset: int
    value: bytes


class GroupClient(Protocol):
    """One client's consumer, used by one thread."""

    def poll(self) -> list[Seen]: ...

    def assigned(self) -> frozenset[int]: ...

    def commit(self) -> None: ...

    def close(self) -> None: ...


class ConfluentMember:
    """confluent-kafka (librdkafka)."""

    _PROTOCOL: ClassVar[dict[str, object]] = {
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 6_000,
    }

    def __init__(self, bootstrap: str, topic: str, group: str, **options: object) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **self._PROTOCOL,
                **{name.replace("_", "."): value for name, value in options.items()},
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Seen]:
        messages = self._consumer.consume(500, _POLL_MS / 1000)
        return [
            Seen(message.partition(), message.offset(), message.value())
            for message in messages
            if message.error() is None
        ]

    def assigned(self) -> frozenset[int]:
        return frozenset(one.partition for one in self._consumer.assignment())

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            # Its partitions went to another member before it got a record: nothing to commit.
            if error.args[0].code() != confluent_kafka.KafkaError._NO_OFFSET:
                raise

    def close(self) -> None:
        self._consumer.close()


class ConfluentConsumerMember(ConfluentMember):
    """confluent-kafka with the consumer protocol (KIP-848): the broker says who reads what."""

    _PROTOCOL: ClassVar[dict[str, object]] = {"group.protocol": "consumer"}


_CLASSIC: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 200,
    "session_timeout_ms": 6_000,
}
"""For kafka-python and aiokafka, whose names are the same."""


def _seen_in(found: Mapping[Any, Iterable[Any]]) -> list[Seen]:
    return [
        Seen(record.partition, record.offset, record.value)
        for records in found.values()
        for record in records
    ]


class KafkaPythonMember:
    """kafka-python."""

    def __init__(self, bootstrap: str, topic: str, group: str, **options: object) -> None:
        self._consumer = kafka.KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, **_CLASSIC, **options
        )

    def poll(self) -> list[Seen]:
        try:
            return _seen_in(self._consumer.poll(_KAFKA_PYTHON_POLL_MS))
        except kafka.errors.KafkaConnectionError:
            return []  # while nobody is there it may raise, where others wait: programs poll again

    def assigned(self) -> frozenset[int]:
        return frozenset(one.partition for one in self._consumer.assignment())

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close(autocommit=False)
        _close_forgotten_sockets()


def _close_forgotten_sockets() -> None:
    """kafka-python never closes the socket of a connect that was refused."""
    for found in gc.get_objects():
        if isinstance(found, socket.socket) and found.fileno() >= 0 and _is_unconnected(found):
            found.close()


def _is_unconnected(found: socket.socket) -> bool:
    return found.family == socket.AF_INET and found.getsockname()[0] == "0.0.0.0"


class AiokafkaMember:
    """aiokafka, with a loop of its own."""

    def __init__(self, bootstrap: str, topic: str, group: str, **options: object) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(bootstrap, topic, group, options))

    async def _start(
        self, bootstrap: str, topic: str, group: str, options: dict[str, object]
    ) -> None:
        self._consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            **_CLASSIC,
            **options,  # type: ignore[arg-type]
        )
        await self._consumer.start()

    def poll(self) -> list[Seen]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=_POLL_MS))
        return _seen_in(found)

    def assigned(self) -> frozenset[int]:
        return frozenset(one.partition for one in self._consumer.assignment())

    def commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


MEMBERS: dict[str, Callable[..., GroupClient]] = {
    "confluent-kafka": ConfluentMember,
    "confluent-kafka, consumer protocol": ConfluentConsumerMember,
    "aiokafka": AiokafkaMember,
    "kafka-python": KafkaPythonMember,
}


class Member:
    """A member at work. On leaving the block it commits what it has got and leaves the group."""

    def __init__(self, make: Callable[[], GroupClient]) -> None:
        self._make = make
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group member")
        self._failure: BaseException | None = None
        self.seen: list[Seen] = []
        self.assigned: frozenset[int] = frozenset()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive(), "the member does not stop"
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            client = self._make()
            try:
                while not self._stopping.is_set():
                    self.seen += client.poll()
                    self.assigned = client.assigned()
                if self.seen and self.assigned:
                    self._commit(client)
            finally:
                client.close()
        except BaseException as failure:  # noqa: BLE001 it belongs to the thread that waits
            self._failure = failure

    def _commit(self, client: GroupClient) -> None:
        """A commit during a rebalance may be refused: go on until that is over."""
        for _ in range(_COMMIT_ATTEMPTS):
            try:
                client.commit()
            except REFUSED_COMMITS as refused:
                failure = refused
                self.seen += client.poll()
            else:
                return
        raise failure

    def wait_for_values(self, values: set[bytes]) -> None:
        def has_all() -> bool:
            self._raise_failure()
            return values <= {one.value for one in self.seen}

        eventually(has_all, lambda: f"{len(values)} records; {len(self.seen)} came")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def wait_for_assignment(self, is_right: Callable[[frozenset[int]], bool]) -> None:
        def look() -> bool:
            self._raise_failure()
            return is_right(self.assigned)

        eventually(look, lambda: f"another assignment than {sorted(self.assigned)}")
