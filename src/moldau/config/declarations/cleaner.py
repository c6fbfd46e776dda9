"""Compaction."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.kinds import BOOLEAN, DOUBLE, INT, LONG, MAX_DOUBLE, MAX_LONG, at_least, between
from moldau.config.option import DAY_MS, OptionSet, Reload, option

_DYNAMIC = Reload.CLUSTER_WIDE


class CleanerOptions(OptionSet, ignored=ignored.CLEANER):
    """Compaction."""

    log_cleaner_enable = option(
        "log.cleaner.enable",
        BOOLEAN,
        True,
        "Compact the topics whose cleanup.policy names compact. Leave it on: the offsets of "
        "consumer groups live in such a topic.",
    )
    log_cleaner_io_max_bytes_per_second = option(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        MAX_DOUBLE,
        "How much the cleaner may read and write per second.",
        reload=_DYNAMIC,
    )
    log_cleaner_dedupe_buffer_size = option(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        128 << 20,
        "Memory for the keys that one round of the cleaner compares, 24 bytes for each: some five "
        "million in the default. With more of them in a log, the cleaner takes several rounds.",
        reload=_DYNAMIC,
    )
    log_cleaner_io_buffer_size = option(
        "log.cleaner.io.buffer.size",
        INT,
        512 << 10,
        "Memory through which the cleaner reads and writes.",
        at_least(0),
        reload=_DYNAMIC,
    )
    log_cleaner_io_buffer_load_factor = option(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        "How full the cleaner's memory for keys may become; more than 0.9 counts as that.",
        reload=_DYNAMIC,
    )
    log_cleaner_backoff_ms = option(
        "log.cleaner.backoff.ms",
        LONG,
        15_000,
        "How long the cleaner rests when there is nothing to clean.",
        at_least(0),
        reload=_DYNAMIC,
    )
    log_cleaner_min_cleanable_ratio = option(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        0.5,
        "The share of a log that must be uncleaned before the cleaner takes it up. The default of "
        "min.cleanable.dirty.ratio.",
        between(0, 1),
        reload=_DYNAMIC,
    )
    log_cleaner_delete_retention_ms = option(
        "log.cleaner.delete.retention.ms",
        LONG,
        DAY_MS,
        "How long tombstones stay. The default of delete.retention.ms.",
        at_least(0),
        reload=_DYNAMIC,
    )
    log_cleaner_min_compaction_lag_ms = option(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        0,
        "The shortest time for which a superseded record is kept. The default of "
        "min.compaction.lag.ms.",
        at_least(0),
        reload=_DYNAMIC,
    )
    log_cleaner_max_compaction_lag_ms = option(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        MAX_LONG,
        "The longest time for which a record may stay out of the cleaner's reach. The default of "
        "max.compaction.lag.ms.",
        at_least(1),
        reload=_DYNAMIC,
    )
