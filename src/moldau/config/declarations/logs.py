"""Logs: where they are, when they are flushed, deleted and compacted."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.option import (
    BOOLEAN,
    DAY_MS,
    DOUBLE,
    HOUR_MS,
    INT,
    LIST,
    LONG,
    MAX_DOUBLE,
    MAX_LONG,
    MINUTE_MS,
    SET,
    Fallback,
    Importance,
    OptionSet,
    Reload,
    Rule,
    any_of,
    at_least,
    between,
    inherited,
    option,
    optional,
)

_DYNAMIC = Reload.CLUSTER_WIDE


def _find_retention_fault(value: int) -> str | None:
    return None if value == -1 or value > 0 else "is neither -1 (no limit) nor at least 1"


_RETENTION = Rule("-1, or at least 1", _find_retention_fault)


class LogOptions(OptionSet, ignored=ignored.LOGS):
    """Data directories, segments, flushing and retention."""

    log_dir = option(
        "log.dir",
        LIST,
        ("moldau-data",),
        "The data directory, when log.dirs is not set. Kafka's default is /tmp/kafka-logs, which "
        "a restart of the machine may empty; Moldau's is a folder where it was started.",
        importance=Importance.HIGH,
    )
    log_dirs = inherited(
        "log.dirs",
        LIST,
        "The data directories, comma-separated; new partitions go to the one that has the fewest. "
        "When one fails, the others go on.",
        importance=Importance.HIGH,
        falls_back_to=(Fallback("log.dir"),),
    )
    log_dirs_lost = option(
        "log.dirs.lost",
        LIST,
        (),
        "Ids of log directories of this broker that are lost for good (directory.id in their "
        "meta.properties; the broker names them when it misses them). A broker whose directory is "
        "missing, because its disk is not mounted or log.dirs does not name it any more, does not "
        "start while that may be the only complete copy of a partition. With the id in here it "
        "does: a partition without other replicas begins again without its records, any other is "
        "recovered from what its other replicas have. `unknown` stands for a directory that was "
        "last used before Moldau noted their ids.",
        importance=Importance.LOW,
    )
    log_segment_bytes = option(
        "log.segment.bytes",
        INT,
        1 << 30,
        "The size of a segment file. The default of segment.bytes.",
        at_least(1 << 20),
        reload=_DYNAMIC,
        importance=Importance.HIGH,
    )
    log_roll_ms = inherited(
        "log.roll.ms",
        LONG,
        "The age at which a segment is rolled even if it is not full. The default of segment.ms; "
        "without it log.roll.hours counts.",
        at_least(1),
        reload=_DYNAMIC,
        importance=Importance.HIGH,
        falls_back_to=(Fallback("log.roll.hours", HOUR_MS),),
    )
    log_roll_hours = option(
        "log.roll.hours",
        INT,
        168,
        "log.roll.ms in hours.",
        at_least(1),
        importance=Importance.HIGH,
    )
    log_roll_jitter_ms = inherited(
        "log.roll.jitter.ms",
        LONG,
        "A random time up to this is taken off log.roll.ms. The default of segment.jitter.ms; "
        "without it log.roll.jitter.hours counts.",
        at_least(0),
        reload=_DYNAMIC,
        importance=Importance.HIGH,
        falls_back_to=(Fallback("log.roll.jitter.hours", HOUR_MS),),
    )
    log_roll_jitter_hours = option(
        "log.roll.jitter.hours",
        INT,
        0,
        "log.roll.jitter.ms in hours.",
        at_least(0),
        importance=Importance.HIGH,
    )
    log_index_size_max_bytes = option(
        "log.index.size.max.bytes",
        INT,
        10 << 20,
        "The largest size of a segment's offset index. The default of segment.index.bytes.",
        at_least(4),
        reload=_DYNAMIC,
    )
    log_index_interval_bytes = option(
        "log.index.interval.bytes",
        INT,
        4096,
        "An index entry is written each time this many bytes were appended. The default of "
        "index.interval.bytes.",
        at_least(0),
        reload=_DYNAMIC,
    )
    log_preallocate = option(
        "log.preallocate",
        BOOLEAN,
        False,
        "Reserve the whole size of a new segment's file. The default of preallocate.",
        reload=_DYNAMIC,
    )
    log_retention_ms = inherited(
        "log.retention.ms",
        LONG,
        "The age at which a segment is dropped; -1 for no limit. The default of retention.ms; "
        "without it log.retention.minutes counts, and then log.retention.hours.",
        _RETENTION,
        reload=_DYNAMIC,
        importance=Importance.HIGH,
        falls_back_to=(
            Fallback("log.retention.minutes", MINUTE_MS),
            Fallback("log.retention.hours", HOUR_MS),
        ),
    )
    log_retention_minutes = optional(
        "log.retention.minutes",
        INT,
        "log.retention.ms in minutes.",
        _RETENTION,
        importance=Importance.HIGH,
    )
    log_retention_hours = option(
        "log.retention.hours",
        INT,
        168,
        "log.retention.ms in hours.",
        _RETENTION,
        importance=Importance.HIGH,
    )
    log_retention_bytes = option(
        "log.retention.bytes",
        LONG,
        -1,
        "The size to which a partition may grow before its oldest segments are dropped; -1 for no "
        "limit. The default of retention.bytes.",
        reload=_DYNAMIC,
        importance=Importance.HIGH,
    )
    log_retention_check_interval_ms = option(
        "log.retention.check.interval.ms",
        LONG,
        5 * MINUTE_MS,
        "How often the broker looks for segments that are past their retention.",
        at_least(1),
    )
    log_segment_delete_delay_ms = option(
        "log.segment.delete.delay.ms",
        LONG,
        60_000,
        "How long a dropped segment stays on disk. The default of file.delete.delay.ms.",
        at_least(0),
        reload=_DYNAMIC,
        importance=Importance.HIGH,
    )
    log_cleanup_policy = option(
        "log.cleanup.policy",
        SET,
        frozenset({"delete"}),
        "What happens to old segments: delete, compact or both. The default of cleanup.policy.",
        any_of("compact", "delete"),
        reload=_DYNAMIC,
    )
    log_cleanup_suspended = option(
        "log.cleanup.suspended",
        BOOLEAN,
        False,
        "Delete and compact nothing, whatever retention and cleanup.policy say: a brake for the "
        "time in which somebody finds out whether they are right. The default of "
        "cleanup.suspended. In force by itself while the node with this broker's dynamic settings "
        "is damaged and its former content unknown.",
        reload=_DYNAMIC,
    )
    adopt_topics_enable = option(
        "adopt.topics.enable",
        BOOLEAN,
        False,
        "With ZooKeeper: when its store is new, make topics of the logs in the data directories, "
        "each with this broker as its only replica. Without it a broker that has logs does not "
        "start on an empty store, which may be one that lost its data. A broker alone makes topics "
        "of a folder that has no store in any case.",
        importance=Importance.LOW,
    )
    log_flush_interval_messages = option(
        "log.flush.interval.messages",
        LONG,
        MAX_LONG,
        "Flush a log to disk after this many records. The default of flush.messages.",
        at_least(1),
        reload=_DYNAMIC,
        importance=Importance.HIGH,
    )
    log_flush_interval_ms = inherited(
        "log.flush.interval.ms",
        LONG,
        "Flush a log to disk when its oldest unflushed record is this old. The default of "
        "flush.ms; without it log.flush.scheduler.interval.ms counts.",
        at_least(0),
        reload=_DYNAMIC,
        importance=Importance.HIGH,
        falls_back_to=(Fallback("log.flush.scheduler.interval.ms"),),
    )
    log_flush_scheduler_interval_ms = option(
        "log.flush.scheduler.interval.ms",
        LONG,
        MAX_LONG,
        "How often the broker looks for logs that are due to be flushed by time.",
        at_least(1),
        importance=Importance.HIGH,
    )
    log_flush_offset_checkpoint_interval_ms = option(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        MINUTE_MS,
        "How often the recovery points are written down. After a crash only what lies past them "
        "is checked.",
        at_least(0),
        importance=Importance.HIGH,
    )
    log_flush_start_offset_checkpoint_interval_ms = option(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        MINUTE_MS,
        "How often the start offsets of the logs are written down.",
        at_least(0),
        importance=Importance.HIGH,
    )
    num_recovery_threads_per_data_dir = option(
        "num.recovery.threads.per.data.dir",
        INT,
        2,
        "Workers per data directory for recovery at the start and flushing at the end. A new "
        "value counts from the next start.",
        at_least(1),
        reload=_DYNAMIC,
        importance=Importance.HIGH,
    )


class CleanerOptions(OptionSet, ignored=ignored.CLEANER, reload=Reload.CLUSTER_WIDE):
    """Compaction."""

    log_cleaner_enable = option(
        "log.cleaner.enable",
        BOOLEAN,
        True,
        "Compact the topics whose cleanup.policy names compact. Leave it on: the offsets of "
        "consumer groups live in such a topic.",
        reload=Reload.READ_ONLY,
    )
    log_cleaner_io_max_bytes_per_second = option(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        MAX_DOUBLE,
        "How much the cleaner may read and write per second.",
    )
    log_cleaner_dedupe_buffer_size = option(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 << 20,
        "Memory for the keys that one round of the cleaner compares, 24 bytes for each: some five "
        "million in the default. With more of them in a log, the cleaner takes several rounds.",
    )
    log_cleaner_io_buffer_size = option(
        "log.cleaner.io.buffer.size",
        INT,
        512 << 10,
        "Memory through which the cleaner reads and writes.",
        at_least(0),
    )
    log_cleaner_io_buffer_load_factor = option(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        "How full the cleaner's memory for keys may become; more than 0.9 counts as that.",
    )
    log_cleaner_backoff_ms = option(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        "How long the cleaner rests when there is nothing to clean.",
        at_least(0),
    )
    log_cleaner_min_cleanable_ratio = option(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        0.5,
        "The share of a log that must be uncleaned before the cleaner takes it up. The default of "
        "min.cleanable.dirty.ratio.",
        between(0, 1),
    )
    log_cleaner_delete_retention_ms = option(
        "log.cleaner.delete.retention.ms",
        LONG,
        DAY_MS,
        "How long tombstones stay. The default of delete.retention.ms.",
        at_least(0),
    )
    log_cleaner_min_compaction_lag_ms = option(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        0,
        "The shortest time for which a superseded record is kept. The default of "
        "min.compaction.lag.ms.",
        at_least(0),
    )
    log_cleaner_max_compaction_lag_ms = option(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        MAX_LONG,
        "The longest time for which a record may stay out of the cleaner's reach. The default of "
        "max.compaction.lag.ms.",
        at_least(1),
    )
