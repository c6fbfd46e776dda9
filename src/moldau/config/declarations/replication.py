"""How followers copy from leaders, and how leadership moves."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.kinds import BOOLEAN, CLASS, INT, LONG, MAX_LONG, at_least
from moldau.config.option import Importance, OptionSet, Reload, option, optional


class ReplicationOptions(OptionSet, ignored=ignored.REPLICATION):
    """Followers, in-sync replicas, elections and controlled shutdown."""

    replica_lag_time_max_ms = option(
        "replica.lag.time.max.ms",
        LONG,
        30_000,
        "A follower that has not caught up with its leader for this long is no longer in sync.",
        at_least(1),
        importance=Importance.HIGH,
    )
    replica_fetch_max_bytes = option(
        "replica.fetch.max.bytes",
        INT,
        1 << 20,
        "How much a follower asks for per partition and fetch. A larger batch still comes whole.",
        at_least(0),
    )
    replica_fetch_response_max_bytes = option(
        "replica.fetch.response.max.bytes",
        INT,
        10 << 20,
        "How much a follower asks for per fetch over all partitions.",
        at_least(0),
    )
    replica_fetch_wait_max_ms = option(
        "replica.fetch.wait.max.ms",
        INT,
        500,
        "How long a leader holds a follower's fetch when there is nothing new. Keep it below "
        "replica.lag.time.max.ms.",
        at_least(0),
        importance=Importance.HIGH,
    )
    replica_fetch_min_bytes = option(
        "replica.fetch.min.bytes",
        INT,
        1,
        "How much must be there before a leader answers a follower's fetch early.",
        at_least(0),
        importance=Importance.HIGH,
    )
    replica_fetch_backoff_ms = option(
        "replica.fetch.backoff.ms",
        INT,
        1_000,
        "How long a follower waits after a failed fetch.",
        at_least(0),
    )
    replica_socket_timeout_ms = option(
        "replica.socket.timeout.ms",
        INT,
        30_000,
        "How long a follower waits for a leader's answer. At least replica.fetch.wait.max.ms.",
        at_least(1),
        importance=Importance.HIGH,
    )
    replica_high_watermark_checkpoint_interval_ms = option(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        5_000,
        "How often the high watermarks are written down.",
        at_least(1),
        importance=Importance.HIGH,
    )
    replica_selector_class = optional(
        "replica.selector.class",
        CLASS,
        "Which replica a consumer reads from. "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector sends consumers that set "
        "client.rack to a replica in their rack; without it, and with any other class, they read "
        "from the leader.",
    )
    auto_leader_rebalance_enable = option(
        "auto.leader.rebalance.enable",
        BOOLEAN,
        True,
        "Give leadership back to the first replica of a partition when it is in sync again.",
        importance=Importance.HIGH,
    )
    leader_imbalance_check_interval_seconds = option(
        "leader.imbalance.check.interval.seconds",
        LONG,
        300,
        "How often the controller looks whether leadership should move back.",
        at_least(1),
        importance=Importance.HIGH,
    )
    leader_imbalance_per_broker_percentage = option(
        "leader.imbalance.per.broker.percentage",
        INT,
        10,
        "The share of partitions led elsewhere that is accepted per broker.",
        at_least(0),
        importance=Importance.HIGH,
    )
    controlled_shutdown_enable = option(
        "controlled.shutdown.enable",
        BOOLEAN,
        True,
        "Hand over leadership before the broker stops.",
    )
    controlled_shutdown_max_retries = option(
        "controlled.shutdown.max.retries",
        INT,
        3,
        "How often the hand-over is tried again.",
        at_least(0),
    )
    leader_replication_throttled_rate = option(
        "leader.replication.throttled.rate",
        LONG,
        MAX_LONG,
        "Bytes per second that this broker sends for the replicas named in "
        "leader.replication.throttled.replicas. Only a dynamic config has an effect.",
        at_least(0),
        reload=Reload.PER_BROKER,
    )
    replica_alter_log_dirs_io_max_bytes_per_second = option(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        MAX_LONG,
        "Bytes per second with which replicas move between log directories of this broker. Only a "
        "dynamic config has an effect.",
        at_least(0),
        reload=Reload.PER_BROKER,
    )
    num_replica_alter_log_dirs_threads = optional(
        "num.replica.alter.log.dirs.threads",
        INT,
        "How many replicas move between log directories at the same time. Not set: as many as "
        "there are log directories.",
        at_least(1),
        importance=Importance.HIGH,
    )
    follower_replication_throttled_rate = option(
        "follower.replication.throttled.rate",
        LONG,
        MAX_LONG,
        "Bytes per second that this broker fetches for the replicas named in "
        "follower.replication.throttled.replicas. Only a dynamic config has an effect.",
        at_least(0),
        reload=Reload.PER_BROKER,
    )
