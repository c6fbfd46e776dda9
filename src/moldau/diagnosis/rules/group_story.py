"""The last rebalances of a group with their causes, who holds what, why lag grows. A rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from moldau.client.admin_values import SHARE_TYPE, GroupDescription, GroupState
from moldau.diagnosis.rules.explanation import Explanation
from moldau.diagnosis.rules.survey import GroupLook
from moldau.model import TopicPartition

_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """`history` is None where no broker could be asked for it."""

    group: GroupDescription
    first: GroupLook
    second: GroupLook
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
