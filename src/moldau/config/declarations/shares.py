"""Share groups (KIP-932): their members, their records in flight, and the topic of their state."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.kinds import BOOLEAN, INT, LIST, SHORT, STRING, any_of, at_least, between
from moldau.config.option import Importance, OptionSet, Reload, option


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
