"""What holds a partition back, and whether a record is there and until when. Rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.client.admin.values import ActiveProducer, TransactionDescription
from moldau.model import NO_BROKER
from moldau.ops.formatting import show_duration
from moldau.ops.rules.explanations import Explanation, number_of, policies_of


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


# Records


_SEGMENT_MS = 7 * 86_400_000


class FoundRecord(NamedTuple):
    """A record as it lies in the log."""

    offset: int
    timestamp_ms: int
    key_bytes: int | None  # None: it has no key
    value_bytes: int | None  # None: a tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFacts:
    """What was found out. Invariant: log start <= last stable <= high watermark <= log end."""

    topic: str
    partition: int
    offset: int
    log_start: int
    last_stable: int
    high_watermark: int
    log_end: int
    now_ms: int
    configs: Mapping[str, str] = field(default_factory=dict)
    is_control: bool = False  # the offset is that of a transaction marker
    is_transactional: bool = False
    is_aborted: bool = False
    is_log_append_time: bool = False
    producer_id: int = -1
    record: FoundRecord | None = None
    next_offset: int | None = None  # of the first record behind it, where there is none at it
    later_with_key: int | None = None  # the first later record with the same key
    searched_to: int | None = None  # how far that was looked for
    deletions: Sequence[Mapping[str, object]] = ()  # of the history, about this partition
    is_foreign: bool = False  # the brokers are not Moldau's, and tell no history


def explain_record(facts: RecordFacts) -> Explanation:
    verdict, lines = _judge(facts)
    bounds = {
        "log_start_offset": facts.log_start,
        "last_stable_offset": facts.last_stable,
        "high_watermark": facts.high_watermark,
        "log_end_offset": facts.log_end,
    }
    found = None if facts.record is None else facts.record._asdict()
    return Explanation(
        verdict=verdict,
        lines=lines,
        facts={
            "topic": facts.topic,
            "partition": facts.partition,
            "offset": facts.offset,
            **bounds,
            "record": found,
            "later_offset_with_same_key": facts.later_with_key,
        },
    )


def _judge(facts: RecordFacts) -> tuple[str, list[str]]:
    offset = facts.offset
    if offset < 0:
        return "impossible", ["offsets begin with 0"]
    if offset >= facts.log_end:
        ahead = offset - facts.log_end
        return "never written", [
            f"it was never written: the next record gets offset {facts.log_end}"
            + (f", {ahead} before this one" if ahead else ""),
        ]
    if offset >= facts.high_watermark:
        return "not committed", [
            f"it is written, and not committed yet: the high watermark is {facts.high_watermark}, "
            "since not every in-sync replica has it",
            f"`moldau explain partition {facts.topic} {facts.partition}` says who is behind",
        ]
    if offset < facts.log_start:
        return "deleted", list(_explain_deletion(facts))
    if facts.is_control:
        return "transaction marker", [
            "the offset is that of a transaction marker, which no consumer gets: it ends a "
            f"transaction of producer {facts.producer_id}"
        ]
    if facts.record is None:
        return "compacted", list(_explain_compaction(facts))
    return _explain_present(facts, facts.record)


def _explain_deletion(facts: RecordFacts) -> Iterator[str]:
    yield f"it is gone: the log starts at offset {facts.log_start}"
    for event in facts.deletions:
        first, end = event.get("first_offset"), event.get("end_offset")
        if isinstance(first, int) and isinstance(end, int) and first <= facts.offset < end:
            yield f"the broker says: {event.get('message')}"
            return
    policies = policies_of(facts.configs)
    if "delete" not in policies:
        yield (
            "cleanup.policy is compact alone, by which the log start does not move: somebody "
            "asked for it (DeleteRecords), or the topic was set up in another way then"
        )
        return
    reasons = []
    retention_ms = number_of(facts.configs, "retention.ms", -1)
    if retention_ms >= 0:
        reasons.append(f"retention.ms={retention_ms} ({show_duration(retention_ms)})")
    retention_bytes = number_of(facts.configs, "retention.bytes", -1)
    if retention_bytes >= 0:
        reasons.append(f"retention.bytes={retention_bytes}")
    if not reasons:
        yield "retention keeps everything now: somebody asked for it (DeleteRecords)"
    elif facts.is_foreign:
        yield f"by retention ({', '.join(reasons)}), or DeleteRecords: Kafka forgets which"
    else:
        yield f"by retention ({', '.join(reasons)}), or DeleteRecords; brokers that remember more "
        yield "tell it on their metrics port (`moldau start --metrics`)"


def _explain_compaction(facts: RecordFacts) -> Iterator[str]:
    behind = "" if facts.next_offset is None else f"; the next one has offset {facts.next_offset}"
    if "compact" in policies_of(facts.configs):
        yield (
            "it is gone: compaction has removed it, since a later record has the same key, or it "
            f"was a tombstone older than delete.retention.ms{behind}"
        )
    else:
        yield f"there is no record at this offset{behind}"
        yield (
            "the topic is not compacted now: it was once, or a transaction left its offsets to "
            "markers"
        )


def _explain_present(facts: RecordFacts, record: FoundRecord) -> tuple[str, list[str]]:
    age = facts.now_ms - record.timestamp_ms
    kind = "LogAppendTime" if facts.is_log_append_time else "CreateTime"
    lines = [
        f"it is here: {_size(record.key_bytes, 'key')}, {_size(record.value_bytes, 'value')}, "
        f"timestamp {record.timestamp_ms} ({kind}, {show_duration(abs(age))} "
        f"{'ago' if age >= 0 else 'ahead'})"
    ]
    verdict = "here"
    if facts.is_aborted:
        verdict = "aborted"
        lines.append(
            f"its transaction (producer {facts.producer_id}) was aborted: readers with "
            "isolation.level=read_committed do not get it"
        )
    elif facts.is_transactional and facts.offset >= facts.last_stable:
        verdict = "undecided"
        lines.append(
            f"its transaction (producer {facts.producer_id}) or an earlier one is still open: "
            f"readers with read_committed get nothing from offset {facts.last_stable} on"
        )
    elif facts.offset >= facts.last_stable:
        verdict = "held back"
        lines.append(
            f"an open transaction holds readers with read_committed back at {facts.last_stable}"
        )
    lines += _until_when(facts, record)
    return verdict, lines


def _size(number: int | None, noun: str) -> str:
    return f"no {noun}" if number is None else f"{noun} of {number} bytes"


def _until_when(facts: RecordFacts, record: FoundRecord) -> Iterator[str]:
    policies, configs = policies_of(facts.configs), facts.configs
    if "delete" in policies:
        retention_ms = number_of(configs, "retention.ms", -1)
        if retention_ms >= 0:
            yield _until_retention(facts, record, retention_ms)
        retention_bytes = number_of(configs, "retention.bytes", -1)
        if retention_bytes >= 0:
            yield (
                f"or earlier, when the partition holds more than retention.bytes={retention_bytes}"
            )
        if retention_ms < 0 and retention_bytes < 0 and "compact" not in policies:
            yield "it stays for ever: retention.ms and retention.bytes are unlimited"
    if "compact" in policies:
        yield from _until_compaction(facts, record)


def _until_retention(facts: RecordFacts, record: FoundRecord, retention_ms: int) -> str:
    left_ms = record.timestamp_ms + retention_ms - facts.now_ms
    segment_ms = number_of(facts.configs, "segment.ms", _SEGMENT_MS)
    kept = f"retention.ms={retention_ms} ({show_duration(retention_ms)})"
    if left_ms > 0:
        return (
            f"it stays for {show_duration(left_ms)} at least ({kept}), and at most "
            f"{show_duration(segment_ms)} longer: it goes with its whole segment, when the "
            "youngest record in it is that old"
        )
    return (
        f"its time is over since {show_duration(-left_ms)} ({kept}); it goes with its segment, "
        f"when the youngest record in it is that old (segment.ms is {show_duration(segment_ms)}) "
        "and retention has its next look"
    )


def _until_compaction(facts: RecordFacts, record: FoundRecord) -> Iterator[str]:
    if record.key_bytes is None:
        yield "it has no key, which a compacted topic refuses: it came before it was compacted"
        return
    if facts.later_with_key is not None:
        yield (
            f"compaction will remove it: offset {facts.later_with_key} has the same key; the "
            "active segment, and what is younger than min.compaction.lag.ms, is left alone"
        )
    elif record.value_bytes is None:
        retention_ms = number_of(facts.configs, "delete.retention.ms", 86_400_000)
        yield (
            "it is a tombstone: it stays for delete.retention.ms "
            f"({show_duration(retention_ms)}) after it was compacted for the first time"
        )
    elif facts.searched_to is not None and facts.searched_to >= facts.high_watermark:
        yield "it is the latest record of its key: compaction keeps it"
    else:
        yield (
            f"no later record of its key was found up to offset {facts.searched_to}; compaction "
            "keeps the latest one"
        )
