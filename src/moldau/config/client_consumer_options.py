"""The options of consumers, under Kafka's names. See `client_options` for how they are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, Self

from moldau.config.client_options import ClientOptions
from moldau.config.kinds import (
    BOOLEAN,
    INT,
    LIST,
    STRING,
    at_least,
    one_of,
)
from moldau.config.offset_reset import OFFSET_RESET, OffsetReset, ResetTo
from moldau.config.option import MINUTE_MS, SECOND_MS, Importance, option, optional
from moldau.errors import ConfigurationError

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


def _refuse(message: str) -> NoReturn:
    raise ConfigurationError(message)
