"""confluent-kafka (librdkafka), as the tests of all clients want it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.rows import CREATE_TIME, LOG_APPEND_TIME, Got, Row
from support.waiting import PATIENCE_SECONDS

NAME = "confluent-kafka"
ODD_ROWS = (
    Row(None, None, (), 1_700_000_000_100),
    Row(b"null header", b"v", (("null", None),), 1_700_000_000_101),
)
"""What this client can send and others refuse to."""

_QUIET = {"log_level": 0, "log.connection.close": False}
_security: dict[str, str] = {}


@contextlib.contextmanager
def secured_by(options: Mapping[str, str]) -> Iterator[None]:
    """Every client that is made meanwhile says who it is."""
    _security.update(options)
    try:
        yield
    finally:
        _security.clear()


def admin_client(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, **_QUIET, **_security})


def producer(bootstrap: str, **options: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, **_QUIET, **_security, **dotted(options)})


@contextlib.contextmanager
def consumer(bootstrap: str, **options: object) -> Iterator[Consumer]:
    """For assigned partitions: it names a group, which librdkafka insists on, and uses none."""
    made = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "assigned-by-hand",
            "enable.auto.commit": False,
            **_QUIET,
            **_security,
            **dotted(options),
        }
    )
    try:
        yield made
    finally:
        made.unassign()
        made.close()


def dotted(options: Mapping[str, object]) -> dict[str, object]:
    """Python's keyword arguments as librdkafka's names."""
    return {
        name if name in ("log_level", "error_cb", "throttle_cb") else name.replace("_", "."): value
        for name, value in options.items()
    }


def produce(
    bootstrap: str,
    topic: str,
    rows: Sequence[Row],
    *,
    partition: int = 0,
    codec: str = "none",
    acks: str = "all",
    idempotent: bool = False,
    **options: object,
) -> list[int]:
    """Send the rows; their offsets, or raise what the first of them failed with."""
    client = producer(
        bootstrap,
        **{
            "compression_type": codec,
            "acks": acks,
            "enable_idempotence": idempotent,
            "linger_ms": 5,
            **options,
        },
    )
    return send(client, topic, rows, partition=partition)


def send(client: Producer, topic: str, rows: Sequence[Row], *, partition: int = 0) -> list[int]:
    outcomes: list[int | KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        outcomes.append(message.offset() if error is None else error)

    for row in rows:
        client.produce(
            topic,
            row.value,
            row.key,
            partition,
            on_delivery=note,
            timestamp=row.timestamp_ms or 0,
            headers=list(row.headers),
        )
    left = client.flush(PATIENCE_SECONDS)
    assert not left, f"{left} records were not delivered"
    for outcome in outcomes:
        if isinstance(outcome, KafkaError):
            raise KafkaException(outcome)
    return outcomes  # type: ignore[return-value]


def consume(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    partition: int = 0,
    start: int = 0,
    **options: object,
) -> list[Got]:
    """The next so many records from an offset on."""
    with consumer(bootstrap, **options) as client:
        client.assign([TopicPartition(topic, partition, start)])
        return poll(client, count)


def poll(client: Consumer, count: int) -> list[Got]:
    """The next so many records of what is assigned."""
    found: list[Got] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} records came"
        for message in client.consume(count - len(found), 0.2):
            if message.error() is not None:
                if message.topic() is None:
                    continue  # about the connection or the group: librdkafka goes on by itself
                raise KafkaException(message.error())
            found.append(_got(message))
    return found


def _got(message: Message) -> Got:
    kind, timestamp_ms = message.timestamp()
    return Got(
        message.offset(),
        LOG_APPEND_TIME if kind == 2 else CREATE_TIME,
        timestamp_ms,
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
