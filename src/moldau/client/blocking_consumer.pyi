"""The consumers for threads, derived from those for asyncio. Typed in the stub beside it.

What threads do otherwise, and how records reach them, is in `blocking_streams`.

Written by `make stubs`.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from moldau.client.blocking_face import BlockingFace
from moldau.client.blocking_streams import ConsumerFace
from moldau.client.consumer import Some
from moldau.client.offset_values import ConsumerGroupMetadata, GroupOffset
from moldau.client.rules.assignors import Assignor
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.client.rules.deserializing import GivenDeserializer
from moldau.client.rules.subscription import Pattern
from moldau.client.simple_consumer import FetchedRecords
from moldau.client.user_calls import RebalanceListener
from moldau.errors import KafkaError
from moldau.model import TopicPartition

class Consumer(ConsumerFace):
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

    def __init__(
        self,
        bootstrap: str,
        *,
        group: str | None = None,
        topics: str | Collection[str] | None = None,
        pattern: Pattern | None = None,
        deny: Pattern | None = None,
        commit: str | None = None,
        assignors: Sequence[str | Assignor] | None = None,
        key_deserializer: GivenDeserializer | None = None,
        value_deserializer: GivenDeserializer | None = None,
        on_assigned: RebalanceListener | None = None,
        on_revoked: RebalanceListener | None = None,
        on_lost: RebalanceListener | None = None,
        **options: object,
    ) -> None: ...
    def subscribe(
        self,
        topics: str | Collection[str] | None = None,
        *,
        pattern: Pattern | None = None,
        deny: Pattern | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches `pattern` and not `deny`."""

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, whatever others of the group read."""

    def partitions_for(self, topic: str) -> TopicMetadata:
        """The topic and its partitions; raises UnknownTopicError."""

    def pause(self, partitions: Some = None) -> None:
        """Give nothing of these partitions until `resume`; they stay assigned."""

    def resume(self, partitions: Some = None) -> None:
        """Give records of these partitions again."""

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions of which nothing is given now."""

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at this offset."""

    def seek_to_beginning(self, partitions: Some = None) -> None:
        """Read on at the first record that is still there."""

    def seek_to_end(self, partitions: Some = None) -> None:
        """Read on at the end: what comes from now on."""

    def seek_to_time(self, time: int | datetime, partitions: Some = None) -> None:
        """Read on at the first record that is not older (milliseconds since 1970, or a datetime);
        at the end where there is none.
        """

    def position(self, partition: TopicPartition) -> int:
        """The offset of the record that is given next, looked up if it has to be."""

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end, as the last fetch knew it."""

    def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The offsets of the first records that are still there."""

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets behind the last records (that are committed, with read_committed)."""

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """As whom this consumer commits now: for `send_offsets` of a producer's transaction.

        Raises CommitFailedError when the group has gone on without it: in a transaction's block
        that aborts it, and the records are others' now.
        """

    def committed(self, partitions: Some = None) -> Mapping[TopicPartition, GroupOffset | None]:
        """What the group has committed; None where it has nothing."""

class SimpleConsumer(BlockingFace):
    """Fetches from one broker, the offset in every call. Safe from any thread; `with` closes it."""

    def __init__(self, broker: str, **options: object) -> None: ...
    def fetch(
        self, topic: str, partition: int, offset: int, *, max_bytes: int | None = None
    ) -> FetchedRecords:
        """The records from this offset on, at least one batch if there is any.

        Waits up to `fetch.max.wait.ms` for `fetch.min.bytes`. Raises what the broker says:
        NotLeaderError, OffsetOutOfRangeError, …
        """

    def fetch_many(
        self, offsets: Mapping[TopicPartition, int], *, max_bytes: int | None = None
    ) -> Mapping[TopicPartition, FetchedRecords | KafkaError]:
        """As `fetch`, of several partitions in one request; `max_bytes` is for each of them."""

    def find_offset(self, topic: str, partition: int, time: int | datetime | str) -> int | None:
        """By time (milliseconds since 1970, or a datetime): the first record that is not older,
        None if there is none. Or `"earliest"` or `"latest"`, which is the end.
        """
