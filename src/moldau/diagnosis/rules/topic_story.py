"""The options of a topic: where each comes from, and what they do together. A rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.admin_values import ConfigEntry, ConfigSource
from moldau.diagnosis.rules.explanation import (
    Explanation,
    number_of,
    policies_of,
    show_duration,
)

_WORDS = {
    ConfigSource.DYNAMIC_TOPIC: "set on the topic",
    ConfigSource.DYNAMIC_BROKER: "set on the broker while it runs",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "set for all brokers while they run",
    ConfigSource.STATIC_BROKER: "the broker's file or command line",
    ConfigSource.DEFAULT: "default",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    topic: str
    entries: Sequence[ConfigEntry]
    partitions: int
    replicas: int  # of the partition that has the fewest
    brokers: int
    retention_check_ms: int | None = None  # of the brokers


def explain_topic(facts: TopicFacts) -> Explanation:
    configs = {one.name: one.value or "" for one in facts.entries}
    notes = [note for rule in _RULES for note in rule(facts, configs)]
    own = [one for one in facts.entries if not one.is_default]
    lines = [
        f"{one.name}={one.value}  ({_origin(one)})" for one in sorted(own, key=lambda e: e.name)
    ]
    if not lines:
        lines = ["nothing is set: all options have their defaults"]
    return Explanation(
        verdict=f"{len(own)} options set",
        lines=[*lines, "", *notes],
        facts={
            "topic": facts.topic,
            "partitions": facts.partitions,
            "replicas": facts.replicas,
            "notes": notes,
            "options": [
                {"name": one.name, "value": one.value, "source": one.source.label}
                for one in facts.entries
            ],
        },
    )


def _origin(entry: ConfigEntry) -> str:
    words = _WORDS.get(entry.source, entry.source.label)
    others = [one for one in entry.synonyms if one.source is not entry.source]
    if not others:
        return words
    return (
        f"{words}; without it {others[0].value}, {_WORDS.get(others[0].source, 'from elsewhere')}"
    )


def _retention(facts: TopicFacts, configs: Mapping[str, str]) -> Iterator[str]:
    if "delete" not in policies_of(configs):
        return
    retention_ms = number_of(configs, "retention.ms", -1)
    segment_ms = number_of(configs, "segment.ms", 0)
    segment_bytes = number_of(configs, "segment.bytes", 0)
    if retention_ms < 0:
        yield "retention.ms=-1: records are not deleted for their age"
    else:
        check = facts.retention_check_ms or 0
        latest = retention_ms + segment_ms + check
        yield (
            f"a record stays {show_duration(retention_ms)} at least and {show_duration(latest)} at "
            f"most: whole segments go when their youngest record is older than retention.ms; a "
            f"segment takes records for {show_duration(segment_ms)} (segment.ms) or "
            f"{segment_bytes} bytes (segment.bytes)"
            + (f", and brokers look every {show_duration(check)}" if check else "")
        )
        if segment_ms > retention_ms:
            yield (
                f"segment.ms ({show_duration(segment_ms)}) is longer than retention.ms "
                f"({show_duration(retention_ms)}): in a quiet topic the segment's age decides, not "
                "retention.ms; lower segment.ms if records must be gone in time"
            )
        if configs.get("message.timestamp.type") == "CreateTime":
            yield (
                "message.timestamp.type=CreateTime: ages are by the producers' clocks; a timestamp "
                "in the future keeps its segment until then"
            )
    retention_bytes = number_of(configs, "retention.bytes", -1)
    if retention_bytes >= 0:
        total = retention_bytes * facts.partitions
        yield (
            f"retention.bytes is for each partition: {facts.partitions} of them keep up to "
            f"{total} bytes, times {facts.replicas} replicas, and a segment more each"
        )
        if segment_bytes > retention_bytes:
            yield (
                f"segment.bytes ({segment_bytes}) is larger than retention.bytes "
                f"({retention_bytes}): a partition grows to a whole segment before anything goes"
            )


def _compaction(facts: TopicFacts, configs: Mapping[str, str]) -> Iterator[str]:
    if "compact" not in policies_of(configs):
        return
    segment_ms = number_of(configs, "segment.ms", 0)
    yield (
        "the latest record of each key stays; earlier ones go when the log is dirty enough "
        f"(min.cleanable.dirty.ratio={configs.get('min.cleanable.dirty.ratio', '0.5')}), at the "
        f"earliest {show_duration(number_of(configs, 'min.compaction.lag.ms', 0))} after they "
        "came; the active segment is never compacted, and it lasts up to "
        f"{show_duration(segment_ms)}"
    )
    tombstones_ms = number_of(configs, "delete.retention.ms", 0)
    yield (
        f"a tombstone stays {show_duration(tombstones_ms)} (delete.retention.ms) after its first "
        "compaction: a reader that takes longer from the start to the end may miss it"
    )
    if "delete" in policies_of(configs):
        yield "cleanup.policy=compact,delete: the latest record of a key goes too, by retention"


def _durability(facts: TopicFacts, configs: Mapping[str, str]) -> Iterator[str]:
    in_sync = number_of(configs, "min.insync.replicas", 1)
    if facts.replicas == 1:
        yield "one replica: acks=all means no more than acks=1, and its broker must not be lost"
    elif in_sync >= facts.replicas:
        yield (
            f"min.insync.replicas={in_sync} of {facts.replicas}: acks=all fails while one broker "
            "is away"
        )
    else:
        may_fail = facts.replicas - in_sync
        yield (
            f"acks=all is answered when all in sync, {in_sync} at least, have the record: writing "
            f"goes on while {may_fail} of {facts.replicas} are away, and {in_sync - 1} more may be "
            "lost without a record"
        )
    if configs.get("unclean.leader.election.enable") == "true":
        yield "unclean elections are allowed: being able to write comes before keeping records"
    if number_of(configs, "flush.messages", 2**62) < 2**62:
        yield (
            f"flush.messages={configs['flush.messages']}: the disk is waited for before records "
            "are acknowledged, which replication makes unnecessary as long as not all fail at once"
        )


def _sizes(facts: TopicFacts, configs: Mapping[str, str]) -> Iterator[str]:
    codec = configs.get("compression.type", "producer")
    if codec not in ("producer", ""):
        yield (
            f"compression.type={codec}: batches that come with another codec are compressed again "
            "by the broker, which costs it CPU"
        )


_RULES = (_retention, _compaction, _durability, _sizes)
