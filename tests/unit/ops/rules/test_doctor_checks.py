"""Each finding of `moldau doctor`, from plain values; and silence about a cluster that is well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from moldau.client.admin.values import (
    ActiveProducer,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupState,
    HangingTransaction,
    LogDirDescription,
    ShareGroupOffset,
    TransactionDescription,
)
from moldau.client.rules.cluster_metadata import Address, Broker, PartitionMetadata, TopicMetadata
from moldau.errors import StorageError
from moldau.model import TopicPartition
from moldau.ops.metrics_ports import read_metrics
from moldau.ops.rules.checks import (
    BrokerSurvey,
    ClusterSurvey,
    GroupSurvey,
    Severity,
    find_all,
    find_what_is_wrong,
    sort_findings,
)
from moldau.ops.rules.group_lag import GroupView, group_partitions

NOW_MS = 1_700_000_000_000
T0 = TopicPartition("t", 0)


def broker(number: int, **changes: object) -> BrokerSurvey:
    address = Address(f"host{number}", 9092)
    return replace(
        BrokerSurvey(broker=Broker(id=number, address=address, rack=None)),
        **changes,
    )


def topic(
    *partitions: tuple[int, tuple[int, ...], tuple[int, ...]], name: str = "t"
) -> Mapping[str, TopicMetadata]:
    """Leader, replicas, in sync of each partition."""
    rows = tuple(
        PartitionMetadata(
            index=index,
            leader_id=leader,
            leader_epoch=0,
            replicas=replicas,
            in_sync_replicas=in_sync,
            offline_replicas=(),
        )
        for index, (leader, replicas, in_sync) in enumerate(partitions)
    )
    return {
        name: TopicMetadata(
            name=name, topic_id=None, is_internal=False, partitions=rows, error=None
        )
    }


WELL = ClusterSurvey(
    now_ms=NOW_MS,
    controller_id=1,
    brokers={number: broker(number) for number in (1, 2, 3)},
    topics=topic((1, (1, 2, 3), (1, 2, 3)), (2, (2, 3, 1), (2, 3, 1))),
    topic_configs={"t": {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}},
)


def checks_of(survey: ClusterSurvey) -> list[str]:
    return [finding.check for finding in find_all(survey)]


def with_broker(**changes: object) -> ClusterSurvey:
    return replace(WELL, brokers={**WELL.brokers, 1: broker(1, **changes)})


def with_configs(**changes: str) -> ClusterSurvey:
    named = {name.replace("_", "."): value for name, value in changes.items()}
    return replace(WELL, topic_configs={"t": {**WELL.topic_configs["t"], **named}})


def test_a_cluster_that_is_well_has_no_findings() -> None:
    assert find_all(WELL) == []
    assert find_what_is_wrong(WELL) == []


@pytest.mark.parametrize(
    ("survey", "check"),
    [
        (replace(WELL, controller_id=-1), "no-controller"),
        (replace(WELL, topics=topic((-1, (1, 2, 3), (1,)))), "offline-partitions"),
        (replace(WELL, topics=topic((1, (1, 2, 3), (1, 2)))), "under-replicated"),
        (with_broker(unreachable="connection refused"), "advertised-listener"),
    ],
)
def test_health_is_about_what_is_wrong_now(survey: ClusterSurvey, check: str) -> None:
    assert [finding.check for finding in find_what_is_wrong(survey)] == [check]


def test_health_names_the_brokers_that_are_behind() -> None:
    (found,) = find_what_is_wrong(replace(WELL, topics=topic((1, (1, 2, 3), (1, 2)))))
    assert found.message == "1 partition has replicas that are not in sync, on broker 3"


def test_health_is_not_about_what_could_be_better() -> None:
    could_be_better = with_configs(min_insync_replicas="1")
    assert find_all(could_be_better)
    assert find_what_is_wrong(could_be_better) == []


@pytest.mark.parametrize(
    ("survey", "check"),
    [
        (replace(WELL, controller_id=-1), "no-controller"),
        (replace(WELL, topics=topic((-1, (1, 2, 3), (1,)))), "offline-partitions"),
        (replace(WELL, topics=topic((1, (1, 2, 3), (1,)))), "under-min-isr"),
        (replace(WELL, topics=topic((1, (1, 2, 3), (1, 2)))), "under-replicated"),
        (replace(WELL, topics=topic((2, (1, 2, 3), (1, 2, 3)))), "preferred-leaders"),
        (replace(WELL, topics=topic(*[(1, (1, 2, 3), (1, 2, 3))] * 30)), "skewed-leaders"),
        (replace(WELL, topics=topic((1, (1,), (1,)))), "single-replica"),
        (with_configs(min_insync_replicas="1"), "min-isr-one"),
        (with_configs(min_insync_replicas="3"), "min-isr-all"),
        (with_configs(unclean_leader_election_enable="true"), "unclean-elections"),
        (replace(WELL, max_timestamps={T0: NOW_MS + 3_600_000}), "future-timestamps"),
        (
            with_broker(configs={"leader.replication.throttled.rate": "1000"}),
            "throttle-left",
        ),
        (with_broker(unreachable="connection refused"), "advertised-listener"),
        (
            with_broker(broker=Broker(id=1, address=Address("127.0.0.1", 9092), rack=None)),
            "advertised-loopback",
        ),
        (with_broker(broker=Broker(id=1, address=Address("host1", 9092), rack="a")), "racks"),
        (with_broker(log_dirs=(StorageError("offline"),)), "failed-disk"),
        (
            with_broker(
                log_dirs=(
                    LogDirDescription(path="/d", total_bytes=100, usable_bytes=4, replicas=()),
                )
            ),
            "disk-space",
        ),
        (
            with_broker(
                log_dirs=(
                    LogDirDescription(path="/d", total_bytes=100, usable_bytes=14, replicas=()),
                )
            ),
            "disk-space",
        ),
        (with_broker(clock_ahead_seconds=-2.0), "clock-skew"),
        (with_broker(metrics={"process_open_fds": 90, "process_max_fds": 100}), "file-limit"),
        (
            with_broker(
                metrics={"moldau_certificate_expiry_timestamp_seconds": NOW_MS / 1000 + 20 * 86_400}
            ),
            "certificate",
        ),
        (
            with_broker(metrics={"moldau_coordination_latency_seconds": 0.3}),
            "slow-coordination",
        ),
        (
            with_broker(
                metrics={
                    "moldau_loop_delay_seconds_count": 1000,
                    'moldau_loop_delay_seconds_bucket{le="0.131072"}': 900,
                }
            ),
            "busy-loop",
        ),
        (
            replace(
                WELL,
                brokers={
                    number: broker(number, metrics={"moldau_controller_active": 1})
                    for number in (1, 2)
                },
            ),
            "controllers",
        ),
        (
            replace(
                WELL,
                hanging=(
                    HangingTransaction(
                        partition=T0,
                        producer=ActiveProducer(
                            producer_id=7,
                            producer_epoch=0,
                            last_sequence=0,
                            last_timestamp_ms=0,
                            coordinator_epoch=None,
                            transaction_start_offset=5,
                        ),
                        transactional_id=None,
                    ),
                ),
            ),
            "hanging-transaction",
        ),
        (
            replace(
                WELL,
                open_transactions=(
                    TransactionDescription(
                        transactional_id="x",
                        coordinator_id=1,
                        state="Ongoing",
                        producer_id=7,
                        producer_epoch=0,
                        timeout_ms=60_000,
                        started_ms=NOW_MS - 3_600_000,
                        partitions=frozenset({T0}),
                    ),
                ),
            ),
            "long-transaction",
        ),
    ],
)
def test_each_fault_is_found_and_nothing_else(survey: ClusterSurvey, check: str) -> None:
    assert checks_of(survey) == [check]


def group(first: GroupView, second: GroupView) -> ClusterSurvey:
    return replace(
        WELL, groups=(GroupSurvey(group_id="g", first=first, second=second, seconds=5.0),)
    )


def view(
    committed: int = 10,
    end: int = 20,
    *,
    state: GroupState = GroupState.STABLE,
    members: int = 1,
    idle_members: int = 0,
    unfinished: int | None = None,  # of a share group
) -> GroupView:
    readers = tuple(
        GroupMember(
            member_id=f"m-{number}",
            client_id="c",
            host="/h",
            assignment=() if number < idle_members else (T0,),
        )
        for number in range(members)
    )
    position = (
        GroupOffset(offset=committed)
        if unfinished is None
        else ShareGroupOffset(start_offset=committed, lag=unfinished)
    )
    return GroupView(
        description=GroupDescription(
            group_id="g",
            state=state,
            protocol_type="consumer",
            protocol="range",
            coordinator=Broker(id=1, address=Address("h", 1)),
            members=readers,
            type="classic" if unfinished is None else "share",
        ),
        partitions=group_partitions(readers, {T0: position}, {T0: end}),
    )


@pytest.mark.parametrize(
    ("second", "check"),
    [
        (view(), "stuck-group"),
        (view(15, 40), "growing-lag"),
        (view(20, idle_members=1), "idle-members"),
    ],
)
def test_groups_that_do_not_do_well(second: GroupView, check: str) -> None:
    assert checks_of(group(view(), second)) == [check]


def test_a_group_that_catches_up_or_is_empty_is_well() -> None:
    assert checks_of(group(view(), view(18))) == []
    empty = view(state=GroupState.EMPTY, members=0)
    assert checks_of(group(empty, empty)) == []


def test_a_share_group_that_finishes_records_behind_its_start_offset_is_well() -> None:
    first = view(unfinished=9)
    assert checks_of(group(first, view(unfinished=4))) == []
    assert checks_of(group(first, first)) == ["stuck-group"]
    done = view(unfinished=0)
    assert checks_of(group(done, done)) == []


def test_a_rebalance_that_goes_on_is_found_one_that_ends_is_not() -> None:
    busy = view(20, state=GroupState.PREPARING_REBALANCE)
    assert checks_of(group(busy, busy)) == ["rebalancing"]
    assert checks_of(group(busy, view(20))) == []


def test_the_worst_comes_first() -> None:
    survey = replace(with_configs(min_insync_replicas="1"), controller_id=-1)
    found = find_all(survey)
    assert [one.severity for one in found] == [Severity.CRITICAL, Severity.WARNING]
    assert sort_findings(reversed(found)) == found
    assert all(one.message and one.advice for one in found)


def test_metrics_are_summed_up_over_labels_but_not_over_bounds() -> None:
    text = (
        "# HELP a_total x\n"
        'a_total{t="1"} 2\n'
        'a_total{t="}\\" ,"} 3\n'
        'b_bucket{le="0.5"} 1\n'
        'b_bucket{le="+Inf"} 4\n'
        "c 1.5\n"
        "nonsense\n"
    )
    assert read_metrics(text) == {
        "a_total": 5.0,
        'b_bucket{le="0.5"}': 1.0,
        'b_bucket{le="+Inf"}': 4.0,
        "c": 1.5,
    }
