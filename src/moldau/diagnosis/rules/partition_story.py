"""What holds the high watermark, the last stable offset, retention or cleaning of a partition back.
A rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from moldau.client.transaction_values import ActiveProducer, TransactionDescription
from moldau.diagnosis.rules.explanation import (
    Explanation,
    number_of,
    policies_of,
    show_duration,
)
from moldau.model import NO_BROKER


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """What was found out. `log_ends` has the replicas that told theirs."""

    topic: str
    partition: int
    now_ms: int
    leader: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    living: Sequence[int]
    log_start: int = -1
    last_stable: int = -1
    high_watermark: int = -1
    log_ends: Mapping[int, int] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)
    producers: Sequence[ActiveProducer] = ()
    transactions: Mapping[int, TransactionDescription] = field(default_factory=dict)
    """By producer id, of those that have something open here."""
    first_timestamp_ms: int | None = None  # of the oldest record
    max_timestamp_ms: int | None = None
    size_bytes: int | None = None
    history: Sequence[Mapping[str, object]] = ()


def explain_partition(facts: PartitionFacts) -> Explanation:
    sections = {
        "leadership": list(_explain_leadership(facts)),
        "high watermark": list(_explain_high_watermark(facts)),
        "last stable offset": list(_explain_last_stable(facts)),
        "retention": list(_explain_retention(facts)),
        "compaction": list(_explain_cleaning(facts)),
        "lately": [_told(event) for event in facts.history[-10:]],
    }
    lines = [
        line
        for title, told in sections.items()
        if told
        for line in (f"{title}:", *(f"  {one}" for one in told))
    ]
    held = []
    if facts.leader == NO_BROKER:
        held.append("no leader")
    if facts.log_ends.get(facts.leader, facts.high_watermark) > facts.high_watermark:
        held.append("high watermark")
    if facts.last_stable < facts.high_watermark:
        held.append("last stable offset")
    return Explanation(
        verdict=f"held back: {', '.join(held)}" if held else "nothing is held back",
        lines=lines,
        facts={
            "topic": facts.topic,
            "partition": facts.partition,
            "leader": facts.leader,
            "replicas": list(facts.replicas),
            "in_sync": list(facts.in_sync),
            "log_start_offset": facts.log_start,
            "last_stable_offset": facts.last_stable,
            "high_watermark": facts.high_watermark,
            "log_end_offsets": {str(broker): end for broker, end in facts.log_ends.items()},
            "size_bytes": facts.size_bytes,
            "sections": sections,
        },
    )


def _told(event: Mapping[str, object]) -> str:
    return f"{event.get('at')}  {event.get('message')}"


def _explain_leadership(facts: PartitionFacts) -> Iterator[str]:
    away = [broker for broker in facts.replicas if broker not in facts.living]
    if facts.leader == NO_BROKER:
        yield (
            f"nobody leads it: of its replicas {list(facts.replicas)}, {away or 'none'} are away; "
            "one that is in sync has to come back"
        )
        return
    preferred = facts.replicas[0] if facts.replicas else facts.leader
    yield f"broker {facts.leader} leads, {len(facts.in_sync)} of {len(facts.replicas)} are in sync"
    if facts.leader != preferred:
        why = "which is away" if preferred in away else "which lives"
        yield f"the preferred leader is broker {preferred}, {why}: `moldau elect` gives it back"
    behind = [broker for broker in facts.replicas if broker not in facts.in_sync]
    for broker in behind:
        if broker in away:
            yield f"broker {broker} is not in sync: it is away"
        elif broker in facts.log_ends and facts.leader in facts.log_ends:
            missing = facts.log_ends[facts.leader] - facts.log_ends[broker]
            yield f"broker {broker} is not in sync: it is {missing} records behind and fetches"
        else:
            yield f"broker {broker} is not in sync, though it lives"
    needed = min(number_of(facts.configs, "min.insync.replicas", 1), len(facts.replicas) or 1)
    if len(facts.in_sync) < needed:
        yield f"acks=all is refused: min.insync.replicas={needed}"


def _explain_high_watermark(facts: PartitionFacts) -> Iterator[str]:
    end = facts.log_ends.get(facts.leader)
    if end is None or facts.leader == NO_BROKER:
        return
    if end <= facts.high_watermark:
        yield f"everything is committed, up to offset {end}"
        return
    yield f"{end - facts.high_watermark} records behind offset {facts.high_watermark} are not yet"
    slow = {
        broker: facts.log_ends[broker]
        for broker in facts.in_sync
        if broker in facts.log_ends and facts.log_ends[broker] < end
    }
    for broker, reached in sorted(slow.items(), key=lambda one: one[1]):
        yield f"broker {broker} is in sync and has only what is before offset {reached}"
    silent = [one for one in facts.in_sync if one not in facts.log_ends and one != facts.leader]
    if silent:
        yield (
            f"brokers {silent} are in sync and do not answer: after replica.lag.time.max.ms "
            "they are taken out, and the high watermark goes on"
        )
    needed = number_of(facts.configs, "min.insync.replicas", 1)
    if len(facts.in_sync) < min(needed, len(facts.replicas)):
        yield f"fewer than min.insync.replicas={needed} are in sync: nothing is committed"


def _explain_last_stable(facts: PartitionFacts) -> Iterator[str]:
    open_ones = sorted(
        (one for one in facts.producers if one.transaction_start_offset is not None),
        key=lambda one: one.transaction_start_offset or 0,
    )
    if facts.last_stable >= facts.high_watermark:
        if open_ones:
            counted = (
                "1 transaction is" if len(open_ones) == 1 else f"{len(open_ones)} transactions are"
            )
            yield f"{counted} open, and nothing of that is committed data"
        return
    waiting = facts.high_watermark - facts.last_stable
    yield (
        f"readers with read_committed stop at {facts.last_stable}, {waiting} records before the "
        "others: a transaction is open"
    )
    for one in open_ones:
        known = facts.transactions.get(one.producer_id)
        who = f"producer {one.producer_id}, open since offset {one.transaction_start_offset}"
        if known is None or known.started_ms is None:
            yield (
                f"{who}: no coordinator knows of it, so it will never end; `moldau transactions "
                f"abort --topic {facts.topic} --partition {facts.partition} --start-offset "
                f"{one.transaction_start_offset}`"
            )
            continue
        left_ms = known.started_ms + known.timeout_ms - facts.now_ms
        ends = f"aborted in {show_duration(left_ms)}" if left_ms > 0 else "about to be aborted"
        whose = f"transactional id {known.transactional_id}, {known.state}"
        yield f"{who}, {whose}: {ends} at the latest"


def _explain_retention(facts: PartitionFacts) -> Iterator[str]:
    configs = facts.configs
    if "delete" not in policies_of(configs) or facts.first_timestamp_ms is None:
        return
    retention_ms = number_of(configs, "retention.ms", -1)
    retention_bytes = number_of(configs, "retention.bytes", -1)
    if retention_ms < 0 and retention_bytes < 0:
        yield "nothing is deleted: retention.ms and retention.bytes are unlimited"
    if retention_bytes >= 0 and facts.size_bytes is not None:
        share = facts.size_bytes / max(1, retention_bytes)
        yield (
            f"it holds {facts.size_bytes} bytes, {share:.0%} of retention.bytes; what is over goes "
            "by whole segments"
        )
    if retention_ms < 0:
        return
    over_ms = facts.now_ms - facts.first_timestamp_ms - retention_ms
    if over_ms <= 0:
        yield f"the oldest record stays for {show_duration(-over_ms)} at least (retention.ms)"
        return
    yield (
        f"the oldest record is {show_duration(over_ms)} over retention.ms "
        f"({show_duration(retention_ms)}) and still here; it goes with its segment"
    )
    if facts.max_timestamp_ms is not None and facts.max_timestamp_ms > facts.now_ms:
        ahead = show_duration(facts.max_timestamp_ms - facts.now_ms)
        yield f"a record here has a timestamp that is {ahead} ahead: its segment stays until then"
    segment_ms = number_of(configs, "segment.ms", 0)
    if segment_ms > retention_ms:
        yield (
            f"segment.ms ({show_duration(segment_ms)}) is longer than retention.ms: a segment "
            "that is not full takes records for that long, and its youngest decides"
        )
    if facts.last_stable < facts.high_watermark:
        yield "retention stops at the high watermark, not at the last stable offset"


def _explain_cleaning(facts: PartitionFacts) -> Iterator[str]:
    configs = facts.configs
    if "compact" not in policies_of(configs):
        return
    ratio = configs.get("min.cleanable.dirty.ratio", "0.5")
    yield (
        f"it is compacted when {ratio} of it is dirty (min.cleanable.dirty.ratio), but never the "
        "active segment, nor what is younger than min.compaction.lag.ms"
    )
    lag_ms = number_of(configs, "min.compaction.lag.ms", 0)
    if lag_ms:
        yield f"min.compaction.lag.ms keeps {show_duration(lag_ms)} as they are"
    if facts.last_stable < facts.high_watermark:
        yield (
            f"the open transaction holds it back: nothing from offset {facts.last_stable} on is "
            "compacted"
        )
