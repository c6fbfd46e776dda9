"""The options of clients, under Kafka's names.

In Python an option is a keyword argument with underscores for dots: `linger_ms=20` is `linger.ms`.
Numbers, words and booleans are given as such; texts are read as they would be from a properties
file. What is a function (serializers, a partitioner) is no option but an argument of its client.
Rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NoReturn, Self

from moldau.config.declarations.security import ClientSecurityOptions
from moldau.config.declarations.topic_defaults import GZIP_LEVEL
from moldau.config.option import (
    BOOLEAN,
    INT,
    LIST,
    LONG,
    MAX_INT,
    MINUTE_MS,
    OFFSET_RESET,
    SECOND_MS,
    STRING,
    Importance,
    Kind,
    OffsetReset,
    OptionType,
    ResetTo,
    at_least,
    between,
    one_of,
    option,
    optional,
    suggest,
    to_text,
)
from moldau.errors import ConfigurationError

ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1
MAX_IDEMPOTENT_IN_FLIGHT = 5
"""Brokers remember this many batches of a producer; with more under way, order would be luck."""

_ACKS_WORDS = {"all": ACKS_ALL, "-1": ACKS_ALL, "0": ACKS_NONE, "1": ACKS_LEADER}


def _parse_acks(text: str) -> int:
    found = _ACKS_WORDS.get(text.strip())
    if found is None:
        raise ValueError("is not one of all, -1, 0, 1")
    return found


_ACKS = Kind(OptionType.STRING, _parse_acks)


class ClientOptions(ClientSecurityOptions):
    """What every client has."""

    CALLED: ClassVar[str] = "a client"
    PARAMETERS: ClassVar[tuple[str, ...]] = ()
    """What its constructor takes beside options: a misspelt name may have meant one of them."""

    given: frozenset[str]
    """The names that somebody set, as opposed to defaults."""

    client_id = option(
        "client.id",
        STRING,
        "moldau",
        "The name by which brokers know the client: in their logs, metrics and quotas.",
    )
    request_timeout_ms = option(
        "request.timeout.ms",
        INT,
        30 * SECOND_MS,
        "How long a broker may take to answer one request. After that the connection is given up "
        "and the request is tried again, as long as the operation as a whole has time left.",
        at_least(1),
    )
    retry_backoff_ms = option(
        "retry.backoff.ms",
        LONG,
        100,
        "How long to wait before the first repetition. The wait doubles with each further one.",
        at_least(0),
    )
    retry_backoff_max_ms = option(
        "retry.backoff.max.ms",
        LONG,
        SECOND_MS,
        "The longest wait between two attempts.",
        at_least(0),
    )
    metadata_max_age_ms = option(
        "metadata.max.age.ms",
        LONG,
        5 * MINUTE_MS,
        "How old the knowledge of partitions and leaders may get before it is asked for again, "
        "though nothing failed: this is how new partitions are found.",
        at_least(1),
        importance=Importance.LOW,
    )
    socket_connection_setup_timeout_ms = option(
        "socket.connection.setup.timeout.ms",
        LONG,
        10 * SECOND_MS,
        "How long connecting to a broker may take.",
        at_least(1),
    )

    @classmethod
    def read(cls, keywords: Mapping[str, object]) -> Self:
        """Take keyword arguments; None is as good as not given. Raises ConfigurationError."""
        by_attribute = {one.attribute: one for one in cls.declarations().values()}
        values: dict[str, object] = {name: one.default for name, one in by_attribute.items()}
        given = {key.replace(".", "_"): v for key, v in keywords.items() if v is not None}
        for name, value in given.items():
            declared = by_attribute.get(name)
            if declared is None:
                hint = suggest(name, (*by_attribute, *cls.PARAMETERS)) or (
                    "; options have Kafka's names, with underscores for dots"
                )
                raise ConfigurationError(f"{name} is not an option of {cls.CALLED}{hint}")
            text = to_text(value)
            try:
                values[name] = declared.parse(text)
            except ValueError as fault:
                raise ConfigurationError(declared.message(text, fault)) from None
        return cls({**values, "given": frozenset(given)})


class AdminOptions(ClientOptions):
    """The options of `moldau.Admin` and `moldau.AsyncAdmin`."""

    CALLED = "an administrator"

    default_api_timeout_ms = option(
        "default.api.timeout.ms",
        INT,
        MINUTE_MS,
        "How long an operation may take, with all its attempts. A single request takes no longer "
        "either, whatever request.timeout.ms says.",
        at_least(1),
    )

    @classmethod
    def read(cls, keywords: Mapping[str, object]) -> Self:
        options = super().read(keywords)
        shorter = min(options.request_timeout_ms, options.default_api_timeout_ms)
        return options.replace(request_timeout_ms=shorter)


class ProducerOptions(ClientOptions):
    """The options of `moldau.Producer` and `moldau.AsyncProducer`."""

    CALLED = "a producer"
    PARAMETERS = ("key_serializer", "value_serializer", "partitioner", "interceptors")

    acks = option(
        "acks",
        _ACKS,
        ACKS_ALL,
        "Who must have a record before it counts as sent: all in-sync replicas (all), the leader "
        "(1), or nobody (0: no answer is waited for, and no offset is known). Idempotence needs "
        "all.",
        importance=Importance.HIGH,
    )
    linger_ms = option(
        "linger.ms",
        LONG,
        5,
        "How long a record may wait for others to share its batch. A full batch does not wait, "
        "and neither does one that somebody waits for in result() or flush().",
        at_least(0),
        importance=Importance.HIGH,
    )
    batch_size = option(
        "batch.size",
        INT,
        128 * 1024,
        "How many bytes of records, before compression, make a batch full. Kafka's default is "
        "16 KiB, because its producer sets the memory aside beforehand; Moldau's does not, and a "
        "larger batch costs less for each record.",
        at_least(0),
        importance=Importance.HIGH,
    )
    compression_type = option(
        "compression.type",
        STRING,
        "none",
        "The codec of the batches.",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        importance=Importance.HIGH,
    )
    compression_gzip_level = option(
        "compression.gzip.level", INT, -1, "How strongly gzip compresses; -1 is 6.", GZIP_LEVEL
    )
    compression_lz4_level = option(
        "compression.lz4.level", INT, 9, "How strongly lz4 compresses.", between(1, 17)
    )
    compression_zstd_level = option(
        "compression.zstd.level", INT, 3, "How strongly zstd compresses.", between(-131072, 22)
    )
    buffer_memory = option(
        "buffer.memory",
        LONG,
        32 * 1024 * 1024,
        "How many bytes of records may wait to be sent or answered. When they are reached, "
        "block.on.buffer.full decides.",
        at_least(0),
        importance=Importance.HIGH,
    )
    block_on_buffer_full = option(
        "block.on.buffer.full",
        BOOLEAN,
        True,
        "Whether send waits, up to max.block.ms, while buffer.memory is used up. If not, it raises "
        "BufferFullError at once. Kafka once had this option; today it always waits.",
    )
    max_block_ms = option(
        "max.block.ms",
        LONG,
        MINUTE_MS,
        "How long send may wait: for the partitions of a topic to be known, and for memory. A "
        "producer without a broker fails after this time, at its first record.",
        at_least(0),
    )
    max_request_size = option(
        "max.request.size",
        INT,
        1024 * 1024,
        "How many bytes a record, and the batches of one request together, may have. Brokers have "
        "a limit of their own, max.message.bytes.",
        at_least(1),
    )
    delivery_timeout_ms = option(
        "delivery.timeout.ms",
        INT,
        2 * MINUTE_MS,
        "How long it may take from send to the broker's confirmation, all attempts included. "
        "After that a record counts as not sent. At least linger.ms plus request.timeout.ms.",
        at_least(0),
    )
    retries = option(
        "retries",
        INT,
        MAX_INT,
        "How often a batch is sent again after a failure that may pass; delivery.timeout.ms is the "
        "better limit. With 0 and no idempotence a record is delivered at most once.",
        at_least(0),
    )
    max_in_flight_requests_per_connection = option(
        "max.in.flight.requests.per.connection",
        INT,
        MAX_IDEMPOTENT_IN_FLIGHT,
        "How many requests may be unanswered at once for each broker; at most 5 with idempotence. "
        "Order holds with any number: without idempotence one batch of a partition is under way "
        "at a time, unless retries or acks is 0.",
        at_least(1),
    )
    enable_idempotence = option(
        "enable.idempotence",
        BOOLEAN,
        True,
        "Whether brokers recognise a batch that is sent again, so that nothing is written twice "
        "and order holds. Needs acks=all, retries and at most 5 requests in flight; it is off "
        "when one of these is set otherwise, and refused when it was asked for as well.",
        importance=Importance.HIGH,
    )
    partitioner_ignore_keys = option(
        "partitioner.ignore.keys",
        BOOLEAN,
        False,
        "Whether records with a key are spread like records without one.",
    )
    transactional_id = optional(
        "transactional.id",
        STRING,
        "The name of a producer that sends in transactions. Whoever begins with the same name next "
        "takes over: what this one left open is aborted, and it can do nothing any more. Needs "
        "idempotence.",
    )
    transaction_timeout_ms = option(
        "transaction.timeout.ms",
        INT,
        MINUTE_MS,
        "How long a transaction may be open before the coordinator aborts it. Brokers have a "
        "limit, transaction.max.timeout.ms.",
        at_least(1),
    )
    transaction_two_phase_commit_enable = option(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        "Whether another process decides over the transactions of this producer (KIP-939): they "
        "never time out, and can be left prepared. Needs transactional.id, and brokers with the "
        "option of the same name.",
    )

    @classmethod
    def read(cls, keywords: Mapping[str, object]) -> Self:
        """Take keyword arguments; contradictions between options are refused, too."""
        options = super().read(keywords)
        derived = options._with_derived_times()._with_derived_idempotence()
        if derived.transactional_id is not None and not derived.enable_idempotence:
            conflict = options._find_idempotence_conflict() or "needs enable.idempotence"
            _refuse(f"transactional.id {conflict}")
        if derived.transaction_two_phase_commit_enable and derived.transactional_id is None:
            _refuse("transaction.two.phase.commit.enable needs a transactional.id")
        return derived

    def _with_derived_times(self) -> Self:
        """Delivery lasts at least as long as lingering and one request; defaults give way."""
        shortest = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms >= shortest:
            return self
        if "delivery_timeout_ms" not in self.given:
            return self.replace(delivery_timeout_ms=shortest)
        left = self.delivery_timeout_ms - self.linger_ms
        if "request_timeout_ms" in self.given or left <= 0:
            _refuse(
                f"delivery.timeout.ms={self.delivery_timeout_ms} is less than linger.ms plus "
                f"request.timeout.ms, which is {shortest}"
            )
        return self.replace(request_timeout_ms=left)

    @property
    def compression_level(self) -> int | None:
        """The level of the codec that is used, if it has levels."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    def _with_derived_idempotence(self) -> Self:
        if not self.enable_idempotence:
            return self
        conflict = self._find_idempotence_conflict()
        if conflict is None:
            return self
        if "enable_idempotence" in self.given:
            _refuse(f"enable.idempotence=true {conflict}")
        return self.replace(enable_idempotence=False)

    def _find_idempotence_conflict(self) -> str | None:
        if self.acks != ACKS_ALL:
            return f"needs acks=all, not {self.acks}"
        if not self.retries:
            return "needs retries"
        if self.max_in_flight_requests_per_connection > MAX_IDEMPOTENT_IN_FLIGHT:
            return (
                "allows at most 5 for max.in.flight.requests.per.connection, not "
                f"{self.max_in_flight_requests_per_connection}"
            )
        return None


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(message)


MIB = 1024 * 1024


class ConsumerOptions(ClientOptions):
    """The options of `moldau.Consumer` and `moldau.AsyncConsumer`."""

    CALLED = "a consumer"
    PARAMETERS = (
        "group",
        "topics",
        "pattern",
        "deny",
        "commit",
        "assignors",
        "key_deserializer",
        "value_deserializer",
        "on_assigned",
        "on_revoked",
        "on_lost",
    )

    group_id = optional(
        "group.id",
        STRING,
        "The group to belong to; `group=` says the same. Without a group nothing is committed, and "
        "a subscription means all partitions of its topics.",
        importance=Importance.HIGH,
    )
    group_instance_id = optional(
        "group.instance.id",
        STRING,
        "A name for this member that stays the same when it is started again (static membership). "
        "It keeps its partitions if it is back within session.timeout.ms, and does not leave the "
        "group when it is closed.",
    )
    group_protocol = option(
        "group.protocol",
        STRING,
        "classic",
        "How the group agrees on who reads what: classic, which every broker knows, or consumer "
        "(KIP-848): the broker assigns partitions, and members move one by one while the others "
        "read on. Members of both can be in one group.",
        one_of("classic", "consumer"),
        importance=Importance.HIGH,
    )
    group_remote_assignor = optional(
        "group.remote.assignor",
        STRING,
        "With group.protocol=consumer: which of the broker's assignors to use, uniform or range. "
        "Without it the broker chooses.",
    )
    partition_assignment_strategy = option(
        "partition.assignment.strategy",
        LIST,
        ("range", "cooperative-sticky"),
        "How partitions are spread over the group, in order of preference: range, roundrobin, "
        "sticky, cooperative-sticky, or Java's class names. The group uses one that all members "
        "have. Members keep reading while the group rebalances if the list has cooperative-sticky "
        "and nothing else.",
    )
    session_timeout_ms = option(
        "session.timeout.ms",
        INT,
        45 * SECOND_MS,
        "How long the coordinator may hear nothing of a member before it counts as dead. "
        "Heartbeats are sent in the background, also while records are worked on.",
        at_least(1),
        importance=Importance.HIGH,
    )
    heartbeat_interval_ms = option(
        "heartbeat.interval.ms",
        INT,
        3 * SECOND_MS,
        "How often to tell the coordinator that the member lives, and so how fast it hears of a "
        "rebalance. Less than session.timeout.ms, usually a third of it or less.",
        at_least(1),
        importance=Importance.HIGH,
    )
    max_poll_interval_ms = option(
        "max.poll.interval.ms",
        INT,
        5 * MINUTE_MS,
        "How long the program may work on records between two polls, or two steps of an iteration. "
        "After that the member leaves the group, and others get its partitions. Also how long a "
        "rebalance waits for the member.",
        at_least(1),
    )
    max_poll_records = option(
        "max.poll.records",
        INT,
        500,
        "How many records poll gives at most, unless told otherwise. Not how many are fetched.",
        at_least(1),
    )
    enable_auto_commit = option(
        "enable.auto.commit",
        BOOLEAN,
        True,
        'Whether offsets are committed by themselves; `commit="manual"` says the same as false.',
    )
    auto_commit_interval_ms = option(
        "auto.commit.interval.ms",
        INT,
        5 * SECOND_MS,
        "How often offsets are committed by themselves; also at every rebalance and at the end.",
        at_least(0),
        importance=Importance.LOW,
    )
    auto_offset_reset = option(
        "auto.offset.reset",
        OFFSET_RESET,
        OffsetReset(ResetTo.LATEST),
        "Where to begin when the group has no offset, or the record there is gone: earliest, "
        "latest, by_duration:PT1H (as far back as that, ISO 8601), or error, which raises.",
        importance=Importance.HIGH,
    )
    isolation_level = option(
        "isolation.level",
        STRING,
        "read_uncommitted",
        "Whether records of transactions are given before these are committed. With read_committed "
        "records of aborted transactions are never given.",
        one_of("read_uncommitted", "read_committed"),
    )
    fetch_min_bytes = option(
        "fetch.min.bytes",
        INT,
        1,
        "How many bytes a broker collects before it answers, up to fetch.max.wait.ms.",
        at_least(0),
    )
    fetch_max_wait_ms = option(
        "fetch.max.wait.ms",
        INT,
        500,
        "How long a broker waits for fetch.min.bytes.",
        at_least(0),
        importance=Importance.LOW,
    )
    fetch_max_bytes = option(
        "fetch.max.bytes",
        INT,
        50 * MIB,
        "How many bytes one answer of a broker has at most; one batch is given in any case.",
        at_least(0),
    )
    max_partition_fetch_bytes = option(
        "max.partition.fetch.bytes",
        INT,
        1 * MIB,
        "How many bytes of one partition an answer has at most; one batch is given in any case.",
        at_least(0),
        importance=Importance.HIGH,
    )
    check_crcs = option(
        "check.crcs",
        BOOLEAN,
        True,
        "Whether the checksum of each batch is checked. It costs next to nothing.",
        importance=Importance.LOW,
    )
    client_rack = option(
        "client.rack",
        STRING,
        "",
        "The rack of this consumer. Brokers that know where their replicas are let it read from a "
        "near one.",
        importance=Importance.LOW,
    )
    allow_auto_create_topics = option(
        "allow.auto.create.topics",
        BOOLEAN,
        True,
        "Whether subscribing to a topic that does not exist may create it, if the broker agrees.",
    )
    exclude_internal_topics = option(
        "exclude.internal.topics",
        BOOLEAN,
        True,
        "Whether patterns leave topics out that belong to the cluster, as __consumer_offsets does.",
    )
    default_api_timeout_ms = option(
        "default.api.timeout.ms",
        INT,
        MINUTE_MS,
        "How long commit, committed, position, seek_to_time and the like may take, with all their "
        "attempts.",
        at_least(0),
    )

    @classmethod
    def read(cls, keywords: Mapping[str, object]) -> Self:
        """Take keyword arguments; contradictions between options are refused, too."""
        options = super().read(keywords)
        options._refuse_other_protocols()
        if options.heartbeat_interval_ms >= options.session_timeout_ms:
            _refuse(
                f"heartbeat.interval.ms={options.heartbeat_interval_ms} is not less than "
                f"session.timeout.ms={options.session_timeout_ms}"
            )
        if not options.partition_assignment_strategy:
            _refuse("partition.assignment.strategy names nothing")
        return options

    def _refuse_other_protocols(self) -> None:
        """What means nothing with a protocol is refused, as by Java's consumer."""
        if self.group_protocol == "classic":
            if "group_remote_assignor" in self.given:
                _refuse("group.remote.assignor needs group.protocol=consumer")
            return
        for name, instead in _OF_CLASSIC.items():
            if name in self.given:
                called = name.replace("_", ".")
                _refuse(f"{called} means nothing with group.protocol=consumer: {instead}")


_OF_CLASSIC = {
    "session_timeout_ms": "the broker's group.consumer.session.timeout.ms counts",
    "heartbeat_interval_ms": "the broker's group.consumer.heartbeat.interval.ms counts",
    "partition_assignment_strategy": "the broker assigns; see group.remote.assignor",
}


class QueueOptions(ClientOptions):
    """The options of `moldau.Queue` and `moldau.AsyncQueue`. What concerns the group as a whole
    (how long records are locked, how often they are delivered, where a new group begins) is set at
    the broker, as the group's `share.*` configs."""

    CALLED = "a queue"
    PARAMETERS = (
        "group",
        "topic",
        "confirm",
        "key_deserializer",
        "value_deserializer",
        "on_unacknowledged",
    )

    max_poll_records = option(
        "max.poll.records",
        INT,
        500,
        "How many records are taken in advance at most. A client begins with few, and takes more "
        "as long as they are dealt with quickly.",
        at_least(1),
        importance=Importance.HIGH,
    )
    share_acquire_mode = option(
        "share.acquire.mode",
        STRING,
        "auto",
        "Whether a broker may give whole batches, which costs it less (batch_optimized), or not "
        "one record more than were asked for (record_limit, KIP-1206). auto: whole batches once "
        "records are dealt with so quickly that max.poll.records are taken in advance. Brokers "
        "before 4.2 give whole batches.",
        one_of("auto", "batch_optimized", "record_limit"),
    )
    fetch_min_bytes = ConsumerOptions.fetch_min_bytes
    fetch_max_wait_ms = option(
        "fetch.max.wait.ms",
        INT,
        500,
        "How long a broker waits for records. While jobs are under way it is asked to wait for a "
        "tenth of a second at most: what became of them is told with the next request.",
        at_least(0),
        importance=Importance.LOW,
    )
    fetch_max_bytes = ConsumerOptions.fetch_max_bytes
    check_crcs = ConsumerOptions.check_crcs
    client_rack = option(
        "client.rack",
        STRING,
        "",
        "The rack of this client, for assignors of the broker that look at it.",
        importance=Importance.LOW,
    )
    default_api_timeout_ms = option(
        "default.api.timeout.ms",
        INT,
        MINUTE_MS,
        "How long to wait for the broker to confirm what became of a record, where that is waited "
        "for.",
        at_least(0),
    )
