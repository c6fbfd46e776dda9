"""Every metric of a broker, declared once: name, labels, help, and what Kafka calls it.

The endpoint, the page `docs/monitoring.md` and the tests read it; `python -m
moldau.metrics.catalogue docs/monitoring.md` writes the table of that page. Names follow Prometheus'
habits (base units, `_total` for counters). What Kafka computes itself (rates, percentiles) is left
to Prometheus: `rate()` and `histogram_quantile()`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from moldau.metrics.exposition import Metric, MetricKind

# Every metric of a broker, declared once: its name, its labels, what it means, and what Kafka
# calls it. The endpoint, the page `docs/monitoring.md` and the tests read it.
#
# Names follow Prometheus' habits (base units, `_total` for counters). What Kafka computes itself
# (rates, percentiles) is left to Prometheus: `rate()` and `histogram_quantile()`.


_SERVER = "kafka.server:type="
_TRAFFIC = f"{_SERVER}BrokerTopicMetrics,name="
_REPLICAS = f"{_SERVER}ReplicaManager,name="
_CONTROLLER = "kafka.controller:type=KafkaController,name="
_CLEANER = "kafka.log:type=LogCleanerManager,name="


def _counter(name: str, text: str, *labels: str, jmx: str = "") -> Metric:
    return Metric(name, MetricKind.COUNTER, text, labels, jmx)


def _gauge(name: str, text: str, *labels: str, jmx: str = "") -> Metric:
    return Metric(name, MetricKind.GAUGE, text, labels, jmx)


def _histogram(name: str, text: str, *labels: str, jmx: str = "") -> Metric:
    return Metric(name, MetricKind.HISTOGRAM, text, labels, jmx)


BUILD = Metric(
    "moldau_build",
    MetricKind.INFO,
    "Which broker this is, and its version.",
    ("version", "broker_id", "cluster_id"),
    f"{_SERVER}app-info",
)

# Topics

BYTES_IN = _counter(
    "moldau_topic_bytes_in",
    "Bytes appended by producers, and by the broker to its own topics.",
    "topic",
    jmx=f"{_TRAFFIC}BytesInPerSec",
)
RECORDS_IN = _counter(
    "moldau_topic_records_in", "Records appended.", "topic", jmx=f"{_TRAFFIC}MessagesInPerSec"
)
BYTES_OUT = _counter(
    "moldau_topic_bytes_out", "Bytes sent to consumers.", "topic", jmx=f"{_TRAFFIC}BytesOutPerSec"
)
RECORDS_OUT = _counter(
    "moldau_topic_records_out",
    "Offsets sent to consumers: the records of a log that was not compacted.",
    "topic",
)
REPLICATION_BYTES_IN = _counter(
    "moldau_topic_replication_bytes_in",
    "Bytes copied from leaders.",
    "topic",
    jmx=f"{_TRAFFIC}ReplicationBytesInPerSec",
)
REPLICATION_BYTES_OUT = _counter(
    "moldau_topic_replication_bytes_out",
    "Bytes sent to followers.",
    "topic",
    jmx=f"{_TRAFFIC}ReplicationBytesOutPerSec",
)
TOPIC_LOG_BYTES = _gauge(
    "moldau_topic_log_bytes",
    "Bytes in the logs of the replicas here.",
    "topic",
    jmx="kafka.log:type=Log,name=Size",
)
TOPIC_LOG_SEGMENTS = _gauge(
    "moldau_topic_log_segments",
    "Segments of the replicas here.",
    "topic",
    jmx="kafka.log:type=Log,name=NumLogSegments",
)

# Requests and connections

REQUESTS = _histogram(
    "moldau_request_duration_seconds",
    "From a request to its answer, with what it had to wait for (long polls, in-sync replicas).",
    "api",
    jmx="kafka.network:type=RequestMetrics,name=TotalTimeMs,request=…; RequestsPerSec",
)
REQUEST_ERRORS = _counter(
    "moldau_request_errors",
    "Errors in answers, one for each partition, topic or request that has one.",
    "api",
    "error",
    jmx="kafka.network:type=RequestMetrics,name=ErrorsPerSec",
)
CONNECTIONS = _gauge(
    "moldau_connections",
    "Open connections of clients and other brokers.",
    "listener",
    jmx=f"{_SERVER}socket-server-metrics,name=connection-count",
)
CONNECTIONS_ACCEPTED = _counter(
    "moldau_connections_accepted",
    "Connections that were accepted.",
    "listener",
    jmx=f"{_SERVER}socket-server-metrics,name=connection-creation-total",
)
CERTIFICATES_END = _gauge(
    "moldau_certificate_expiry_timestamp_seconds",
    "When the first of the certificates ends that this broker shows (on listeners, to other "
    "brokers, to ZooKeeper), in seconds since 1970.",
)
PURGATORY = _gauge(
    "moldau_purgatory_size",
    "Requests that wait: fetches for records, produces for replicas, deletions of records.",
    "operation",
    jmx=f"{_SERVER}DelayedOperationPurgatory,name=PurgatorySize",
)
FETCH_SESSIONS = _gauge(
    "moldau_fetch_sessions",
    "Fetch sessions that are kept.",
    jmx=f"{_SERVER}FetchSessionCache,name=NumIncrementalFetchSessions",
)
FETCH_SESSION_PARTITIONS = _gauge(
    "moldau_fetch_session_partitions",
    "Partitions that sessions and waiting fetches watch.",
    jmx=f"{_SERVER}FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
)

QUOTA_THROTTLED = _counter(
    "moldau_quota_throttled_requests",
    "Requests, and connections, whose client had to wait for the sake of a quota.",
    "quota",
)
QUOTA_THROTTLE_SECONDS = _counter(
    "moldau_quota_throttle_seconds",
    "How long they had to wait, in all.",
    "quota",
    jmx=f"{_SERVER}Produce,user=*,client-id=*,name=throttle-time",
)
QUOTA_ACCOUNTS = _gauge(
    "moldau_quota_accounts",
    "Users, clients and addresses whose quotas are being measured.",
    "quota",
)

# Replication and control

PARTITIONS = _gauge(
    "moldau_partitions", "Replicas on this broker.", jmx=f"{_REPLICAS}PartitionCount"
)
LEADERS = _gauge(
    "moldau_leaders", "Partitions that this broker leads.", jmx=f"{_REPLICAS}LeaderCount"
)
UNDER_REPLICATED = _gauge(
    "moldau_under_replicated_partitions",
    "Partitions led here of which a replica is not in sync.",
    jmx=f"{_REPLICAS}UnderReplicatedPartitions",
)
UNDER_MIN_ISR = _gauge(
    "moldau_under_min_isr_partitions",
    "Partitions led here with fewer replicas in sync than min.insync.replicas: acks=all fails.",
    jmx=f"{_REPLICAS}UnderMinIsrPartitionCount",
)
AT_MIN_ISR = _gauge(
    "moldau_at_min_isr_partitions",
    "Partitions led here with just min.insync.replicas in sync, of more replicas.",
    jmx=f"{_REPLICAS}AtMinIsrPartitionCount",
)
REASSIGNING = _gauge(
    "moldau_reassigning_partitions",
    "Partitions led here that are being moved.",
    jmx=f"{_REPLICAS}ReassigningPartitions",
)
OFFLINE_REPLICAS = _gauge(
    "moldau_offline_replicas",
    "Replicas of this broker that cannot be served, since their disk failed.",
    jmx=f"{_REPLICAS}OfflineReplicaCount",
)
ISR_SHRINKS = _counter(
    "moldau_isr_shrinks",
    "In-sync sets of partitions led here that lost a replica.",
    jmx=f"{_REPLICAS}IsrShrinksPerSec",
)
ISR_EXPANDS = _counter(
    "moldau_isr_expands",
    "In-sync sets of partitions led here that got a replica.",
    jmx=f"{_REPLICAS}IsrExpandsPerSec",
)
REPLICA_LAG = _gauge(
    "moldau_follower_max_lag_records",
    "How far the follower that is farthest behind is behind this leader, in records.",
    jmx=f"{_SERVER}ReplicaFetcherManager,name=MaxLag",
)
CONTROLLER_ACTIVE = _gauge(
    "moldau_controller_active",
    "1 on the controller, else 0; their sum over the cluster is 1.",
    jmx=f"{_CONTROLLER}ActiveControllerCount",
)
OFFLINE_PARTITIONS = _gauge(
    "moldau_offline_partitions",
    "Partitions of the cluster that nobody leads; 0 but on the controller.",
    jmx=f"{_CONTROLLER}OfflinePartitionsCount",
)
PREFERRED_IMBALANCE = _gauge(
    "moldau_preferred_replica_imbalance",
    "Partitions of the cluster that are not led by their first replica; 0 but on the controller.",
    jmx=f"{_CONTROLLER}PreferredReplicaImbalanceCount",
)
ELECTIONS = _counter(
    "moldau_leader_elections",
    "Partitions that got another leader, while this broker was the controller.",
    jmx="kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs",
)
UNCLEAN_ELECTIONS = _counter(
    "moldau_unclean_leader_elections",
    "Partitions that got a leader which was not in sync, while this broker was the controller: "
    "committed records may be lost.",
    jmx="kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
)
BROKERS = _gauge(
    "moldau_brokers",
    "Brokers that are alive, as this one sees it.",
    jmx=f"{_CONTROLLER}ActiveBrokerCount",
)
TOPICS = _gauge("moldau_topics", "Topics of the cluster.", jmx=f"{_CONTROLLER}GlobalTopicCount")
CLUSTER_PARTITIONS = _gauge(
    "moldau_cluster_partitions",
    "Partitions of the cluster.",
    jmx=f"{_CONTROLLER}GlobalPartitionCount",
)
COORDINATION_SECONDS = _gauge(
    "moldau_coordination_latency_seconds",
    "How long the coordination store (ZooKeeper, or the one of a single machine) took to answer "
    "the last probe; probes are 10 seconds apart.",
    jmx=f"{_SERVER}ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs",
)
LEASE_SECONDS = _gauge(
    "moldau_coordination_lease_seconds",
    "How long this broker may lead without hearing from the store again.",
)

# Logs

DIRECTORY_FREE = _gauge(
    "moldau_log_directory_free_bytes", "What is free on the disk of a log directory.", "directory"
)
DIRECTORY_TOTAL = _gauge(
    "moldau_log_directory_total_bytes", "The size of the disk of a log directory.", "directory"
)
DIRECTORY_OFFLINE = _gauge(
    "moldau_log_directory_offline",
    "1 for a log directory that failed.",
    "directory",
    jmx="kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
)
FLUSHES = _histogram(
    "moldau_log_flush_duration_seconds",
    "How long flushes of logs took.",
    jmx="kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
UNFLUSHED_LOGS = _gauge(
    "moldau_unflushed_logs", "Logs that were appended to since they were flushed."
)
DELETED_SEGMENTS = _counter(
    "moldau_log_deleted_segments", "Segments deleted by retention or DeleteRecords."
)
DELETED_BYTES = _counter("moldau_log_deleted_bytes", "Bytes in them.")
CLEANER_RUNS = _counter("moldau_log_cleaner_runs", "Logs that were compacted.")
CLEANER_SECONDS = _counter(
    "moldau_log_cleaner_seconds",
    "Time the cleaner took, with what its throttle made it wait.",
    jmx="kafka.log:type=LogCleaner,name=max-clean-time-secs",
)
CLEANER_BEFORE = _counter(
    "moldau_log_cleaner_before_bytes", "Bytes of logs before they were compacted."
)
CLEANER_AFTER = _counter(
    "moldau_log_cleaner_after_bytes",
    "Bytes of logs after they were compacted.",
    jmx="kafka.log:type=LogCleaner,name=cleaner-recopy-percent",
)
UNCLEANABLE = _gauge(
    "moldau_log_cleaner_uncleanable_partitions",
    "Logs that the cleaner leaves alone, since they are damaged.",
    jmx=f"{_CLEANER}uncleanable-partitions-count",
)
PRODUCER_IDS = _gauge(
    "moldau_producer_ids",
    "Producers that the logs here remember.",
    jmx=f"{_REPLICAS}ProducerIdCount",
)

# Groups and transactions

GROUPS = _gauge(
    "moldau_groups",
    "Groups that this broker coordinates, by their state.",
    "state",
    jmx=f"{_SERVER}group-coordinator-metrics,name=group-count; "
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups…",
)
GROUP_MEMBERS = _gauge("moldau_group_members", "Members of a group.", "group")
GROUP_LAG = _gauge(
    "moldau_group_lag_records",
    "How far the committed offsets of a group are behind the ends of a topic's partitions.",
    "group",
    "topic",
    jmx="(client) kafka.consumer:type=consumer-fetch-manager-metrics,name=records-lag-max",
)
GROUP_LAG_SECONDS = _gauge(
    "moldau_group_lag_seconds",
    "The same in time, of the partition that is farthest behind: how long ago the first record "
    "that is still to be read was appended, as far as this broker has watched.",
    "group",
    "topic",
)
REBALANCES = _counter(
    "moldau_group_rebalances",
    "Rebalances of the groups that this broker coordinates.",
    jmx=f"{_SERVER}group-coordinator-metrics,name=group-completed-rebalance-count",
)
TRANSACTIONS = _gauge(
    "moldau_transactions",
    "Transactional ids that this broker coordinates, by their state.",
    "state",
)
OLDEST_TRANSACTION = _gauge(
    "moldau_transaction_oldest_open_seconds",
    "How long the oldest transaction that this broker coordinates has been open; 0 for none.",
)

# The process

LOOP_DELAY = _histogram(
    "moldau_loop_delay_seconds",
    "How late the event loop was, looked at twice a second.",
    jmx=f"{_SERVER}KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
)
CLOCK = _gauge(
    "moldau_clock_seconds", "The broker's clock, in seconds since 1970: compare it with yours."
)
SCRAPE_SECONDS = _gauge(
    "moldau_scrape_duration_seconds", "How long it took to gather the answer before this one."
)
CPU_SECONDS = _counter("process_cpu_seconds", "CPU time of the process.")
MEMORY = _gauge("process_resident_memory_bytes", "Memory of the process.")
OPEN_FILES = _gauge("process_open_fds", "Open files and sockets.")
MAX_FILES = _gauge("process_max_fds", "How many may be open.")
START_TIME = _gauge("process_start_time_seconds", "When the process began, in seconds since 1970.")

# Clients' own figures (KIP-714)

CLIENTS = _gauge(
    "moldau_client_instances",
    "Clients that push their own metrics to this broker.",
    jmx=f"{_SERVER}ClientMetrics,name=ClientMetricsInstanceCount",
)
CLIENT_PUSHES = _counter("moldau_client_pushes", "Pushes of metrics that clients sent.")
CLIENT_SERIES_DROPPED = _counter(
    "moldau_client_series_dropped", "Series of clients that were left out, beyond the bounds."
)
CLIENT_SERIES_UNSEEN = _gauge(
    "moldau_client_series_unseen", "Series that clients pushed and this scrape had no room for."
)

CATALOGUE: Final[tuple[Metric, ...]] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Metric)
)
"""In the order of their declaration."""

BEGIN = "<!-- metrics: written by python -m moldau.metrics.catalogue -->"
END = "<!-- end of metrics -->"


def render_table() -> str:
    lines = ["| metric | labels | what it is | in Kafka |", "|---|---|---|---|"]
    lines += [_row(metric) for metric in CATALOGUE]
    return "\n".join(lines)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{one}`" for one in metric.labels)
    kafka = f"`{metric.jmx}`" if metric.jmx else ""
    return f"| `{metric.sample_name}` ({metric.kind.value}) | {labels} | {metric.help} | {kafka} |"


def put_table(page: str) -> str:
    """The page with the table of now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{render_table()}\n{END}{after}"


def main() -> None:
    page = Path(sys.argv[1])
    page.write_text(put_table(page.read_text()))


if __name__ == "__main__":
    main()
