"""Moldau: Apache Kafka's commit log and wire protocol, in Python."""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it, without the import: Ctrl-C in it showed a traceback
if TYPE_CHECKING:
    from moldau import errors as errors
    from moldau import schemas as schemas
    from moldau import spark as spark
    from moldau import testing as testing
    from moldau.client.admin import AsyncAdmin
    from moldau.client.admin_values import ConfigResource, ElectionType, NewTopic, ResourceType
    from moldau.client.blocking import Admin
    from moldau.client.blocking_consumer import Consumer, SimpleConsumer
    from moldau.client.blocking_producer import Producer
    from moldau.client.blocking_queue import Queue
    from moldau.client.consumer import AsyncConsumer
    from moldau.client.offset_values import ConsumerGroupMetadata, GroupOffset
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
    from moldau.config.operations import ConfigChange, ConfigOperation
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
    from moldau.quotas.rules.entities import QuotaEntity
    from moldau.records.record import NewRecord, Record
else:
    from moldau.lazy_names import load_on_demand

    __getattr__, __dir__ = load_on_demand(
        __name__,
        {
            "client.admin": "AsyncAdmin",
            "client.admin_values": "ConfigResource ElectionType NewTopic ResourceType",
            "client.blocking": "Admin",
            "client.blocking_consumer": "Consumer SimpleConsumer",
            "client.blocking_producer": "Producer",
            "client.blocking_queue": "Queue",
            "client.consumer": "AsyncConsumer",
            "client.offset_values": "ConsumerGroupMetadata GroupOffset",
            "client.producer": "AsyncProducer",
            "client.producer_values": "Interceptor OutgoingRecord RecordMetadata RecordRange",
            "client.queue": "AsyncQueue",
            "client.queue_jobs": "AsyncJob AsyncJobBatch Job JobBatch",
            "client.read_table": "read_batches read_table",
            "client.rules.consumer_record": "ConsumerRecord",
            "client.simple_consumer": "AsyncSimpleConsumer",
            "client.transaction_values": "PreparedTransaction",
            "client.transform": "transform",
            "config.operations": "ConfigChange ConfigOperation",
            "model": (
                "TopicPartition AclBinding AclEntry AclFilter AclOperation AclPermission "
                "AclResourceType PatternType ResourcePattern Principal"
            ),
            "quotas.rules.entities": "QuotaEntity",
            "records.record": "NewRecord Record",
        },
        # `import moldau` is enough for `moldau.testing.broker()` and `moldau.errors.KafkaError`.
        rooms="errors schemas spark testing",
    )

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
