"""Options of the coordinators: consumer groups, share groups, streams groups, transactions."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.option import (
    BOOLEAN,
    DAY_MS,
    HOUR_MS,
    INT,
    LIST,
    LONG,
    MAX_INT,
    MINUTE_MS,
    SHORT,
    STRING,
    Importance,
    OptionSet,
    Reload,
    any_of,
    at_least,
    between,
    one_of,
    option,
)


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


class ShareOptions(OptionSet, ignored=ignored.SHARES):
    """What share groups may have, and how the share coordinator keeps their state."""

    group_share_session_timeout_ms = option(
        "group.share.session.timeout.ms",
        INT,
        45_000,
        "How long a silent member of a share group is kept.",
        at_least(1),
    )
    group_share_min_session_timeout_ms = option(
        "group.share.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session time-out that a share group may have.",
        at_least(1),
    )
    group_share_max_session_timeout_ms = option(
        "group.share.max.session.timeout.ms",
        INT,
        60_000,
        "The longest session time-out that a share group may have.",
        at_least(1),
    )
    group_share_heartbeat_interval_ms = option(
        "group.share.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of share groups are told to report.",
        at_least(1),
    )
    group_share_min_heartbeat_interval_ms = option(
        "group.share.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a share group may have.",
        at_least(1),
    )
    group_share_max_heartbeat_interval_ms = option(
        "group.share.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a share group may have.",
        at_least(1),
    )
    group_share_assignment_interval_ms = option(
        "group.share.assignment.interval.ms",
        INT,
        0,
        "How long a share group keeps an assignment of partitions at least before the next one is "
        "computed; changes in between are assigned together. Kafka's default is 1000; Moldau's is "
        "0, so that a consumer, as in tests, does not wait for another heartbeat. Set it for large "
        "groups.",
        at_least(0),
        reload=Reload.CLUSTER_WIDE,
    )
    group_share_min_assignment_interval_ms = option(
        "group.share.min.assignment.interval.ms",
        INT,
        0,
        "The shortest time between assignments that a share group may have.",
        at_least(0),
    )
    group_share_max_assignment_interval_ms = option(
        "group.share.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest time between assignments that a share group may have.",
        at_least(0),
    )
    group_share_max_size = option(
        "group.share.max.size",
        INT,
        200,
        "The most members that a share group may have.",
        between(1, 1_000),
    )
    group_share_assignors = option(
        "group.share.assignors",
        LIST,
        ("simple",),
        "The assignors of share groups on the broker; the first is used.",
        any_of("simple"),
    )
    group_share_max_share_sessions = option(
        "group.share.max.share.sessions",
        INT,
        2000,
        "How many share sessions a broker has at most: one for each member of a share group that "
        "reads partitions that it leads.",
        at_least(1),
    )
    group_share_delivery_count_limit = option(
        "group.share.delivery.count.limit",
        INT,
        5,
        "How often a record is delivered to a share group at most. One that was delivered so often "
        "without being accepted is archived: nobody gets it again.",
        between(2, 10),
    )
    group_share_min_delivery_count_limit = option(
        "group.share.min.delivery.count.limit",
        INT,
        2,
        "The smallest share.delivery.count.limit that a share group may have.",
        between(2, 10),
    )
    group_share_max_delivery_count_limit = option(
        "group.share.max.delivery.count.limit",
        INT,
        10,
        "The largest share.delivery.count.limit that a share group may have.",
        between(2, 25),
    )
    group_share_record_lock_duration_ms = option(
        "group.share.record.lock.duration.ms",
        INT,
        30_000,
        "How long a record of a share group is locked for the member that it was delivered to. "
        "After that others may get it.",
        between(1_000, 3_600_000),
    )
    group_share_min_record_lock_duration_ms = option(
        "group.share.min.record.lock.duration.ms",
        INT,
        15_000,
        "The shortest share.record.lock.duration.ms that a share group may have.",
        between(1_000, 30_000),
    )
    group_share_max_record_lock_duration_ms = option(
        "group.share.max.record.lock.duration.ms",
        INT,
        60_000,
        "The longest share.record.lock.duration.ms that a share group may have.",
        between(30_000, 3_600_000),
    )
    group_share_partition_max_record_locks = option(
        "group.share.partition.max.record.locks",
        INT,
        2_000,
        "How many records of a partition may be under way in a share group: from the first that is "
        "not done with to the last that was delivered.",
        between(100, 10_000),
    )
    group_share_min_partition_max_record_locks = option(
        "group.share.min.partition.max.record.locks",
        INT,
        100,
        "The smallest share.partition.max.record.locks that a share group may have.",
        between(100, 10_000),
    )
    group_share_max_partition_max_record_locks = option(
        "group.share.max.partition.max.record.locks",
        INT,
        4_000,
        "The largest share.partition.max.record.locks that a share group may have.",
        between(100, 10_000),
    )
    errors_deadletterqueue_topic_name_prefix = option(
        "errors.deadletterqueue.topic.name.prefix",
        STRING,
        "dlq.",
        "How the names of dead-letter topics of share groups begin (KIP-1191), so that whoever "
        "reads one knows who has written it.",
    )
    errors_deadletterqueue_auto_create_topics_enable = option(
        "errors.deadletterqueue.auto.create.topics.enable",
        BOOLEAN,
        False,
        "Whether the dead-letter topic of a share group is made when it is needed.",
    )
    share_coordinator_state_topic_num_partitions = option(
        "share.coordinator.state.topic.num.partitions",
        INT,
        50,
        "The number of partitions of __share_group_state. Do not change it once share groups "
        "exist.",
        at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_state_topic_replication_factor = option(
        "share.coordinator.state.topic.replication.factor",
        SHORT,
        1,
        "The number of replicas of __share_group_state. Kafka's default is 3, which a broker alone "
        "cannot give; Moldau's is 1 for a broker alone and 3 with ZooKeeper, where share groups "
        "wait until so many brokers are there.",
        at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_state_topic_min_isr = option(
        "share.coordinator.state.topic.min.isr",
        SHORT,
        1,
        "min.insync.replicas of __share_group_state. Kafka's default is 2; Moldau's is 1.",
        at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_state_topic_segment_bytes = option(
        "share.coordinator.state.topic.segment.bytes",
        INT,
        100 << 20,
        "The segment size of __share_group_state.",
        at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_state_topic_compression_codec = option(
        "share.coordinator.state.topic.compression.codec",
        INT,
        0,
        "The codec of __share_group_state by its number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        between(0, 4),
        importance=Importance.HIGH,
    )
    share_coordinator_snapshot_update_records_per_snapshot = option(
        "share.coordinator.snapshot.update.records.per.snapshot",
        INT,
        500,
        "After so many changes of a share partition all of its state is written: so much is read "
        "at most when a coordinator takes over, and what is before it can be deleted.",
        between(0, 500),
    )
    share_coordinator_write_timeout_ms = option(
        "share.coordinator.write.timeout.ms",
        INT,
        5_000,
        "How long a change waits for the replicas of __share_group_state.",
        at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_load_buffer_size = option(
        "share.coordinator.load.buffer.size",
        INT,
        5 << 20,
        "How much of __share_group_state is read at a time when a broker takes over its share "
        "partitions.",
        at_least(1),
        importance=Importance.HIGH,
    )
    share_coordinator_state_topic_prune_interval_ms = option(
        "share.coordinator.state.topic.prune.interval.ms",
        INT,
        300_000,
        "How often what is superseded is deleted from __share_group_state.",
        at_least(1),
        importance=Importance.LOW,
    )
    share_coordinator_cold_partition_snapshot_interval_ms = option(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        INT,
        300_000,
        "A share partition that nobody has changed for so long is written anew, so that it does "
        "not keep older records of others from being deleted.",
        at_least(1),
        importance=Importance.LOW,
    )


class StreamsOptions(OptionSet):
    """What streams groups may have."""

    group_streams_session_timeout_ms = option(
        "group.streams.session.timeout.ms",
        INT,
        45_000,
        "How long a silent member of a streams group is kept.",
        at_least(1),
    )
    group_streams_min_session_timeout_ms = option(
        "group.streams.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session time-out that a streams group may have.",
        at_least(1),
    )
    group_streams_max_session_timeout_ms = option(
        "group.streams.max.session.timeout.ms",
        INT,
        60_000,
        "The longest session time-out that a streams group may have.",
        at_least(1),
    )
    group_streams_heartbeat_interval_ms = option(
        "group.streams.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of streams groups are told to report.",
        at_least(1),
    )
    group_streams_min_heartbeat_interval_ms = option(
        "group.streams.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a streams group may have.",
        at_least(1),
    )
    group_streams_max_heartbeat_interval_ms = option(
        "group.streams.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a streams group may have.",
        at_least(1),
    )
    group_streams_max_size = option(
        "group.streams.max.size",
        INT,
        MAX_INT,
        "The most members that a streams group may have: threads of all its instances.",
        at_least(1),
    )
    group_streams_num_standby_replicas = option(
        "group.streams.num.standby.replicas",
        INT,
        0,
        "How many copies of a task's state other instances of a streams group keep, to take the "
        "task over without reading its changelog from the beginning.",
        at_least(0),
    )
    group_streams_max_standby_replicas = option(
        "group.streams.max.standby.replicas",
        INT,
        2,
        "The most copies of a task's state that a streams group may ask for.",
        at_least(0),
    )
    group_streams_initial_rebalance_delay_ms = option(
        "group.streams.initial.rebalance.delay.ms",
        INT,
        3_000,
        "How long a streams group that gets its first member waits for more of them before it "
        "assigns tasks.",
        at_least(0),
    )
    group_streams_assignment_interval_ms = option(
        "group.streams.assignment.interval.ms",
        INT,
        1_000,
        "How long a streams group keeps an assignment of tasks at least before it makes another.",
        at_least(0),
        reload=Reload.CLUSTER_WIDE,
    )
    group_streams_min_assignment_interval_ms = option(
        "group.streams.min.assignment.interval.ms",
        INT,
        0,
        "The shortest time between assignments that a streams group may have.",
        at_least(0),
    )
    group_streams_max_assignment_interval_ms = option(
        "group.streams.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest time between assignments that a streams group may have.",
        at_least(0),
    )


class TransactionOptions(OptionSet, ignored=ignored.TRANSACTIONS):
    """How long producers are remembered, and the topic in which transactions are kept."""

    producer_id_expiration_ms = option(
        "producer.id.expiration.ms",
        INT,
        DAY_MS,
        "How long a partition remembers an idempotent producer that writes no more. A retry that "
        "comes later than this may be stored twice.",
        at_least(1),
        reload=Reload.CLUSTER_WIDE,
        importance=Importance.LOW,
    )
    producer_id_expiration_check_interval_ms = option(
        "producer.id.expiration.check.interval.ms",
        INT,
        10 * MINUTE_MS,
        "How often the broker looks for producers to forget.",
        at_least(1),
        importance=Importance.LOW,
    )
    transaction_partition_verification_enable = option(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        "Take transactional records only for partitions that were added to the transaction: their "
        "leader asks the transaction coordinator before the first record (KIP-890).",
        reload=Reload.CLUSTER_WIDE,
        importance=Importance.LOW,
    )
    transaction_state_log_num_partitions = option(
        "transaction.state.log.num.partitions",
        INT,
        50,
        "The number of partitions of __transaction_state. Do not change it once transactions "
        "exist.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_min_isr = option(
        "transaction.state.log.min.isr",
        INT,
        1,
        "min.insync.replicas of __transaction_state. Kafka's default is 2, which a broker alone "
        "cannot give; Moldau's is 1. Set 2 in a cluster.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_segment_bytes = option(
        "transaction.state.log.segment.bytes",
        INT,
        100 << 20,
        "The segment size of __transaction_state; small segments are compacted and loaded sooner.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_replication_factor = option(
        "transaction.state.log.replication.factor",
        SHORT,
        1,
        "The number of replicas of __transaction_state. Kafka's default is 3; Moldau's is 3 in a "
        "cluster and 1 for a broker alone.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_load_buffer_size = option(
        "transaction.state.log.load.buffer.size",
        INT,
        5 << 20,
        "How much of __transaction_state is read at a time when a broker takes over its "
        "transactions.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_max_timeout_ms = option(
        "transaction.max.timeout.ms",
        INT,
        15 * MINUTE_MS,
        "The longest time-out a transactional producer may ask for. An open transaction holds up "
        "every read_committed reader of its partitions.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10_000,
        "How often the broker looks for transactions whose time is over, to abort them.",
        at_least(1),
        importance=Importance.LOW,
    )
    transactional_id_expiration_ms = option(
        "transactional.id.expiration.ms",
        INT,
        7 * DAY_MS,
        "How long a transactional id without an open transaction is remembered.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        HOUR_MS,
        "How often the broker looks for transactional ids to forget.",
        at_least(1),
        importance=Importance.LOW,
    )
    transaction_two_phase_commit_enable = option(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        "Whether producers may take part in two-phase commits of an outside coordinator (KIP-939). "
        "Their transactions never time out: one that nobody completes holds up its readers for "
        "ever.",
        importance=Importance.LOW,
    )
