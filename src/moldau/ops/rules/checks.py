"""What was read of a cluster, and what is wrong with it: findings for `moldau doctor`. Rules.

What could not be read is None, and `unchecked` gives the reasons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from moldau.client.admin.values import (
    GroupState,
    HangingTransaction,
    LogDirDescription,
    Reassignment,
    TransactionDescription,
)
from moldau.client.rules.cluster_metadata import Broker, PartitionMetadata, TopicMetadata
from moldau.errors import KafkaError
from moldau.model import NO_BROKER, TopicPartition
from moldau.ops.rules.group_lag import GroupView


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSurvey:
    """One broker."""

    broker: Broker
    unreachable: str | None = None  # why its advertised address cannot be reached from here
    log_dirs: tuple[LogDirDescription | KafkaError, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] | None = None  # sums over labels; None without an endpoint
    clock_ahead_seconds: float | None = None  # of ours; negative when it is behind


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurvey:
    """A group, looked at twice, `seconds` apart."""

    group_id: str
    first: GroupView
    second: GroupView
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSurvey:
    """All of it."""

    now_ms: int
    controller_id: int
    brokers: Mapping[int, BrokerSurvey]
    topics: Mapping[str, TopicMetadata]
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    max_timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    reassignments: Mapping[TopicPartition, Reassignment] = field(default_factory=dict)
    groups: tuple[GroupSurvey, ...] = ()
    hanging: tuple[HangingTransaction, ...] = ()
    open_transactions: tuple[TransactionDescription, ...] = ()
    unchecked: tuple[str, ...] = ()


_NAMED = 5


class Severity(IntEnum):
    """Ordered: the larger the worse."""

    INFO = 0  # worth knowing
    WARNING = 1  # will hurt when something else happens
    CRITICAL = 2  # hurts now, or data is in danger

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that somebody should know."""

    severity: Severity
    check: str  # names the check, for machines
    subject: str  # what it is about
    message: str  # what is the case, and what follows from it
    advice: str  # what to do

    def document(self) -> dict[str, str]:
        return {
            "severity": self.severity.label,
            "check": self.check,
            "subject": self.subject,
            "message": self.message,
            "advice": self.advice,
        }


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, then by check and subject."""
    return sorted(findings, key=lambda one: (-one.severity, one.check, one.subject))


def name_brokers(ids: Sequence[int]) -> str:
    """`broker 3`, `brokers 1, 3`."""
    return f"broker{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"


def name_some(names: Sequence[str]) -> str:
    """Some of many, and how many more there are."""
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def find_all(survey: ClusterSurvey) -> list[Finding]:
    """What `moldau doctor` tells."""
    checks = (check_brokers, check_partitions, check_groups)
    return sort_findings(finding for check in checks for finding in check(survey))


def find_what_is_wrong(survey: ClusterSurvey) -> list[Finding]:
    """What keeps a cluster from serving, or costs it a copy: what `moldau cluster health` asks."""
    critical = (one for one in check_brokers(survey) if one.severity is Severity.CRITICAL)
    return sort_findings([*critical, *check_availability(survey)])


# Brokers: addresses, disks, clocks, files, the loop, the store


_NEARLY_FULL = 0.15
_FULL = 0.05
_SKEW_SECONDS = 1.0
_MUCH_SKEW_SECONDS = 30.0
_MOST_FILES = 0.8
_SLOW_STORE_SECONDS = 0.1
_SLOW_LOOP_SECONDS = 0.131072
_LATE_SHARE = 0.01
_CERTIFICATE_DAYS = 30
_LOOPBACK = ("127.", "localhost", "::1", "0.0.0.0")  # noqa: S104 compared with, not bound to


def check_brokers(survey: ClusterSurvey) -> Iterator[Finding]:
    if survey.controller_id not in survey.brokers:
        yield Finding(
            severity=Severity.CRITICAL,
            check="no-controller",
            subject="the cluster",
            message="no living broker is the controller: leaders are not elected, topics not made",
            advice="look at the coordination store (`moldau zookeeper status`) and at their logs",
        )
    yield from _check_advertised(survey)
    yield from _check_racks(survey)
    yield from _check_controllers(survey)
    for broker in survey.brokers.values():
        yield from _check_disks(broker)
        yield from _check_clock(broker)
        if broker.metrics is not None:
            yield from _check_process(broker, broker.metrics)
            yield from _check_certificates(broker, broker.metrics, survey.now_ms)


def _name(broker: BrokerSurvey) -> str:
    return f"broker {broker.broker.id}"


def _check_advertised(survey: ClusterSurvey) -> Iterator[Finding]:
    for broker in survey.brokers.values():
        if broker.unreachable is not None:
            yield Finding(
                severity=Severity.CRITICAL,
                check="advertised-listener",
                subject=_name(broker),
                message=f"it advertises {broker.broker.address}, which cannot be reached from "
                f"here: {broker.unreachable}. Clients here get NOT_LEADER or time-outs for what it "
                "leads",
                advice="see whether it still runs; if so, set advertised.listeners to an address "
                "that clients can reach, or open the way to it",
            )
    hosts = {broker.broker.address.host for broker in survey.brokers.values()}
    loopback = {host for host in hosts if host.startswith(_LOOPBACK)}
    if loopback and loopback != hosts:
        yield Finding(
            severity=Severity.CRITICAL,
            check="advertised-loopback",
            subject=name_some(sorted(loopback)),
            message="some brokers advertise an address that means another machine to everybody, "
            "beside brokers that do not",
            advice="set advertised.listeners of those brokers",
        )


def _check_racks(survey: ClusterSurvey) -> Iterator[Finding]:
    without = [_name(one) for one in survey.brokers.values() if one.broker.rack is None]
    if without and len(without) < len(survey.brokers):
        yield Finding(
            severity=Severity.WARNING,
            check="racks",
            subject=name_some(without),
            message="they have no broker.rack, others have: replicas are not spread over racks",
            advice="set broker.rack on all brokers or on none",
        )


def _check_controllers(survey: ClusterSurvey) -> Iterator[Finding]:
    told = [one.metrics for one in survey.brokers.values() if one.metrics is not None]
    if len(told) == len(survey.brokers) > 0:
        active = sum(one.get("moldau_controller_active", 0) for one in told)
        if active > 1:
            yield Finding(
                severity=Severity.WARNING,
                check="controllers",
                subject="the cluster",
                message=f"{active:.0f} brokers say that they are the controller; epochs fence all "
                "but one",
                advice="if it stays so, look at the coordination store and the network",
            )


def _check_disks(broker: BrokerSurvey) -> Iterator[Finding]:
    for one in broker.log_dirs:
        if isinstance(one, KafkaError):
            yield Finding(
                severity=Severity.CRITICAL,
                check="failed-disk",
                subject=_name(broker),
                message=f"a log directory is offline: {one}",
                advice="repair or replace the disk and start the broker again; its log says what "
                "failed",
            )
        elif one.total_bytes > 0:
            yield from _check_room(broker, one)


def _check_room(broker: BrokerSurvey, one: LogDirDescription) -> Iterator[Finding]:
    free = one.usable_bytes / one.total_bytes
    if free >= _NEARLY_FULL:
        return
    yield Finding(
        severity=Severity.CRITICAL if free < _FULL else Severity.WARNING,
        check="disk-space",
        subject=f"{_name(broker)}, {one.path}",
        message=f"{free:.0%} of the disk are free ({one.usable_bytes >> 20} MiB): when it is full, "
        "the directory goes offline",
        advice="shorten retention.ms or retention.bytes of the largest topics, move partitions "
        "(`moldau reassign`), or add room",
    )


def _check_clock(broker: BrokerSurvey) -> Iterator[Finding]:
    ahead = broker.clock_ahead_seconds
    if ahead is None or abs(ahead) < _SKEW_SECONDS:
        return
    yield Finding(
        severity=Severity.CRITICAL if abs(ahead) >= _MUCH_SKEW_SECONDS else Severity.WARNING,
        check="clock-skew",
        subject=_name(broker),
        message=f"its clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the one "
        "here: retention, LogAppendTime and lag in seconds are off by that",
        advice="synchronise the clocks (chrony, ntpd)",
    )


def _check_process(broker: BrokerSurvey, metrics: Mapping[str, float]) -> Iterator[Finding]:
    files, most = metrics.get("process_open_fds"), metrics.get("process_max_fds")
    if files and most and files > most * _MOST_FILES:
        yield Finding(
            severity=Severity.CRITICAL,
            check="file-limit",
            subject=_name(broker),
            message=f"{files:.0f} of {most:.0f} files are open: without more, connections are "
            "refused and segments cannot be made",
            advice="raise the limit (ulimit -n, LimitNOFILE=) and start the broker again",
        )
    seconds = metrics.get("moldau_coordination_latency_seconds")
    if seconds is not None and seconds > _SLOW_STORE_SECONDS:
        yield Finding(
            severity=Severity.WARNING,
            check="slow-coordination",
            subject=_name(broker),
            message=f"the coordination store took {seconds * 1000:.0f} ms to answer: elections "
            "and changes of in-sync sets take that long, and sessions may end",
            advice="ZooKeeper needs a fast disk of its own for its transaction log, and memory",
        )
    yield from _check_loop(broker, metrics)


def _check_certificates(
    broker: BrokerSurvey, metrics: Mapping[str, float], now_ms: int
) -> Iterator[Finding]:
    ends_at = metrics.get("moldau_certificate_expiry_timestamp_seconds")
    if ends_at is None:
        return
    days = (ends_at - now_ms / 1000) / 86_400
    if days > _CERTIFICATE_DAYS:
        return
    has_ended = days <= 0
    yield Finding(
        severity=Severity.CRITICAL if has_ended else Severity.WARNING,
        check="certificate",
        subject=_name(broker),
        message="one of its certificates has ended: nobody who checks it can connect"
        if has_ended
        else f"one of its certificates ends in {days:.0f} days; then nobody who checks it can "
        "connect",
        advice="put a new one in place (`moldau secure renew`, for those of `secure init`): the "
        "broker uses it within seconds, without a restart; its log names the certificate",
    )


def _check_loop(broker: BrokerSurvey, metrics: Mapping[str, float]) -> Iterator[Finding]:
    looks = metrics.get("moldau_loop_delay_seconds_count", 0)
    in_time = metrics.get(f'moldau_loop_delay_seconds_bucket{{le="{_SLOW_LOOP_SECONDS}"}}', looks)
    if looks >= 100 and looks - in_time > looks * _LATE_SHARE:
        yield Finding(
            severity=Severity.WARNING,
            check="busy-loop",
            subject=_name(broker),
            message=f"its loop was more than {_SLOW_LOOP_SECONDS * 1000:.0f} ms late in "
            f"{(looks - in_time) / looks:.1%} of {looks:.0f} looks: requests wait for that",
            advice="give it a core of its own, spread partitions over more brokers (`moldau start "
            "--brokers auto`), or larger batches at the producers (linger.ms)",
        )


# Partitions, leaders and the settings of topics


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


# Groups and transactions

_REBALANCING = frozenset(
    {
        GroupState.PREPARING_REBALANCE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.ASSIGNING,
        GroupState.RECONCILING,
    }
)
_LONG_MS = 15 * 60_000


def check_groups(survey: ClusterSurvey) -> Iterator[Finding]:
    for group in survey.groups:
        yield from _check_group(group)
    yield from _check_transactions(survey)


def _check_group(group: GroupSurvey) -> Iterator[Finding]:
    first, second = group.first, group.second
    subject = f"group {group.group_id}"
    if first.state in _REBALANCING and second.state in _REBALANCING:
        yield Finding(
            severity=Severity.WARNING,
            check="rebalancing",
            subject=subject,
            message=f"it was rebalancing ({first.state}) and still is ({second.state}) "
            f"{group.seconds:.0f} s later: its members read nothing meanwhile, or less",
            advice="`moldau explain group` says why it rebalances; a member that takes longer than "
            "max.poll.interval.ms between two polls holds the others up",
        )
    lag = second.lag
    is_moving = any(
        second.committed.get(one, -1) > offset for one, offset in first.committed.items()
    ) or (second.is_shared and lag < first.lag)
    if second.members and lag and not is_moving and second.state is GroupState.STABLE:
        yield Finding(
            severity=Severity.WARNING,
            check="stuck-group",
            subject=subject,
            message=f"it is {lag} records behind and has committed nothing in "
            f"{group.seconds:.0f} s, with {len(second.members)} member(s)",
            advice="are its members stuck on a record, waiting for something else, or committing "
            "rarely? With isolation.level=read_committed an open transaction holds them back: "
            "`moldau explain partition`",
        )
    elif second.members and lag > first.lag:
        yield Finding(
            severity=Severity.INFO,
            check="growing-lag",
            subject=subject,
            message=f"its lag grew from {first.lag} to {lag} records in {group.seconds:.0f} s",
            advice="if it goes on: more members, up to the number of partitions; faster work per "
            "record; larger fetches",
        )
    if second.idle_members:
        yield Finding(
            severity=Severity.INFO,
            check="idle-members",
            subject=subject,
            message=f"{second.idle_members} of its {len(second.members)} members have no partition",
            advice="more partitions (`moldau topics alter`), or fewer members",
        )


def _check_transactions(survey: ClusterSurvey) -> Iterator[Finding]:
    for one in survey.hanging:
        offset = one.producer.transaction_start_offset
        yield Finding(
            severity=Severity.CRITICAL,
            check="hanging-transaction",
            subject=str(one.partition),
            message=f"a transaction of producer {one.producer.producer_id} is open since offset "
            f"{offset}, and no coordinator will end it: readers of committed records wait for ever",
            advice=f"moldau transactions abort --topic {one.partition.topic} --partition "
            f"{one.partition.partition} --start-offset {offset}",
        )
    for described in survey.open_transactions:
        started_ms = described.started_ms
        if started_ms is None or survey.now_ms - started_ms < _LONG_MS:
            continue
        minutes = (survey.now_ms - started_ms) // 60_000
        yield Finding(
            severity=Severity.WARNING,
            check="long-transaction",
            subject=f"transactional id {described.transactional_id}",
            message=f"its transaction has been open for {minutes} minutes in "
            f"{len(described.partitions)} partition(s): readers of committed records wait there",
            advice="look at its producer; after transaction.timeout.ms "
            f"({described.timeout_ms} ms) the coordinator aborts it",
        )
