"""What the options of a topic mean for batches that are appended to it. Values in, values out."""

from __future__ import annotations

from moldau.config.topic_options import TopicOptions
from moldau.records.compression import Codec
from moldau.storage.rules.append_checks import AppendLimits


def level_of(codec: Codec, options: TopicOptions) -> int | None:
    match codec:
        case Codec.GZIP:
            return options.compression_gzip_level
        case Codec.LZ4:
            return options.compression_lz4_level
        case Codec.ZSTD:
            return options.compression_zstd_level
        case Codec.NONE | Codec.SNAPPY:
            return None


def limits_of(options: TopicOptions) -> AppendLimits:
    return AppendLimits(
        max_message_bytes=options.max_message_bytes,
        segment_bytes=options.segment_bytes,
        compacted="compact" in options.cleanup_policy,
        log_append_time=options.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=options.message_timestamp_before_max_ms,
        timestamp_after_max_ms=options.message_timestamp_after_max_ms,
        inspect_records=options.record_validation == "full",
    )
