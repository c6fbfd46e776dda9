"""Findings about brokers: addresses, disks, clocks, files, the loop, the store. Rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moldau.client.admin_values import LogDirDescription
from moldau.diagnosis.rules.findings import Finding, Severity, name_some
from moldau.diagnosis.rules.survey import BrokerSurvey, ClusterSurvey
from moldau.errors import KafkaError

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
