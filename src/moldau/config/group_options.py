"""The options of single groups, which `kafka-configs --entity-type groups` sets.

A group may be configured before it exists; what it does not set is the broker's. The broker's
`group.consumer.min.…`, `group.share.min.…`, `group.streams.min.…` and `.max.…` bound what may be
set. Rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from moldau.config.broker_options import BrokerOptions
from moldau.config.option import (
    BOOLEAN,
    INT,
    STRING,
    Kind,
    OffsetReset,
    Option,
    OptionSet,
    OptionType,
    Reload,
    ResetTo,
    at_least,
    one_of,
    option,
    parse_offset_reset,
)
from moldau.errors import InvalidConfigError

V = TypeVar("V")


def _parse_start(text: str) -> OffsetReset:
    """A share group has no member who could be told that there is no offset."""
    reset = parse_offset_reset(text)
    if reset.to is ResetTo.ERROR:
        raise ValueError("is not one of earliest, latest, by_duration:PT1H (or another time)")
    return reset


_SHARE_START = Kind(OptionType.STRING, _parse_start)


class GroupConfigOptions(OptionSet, reload=Reload.CLUSTER_WIDE):
    """What one group can have of its own. Kafka's words: `GroupConfig`."""

    consumer_session_timeout_ms = option(
        "consumer.session.timeout.ms",
        INT,
        45_000,
        "With the consumer protocol, how long a silent member of the group is kept. Bounded by "
        "group.consumer.min.session.timeout.ms and group.consumer.max.session.timeout.ms, and "
        "larger than consumer.heartbeat.interval.ms.",
        at_least(1),
        broker_default="group.consumer.session.timeout.ms",
    )
    consumer_heartbeat_interval_ms = option(
        "consumer.heartbeat.interval.ms",
        INT,
        5_000,
        "With the consumer protocol, how often members of the group are told to report. Bounded "
        "by group.consumer.min.heartbeat.interval.ms and group.consumer.max.heartbeat.interval.ms.",
        at_least(1),
        broker_default="group.consumer.heartbeat.interval.ms",
    )
    consumer_assignment_interval_ms = option(
        "consumer.assignment.interval.ms",
        INT,
        0,
        "With the consumer protocol, how long the group keeps an assignment of partitions at "
        "least. Bounded by group.consumer.min.assignment.interval.ms and "
        "group.consumer.max.assignment.interval.ms.",
        at_least(0),
        broker_default="group.consumer.assignment.interval.ms",
    )

    share_session_timeout_ms = option(
        "share.session.timeout.ms",
        INT,
        45_000,
        "How long a silent member of the share group is kept. Bounded by "
        "group.share.min.session.timeout.ms and group.share.max.session.timeout.ms, and larger "
        "than share.heartbeat.interval.ms.",
        at_least(1),
        broker_default="group.share.session.timeout.ms",
    )
    share_heartbeat_interval_ms = option(
        "share.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of the share group are told to report. Bounded by "
        "group.share.min.heartbeat.interval.ms and group.share.max.heartbeat.interval.ms.",
        at_least(1),
        broker_default="group.share.heartbeat.interval.ms",
    )
    share_assignment_interval_ms = option(
        "share.assignment.interval.ms",
        INT,
        0,
        "How long the share group keeps an assignment of partitions at least. Bounded by "
        "group.share.min.assignment.interval.ms and group.share.max.assignment.interval.ms.",
        at_least(0),
        broker_default="group.share.assignment.interval.ms",
    )
    share_record_lock_duration_ms = option(
        "share.record.lock.duration.ms",
        INT,
        30_000,
        "How long a record is locked for the member of the share group that it was delivered to. "
        "Bounded by group.share.min.record.lock.duration.ms and "
        "group.share.max.record.lock.duration.ms.",
        at_least(1_000),
        broker_default="group.share.record.lock.duration.ms",
    )
    share_delivery_count_limit = option(
        "share.delivery.count.limit",
        INT,
        5,
        "How often a record is delivered to the share group at most. Bounded by "
        "group.share.min.delivery.count.limit and group.share.max.delivery.count.limit.",
        at_least(2),
        broker_default="group.share.delivery.count.limit",
    )
    share_partition_max_record_locks = option(
        "share.partition.max.record.locks",
        INT,
        2_000,
        "How many records of a partition may be under way in the share group. Bounded by "
        "group.share.min.partition.max.record.locks and "
        "group.share.max.partition.max.record.locks.",
        at_least(100),
        broker_default="group.share.partition.max.record.locks",
    )
    share_auto_offset_reset = option(
        "share.auto.offset.reset",
        _SHARE_START,
        OffsetReset(ResetTo.LATEST),
        "Where the share group begins in a partition that it has not read yet: earliest, latest, "
        "or by_duration:PT1H (as far back as that, ISO 8601).",
    )
    share_isolation_level = option(
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        "Whether the share group gets records of transactions before they are committed, or that "
        "were aborted.",
        one_of("read_committed", "read_uncommitted"),
    )
    share_renew_acknowledge_enable = option(
        "share.renew.acknowledge.enable",
        BOOLEAN,
        True,
        "Whether members of the share group may renew the lock of a record.",
    )

    streams_session_timeout_ms = option(
        "streams.session.timeout.ms",
        INT,
        45_000,
        "How long a silent member of the streams group is kept. Bounded by "
        "group.streams.min.session.timeout.ms and group.streams.max.session.timeout.ms, and larger "
        "than streams.heartbeat.interval.ms.",
        at_least(1),
        broker_default="group.streams.session.timeout.ms",
    )
    streams_heartbeat_interval_ms = option(
        "streams.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of the streams group are told to report. Bounded by "
        "group.streams.min.heartbeat.interval.ms and group.streams.max.heartbeat.interval.ms.",
        at_least(1),
        broker_default="group.streams.heartbeat.interval.ms",
    )
    streams_num_standby_replicas = option(
        "streams.num.standby.replicas",
        INT,
        0,
        "How many copies of a task's state other instances of the streams group keep. At most "
        "group.streams.max.standby.replicas.",
        at_least(0),
        broker_default="group.streams.num.standby.replicas",
    )
    streams_initial_rebalance_delay_ms = option(
        "streams.initial.rebalance.delay.ms",
        INT,
        3_000,
        "How long the streams group waits for more members when it gets its first one, before it "
        "assigns tasks.",
        at_least(0),
        broker_default="group.streams.initial.rebalance.delay.ms",
    )
    streams_assignment_interval_ms = option(
        "streams.assignment.interval.ms",
        INT,
        1_000,
        "How long the streams group keeps an assignment of tasks at least. Bounded by "
        "group.streams.min.assignment.interval.ms and group.streams.max.assignment.interval.ms.",
        at_least(0),
        broker_default="group.streams.assignment.interval.ms",
    )

    errors_deadletterqueue_topic_name = option(
        "errors.deadletterqueue.topic.name",
        STRING,
        "",
        "The topic for records that members of the share group reject, or that were delivered too "
        "often (KIP-1191); none without a name. It has to begin with "
        "errors.deadletterqueue.topic.name.prefix, and to have set "
        "errors.deadletterqueue.group.enable.",
    )
    errors_deadletterqueue_copy_record_enable = option(
        "errors.deadletterqueue.copy.record.enable",
        BOOLEAN,
        False,
        "Whether the dead-letter topic of the share group gets the records themselves, or only "
        "where they are and what became of them.",
    )

    @classmethod
    def check_all(cls, settings: Mapping[str, str], broker: BrokerOptions) -> None:
        """Raise InvalidConfigError unless a group can have exactly these settings."""
        cls.check_settings(settings, "group")
        _check_dead_letters(
            value_in_group(cls.errors_deadletterqueue_topic_name, settings, ""),
            broker.errors_deadletterqueue_topic_name_prefix,
        )
        for bounded in (
            cls.consumer_session_timeout_ms,
            cls.consumer_heartbeat_interval_ms,
            cls.consumer_assignment_interval_ms,
            cls.share_session_timeout_ms,
            cls.share_heartbeat_interval_ms,
            cls.share_assignment_interval_ms,
            cls.share_record_lock_duration_ms,
            cls.share_delivery_count_limit,
            cls.share_partition_max_record_locks,
            cls.streams_session_timeout_ms,
            cls.streams_heartbeat_interval_ms,
            cls.streams_num_standby_replicas,
            cls.streams_assignment_interval_ms,
        ):
            if bounded.name in settings:
                _check_bounds(bounded, _effective(bounded, settings, broker), broker)
        for session, heartbeat in (
            (cls.consumer_session_timeout_ms, cls.consumer_heartbeat_interval_ms),
            (cls.share_session_timeout_ms, cls.share_heartbeat_interval_ms),
            (cls.streams_session_timeout_ms, cls.streams_heartbeat_interval_ms),
        ):
            _check_heartbeats(session, heartbeat, settings, broker)


def value_in_group(declared: Option[V], settings: Mapping[str, str], otherwise: V) -> V:
    """What a group has set; `otherwise` where it has not, or where the text is no value: somebody
    may have written it past the brokers, and its members have to be served."""
    text = settings.get(declared.name)
    try:
        return otherwise if text is None else declared.parse(text)
    except ValueError:
        return otherwise


def _effective(declared: Option[int], settings: Mapping[str, str], broker: BrokerOptions) -> int:
    default = broker.value_of(f"group.{declared.name}")
    return value_in_group(declared, settings, default if isinstance(default, int) else 0)


def _check_dead_letters(topic: str, prefix: str) -> None:
    if topic and not topic.startswith(prefix):
        raise InvalidConfigError(
            f"errors.deadletterqueue.topic.name={topic} does not begin with {prefix!r}, which "
            "errors.deadletterqueue.topic.name.prefix of the broker asks for"
        )


def _check_heartbeats(
    session: Option[int],
    heartbeat: Option[int],
    settings: Mapping[str, str],
    broker: BrokerOptions,
) -> None:
    session_ms = _effective(session, settings, broker)
    heartbeat_ms = _effective(heartbeat, settings, broker)
    if session_ms <= heartbeat_ms:
        raise InvalidConfigError(
            f"{session.name}={session_ms} is not larger than {heartbeat.name}={heartbeat_ms}; "
            "raise one or lower the other"
        )


def _check_bounds(declared: Option[int], value: int, broker: BrokerOptions) -> None:
    kind, _, rest = declared.name.partition(".")
    rest = rest.removeprefix("num.")  # as in group.streams.max.standby.replicas
    for bound, is_kept in (("min", int.__ge__), ("max", int.__le__)):
        name = f"group.{kind}.{bound}.{rest}"
        limit = broker.value_of(name) if broker.find_declaration(name) else None
        if isinstance(limit, int) and not is_kept(value, limit):
            side = "smaller" if bound == "min" else "larger"
            raise InvalidConfigError(f"{declared.name}={value} is {side} than {name}={limit}")
