"""Consumer groups and their committed offsets."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.kinds import INT, LIST, LONG, MAX_INT, SHORT, STRING, any_of, at_least, one_of
from moldau.config.option import Importance, OptionSet, Reload, option


class GroupOptions(OptionSet, ignored=ignored.GROUPS):
    """Membership, and the topic in which offsets are kept."""

    group_initial_rebalance_delay_ms = option(
        "group.initial.rebalance.delay.ms",
        INT,
        0,
        "How long a new group waits for more members before its first rebalance. Kafka's default "
        "is 3000; Moldau's is 0, so that a lone consumer, as in tests, starts at once. Set it for "
        "large groups.",
        at_least(0),
    )
    group_min_session_timeout_ms = option(
        "group.min.session.timeout.ms",
        INT,
        6_000,
        "The shortest session time-out a member may ask for.",
        at_least(1),
    )
    group_max_session_timeout_ms = option(
        "group.max.session.timeout.ms",
        INT,
        1_800_000,
        "The longest session time-out a member may ask for.",
        at_least(1),
    )
    group_max_size = option(
        "group.max.size",
        INT,
        MAX_INT,
        "The most members that a group may have.",
        at_least(1),
    )
    group_coordinator_rebalance_protocols = option(
        "group.coordinator.rebalance.protocols",
        LIST,
        ("classic", "consumer", "share", "streams"),
        "The group protocols that are served. Without `consumer` (KIP-848), `share` (KIP-932) or "
        "`streams` (KIP-1071), clients that ask for it are refused.",
        any_of("classic", "consumer", "share", "streams"),
    )
    group_consumer_session_timeout_ms = option(
        "group.consumer.session.timeout.ms",
        INT,
        45_000,
        "With the consumer protocol, how long a silent member is kept.",
        at_least(1),
    )
    group_consumer_min_session_timeout_ms = option(
        "group.consumer.min.session.timeout.ms",
        INT,
        45_000,
        "With the consumer protocol, the shortest session time-out that a group may have.",
        at_least(1),
    )
    group_consumer_max_session_timeout_ms = option(
        "group.consumer.max.session.timeout.ms",
        INT,
        60_000,
        "With the consumer protocol, the longest session time-out that a group may have.",
        at_least(1),
    )
    group_consumer_heartbeat_interval_ms = option(
        "group.consumer.heartbeat.interval.ms",
        INT,
        5_000,
        "With the consumer protocol, how often members are told to report.",
        at_least(1),
    )
    group_consumer_min_heartbeat_interval_ms = option(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5_000,
        "With the consumer protocol, the shortest heartbeat interval that a group may have.",
        at_least(1),
    )
    group_consumer_max_heartbeat_interval_ms = option(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15_000,
        "With the consumer protocol, the longest heartbeat interval that a group may have.",
        at_least(1),
    )
    group_consumer_assignment_interval_ms = option(
        "group.consumer.assignment.interval.ms",
        INT,
        0,
        "With the consumer protocol, how long a group keeps an assignment of partitions at least "
        "before the next one is computed; changes in between are assigned together. Kafka's "
        "default is 1000; Moldau's is 0, so that a second consumer, as in tests, does not wait for "
        "another heartbeat. Set it for large groups.",
        at_least(0),
        reload=Reload.CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms = option(
        "group.consumer.min.assignment.interval.ms",
        INT,
        0,
        "With the consumer protocol, the shortest time between assignments that a group may have.",
        at_least(0),
    )
    group_consumer_max_assignment_interval_ms = option(
        "group.consumer.max.assignment.interval.ms",
        INT,
        15_000,
        "With the consumer protocol, the longest time between assignments that a group may have.",
        at_least(0),
    )
    group_consumer_max_size = option(
        "group.consumer.max.size",
        INT,
        MAX_INT,
        "With the consumer protocol, the most members that a group may have.",
        at_least(1),
    )
    group_consumer_assignors = option(
        "group.consumer.assignors",
        LIST,
        ("uniform", "range"),
        "With the consumer protocol, the assignors on the broker; the first is the default.",
        any_of("uniform", "range"),
    )
    group_consumer_migration_policy = option(
        "group.consumer.migration.policy",
        STRING,
        "bidirectional",
        "Whether a group changes between the classic and the consumer protocol while members are "
        "in it: `upgrade` when the first member of the consumer protocol joins, `downgrade` when "
        "the last one leaves, `bidirectional` both, `disabled` neither.",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    offsets_topic_num_partitions = option(
        "offsets.topic.num.partitions",
        INT,
        50,
        "The number of partitions of __consumer_offsets. Do not change it once groups exist.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offsets_topic_replication_factor = option(
        "offsets.topic.replication.factor",
        SHORT,
        1,
        "The number of replicas of __consumer_offsets. Kafka's default is 3, which a broker alone "
        "cannot give; Moldau's is 1 for a broker alone and 3 with ZooKeeper, where groups wait "
        "until so many brokers are there.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offsets_topic_segment_bytes = option(
        "offsets.topic.segment.bytes",
        INT,
        100 << 20,
        "The segment size of __consumer_offsets; small segments are compacted and loaded sooner.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offsets_topic_compression_codec = option(
        "offsets.topic.compression.codec",
        INT,
        0,
        "The codec of __consumer_offsets by its number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        at_least(0),
        importance=Importance.HIGH,
    )
    offsets_retention_minutes = option(
        "offsets.retention.minutes",
        INT,
        7 * 24 * 60,
        "How long committed offsets are kept after a group has lost its last member.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offsets_retention_check_interval_ms = option(
        "offsets.retention.check.interval.ms",
        LONG,
        600_000,
        "How often the broker looks for offsets that have expired.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offsets_commit_timeout_ms = option(
        "offsets.commit.timeout.ms",
        INT,
        5_000,
        "How long a commit waits for the replicas of __consumer_offsets.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offsets_load_buffer_size = option(
        "offsets.load.buffer.size",
        INT,
        5 << 20,
        "How much of __consumer_offsets is read at a time when a broker takes over its groups.",
        at_least(1),
        importance=Importance.HIGH,
    )
    offset_metadata_max_bytes = option(
        "offset.metadata.max.bytes",
        INT,
        4096,
        "The most text that may accompany a committed offset.",
        at_least(0),
        importance=Importance.HIGH,
    )
