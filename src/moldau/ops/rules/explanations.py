"""Answers to "why is it so": of the options of a topic, of a group and its lag. Rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from moldau.client.admin.values import (
    SHARE_TYPE,
    ConfigEntry,
    ConfigSource,
    GroupDescription,
    GroupState,
)
from moldau.model import TopicPartition
from moldau.ops.formatting import show_duration
from moldau.ops.rules.group_lag import GroupView


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What people read, and `facts` for machines."""

    verdict: str  # one word or a few, the same for the same case
    lines: Sequence[str]
    facts: Mapping[str, object] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        return {"verdict": self.verdict, "explanation": list(self.lines), **self.facts}


def number_of(configs: Mapping[str, str], name: str, otherwise: int) -> int:
    """A setting as a number; `otherwise` where it is none."""
    try:
        return int(configs.get(name, ""))
    except ValueError:
        return otherwise


def policies_of(configs: Mapping[str, str]) -> frozenset[str]:
    text = configs.get("cleanup.policy", "delete")
    return frozenset(one.strip() for one in text.split(",") if one.strip())


# Topics

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


# Groups


_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """`history` is None where no broker could be asked for it."""

    group: GroupDescription
    first: GroupView
    second: GroupView
    seconds: float
    held_back: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Last stable offsets that are before the ends."""
    history: Sequence[Mapping[str, object]] | None = None
    deliveries: Sequence[Mapping[str, object]] | None = None
    """Of a share group: what members hold, by partition; None where no broker could be asked."""
    is_foreign: bool = False  # the brokers are not Moldau's, and tell no history


def explain_group(facts: GroupFacts) -> Explanation:
    group = facts.group
    lines = [f"{group.state}, {len(group.members)} members, {group.type}, {_coordinator(facts)}"]
    lines += ["", "members:", *(f"  {line}" for line in _explain_members(facts))]
    lines += ["", "lag:", *(f"  {line}" for line in _explain_lag(facts))]
    if group.type == SHARE_TYPE:
        lines += ["", "deliveries:", *(f"  {line}" for line in _explain_deliveries(facts))]
    lines += ["", "rebalances:", *(f"  {line}" for line in _explain_rebalances(facts))]
    return Explanation(
        verdict=str(group.state),
        lines=lines,
        facts={
            "group": group.group_id,
            "state": str(group.state),
            "lag": facts.second.lag,
            "lag_before": facts.first.lag,
            "seconds": facts.seconds,
            "members": [
                {
                    "member": member.member_id,
                    "client": member.client_id,
                    "host": member.host,
                    "partitions": [str(one) for one in member.assignment],
                }
                for member in group.members
            ],
            "deliveries": None if facts.deliveries is None else list(facts.deliveries),
            "rebalances": None if facts.history is None else list(facts.history),
        },
    )


def _coordinator(facts: GroupFacts) -> str:
    return f"coordinated by broker {facts.group.coordinator.id}"


def _explain_members(facts: GroupFacts) -> Iterator[str]:
    if not facts.group.members:
        yield "none: nobody reads for this group now"
    for member in facts.group.members:
        held = ", ".join(map(str, member.assignment)) or "nothing"
        yield f"{member.client_id} ({member.member_id}) at {member.host} holds {held}"
        missing = set(member.target) - set(member.assignment)
        if missing:
            names = ", ".join(sorted(map(str, missing)))
            yield f"  and waits for {names}, which others have not given up yet"


def _explain_lag(facts: GroupFacts) -> Iterator[str]:
    first, second, seconds = facts.first, facts.second, facts.seconds
    if not second.committed:
        yield "nothing is committed: members begin by auto.offset.reset"
        return
    came = sum(second.ends.get(one, 0) - end for one, end in first.ends.items())
    done = sum(
        max(0, second.committed.get(one, offset) - offset)
        for one, offset in first.committed.items()
    )
    yield (
        f"{second.lag} records, {first.lag} before {seconds:g} s; meanwhile {came} came and {done} "
        "were committed"
    )
    if second.lag:
        yield from _explain_causes(facts, came, done)
    worst = sorted(((lag, one) for one, lag in second.lags.items()), reverse=True)
    for lag, partition in worst[:3]:
        if lag > 0:
            yield f"{partition} is {lag} behind"


def _explain_causes(facts: GroupFacts, came: int, done: int) -> Iterator[str]:
    group, second = facts.group, facts.second
    if not group.members:
        yield "nobody reads: it grows with what comes"
    elif group.state is not GroupState.STABLE:
        yield "it rebalances, and reads less meanwhile"
    elif not done:
        yield "its members commit nothing: they are stuck, or commit rarely"
    elif came > done:
        yield f"more comes than it reads, {came - done} records in {facts.seconds:g} s"
    else:
        yield "it is catching up"
    held = Counter(one for member in group.members for one in member.assignment)
    nobody = sorted(str(one) for one in second.committed if group.members and one not in held)
    if nobody:
        yield f"no member holds {', '.join(nobody[:5])}: what comes there is read by nobody"
    for partition, stable in sorted(facts.held_back.items()):
        if second.committed.get(partition, -1) >= stable:
            yield (
                f"{partition}: an open transaction holds readers with read_committed back at "
                f"{stable}; `moldau explain partition {partition.topic} {partition.partition}`"
            )
    idle = second.idle_members
    if idle:
        yield f"{idle} members have no partition: more of them do not help"


def _explain_deliveries(facts: GroupFacts) -> Iterator[str]:
    if facts.deliveries is None:
        only = "only brokers of Moldau tell them"
        port = "leaders tell them on their metrics port (`moldau start --metrics`)"
        yield f"not known: {only if facts.is_foreign else port}"
        return
    if not facts.deliveries:
        yield "nothing is in flight"
    for row in sorted(facts.deliveries, key=_place_of):
        numbers = {name: value for name, value in row.items() if isinstance(value, int)}
        held, again = numbers.get("acquired", 0), numbers.get("waiting", 0)
        name = f"{row.get('topic')}-{row.get('partition')}"
        line = f"{name}: {held} in flight, {again} to be given again"
        if numbers.get("redelivered"):
            most = numbers.get("most_deliveries", 0)
            line += f", {numbers['redelivered']} delivered more than once (at most {most} times)"
        if row.get("oldest_offset") is not None:
            line += f"; offset {row['oldest_offset']} is the oldest that nobody has acknowledged"
        yield line
        members = row.get("members")
        for member, count in sorted(members.items()) if isinstance(members, dict) else ():
            yield f"  {member} holds {count}"
        seconds = row.get("lock_seconds")
        if isinstance(seconds, float | int) and held:
            yield f"  the next lock is over in {seconds:.1f} s"


def _place_of(row: Mapping[str, object]) -> tuple[str, int]:
    partition = row.get("partition")
    return str(row.get("topic")), partition if isinstance(partition, int) else -1


def _explain_rebalances(facts: GroupFacts) -> Iterator[str]:
    if facts.history is None and facts.is_foreign:
        yield "not known: only brokers of Moldau remember them; Kafka's write them to their logs"
        return
    if facts.history is None:
        yield (
            "not known: brokers remember them when they serve metrics (`moldau start --metrics`); "
            "name the port with --metrics"
        )
        return
    if not facts.history:
        yield "none that its coordinator remembers"
    for event in facts.history[-_SHOWN:]:
        yield f"{event.get('at')}  {event.get('message')}"
