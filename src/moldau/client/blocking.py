"""The blocking faces of the clients, derived from those for asyncio. Typed in the stub beside it.

What threads do otherwise is beside the asynchronous classes: `ConsumerFace`, `ProducerFace`.
"""

from __future__ import annotations

from moldau.client.admin.client import AsyncAdmin
from moldau.client.blocking_face import BlockingFace
from moldau.client.consumer.consumer import AsyncConsumer, ConsumerFace
from moldau.client.consumer.simple_consumer import AsyncSimpleConsumer
from moldau.client.producer.producer import AsyncProducer, ProducerFace


class Admin(BlockingFace, of=AsyncAdmin):
    """Administers one cluster. Safe from any thread; `with` closes it, and so does `close`.

    Options are Kafka's, with underscores for dots: `default_api_timeout_ms=5000`.
    """


class Consumer(ConsumerFace, of=AsyncConsumer):
    """Reads topics, alone or in a group. Safe from any thread; `with` closes it.

        with Consumer("127.0.0.1:9092", group="g", topics=["clicks"]) as consumer:
            for record in consumer: ...

    `group` shares the partitions of the topics among all consumers of that name, and remembers
    how far they have read. Without it, a subscription means all partitions, and nothing is
    committed.

    `topics` are names; `pattern` is a regular expression for whole names, `deny` one for names to
    leave out. Both find topics that are made later.

    `commit` says when offsets are committed: `"after"` the program has dealt with the records
    (it asks for the next ones, or leaves the `with` block without an exception), so that each is
    seen at least once; `"before"` it gets them, so that each is seen at most once; `"manual"`,
    by `commit()` alone.

    `on_assigned`, `on_revoked` and `on_lost` are functions of a frozenset of partitions, called
    in the thread that waits for records. When `on_revoked` is called, everything was dealt with,
    and can still be committed; when `on_lost` is called (or `on_revoked`, without it), others
    have the partitions already.

    `key_deserializer` and `value_deserializer` are functions of bytes. Other keyword arguments
    are Kafka's options with underscores for dots: `auto_offset_reset="earliest"`.

    Records come one thread at a time; several threads share a consumer by `streams`.
    """


class SimpleConsumer(BlockingFace, of=AsyncSimpleConsumer):
    """Fetches from one broker, the offset in every call. Safe from any thread; `with` closes it."""


class Producer(ProducerFace, of=AsyncProducer):
    """Sends records to a cluster. Safe from any thread.

        with moldau.Producer("127.0.0.1:9092") as producer:
            producer.send("clicks", b"value", key=b"key")

    Options are Kafka's, with underscores for dots: `linger_ms=20`, `acks="all"`,
    `compression_type="zstd"`. A serializer turns keys or values into bytes. The partitioner is
    "sticky", "round_robin", or a function of topic, key, value and the number of partitions.
    `with` sends everything before it ends; so does `close`.
    """
