"""How topics are made, and what a topic gets that does not say otherwise."""

from __future__ import annotations

from moldau.config.option import (
    BOOLEAN,
    CLASS,
    HOUR_MS,
    INT,
    LONG,
    MAX_LONG,
    STRING,
    Importance,
    OptionSet,
    Reload,
    Rule,
    at_least,
    between,
    one_of,
    option,
    optional,
)


def _find_level_fault(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "is neither -1 nor between 1 and 9"


GZIP_LEVEL = Rule("1 to 9, or -1", _find_level_fault)


class TopicDefaultOptions(OptionSet, reload=Reload.CLUSTER_WIDE):
    """What a topic gets that does not say otherwise."""

    num_partitions = option(
        "num.partitions",
        INT,
        1,
        "The number of partitions of a topic that is created without one.",
        at_least(1),
        reload=Reload.READ_ONLY,
    )
    default_replication_factor = option(
        "default.replication.factor",
        INT,
        1,
        "The number of replicas of a topic that is created without one.",
        at_least(1),
        reload=Reload.READ_ONLY,
    )
    auto_create_topics_enable = option(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        "Create a topic when a client asks for it by name.",
        importance=Importance.HIGH,
        reload=Reload.READ_ONLY,
    )
    delete_topic_enable = option(
        "delete.topic.enable",
        BOOLEAN,
        True,
        "Let clients delete topics.",
        importance=Importance.HIGH,
        reload=Reload.READ_ONLY,
    )
    create_topic_policy_class_name = optional(
        "create.topic.policy.class.name",
        CLASS,
        "A Java class that decides which topics may be created. Moldau cannot load it, so a "
        "value stops the start.",
        importance=Importance.LOW,
        reload=Reload.READ_ONLY,
    )
    alter_config_policy_class_name = optional(
        "alter.config.policy.class.name",
        CLASS,
        "A Java class that decides which configs may be changed. Moldau cannot load it, so a "
        "value stops the start.",
        importance=Importance.LOW,
        reload=Reload.READ_ONLY,
    )
    message_max_bytes = option(
        "message.max.bytes",
        INT,
        1_048_588,
        "The largest batch of records that is taken, as it arrives (after compression). The "
        "default of max.message.bytes.",
        at_least(0),
        importance=Importance.HIGH,
    )
    min_insync_replicas = option(
        "min.insync.replicas",
        INT,
        1,
        "With acks=all a write is taken only while at least this many replicas are in sync. The "
        "default of the topic option of this name.",
        at_least(1),
        importance=Importance.HIGH,
    )
    unclean_leader_election_enable = option(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Let a replica that is not in sync become the leader when no other is left, at the price "
        "of acknowledged records. The default of the topic option of this name.",
        importance=Importance.HIGH,
    )
    unclean_recovery_strategy = optional(
        "unclean.recovery.strategy",
        STRING,
        "What to do when every replica that is known to have all committed records is lost: none, "
        "balanced or aggressive. The default of the topic option of this name.",
        one_of("none", "balanced", "aggressive"),
        importance=Importance.HIGH,
    )
    compression_type = option(
        "compression.type",
        STRING,
        "producer",
        "The codec in which batches are stored; producer keeps them as they arrive. The default "
        "of the topic option of this name.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        importance=Importance.HIGH,
    )
    compression_gzip_level = option(
        "compression.gzip.level",
        INT,
        -1,
        "The level at which the broker compresses with gzip; -1 is the codec's own default.",
        GZIP_LEVEL,
    )
    compression_lz4_level = option(
        "compression.lz4.level",
        INT,
        9,
        "The level at which the broker compresses with lz4.",
        between(1, 17),
    )
    compression_zstd_level = option(
        "compression.zstd.level",
        INT,
        3,
        "The level at which the broker compresses with zstd.",
        between(-131072, 22),
    )
    log_message_timestamp_type = option(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock a record's timestamp shows: the producer's (CreateTime) or the broker's "
        "(LogAppendTime). The default of message.timestamp.type.",
        one_of("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms = option(
        "log.message.timestamp.before.max.ms",
        LONG,
        MAX_LONG,
        "How far a record's timestamp may be behind the broker's clock. The default of "
        "message.timestamp.before.max.ms.",
        at_least(0),
    )
    log_message_timestamp_after_max_ms = option(
        "log.message.timestamp.after.max.ms",
        LONG,
        HOUR_MS,
        "How far a record's timestamp may be ahead of the broker's clock. The default of "
        "message.timestamp.after.max.ms.",
        at_least(0),
    )
    log_record_validation = option(
        "log.record.validation",
        STRING,
        "full",
        "Moldau's own: how closely produced batches are checked. The default of record.validation.",
        one_of("full", "header"),
    )
