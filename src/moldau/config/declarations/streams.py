"""Streams groups (KIP-1071): the instances of Kafka Streams applications and their tasks."""

from __future__ import annotations

from moldau.config.kinds import INT, MAX_INT, at_least
from moldau.config.option import OptionSet, Reload, option


class StreamsOptions(OptionSet):
    """What streams groups may have."""

    group_streams_session_timeout_ms = option(
        "group.streams.session.timeout.ms",
        INT,
        45_000,
        "How long a silent member of a streams group is kept.",
        at_least(1),
    )
    group_streams_min_session_timeout_ms = option(
        "group.streams.min.session.timeout.ms",
        INT,
        45_000,
        "The shortest session time-out that a streams group may have.",
        at_least(1),
    )
    group_streams_max_session_timeout_ms = option(
        "group.streams.max.session.timeout.ms",
        INT,
        60_000,
        "The longest session time-out that a streams group may have.",
        at_least(1),
    )
    group_streams_heartbeat_interval_ms = option(
        "group.streams.heartbeat.interval.ms",
        INT,
        5_000,
        "How often members of streams groups are told to report.",
        at_least(1),
    )
    group_streams_min_heartbeat_interval_ms = option(
        "group.streams.min.heartbeat.interval.ms",
        INT,
        5_000,
        "The shortest heartbeat interval that a streams group may have.",
        at_least(1),
    )
    group_streams_max_heartbeat_interval_ms = option(
        "group.streams.max.heartbeat.interval.ms",
        INT,
        15_000,
        "The longest heartbeat interval that a streams group may have.",
        at_least(1),
    )
    group_streams_max_size = option(
        "group.streams.max.size",
        INT,
        MAX_INT,
        "The most members that a streams group may have: threads of all its instances.",
        at_least(1),
    )
    group_streams_num_standby_replicas = option(
        "group.streams.num.standby.replicas",
        INT,
        0,
        "How many copies of a task's state other instances of a streams group keep, to take the "
        "task over without reading its changelog from the beginning.",
        at_least(0),
    )
    group_streams_max_standby_replicas = option(
        "group.streams.max.standby.replicas",
        INT,
        2,
        "The most copies of a task's state that a streams group may ask for.",
        at_least(0),
    )
    group_streams_initial_rebalance_delay_ms = option(
        "group.streams.initial.rebalance.delay.ms",
        INT,
        3_000,
        "How long a streams group that gets its first member waits for more of them before it "
        "assigns tasks.",
        at_least(0),
    )
    group_streams_assignment_interval_ms = option(
        "group.streams.assignment.interval.ms",
        INT,
        1_000,
        "How long a streams group keeps an assignment of tasks at least before it makes another.",
        at_least(0),
        reload=Reload.CLUSTER_WIDE,
    )
    group_streams_min_assignment_interval_ms = option(
        "group.streams.min.assignment.interval.ms",
        INT,
        0,
        "The shortest time between assignments that a streams group may have.",
        at_least(0),
    )
    group_streams_max_assignment_interval_ms = option(
        "group.streams.max.assignment.interval.ms",
        INT,
        15_000,
        "The longest time between assignments that a streams group may have.",
        at_least(0),
    )
