"""The producer for threads, derived from the one for asyncio. Typed in the stub beside it.

What threads do otherwise, and how records come in, is in `producer_face`.

Written by `make stubs`.
"""

from collections.abc import Sequence

from moldau.client.consumer_setup import GivenOffsets
from moldau.client.intake import CustomPartitioner
from moldau.client.offset_values import ConsumerGroupMetadata
from moldau.client.producer_face import ProducerFace
from moldau.client.producer_values import Interceptor
from moldau.client.record_preparer import GivenSerializer
from moldau.client.transaction_values import PreparedTransaction

class Producer(ProducerFace):
    """Sends records to a cluster. Safe from any thread.

        with moldau.Producer("127.0.0.1:9092") as producer:
            producer.send("clicks", b"value", key=b"key")

    Options are Kafka's, with underscores for dots: `linger_ms=20`, `acks="all"`,
    `compression_type="zstd"`. A serializer turns keys or values into bytes. The partitioner is
    "sticky", "round_robin", or a function of topic, key, value and the number of partitions.
    `with` sends everything before it ends; so does `close`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        key_serializer: GivenSerializer | None = None,
        value_serializer: GivenSerializer | None = None,
        partitioner: str | CustomPartitioner = "sticky",
        interceptors: Sequence[Interceptor] = (),
        **options: object,
    ) -> None: ...
    def begin_transaction(self) -> None:
        """Open a transaction; see `transaction`, which also ends it.

        The first one asks for the producer id: from then on whoever had the transactional id
        before can do nothing any more, and what it left open is aborted.
        """

    def commit_transaction(self) -> None:
        """Send everything, and have all of the transaction count, or raise why it does not."""

    def abort_transaction(self) -> None:
        """Have nothing of the transaction count; what was not sent yet is not sent."""

    def prepare_transaction(self) -> PreparedTransaction | None:
        """Send everything, and leave the decision to somebody else (KIP-939).

        Needs `transaction_two_phase_commit_enable=True`. What it gives is to be stored with the
        decision; any process commits or aborts the transaction with it
        (`Admin.complete_transactions`), also when this producer is closed or dead. None when
        nothing was sent: then there is nothing to complete. This producer can commit or abort what
        it has prepared, and do nothing else any more until it has.
        """

    def send_offsets(self, offsets: GivenOffsets, group: str | ConsumerGroupMetadata) -> None:
        """Have a group's offsets committed with the transaction: behind these records, or these.

        `group` is the `group_metadata` of the consumer that has read the records, so that one
        that has lost its place in the group cannot commit any more.
        """

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; it is made if that is allowed and it is missing."""

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until everything sent so far is in the log or has failed.

        Raises TimeoutError; without a time it waits no longer than `delivery.timeout.ms`.
        """
