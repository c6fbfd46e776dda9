"""Loads of transactions: a real client that commits as fast as it is answered."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.loads import KIB, Figure, Sample, Site

RATE_OF_TRANSACTIONS = (Figure("transactions/s", True), Figure("CPU µs/transaction"))
_SECONDS_AT_MOST = 30.0
_quiet = logging.getLogger("bench.transaction_loads")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@contextmanager
def commit(
    site: Site, *, records: int, record_bytes: int = KIB, partitions: int = 4
) -> Iterator[Sample]:
    """confluent-kafka's transactions of so many records, one transaction after the other."""
    from confluent_kafka import Producer

    with site.topic(partitions) as topic:
        producer = Producer(
            {
                "bootstrap.servers": site.running.bootstrap,
                "transactional.id": f"bench-{topic}",
                "linger.ms": 0,
            },
            logger=_quiet,
        )
        producer.init_transactions(_SECONDS_AT_MOST)
        value = bytes(record_bytes)

        def sample() -> Sequence[float]:
            cpu, before, count = site.running.cpu_seconds(), time.perf_counter(), 0
            while time.perf_counter() - before < site.seconds:
                producer.begin_transaction()
                for number in range(records):
                    producer.produce(topic, value, partition=number % partitions)
                producer.commit_transaction(_SECONDS_AT_MOST)
                count += 1
            seconds = time.perf_counter() - before
            return count / seconds, (site.running.cpu_seconds() - cpu) / count * 1e6

        yield sample
