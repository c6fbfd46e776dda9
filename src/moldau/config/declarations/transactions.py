"""Idempotent and transactional producers."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.kinds import BOOLEAN, INT, SHORT, at_least
from moldau.config.option import DAY_MS, HOUR_MS, MINUTE_MS, Importance, OptionSet, Reload, option


class TransactionOptions(OptionSet, ignored=ignored.TRANSACTIONS):
    """How long producers are remembered, and the topic in which transactions are kept."""

    producer_id_expiration_ms = option(
        "producer.id.expiration.ms",
        INT,
        DAY_MS,
        "How long a partition remembers an idempotent producer that writes no more. A retry that "
        "comes later than this may be stored twice.",
        at_least(1),
        reload=Reload.CLUSTER_WIDE,
        importance=Importance.LOW,
    )
    producer_id_expiration_check_interval_ms = option(
        "producer.id.expiration.check.interval.ms",
        INT,
        10 * MINUTE_MS,
        "How often the broker looks for producers to forget.",
        at_least(1),
        importance=Importance.LOW,
    )
    transaction_partition_verification_enable = option(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        "Take transactional records only for partitions that were added to the transaction: their "
        "leader asks the transaction coordinator before the first record (KIP-890).",
        reload=Reload.CLUSTER_WIDE,
        importance=Importance.LOW,
    )
    transaction_state_log_num_partitions = option(
        "transaction.state.log.num.partitions",
        INT,
        50,
        "The number of partitions of __transaction_state. Do not change it once transactions "
        "exist.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_min_isr = option(
        "transaction.state.log.min.isr",
        INT,
        1,
        "min.insync.replicas of __transaction_state. Kafka's default is 2, which a broker alone "
        "cannot give; Moldau's is 1. Set 2 in a cluster.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_segment_bytes = option(
        "transaction.state.log.segment.bytes",
        INT,
        100 << 20,
        "The segment size of __transaction_state; small segments are compacted and loaded sooner.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_replication_factor = option(
        "transaction.state.log.replication.factor",
        SHORT,
        1,
        "The number of replicas of __transaction_state. Kafka's default is 3; Moldau's is 3 in a "
        "cluster and 1 for a broker alone.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_state_log_load_buffer_size = option(
        "transaction.state.log.load.buffer.size",
        INT,
        5 << 20,
        "How much of __transaction_state is read at a time when a broker takes over its "
        "transactions.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_max_timeout_ms = option(
        "transaction.max.timeout.ms",
        INT,
        15 * MINUTE_MS,
        "The longest time-out a transactional producer may ask for. An open transaction holds up "
        "every read_committed reader of its partitions.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = option(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10_000,
        "How often the broker looks for transactions whose time is over, to abort them.",
        at_least(1),
        importance=Importance.LOW,
    )
    transactional_id_expiration_ms = option(
        "transactional.id.expiration.ms",
        INT,
        7 * DAY_MS,
        "How long a transactional id without an open transaction is remembered.",
        at_least(1),
        importance=Importance.HIGH,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = option(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        HOUR_MS,
        "How often the broker looks for transactional ids to forget.",
        at_least(1),
        importance=Importance.LOW,
    )
    transaction_two_phase_commit_enable = option(
        "transaction.two.phase.commit.enable",
        BOOLEAN,
        False,
        "Whether producers may take part in two-phase commits of an outside coordinator (KIP-939). "
        "Their transactions never time out: one that nobody completes holds up its readers for "
        "ever.",
        importance=Importance.LOW,
    )
