"""Options that Kafka has and Moldau has no use for, as one table.

They are taken, checked and described, so that existing files work and tools find them; nothing
reads their values. The tables are named after the class of options that each belongs to.
"""

from __future__ import annotations

from typing import Final, TypeVar, cast

from moldau.config.option import (
    INT,
    LIST,
    LONG,
    STRING,
    AnyOption,
    Importance,
    Kind,
    Option,
    Reload,
    Rule,
    at_least,
    one_of,
)

V = TypeVar("V")

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
CLUSTER_WIDE, PER_BROKER = Reload.CLUSTER_WIDE, Reload.PER_BROKER


def _row(
    name: str,
    kind: Kind[V],
    default: V | None,
    rule: Rule[V] | None,
    documentation: str,
    importance: Importance = MEDIUM,
    reload: Reload = Reload.READ_ONLY,
    broker_default: str | None = None,
) -> AnyOption:
    declared = Option(
        name,
        kind,
        default,
        documentation,
        rule,
        importance=importance,
        reload=reload,
        broker_default=broker_default,
        ignored=True,
    )
    return cast("AnyOption", declared)


def _buffer_fault(value: int) -> str | None:
    return None if value == -1 or value > 0 else "is neither -1 nor a positive size"


BUFFER_BYTES = Rule("-1, or at least 1", _buffer_fault)

# fmt: off
IDENTITY: Final = (
    _row("metadata.log.dir", STRING, None, None,
         "Where Kafka's own quorum keeps its log.", HIGH),
    _row("inter.broker.protocol.version", STRING, None, None,
         "The version that brokers of different releases agree on."),
)

NETWORK: Final = (
    _row("socket.send.buffer.bytes", INT, 100 << 10, BUFFER_BYTES,
         "The send buffer of each connection (SO_SNDBUF). The operating system decides.", HIGH),
    _row("socket.receive.buffer.bytes", INT, 100 << 10, BUFFER_BYTES,
         "The receive buffer of each connection (SO_RCVBUF). The operating system decides.", HIGH),
    _row("socket.listen.backlog.size", INT, 50, at_least(1),
         "How many connections may wait to be accepted. The operating system has a limit of its "
         "own (somaxconn on Linux)."),
    _row("queued.max.requests", INT, 500, at_least(1),
         "How many requests may wait for a thread. A Moldau connection has one request under way "
         "and is not read from before that is answered.", HIGH),
    _row("queued.max.request.bytes", LONG, -1, None,
         "How many bytes of requests may wait for a thread; -1 for no limit."),
    _row("socket.connection.setup.timeout.max.ms", LONG, 30_000, at_least(1),
         "The longest wait for a connection to another broker after repeated failures."),
    _row("num.network.threads", INT, 3, at_least(1),
         "Threads that read and write sockets. Moldau serves all "
         "connections on one event loop.", HIGH, CLUSTER_WIDE),
    _row("num.io.threads", INT, 8, at_least(1),
         "Threads that handle requests. Moldau handles them on one event "
         "loop.", HIGH, CLUSTER_WIDE),
)

LOGS: Final = (
    _row("log.dir.failure.timeout.ms", LONG, 30_000, at_least(1),
         "How long a broker tries to report a failed directory before it stops.", LOW),
    _row("log.local.retention.ms", LONG, -2, at_least(-2),
         "With tiered storage, the default of local.retention.ms.", MEDIUM, CLUSTER_WIDE),
    _row("log.local.retention.bytes", LONG, -2, at_least(-2),
         "With tiered storage, the default of local.retention.bytes.", MEDIUM, CLUSTER_WIDE),
    _row("log.initial.task.delay.ms", LONG, 30_000, at_least(0),
         "How long after the start the periodic work on logs begins. Meant for tests.", LOW),
)

CLEANER: Final = (
    _row("log.cleaner.threads", INT, 1, at_least(0),
         "Workers that compact logs.", MEDIUM, CLUSTER_WIDE),
)

REPLICATION: Final = (
    _row("replica.socket.receive.buffer.bytes", INT, 64 << 10, None,
         "The receive buffer of a follower's connection.", HIGH),
    _row("num.replica.fetchers", INT, 1, at_least(1),
         "Threads that fetch from each other broker. Moldau fetches in one "
         "task per broker.", HIGH, CLUSTER_WIDE),
    _row("fetch.purgatory.purge.interval.requests", INT, 1_000, None,
         "How often waiting fetches are tidied up."),
    _row("producer.purgatory.purge.interval.requests", INT, 1_000, None,
         "How often waiting produces are tidied up."),
    _row("delete.records.purgatory.purge.interval.requests", INT, 1, None,
         "How often waiting deletions of records are tidied up."),
    _row("controlled.shutdown.retry.backoff.ms", LONG, 5_000, at_least(0),
         "How long to wait before the hand-over is tried again."),
    _row("controller.socket.timeout.ms", INT, 30_000, at_least(1),
         "How long the controller waits for a broker's answer."),
)

GROUPS: Final = (
)

SHARES: Final = (
    _row("share.coordinator.threads", INT, 1, at_least(1),
         "Threads of the share coordinator."),
    _row("share.coordinator.append.linger.ms", INT, -1, at_least(-1),
         "How long the share coordinator collects what it writes."),
    _row("share.fetch.purgatory.purge.interval.requests", INT, 1_000, None,
         "How often waiting fetches of share groups are tidied up."),
)

TRANSACTIONS: Final = (
)

QUOTAS: Final = (
    _row("replication.quota.window.num", INT, 11, at_least(1),
         "How many samples of rates are kept in memory for replication quotas.", LOW),
    _row("replication.quota.window.size.seconds", INT, 1, at_least(1),
         "How many seconds one sample of rates covers for replication quotas.", LOW),
    _row("alter.log.dirs.replication.quota.window.num", INT, 11, at_least(1),
         "How many samples of rates are kept in memory for moves between data directories.", LOW),
    _row("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, at_least(1),
         "How many seconds one sample of rates covers for moves between data directories.", LOW),
)

METRICS: Final = (
    _row("metric.reporters", LIST, (), None,
         "Java classes that report metrics.", LOW, CLUSTER_WIDE),
    _row("metrics.num.samples", INT, 2, at_least(1),
         "How many samples a metric keeps.", LOW),
    _row("metrics.sample.window.ms", LONG, 30_000, at_least(1),
         "How long a sample of a metric is.", LOW),
    _row("metrics.recording.level", STRING, "INFO", one_of("INFO", "DEBUG", "TRACE"),
         "How much is measured.", LOW),
)

TOPICS: Final = (
    _row("local.retention.bytes", LONG, -2, at_least(-2),
         "With tiered storage, the size up to which segments stay on the broker; -2 means "
         "retention.bytes.", MEDIUM, CLUSTER_WIDE, broker_default="log.local.retention.bytes"),
    _row("local.retention.ms", LONG, -2, at_least(-2),
         "With tiered storage, the time for which segments stay on the broker; -2 means "
         "retention.ms.", MEDIUM, CLUSTER_WIDE, broker_default="log.local.retention.ms"),
    _row("remote.copy.lag.bytes", LONG, 0, at_least(-1),
         "With tiered storage, how much newer data must exist before a "
         "segment is copied away.", MEDIUM, CLUSTER_WIDE),
    _row("remote.copy.lag.ms", LONG, 0, at_least(-1),
         "With tiered storage, how old a segment must be before it is "
         "copied away.", MEDIUM, CLUSTER_WIDE),
)
# fmt: on
