"""The blocking faces of the clients, derived from those for asyncio. Typed in the stub beside it.

What threads do otherwise is beside the asynchronous classes: `ConsumerFace`, `ProducerFace`.

Written by `make stubs`.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from moldau.client.admin import DEFAULT_TIMEOUT_MS
from moldau.client.admin.access import (
    EVERYTHING,
    SCRAM_MECHANISMS,
    USUAL_PERIOD,
    DelegationTokenDescription,
    ScramCredentialInfo,
    WantedName,
)
from moldau.client.admin.configs import Described
from moldau.client.admin.values import (
    ActiveProducer,
    ClusterDescription,
    ConfigChange,
    ConfigResource,
    CreatedTopic,
    ElectionType,
    EligibleLeaders,
    GroupDescription,
    GroupListing,
    HangingTransaction,
    LogDirDescription,
    NewTopic,
    PartitionLag,
    Reassignment,
    ResourceType,
    ShareGroupOffset,
    SpokenVersions,
    TransactionDescription,
    TransactionListing,
)
from moldau.client.blocking_face import BlockingFace
from moldau.client.cluster import ClientSettings
from moldau.client.consumer.consumer import ConsumerFace, Some
from moldau.client.consumer.delegate import GivenOffsets, RebalanceListener
from moldau.client.consumer.rules.assignors import Assignor
from moldau.client.consumer.rules.fetch_buffer import GivenDeserializer
from moldau.client.consumer.rules.subscription_state import Pattern
from moldau.client.consumer.simple_consumer import FetchedRecords
from moldau.client.producer.produce_result import Interceptor
from moldau.client.producer.producer import ProducerFace
from moldau.client.producer.record_accumulator import CustomPartitioner
from moldau.client.producer.rules.transaction_manager import PreparedTransaction
from moldau.client.producer.serializers import GivenSerializer
from moldau.client.rules.cluster_metadata import Broker, TopicMetadata
from moldau.client.rules.offsets import ConsumerGroupMetadata, GroupOffset, ListedOffset
from moldau.errors import ClientError, KafkaError
from moldau.model import AclBinding, AclFilter, AclOperation, Principal, TopicPartition
from moldau.quotas import QuotaEntity
from moldau.security.rules.scram import USUAL_ITERATIONS

class Admin(BlockingFace):
    """Administers one cluster. Safe from any thread; `with` closes it, and so does `close`.

    Options are Kafka's, with underscores for dots: `default_api_timeout_ms=5000`.
    """

    def __init__(
        self, bootstrap: str, settings: ClientSettings | None = None, **options: object
    ) -> None: ...
    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, its controller and its brokers."""

    def describe_versions(
        self, broker_ids: Collection[int] | None = None
    ) -> Mapping[int, SpokenVersions | ClientError]:
        """What these brokers speak, or all of them; why one cannot be asked."""

    def measure_lag(
        self, positions: Mapping[TopicPartition, int | None]
    ) -> Mapping[TopicPartition, PartitionLag | KafkaError]:
        """How far positions, of a group or of anybody, are behind the ends of their partitions."""

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[str, CreatedTopic | KafkaError]:
        """Make topics; with `validate_only` say what would happen."""

    def delete_topics(
        self, names: Collection[str], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Mapping[str, KafkaError | None]:
        """Delete topics with all their records."""

    def list_topics(self) -> Mapping[str, TopicMetadata]:
        """Every topic by name, internal ones included."""

    def describe_topics(self, names: Collection[str]) -> Mapping[str, TopicMetadata | KafkaError]:
        """Partitions, leaders and replicas of these topics."""

    def describe_eligible_leaders(
        self, names: Collection[str]
    ) -> Mapping[TopicPartition, EligibleLeaders]:
        """Who may lead the partitions of these topics although it is not in sync (KIP-966)."""

    def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[str, KafkaError | None]:
        """Grow topics to these numbers of partitions."""

    def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Collection[str] | None = None,
        with_documentation: bool = False,
    ) -> Described:
        """The settings of topics, brokers and groups, or of those the named ones."""

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> Mapping[ConfigResource, KafkaError | None]:
        """Change single settings; what is not named stays."""

    def list_config_resources(
        self, types: Collection[ResourceType] = ()
    ) -> tuple[ConfigResource, ...]:
        """What has settings, of these types or of all: topics, brokers, and the groups for which
        something is set.
        """

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
        """Offsets by `OffsetSpec`, or by a time in milliseconds: the first record at or after."""

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Delete what precedes an offset (-1: everything); answers with the new log start."""

    def describe_log_dirs(
        self, broker_ids: Collection[int] | None = None
    ) -> Mapping[int, tuple[LogDirDescription | KafkaError, ...]]:
        """Log directories and their replicas, of these brokers or of all."""

    def alter_replica_log_dirs(
        self, targets: Mapping[tuple[int, TopicPartition], str]
    ) -> Mapping[tuple[int, TopicPartition], KafkaError | None]:
        """Move replicas, each named by its broker and partition, to log directories there.

        Answers when the moves have begun: until one is done, `describe_log_dirs` shows a future
        replica. A replica that is not there yet is answered with ReplicaNotAvailableError, and is
        made in that directory later.
        """

    def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Elect leaders for these partitions, or for all that need it.

        Preferred: the first replica leads again, if it is in sync. Unclean: where nobody leads,
        any living replica does, and what it lacks is lost.
        """

    def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Move partitions to these brokers, the preferred leader first; None cancels a move."""

    def list_partition_reassignments(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, Reassignment]:
        """Those of these partitions, or of all, that are being moved."""

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> Mapping[str, GroupListing]:
        """Groups by name: all of them, or those in one of the states and of one of the types."""

    def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription | KafkaError]:
        """State, coordinator and members of these groups, and what each member reads."""

    def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]:
        """Forget groups that have no members, and how far they have read."""

    def find_coordinator(self, group_id: str) -> Broker:
        """The broker that looks after a group, whether or not there is such a group."""

    def list_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, GroupOffset | KafkaError]:
        """How far a group has read these partitions, or all; those without a commit are missing."""

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | GroupOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Set where a group goes on reading. Refused while it has members."""

    def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Forget how far a group has read. Refused for topics that its members read."""

    def list_share_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, ShareGroupOffset | KafkaError]:
        """How far a share group has come in these partitions, or in all that it has taken from."""

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Begin partitions anew, at these offsets. Refused while the group has members."""

    def delete_share_group_offsets(
        self, group_id: str, topics: Collection[str]
    ) -> Mapping[str, KafkaError | None]:
        """Forget what a share group has done in topics. Refused while the group has members."""

    def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        min_duration_ms: int | None = None,
        pattern: str | None = None,
    ) -> Mapping[str, TransactionListing]:
        """Transactional ids of all coordinators: in these states, of these producers, open for at
        least so long, or with ids of this pattern.
        """

    def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> Mapping[str, TransactionDescription | KafkaError]:
        """What the coordinators know of transactional ids."""

    def complete_transactions(
        self, prepared: Collection[PreparedTransaction], *, commit: bool
    ) -> Mapping[str, KafkaError | None]:
        """Commit or abort what producers have prepared (KIP-939); by transactional id, None where
        it is done.

        The same decision again changes nothing, as long as the producer has not gone on; the other
        one is an InvalidTxnStateError. ProducerFencedError: the transaction is over, and another
        has begun with this id.
        """

    def describe_producers(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[ActiveProducer, ...] | KafkaError]:
        """The producers that partitions remember, and what they have open there."""

    def find_hanging_transactions(
        self, partitions: Collection[TopicPartition], *, older_than_ms: int, now_ms: int
    ) -> Sequence[HangingTransaction]:
        """What is open in partitions since before `now_ms - older_than_ms`, and known to no
        coordinator. `older_than_ms` is to be longer than any transaction may take.
        """

    def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """End what is open of a producer in one partition, in the place of its coordinator."""

    def describe_acls(self, wanted: AclFilter = EVERYTHING) -> tuple[AclBinding, ...]:
        """The bindings that a filter means; all of them without one."""

    def find_cluster_operations(self) -> frozenset[AclOperation]:
        """What this client may do with the cluster as a whole, users and quotas included."""

    def create_acls(self, bindings: Sequence[AclBinding]) -> Mapping[AclBinding, KafkaError | None]:
        """Add bindings; one that is there already stays."""

    def delete_acls(
        self, filters: Sequence[AclFilter]
    ) -> Mapping[AclFilter, tuple[AclBinding, ...] | KafkaError]:
        """Take out the bindings that filters mean; each filter with those that it found."""

    def describe_client_quotas(
        self,
        *,
        user: WantedName | None = None,
        client_id: WantedName | None = None,
        ip: WantedName | None = None,
        strict: bool = False,
    ) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """The quotas of all entities with these names; `strict` leaves out those that have others
        besides. Without a name all there are.
        """

    def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> Mapping[QuotaEntity, KafkaError | None]:
        """Set quotas of entities, and remove those that are set to None; others stay."""

    def create_delegation_token(
        self,
        *,
        owner: Principal | None = None,
        renewers: Collection[Principal] = (),
        max_lifetime_ms: int = USUAL_PERIOD,
    ) -> DelegationTokenDescription:
        """For oneself, or for another user, which needs CreateTokens of that user."""

    def describe_delegation_tokens(
        self, owners: Collection[Principal] | None = None
    ) -> tuple[DelegationTokenDescription, ...]:
        """All tokens that one may see, or those of these owners."""

    def renew_delegation_token(self, hmac: bytes, period_ms: int = USUAL_PERIOD) -> int:
        """When it expires now, in milliseconds since 1970."""

    def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """When it expires now, in milliseconds since 1970; at once without a period."""

    def describe_scram_credentials(
        self, users: Collection[str] | None = None
    ) -> Mapping[str, tuple[ScramCredentialInfo, ...]]:
        """Of these users, or of all; raises for one who has none."""

    def set_scram_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Collection[str] = SCRAM_MECHANISMS,
        iterations: int = USUAL_ITERATIONS,
    ) -> str | None:
        """Give a user a password, or another one. It does not leave this process: brokers get what
        follows from it. Returns why it has no effect yet, if a broker says so.
        """

    def delete_scram_credentials(self, user: str) -> None:
        """Take a user's password away. Who is connected stays so until the connection ends."""

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
