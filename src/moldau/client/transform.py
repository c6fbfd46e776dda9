"""Consume, transform, produce: with each record's results written exactly once. A shell.

What is read, what is written and how far was read are one transaction for each poll. Whatever ends
it, all of it counts or nothing (TXN-4); then the same records are read again, by this worker or by
another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Event
from typing import Any, TypeAlias

from moldau.client.blocking import Consumer, Producer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.producer.produce_result import OutgoingRecord
from moldau.errors import CommitFailedError, TransactionAbortedError
from moldau.model import TopicPartition

_log = logging.getLogger("moldau.transform")

Transformation: TypeAlias = Callable[[ConsumerRecord], Iterable[OutgoingRecord] | None]
"""What to write for a record: any number of records, or nothing."""

_NO_OPTIONS: Mapping[str, Any] = {}


def transform(
    bootstrap: str,
    topics: str | Collection[str],
    function: Transformation,
    *,
    group: str,
    transactional_id: str,
    stop: Event | None = None,
    poll_seconds: float = 0.1,
    consumer_options: Mapping[str, Any] = _NO_OPTIONS,
    producer_options: Mapping[str, Any] = _NO_OPTIONS,
) -> None:
    """Read topics as a member of a group and write what the function makes of each record, exactly
    once, until `stop` is set or it raises.

        def double(record):
            yield moldau.OutgoingRecord("doubled", record.value * 2, key=record.key)

        moldau.transform("127.0.0.1:9092", "numbers", double, group="doublers",
                         transactional_id="doubler-0")

    Workers share the group; each needs a transactional id of its own, and keeps it when it is
    started again. Readers of the results read with `isolation_level="read_committed"`. The function
    may be called again for a record whose transaction was aborted: what it does elsewhere is not
    undone. Records of one poll are one transaction: `max_poll_records` in `consumer_options` and
    `poll_seconds` say how many that are.
    """
    wanted = {"auto_offset_reset": "earliest", **consumer_options}
    with (
        Producer(bootstrap, transactional_id=transactional_id, **producer_options) as producer,
        Consumer(
            bootstrap,
            group=group,
            topics=topics,
            commit="manual",
            isolation_level="read_committed",
            **wanted,
        ) as consumer,
    ):
        while stop is None or not stop.is_set():
            records = consumer.poll(poll_seconds)
            if records:
                _write(producer, consumer, records, function)


def _write(
    producer: Producer,
    consumer: Consumer,
    records: list[ConsumerRecord],
    function: Transformation,
) -> None:
    try:
        with producer.transaction():
            for record in records:
                for made in function(record) or ():
                    producer.send(
                        made.topic,
                        made.value,
                        made.key,
                        partition=made.partition,
                        timestamp_ms=made.timestamp_ms,
                        headers=made.headers,
                    )
            producer.send_offsets(records, consumer.group_metadata)
    except (TransactionAbortedError, CommitFailedError) as error:
        _log.warning("%s; the records are read again", error)
        _go_back(consumer, records)


def _go_back(consumer: Consumer, records: Iterable[ConsumerRecord]) -> None:
    """Read on at the first of these records of each partition that is still this consumer's."""
    first: dict[TopicPartition, int] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    for partition, offset in first.items():
        if partition in consumer.assignment:
            consumer.seek(partition, offset)
