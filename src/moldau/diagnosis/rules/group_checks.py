"""Findings about groups and transactions. Rules."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.client.admin_values import GroupState
from moldau.diagnosis.rules.findings import Finding, Severity
from moldau.diagnosis.rules.survey import ClusterSurvey, GroupSurvey

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
    ) or (second.unfinished is not None and lag < first.lag)
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
