"""Moldau: Apache Kafka's commit log and wire protocol, in Python."""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it, without the import: Ctrl-C in it showed a traceback
if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin
    from moldau.client.admin_values import NewTopic
    from moldau.client.blocking import Admin
    from moldau.client.blocking_consumer import Consumer, SimpleConsumer
    from moldau.client.blocking_producer import Producer
    from moldau.client.blocking_queue import Queue
    from moldau.client.consumer import AsyncConsumer
    from moldau.client.group_values import ConsumerGroupMetadata, GroupOffset
    from moldau.client.producer import AsyncProducer
    from moldau.client.producer_values import (
        Interceptor,
        OutgoingRecord,
        RecordMetadata,
        RecordRange,
    )
    from moldau.client.queue import AsyncQueue
    from moldau.client.queue_jobs import AsyncJob, AsyncJobBatch, Job, JobBatch
    from moldau.client.read_table import read_batches, read_table
    from moldau.client.rules.consumer_record import ConsumerRecord
    from moldau.client.simple_consumer import AsyncSimpleConsumer
    from moldau.client.transaction_values import PreparedTransaction
    from moldau.client.transform import transform
    from moldau.model import TopicPartition
    from moldau.records.record import NewRecord, Record

__version__ = "0.1.0"

__all__ = (
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncJob",
    "AsyncJobBatch",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncSimpleConsumer",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "GroupOffset",
    "Interceptor",
    "Job",
    "JobBatch",
    "NewRecord",
    "NewTopic",
    "OutgoingRecord",
    "PreparedTransaction",
    "Producer",
    "Queue",
    "Record",
    "RecordMetadata",
    "RecordRange",
    "SimpleConsumer",
    "TopicPartition",
    "read_batches",
    "read_table",
    "transform",
)

_HOMES = {
    "Admin": "moldau.client.blocking",
    "AsyncAdmin": "moldau.client.admin",
    "AsyncConsumer": "moldau.client.consumer",
    "AsyncJob": "moldau.client.queue_jobs",
    "AsyncJobBatch": "moldau.client.queue_jobs",
    "AsyncProducer": "moldau.client.producer",
    "AsyncQueue": "moldau.client.queue",
    "AsyncSimpleConsumer": "moldau.client.simple_consumer",
    "Consumer": "moldau.client.blocking_consumer",
    "ConsumerGroupMetadata": "moldau.client.group_values",
    "ConsumerRecord": "moldau.client.rules.consumer_record",
    "GroupOffset": "moldau.client.group_values",
    "Interceptor": "moldau.client.producer_values",
    "Job": "moldau.client.queue_jobs",
    "JobBatch": "moldau.client.queue_jobs",
    "NewRecord": "moldau.records.record",
    "NewTopic": "moldau.client.admin_values",
    "OutgoingRecord": "moldau.client.producer_values",
    "PreparedTransaction": "moldau.client.transaction_values",
    "Producer": "moldau.client.blocking_producer",
    "Queue": "moldau.client.blocking_queue",
    "Record": "moldau.records.record",
    "RecordMetadata": "moldau.client.producer_values",
    "RecordRange": "moldau.client.producer_values",
    "SimpleConsumer": "moldau.client.blocking_consumer",
    "TopicPartition": "moldau.model",
    "read_batches": "moldau.client.read_table",
    "read_table": "moldau.client.read_table",
    "transform": "moldau.client.transform",
}


_ROOMS = ("errors", "spark", "testing")
"""`import moldau` is enough for `moldau.testing.broker()` and `except moldau.errors.KafkaError`."""


def __getattr__(name: str) -> object:
    """Load a name when it is asked for: the broker and the command line do not need them."""
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"moldau.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(home), name)
    globals()[name] = found  # asked for once: the next time it is simply there
    return found


def __dir__() -> list[str]:
    """What there is, also before it was asked for."""
    return sorted({*__all__, *_ROOMS, *(name for name in globals() if name.startswith("__"))})
