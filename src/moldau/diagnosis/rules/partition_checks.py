"""Findings about partitions, leaders and how topics are set up. Rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from moldau.client.rules.cluster_metadata import PartitionMetadata, TopicMetadata
from moldau.diagnosis.rules.findings import Finding, Severity, name_brokers, name_some
from moldau.diagnosis.rules.survey import ClusterSurvey
from moldau.model import NO_BROKER

_SKEW = 1.5
"""More than so many times the mean is too much for one broker."""

_FEW_LEADERS = 10
_ACCEPTED_IMBALANCE = 0.1
_FUTURE_MS = 5 * 60_000


def check_partitions(survey: ClusterSurvey) -> Iterator[Finding]:
    yield from check_availability(survey)
    yield from _check_leaders(survey)
    for topic in survey.topics.values():
        yield from _check_durability(topic, survey)
    yield from _check_timestamps(survey)
    yield from _check_throttles(survey)


def _each(survey: ClusterSurvey) -> Iterator[tuple[str, TopicMetadata, PartitionMetadata]]:
    for name, topic in sorted(survey.topics.items()):
        for partition in topic.partitions:
            yield f"{name}-{partition.index}", topic, partition


def check_availability(survey: ClusterSurvey) -> Iterator[Finding]:
    """Partitions that cannot be read, cannot be written, or have fewer copies than they should."""
    offline, short, behind = [], [], []
    for label, topic, partition in _each(survey):
        in_sync = len(partition.in_sync_replicas)
        if partition.leader_id == NO_BROKER:
            offline.append(label)
        elif in_sync < _min_in_sync(topic.name, survey, len(partition.replicas)):
            short.append(label)
        elif in_sync < len(partition.replicas):
            behind.append(label)
    if offline:
        yield Finding(
            severity=Severity.CRITICAL,
            check="offline-partitions",
            subject=name_some(offline),
            message=f"{_partitions_have(offline)} no leader: nobody can read or write them",
            advice="start the brokers that hold their replicas (`moldau topics describe`); if all "
            "in sync are lost for good, `moldau elect unclean`, which loses records",
        )
    if short:
        yield Finding(
            severity=Severity.CRITICAL,
            check="under-min-isr",
            subject=name_some(short),
            message=f"{_partitions_have(short)} fewer replicas in sync than "
            "min.insync.replicas: producers with acks=all are refused",
            advice="bring the missing brokers back, or see why they do not catch up (disk, "
            "network, replication throttles)",
        )
    if behind:
        away = _missing_brokers(survey)
        where = f", on {name_brokers(away)}" if away else ""
        yield Finding(
            severity=Severity.WARNING,
            check="under-replicated",
            subject=name_some(behind),
            message=f"{_partitions_have(behind)} replicas that are not in sync{where}",
            advice="look at those brokers: are they up, are their disks slow or full, is a "
            "replication throttle set",
        )


def _partitions_have(labels: Sequence[str]) -> str:
    return "1 partition has" if len(labels) == 1 else f"{len(labels)} partitions have"


def _missing_brokers(survey: ClusterSurvey) -> list[int]:
    missing: Counter[int] = Counter()
    for _, _, partition in _each(survey):
        missing.update(set(partition.replicas) - set(partition.in_sync_replicas))
    return [broker for broker, _ in missing.most_common(3)]


def _min_in_sync(topic: str, survey: ClusterSurvey, replicas: int) -> int:
    text = survey.topic_configs.get(topic, {}).get("min.insync.replicas", "1")
    return min(int(text) if text.isdecimal() else 1, replicas)


def _check_leaders(survey: ClusterSurvey) -> Iterator[Finding]:
    leaders: Counter[int] = Counter(dict.fromkeys(survey.brokers, 0))
    displaced = 0
    for _, _, partition in _each(survey):
        if partition.leader_id != NO_BROKER:
            leaders[partition.leader_id] += 1
            displaced += partition.leader_id != partition.replicas[0]
    total = sum(leaders.values())
    if displaced:
        is_much = displaced > total * _ACCEPTED_IMBALANCE
        yield Finding(
            severity=Severity.WARNING if is_much else Severity.INFO,
            check="preferred-leaders",
            subject=f"{displaced} of {total} partitions",
            message="they are not led by their preferred replica, so brokers carry other shares "
            "than planned",
            advice="`moldau elect preferred --all`, or wait for auto.leader.rebalance.enable",
        )
    if len(leaders) > 1 and total >= _FEW_LEADERS * len(leaders):
        mean = total / len(leaders)
        broker, most = leaders.most_common(1)[0]
        if most > mean * _SKEW:
            yield Finding(
                severity=Severity.WARNING,
                check="skewed-leaders",
                subject=f"broker {broker}",
                message=f"it leads {most} partitions, where the mean is {mean:.0f}: it answers "
                "most of the requests",
                advice="`moldau elect preferred --all`; if it is the preferred leader of all of "
                "these, move replicas with `moldau reassign`",
            )


def _check_durability(topic: TopicMetadata, survey: ClusterSurvey) -> Iterator[Finding]:
    if not topic.partitions:
        return
    replicas = min(len(one.replicas) for one in topic.partitions)
    configs = survey.topic_configs.get(topic.name, {})
    in_sync = configs.get("min.insync.replicas", "")
    if replicas == 1 and len(survey.brokers) > 1:
        yield Finding(
            severity=Severity.WARNING,
            check="single-replica",
            subject=topic.name,
            message=f"it has one replica in a cluster of {len(survey.brokers)} brokers: each of "
            "them takes its part along when it goes"
            + (", and with it the groups or transactions kept there" if topic.is_internal else ""),
            advice="add replicas with `moldau reassign`",
        )
    if replicas >= 3 and in_sync == "1":
        yield Finding(
            severity=Severity.WARNING,
            check="min-isr-one",
            subject=topic.name,
            message=f"min.insync.replicas=1 with {replicas} replicas: acks=all is answered with "
            "one copy when the others are behind, and its loss loses acknowledged records",
            advice=f"moldau configs alter --topic {topic.name} --set min.insync.replicas=2",
        )
    if in_sync.isdecimal() and replicas > 1 and int(in_sync) >= replicas:
        yield Finding(
            severity=Severity.WARNING,
            check="min-isr-all",
            subject=topic.name,
            message=f"min.insync.replicas={in_sync} with {replicas} replicas: acks=all fails as "
            "soon as one broker is away, also for a restart",
            advice="one less, or one replica more",
        )
    if configs.get("unclean.leader.election.enable") == "true":
        yield Finding(
            severity=Severity.WARNING,
            check="unclean-elections",
            subject=topic.name,
            message="unclean.leader.election.enable=true: a replica that lacks acknowledged "
            "records may lead, and they are lost",
            advice="set it to false where records matter more than being able to write",
        )


def _check_timestamps(survey: ClusterSurvey) -> Iterator[Finding]:
    ahead = [
        str(one)
        for one, at_ms in sorted(survey.max_timestamps.items())
        if at_ms > survey.now_ms + _FUTURE_MS
    ]
    if ahead:
        yield Finding(
            severity=Severity.WARNING,
            check="future-timestamps",
            subject=name_some(ahead),
            message="they have records whose timestamps lie in the future: retention by time does "
            "not delete their segments before that time",
            advice="mend the clocks of the producers; message.timestamp.after.max.ms refuses such "
            "records, message.timestamp.type=LogAppendTime does not believe producers",
        )


def _check_throttles(survey: ClusterSurvey) -> Iterator[Finding]:
    throttled = [
        f"broker {broker_id}"
        for broker_id, broker in sorted(survey.brokers.items())
        for side in ("leader", "follower")
        if (rate := broker.configs.get(f"{side}.replication.throttled.rate", "")).isdecimal()
        and int(rate) < 2**62
    ]
    if throttled and not survey.reassignments:
        yield Finding(
            severity=Severity.WARNING,
            check="throttle-left",
            subject=name_some(sorted(set(throttled))),
            message="a replication throttle is set though no partition is being moved: replicas "
            "that fall behind may not catch up",
            advice="`moldau reassign verify` takes it away, or `moldau configs alter`",
        )
