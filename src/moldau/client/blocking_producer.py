"""The producer for threads, derived from the one for asyncio. Typed in the stub beside it.

What threads do otherwise, and how records come in, is in `producer_face`.
"""

from __future__ import annotations

from moldau.client.producer import AsyncProducer
from moldau.client.producer_face import ProducerFace


class Producer(ProducerFace, of=AsyncProducer):
    """Sends records to a cluster. Safe from any thread.

        with moldau.Producer("127.0.0.1:9092") as producer:
            producer.send("clicks", b"value", key=b"key")

    Options are Kafka's, with underscores for dots: `linger_ms=20`, `acks="all"`,
    `compression_type="zstd"`. A serializer turns keys or values into bytes. The partitioner is
    "sticky", "round_robin", or a function of topic, key, value and the number of partitions.
    `with` sends everything before it ends; so does `close`.
    """
