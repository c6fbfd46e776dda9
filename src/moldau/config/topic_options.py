"""The options of a topic: all of Kafka 4's, and a few of our own.

A topic that does not set an option takes the broker's value of `broker_default`. Names, types,
defaults and ranges are Kafka's (`LogConfig`, `TopicConfig`). Rule: values in, values out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from types import MappingProxyType

from moldau.config.broker_options import BrokerOptions
from moldau.config.declarations import ignored
from moldau.config.declarations.topic_defaults import GZIP_LEVEL
from moldau.config.option import (
    BOOLEAN,
    DAY_MS,
    DOUBLE,
    HOUR_MS,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    SET,
    STRING,
    OptionSet,
    Reload,
    Rule,
    any_of,
    at_least,
    between,
    one_of,
    option,
    optional,
)
from moldau.errors import InvalidConfigError

_THROTTLED = r"[0-9]+:[0-9]+\Z"


def _find_throttled_fault(items: Collection[str]) -> str | None:
    if tuple(items) == ("*",) or all(re.match(_THROTTLED, item) for item in items):
        return None
    return "is neither * nor a list of partition:broker pairs such as 0:101,1:102"


def _find_tiered_fault(enabled: bool) -> str | None:
    return "needs tiered storage, which Moldau does not have" if enabled else None


_THROTTLED_REPLICAS = Rule("* or a list of partition:broker", _find_throttled_fault)
_ONLY_FALSE = Rule("false", _find_tiered_fault)


class TopicOptions(OptionSet, ignored=ignored.TOPICS, reload=Reload.CLUSTER_WIDE):
    """One topic's options, resolved. Tests that want tiny segments set `internal.segment.bytes`."""

    cleanup_policy = option(
        "cleanup.policy",
        SET,
        frozenset({"delete"}),
        "What happens to old segments. delete drops them once they are past retention.ms or "
        "retention.bytes; compact keeps the last record of every key; both together do both. "
        "An empty list keeps everything.",
        any_of("compact", "delete"),
        broker_default="log.cleanup.policy",
    )
    cleanup_suspended = option(
        "cleanup.suspended",
        BOOLEAN,
        False,
        "Delete and compact nothing, whatever cleanup.policy and retention say. Set by Moldau on "
        "topics that it found in a folder of Kafka's, whose settings were kept elsewhere. It ends "
        "when cleanup.policy, retention.ms or retention.bytes is set, or when it is unset.",
        broker_default="log.cleanup.suspended",
    )
    compression_type = option(
        "compression.type",
        STRING,
        "producer",
        "The codec in which batches are stored. producer keeps each batch as it arrives, which "
        "costs the broker nothing; any other word makes the broker compress again what arrives in "
        "another codec.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_default="compression.type",
    )
    compression_gzip_level = option(
        "compression.gzip.level",
        INT,
        -1,
        "The level at which the broker compresses when compression.type is gzip; -1 is the "
        "codec's own default.",
        GZIP_LEVEL,
        broker_default="compression.gzip.level",
    )
    compression_lz4_level = option(
        "compression.lz4.level",
        INT,
        9,
        "The level at which the broker compresses when compression.type is lz4.",
        between(1, 17),
        broker_default="compression.lz4.level",
    )
    compression_zstd_level = option(
        "compression.zstd.level",
        INT,
        3,
        "The level at which the broker compresses when compression.type is zstd.",
        between(-131072, 22),
        broker_default="compression.zstd.level",
    )
    delete_retention_ms = option(
        "delete.retention.ms",
        LONG,
        DAY_MS,
        "How long the tombstones of a compacted topic stay. A reader that starts at the beginning "
        "has this much time to reach the end and still see every deletion.",
        at_least(0),
        broker_default="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms = option(
        "file.delete.delay.ms",
        LONG,
        60_000,
        "How long a dropped segment stays on disk, renamed to .deleted, before its file is "
        "removed. Reads that are under way finish in this time.",
        at_least(0),
        broker_default="log.segment.delete.delay.ms",
    )
    flush_messages = option(
        "flush.messages",
        LONG,
        MAX_LONG,
        "Flush the log to disk (fsync) after this many records; 1 flushes each append. The "
        "default leaves it to the operating system: with several replicas, replication is the "
        "better safety.",
        at_least(1),
        broker_default="log.flush.interval.messages",
    )
    flush_ms = option(
        "flush.ms",
        LONG,
        MAX_LONG,
        "Flush the log to disk (fsync) when its oldest unflushed record is this old. The default "
        "leaves it to the operating system.",
        at_least(0),
        broker_default="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas = option(
        "follower.replication.throttled.replicas",
        LIST,
        (),
        "Replicas whose copying is slowed down on the follower's side: partition:broker pairs, or "
        "* for all of the topic.",
        _THROTTLED_REPLICAS,
    )
    index_interval_bytes = option(
        "index.interval.bytes",
        INT,
        4096,
        "An index entry is written each time this many bytes were appended. Smaller values find "
        "an offset in fewer steps and make larger index files.",
        at_least(0),
        broker_default="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas = option(
        "leader.replication.throttled.replicas",
        LIST,
        (),
        "Replicas whose copying is slowed down on the leader's side: partition:broker pairs, or * "
        "for all of the topic.",
        _THROTTLED_REPLICAS,
    )
    max_compaction_lag_ms = option(
        "max.compaction.lag.ms",
        LONG,
        MAX_LONG,
        "The longest time for which a record of a compacted topic may stay out of the cleaner's "
        "reach.",
        at_least(1),
        broker_default="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes = option(
        "max.message.bytes",
        INT,
        1_048_588,
        "The largest batch of records that is taken, as it arrives (after compression). Consumers "
        "read larger batches than their own limits allow, so they need no change.",
        at_least(0),
        broker_default="message.max.bytes",
    )
    message_timestamp_after_max_ms = option(
        "message.timestamp.after.max.ms",
        LONG,
        HOUR_MS,
        "How far a record's timestamp may be ahead of the broker's clock before its batch is "
        "refused. Not used with LogAppendTime.",
        at_least(0),
        broker_default="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms = option(
        "message.timestamp.before.max.ms",
        LONG,
        MAX_LONG,
        "How far a record's timestamp may be behind the broker's clock before its batch is "
        "refused. Not used with LogAppendTime.",
        at_least(0),
        broker_default="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type = option(
        "message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock a record's timestamp shows: the producer's (CreateTime) or the broker's at "
        "the append (LogAppendTime).",
        one_of("CreateTime", "LogAppendTime"),
        broker_default="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio = option(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        0.5,
        "The cleaner takes up a compacted log when this share of it has not been cleaned yet. It "
        "bounds the space that superseded records waste.",
        between(0, 1),
        broker_default="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms = option(
        "min.compaction.lag.ms",
        LONG,
        0,
        "The shortest time for which a record of a compacted topic is kept even when a newer one "
        "of its key exists.",
        at_least(0),
        broker_default="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas = option(
        "min.insync.replicas",
        INT,
        1,
        "With acks=all a write is taken only while at least this many replicas are in sync, and "
        "with fewer nothing new is committed. Three replicas and a value of 2 survive the loss of "
        "any one broker. Counts at most the number of replicas.",
        at_least(1),
        broker_default="min.insync.replicas",
    )
    preallocate = option(
        "preallocate",
        BOOLEAN,
        False,
        "Reserve the whole size of a new segment's file when it is made.",
        broker_default="log.preallocate",
    )
    record_validation = option(
        "record.validation",
        STRING,
        "full",
        "Moldau's own. full checks each produced batch down to its records, as Kafka does, and "
        "refuses nonsense before a consumer meets it; header checks the batch's header and "
        "checksum only, for trusted producers and large compressed batches.",
        one_of("full", "header"),
        broker_default="log.record.validation",
    )
    remote_log_copy_disable = option(
        "remote.log.copy.disable",
        BOOLEAN,
        False,
        "With tiered storage, stop copying segments away. Moldau has no tiered storage, so only "
        "false is taken.",
        _ONLY_FALSE,
        reload=Reload.READ_ONLY,
    )
    remote_log_delete_on_disable = option(
        "remote.log.delete.on.disable",
        BOOLEAN,
        False,
        "With tiered storage, delete the remote data when it is turned off. Moldau has no tiered "
        "storage, so only false is taken.",
        _ONLY_FALSE,
        reload=Reload.READ_ONLY,
    )
    errors_deadletterqueue_group_enable = option(
        "errors.deadletterqueue.group.enable",
        BOOLEAN,
        False,
        "Whether share groups may have this topic as their dead-letter topic (KIP-1191): brokers "
        "write to it on behalf of clients that may not do so themselves.",
    )
    remote_storage_enable = option(
        "remote.storage.enable",
        BOOLEAN,
        False,
        "Keep old segments in tiered storage. Moldau has none, so only false is taken.",
        _ONLY_FALSE,
        reload=Reload.READ_ONLY,
    )
    retention_bytes = option(
        "retention.bytes",
        LONG,
        -1,
        "The size to which a partition may grow before its oldest segments are dropped; -1 for no "
        "limit. It counts per partition, and only with cleanup.policy delete.",
        broker_default="log.retention.bytes",
    )
    retention_ms = option(
        "retention.ms",
        LONG,
        7 * DAY_MS,
        "The age at which a segment is dropped, by the timestamp of its newest record; -1 for no "
        "limit. Only with cleanup.policy delete.",
        at_least(-1),
        broker_default="log.retention.ms",
    )
    segment_bytes = option(
        "segment.bytes",
        INT,
        1 << 30,
        "The size of a segment file. Retention and cleaning work on whole segments, so smaller "
        "ones follow the limits more closely at the price of more files.",
        at_least(1 << 20),
        broker_default="log.segment.bytes",
    )
    segment_index_bytes = option(
        "segment.index.bytes",
        INT,
        10 << 20,
        "The largest size of a segment's offset index. A segment is rolled when its index is full.",
        at_least(4),
        broker_default="log.index.size.max.bytes",
    )
    segment_jitter_ms = option(
        "segment.jitter.ms",
        LONG,
        0,
        "A random time up to this is taken off segment.ms, so that not all partitions roll at "
        "the same moment.",
        at_least(0),
        broker_default="log.roll.jitter.ms",
    )
    segment_ms = option(
        "segment.ms",
        LONG,
        7 * DAY_MS,
        "The age at which a segment is rolled even if it is not full, so that retention and "
        "cleaning can take it.",
        at_least(1),
        broker_default="log.roll.ms",
    )
    unclean_leader_election_enable = option(
        "unclean.leader.election.enable",
        BOOLEAN,
        False,
        "Let a replica that is not in sync become the leader when no other is left. The topic is "
        "available again, and acknowledged records may be lost. The same as "
        "unclean.recovery.strategy=aggressive, which goes first where it is set.",
        broker_default="unclean.leader.election.enable",
    )
    unclean_recovery_strategy = optional(
        "unclean.recovery.strategy",
        STRING,
        "What to do when every replica that is known to have all committed records is lost, as "
        "after a power loss of all machines (KIP-966). none waits for moldau elect unclean. "
        "balanced waits until all replicas that were last in sync are back and lets the longest "
        "log of the latest epoch lead: it has everything that the disks kept. aggressive lets the "
        "best log of those that answer lead at once, and acknowledged records may be lost. Not "
        "set, it is aggressive with unclean.leader.election.enable=true, and else balanced.",
        one_of("none", "balanced", "aggressive"),
        broker_default="unclean.recovery.strategy",
    )
    internal_segment_bytes = optional(
        "internal.segment.bytes",
        INT,
        "For tests: a segment size below the smallest that segment.bytes allows.",
        at_least(1),
        internal=True,
    )

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: BrokerOptions) -> TopicOptions:
        """A topic's values: its own, else the broker's. Names nobody knows are passed over."""
        inherited = _inherited(broker)
        if not overrides:
            return inherited
        values = {
            declared.attribute: declared.require(text)
            for name, text in overrides.items()
            if (declared := cls.find_declaration(name)) is not None
        }
        return _checked_together(inherited.replace(**values))

    @classmethod
    def check_all(cls, overrides: Mapping[str, str], broker: BrokerOptions) -> None:
        """Raise InvalidConfigError when a topic cannot have these settings together."""
        cls.check_settings(overrides, "topic")
        cls.resolve(overrides, broker)


# One broker has one set of values at a time, and every topic without overrides shares the result.
@lru_cache(maxsize=8)
def _inherited(broker: BrokerOptions) -> TopicOptions:
    values = {
        declared.attribute: (
            declared.default
            if declared.broker_default is None
            else broker.value_of(declared.broker_default)
        )
        for declared in TopicOptions.declarations().values()
    }
    return TopicOptions(values)


def _checked_together(options: TopicOptions) -> TopicOptions:
    """The checks that look at two options at once."""
    if options.min_compaction_lag_ms > options.max_compaction_lag_ms:
        raise InvalidConfigError(
            f"min.compaction.lag.ms={options.min_compaction_lag_ms} is larger than "
            f"max.compaction.lag.ms={options.max_compaction_lag_ms}; lower one or raise the other"
        )
    if options.internal_segment_bytes is not None:
        return options.replace(segment_bytes=options.internal_segment_bytes)
    return options


# Topics whose settings nobody knows: served, but nothing in them is deleted or compacted. A rule.
#
# Settings are lost when a folder of Kafka's is taken over (they were kept in its controllers), and
# when a node that held them is damaged. The defaults would be a guess, and a wrong one deletes what
# nobody can bring back: a compacted topic under `cleanup.policy=delete` is empty after a week.


SUSPENDED = "cleanup.suspended"

UNKNOWN_TOPIC_SETTINGS: Mapping[str, str] = MappingProxyType({SUSPENDED: "true"})
"""What applies in the place of settings that cannot be read."""

CONFIRMING_OPTIONS = frozenset({"cleanup.policy", "retention.ms", "retention.bytes"})
"""Who sets one of these has thought about what may be deleted."""


def with_confirmation(settings: Mapping[str, str], named: Collection[str]) -> Mapping[str, str]:
    """A topic's settings after those that are `named` were changed."""
    if SUSPENDED in named or not CONFIRMING_OPTIONS.intersection(named):
        return settings
    return {name: value for name, value in settings.items() if name != SUSPENDED}
