"""Moldau: Apache Kafka's commit log and wire protocol, in Python."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau import errors as errors
    from moldau import schemas as schemas
    from moldau import spark as spark
    from moldau import testing as testing
    from moldau.client.admin.client import AsyncAdmin
    from moldau.client.admin.values import ConfigResource, ElectionType, NewTopic, ResourceType
    from moldau.client.blocking import Admin, Consumer, Producer, SimpleConsumer
    from moldau.client.consumer.consumer import AsyncConsumer
    from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
    from moldau.client.consumer.simple_consumer import AsyncSimpleConsumer
    from moldau.client.producer.produce_result import (
        Interceptor,
        OutgoingRecord,
        RecordMetadata,
        RecordRange,
    )
    from moldau.client.producer.producer import AsyncProducer
    from moldau.client.producer.rules.transaction_manager import PreparedTransaction
    from moldau.client.queue.jobs import AsyncJob, AsyncJobBatch, Job, JobBatch
    from moldau.client.queue.queue import AsyncQueue, Queue
    from moldau.client.read_table import read_batches, read_table
    from moldau.client.rules.offsets import ConsumerGroupMetadata, GroupOffset
    from moldau.client.transform import transform
    from moldau.config.alterations import ConfigChange, ConfigOperation
    from moldau.model import (
        AclBinding,
        AclEntry,
        AclFilter,
        AclOperation,
        AclPermission,
        AclResourceType,
        PatternType,
        Principal,
        ResourcePattern,
        TopicPartition,
    )
    from moldau.quotas import QuotaEntity
    from moldau.records.record import NewRecord, Record
else:
    _HOMES = {
        "AclBinding": "moldau.model",
        "AclEntry": "moldau.model",
        "AclFilter": "moldau.model",
        "AclOperation": "moldau.model",
        "AclPermission": "moldau.model",
        "AclResourceType": "moldau.model",
        "Admin": "moldau.client.blocking",
        "AsyncAdmin": "moldau.client.admin.client",
        "AsyncConsumer": "moldau.client.consumer.consumer",
        "AsyncJob": "moldau.client.queue.jobs",
        "AsyncJobBatch": "moldau.client.queue.jobs",
        "AsyncProducer": "moldau.client.producer.producer",
        "AsyncQueue": "moldau.client.queue.queue",
        "AsyncSimpleConsumer": "moldau.client.consumer.simple_consumer",
        "ConfigChange": "moldau.config.alterations",
        "ConfigOperation": "moldau.config.alterations",
        "ConfigResource": "moldau.client.admin.values",
        "Consumer": "moldau.client.blocking",
        "ConsumerGroupMetadata": "moldau.client.rules.offsets",
        "ConsumerRecord": "moldau.client.consumer.rules.fetch_buffer",
        "ElectionType": "moldau.client.admin.values",
        "GroupOffset": "moldau.client.rules.offsets",
        "Interceptor": "moldau.client.producer.produce_result",
        "Job": "moldau.client.queue.jobs",
        "JobBatch": "moldau.client.queue.jobs",
        "NewRecord": "moldau.records.record",
        "NewTopic": "moldau.client.admin.values",
        "OutgoingRecord": "moldau.client.producer.produce_result",
        "PatternType": "moldau.model",
        "PreparedTransaction": "moldau.client.producer.rules.transaction_manager",
        "Principal": "moldau.model",
        "Producer": "moldau.client.blocking",
        "Queue": "moldau.client.queue.queue",
        "QuotaEntity": "moldau.quotas",
        "Record": "moldau.records.record",
        "RecordMetadata": "moldau.client.producer.produce_result",
        "RecordRange": "moldau.client.producer.produce_result",
        "ResourcePattern": "moldau.model",
        "ResourceType": "moldau.client.admin.values",
        "SimpleConsumer": "moldau.client.blocking",
        "TopicPartition": "moldau.model",
        "read_batches": "moldau.client.read_table",
        "read_table": "moldau.client.read_table",
        "transform": "moldau.client.transform",
    }
    _SUBPACKAGES = ("errors", "schemas", "spark", "testing")

    def __getattr__(name):
        if name in _SUBPACKAGES:
            return import_module(f"moldau.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__():
        special = (name for name in globals() if name.startswith("__"))
        return sorted({*special, *_HOMES, *_SUBPACKAGES})


__version__ = "0.1.0"

__all__ = (
    "AclBinding",
    "AclEntry",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResourceType",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncJob",
    "AsyncJobBatch",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncSimpleConsumer",
    "ConfigChange",
    "ConfigOperation",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "ElectionType",
    "GroupOffset",
    "Interceptor",
    "Job",
    "JobBatch",
    "NewRecord",
    "NewTopic",
    "OutgoingRecord",
    "PatternType",
    "PreparedTransaction",
    "Principal",
    "Producer",
    "Queue",
    "QuotaEntity",
    "Record",
    "RecordMetadata",
    "RecordRange",
    "ResourcePattern",
    "ResourceType",
    "SimpleConsumer",
    "TopicPartition",
    "read_batches",
    "read_table",
    "transform",
)
