"""The broker's identity, where the cluster's state is kept, and replication."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.declarations.security import STORE_TYPES, TLS_VERSIONS
from moldau.config.option import (
    BOOLEAN,
    CLASS,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    PASSWORD,
    STRING,
    Fallback,
    Importance,
    OptionSet,
    Reload,
    any_of,
    at_least,
    one_of,
    option,
    optional,
)


class IdentityOptions(OptionSet, ignored=ignored.IDENTITY):
    """The broker's id and rack, the store it shares, and the names of Kafka's own quorum."""

    broker_id = option(
        "broker.id",
        INT,
        -1,
        "The number of this broker in its cluster. With -1 it gets one by itself: the one it "
        "stored in its data directory, else the next free one above reserved.broker.max.id.",
        at_least(-1),
        importance=Importance.HIGH,
        falls_back_to=(Fallback("node.id"),),
    )
    node_id = option(
        "node.id",
        INT,
        -1,
        "Kafka 4's name for broker.id. Set one of the two.",
        at_least(-1),
        importance=Importance.HIGH,
        falls_back_to=(Fallback("broker.id"),),
    )
    broker_id_generation_enable = option(
        "broker.id.generation.enable",
        BOOLEAN,
        True,
        "Let a broker without an id get one by itself.",
    )
    reserved_broker_max_id = option(
        "reserved.broker.max.id",
        INT,
        1000,
        "The largest number that broker.id may have; ids that brokers get by themselves are "
        "above it.",
        at_least(0),
    )
    broker_rack = optional(
        "broker.rack",
        STRING,
        "The rack or zone of this broker. Replicas of a partition are spread over racks, and "
        "consumers may read from the nearest.",
    )
    coordination_socket = optional(
        "coordination.socket",
        STRING,
        "The Unix socket on which `moldau start --brokers` serves the coordination store to its "
        "brokers, who get it from there. The broker ends when nobody serves there any more.",
    )
    process_roles = option(
        "process.roles",
        LIST,
        (),
        "What this process is in a cluster with Kafka's own quorum. Every Moldau broker can be "
        "the controller. Without zookeeper.connect, one of the two roles alone stops the start.",
        any_of("broker", "controller"),
        importance=Importance.HIGH,
    )
    controller_listener_names = option(
        "controller.listener.names",
        LIST,
        (),
        "Listeners that only Kafka's own quorum uses. Moldau does not open them.",
        importance=Importance.HIGH,
    )
    controller_quorum_voters = option(
        "controller.quorum.voters",
        LIST,
        (),
        "The voters of Kafka's own quorum. Without zookeeper.connect, more than one stops the "
        "start: brokers are joined by ZooKeeper.",
        importance=Importance.HIGH,
    )
    controller_quorum_bootstrap_servers = option(
        "controller.quorum.bootstrap.servers",
        LIST,
        (),
        "Where to find the voters of Kafka's own quorum. Without zookeeper.connect, more than one "
        "stops the start: brokers are joined by ZooKeeper.",
        importance=Importance.HIGH,
    )


# The coordination of a cluster by ZooKeeper: where it is, how long to wait, who the broker is.
#
# The names of TLS are those of Kafka 3.9, the last version with ZooKeeper.


class ZookeeperOptions(OptionSet):
    """Sessions with ZooKeeper, and how they are protected."""

    zookeeper_connect = optional(
        "zookeeper.connect",
        STRING,
        "The ZooKeeper servers as host:port,host:port, with an optional path at the end under "
        "which the cluster keeps its state. Without it the broker is alone and uses the store in "
        "its own data directory.",
        importance=Importance.HIGH,
    )
    zookeeper_session_timeout_ms = option(
        "zookeeper.session.timeout.ms",
        INT,
        9_000,
        "How long ZooKeeper, or the store of `moldau start --brokers`, waits for a silent broker "
        "before the cluster takes it for dead: others lead in its place so long after a kill. The "
        "default is that of broker.session.timeout.ms in Kafka 4; with --brokers it is 6000.",
        at_least(1),
        importance=Importance.HIGH,
    )
    zookeeper_connection_timeout_ms = option(
        "zookeeper.connection.timeout.ms",
        INT,
        18_000,
        "How long the broker waits for ZooKeeper at its start, and for the next connection when "
        "one was lost, before what it wanted has failed.",
        at_least(1),
        importance=Importance.HIGH,
        falls_back_to=(Fallback("zookeeper.session.timeout.ms"),),
    )
    zookeeper_max_in_flight_requests = option(
        "zookeeper.max.in.flight.requests",
        INT,
        10,
        "How many requests may wait for ZooKeeper's answer at a time.",
        at_least(1),
        importance=Importance.HIGH,
    )
    zookeeper_set_acl = option(
        "zookeeper.set.acl",
        BOOLEAN,
        False,
        "Protect the nodes in ZooKeeper with access lists: only who made a node may change it, "
        "and where passwords are kept, read it. Who that is says zookeeper.auth.credential, or "
        "the certificate in zookeeper.ssl.keystore.location.",
        importance=Importance.HIGH,
    )
    zookeeper_auth_scheme = option(
        "zookeeper.auth.scheme",
        STRING,
        "digest",
        "How the broker tells ZooKeeper who it is, if a credential is set: digest shows it as it "
        "is, and every credential is taken; sasl proves it (DIGEST-MD5) to servers that know the "
        "user, and needs moldau[security].",
        one_of("digest", "sasl"),
    )
    zookeeper_auth_credential = optional(
        "zookeeper.auth.credential",
        PASSWORD,
        "Who the broker is for ZooKeeper: user:password. All brokers of a cluster have the same.",
        sensitive=True,
    )
    zookeeper_ssl_client_enable = option(
        "zookeeper.ssl.client.enable",
        BOOLEAN,
        False,
        "Speak TLS with ZooKeeper. The port is then its secureClientPort.",
    )
    zookeeper_clientCnxnSocket = optional(
        "zookeeper.clientCnxnSocket",
        STRING,
        "Java's class for connections; org.apache.zookeeper.ClientCnxnSocketNetty goes with TLS, "
        "and zookeeper.ssl.client.enable decides.",
        ignored=True,
    )
    zookeeper_ssl_keystore_location = optional(
        "zookeeper.ssl.keystore.location",
        STRING,
        "The file with the certificate chain and the key of the broker, PEM or PKCS12, for "
        "servers that ask for one (they do, unless ssl.clientAuth says otherwise). It is read "
        "for each connection.",
    )
    zookeeper_ssl_keystore_password = optional(
        "zookeeper.ssl.keystore.password",
        PASSWORD,
        "The password of the key store.",
        sensitive=True,
    )
    zookeeper_ssl_keystore_type = optional(
        "zookeeper.ssl.keystore.type",
        STRING,
        "The format of the key store. What the file is counts, whatever is said here.",
        one_of(*STORE_TYPES),
        ignored=True,
    )
    zookeeper_ssl_truststore_location = optional(
        "zookeeper.ssl.truststore.location",
        STRING,
        "The file with the certificates of those who sign the servers'. Without one, those whom "
        "the operating system trusts.",
    )
    zookeeper_ssl_truststore_password = optional(
        "zookeeper.ssl.truststore.password",
        PASSWORD,
        "The password of the trust store.",
        sensitive=True,
    )
    zookeeper_ssl_truststore_type = optional(
        "zookeeper.ssl.truststore.type",
        STRING,
        "The format of the trust store. What the file is counts, whatever is said here.",
        one_of(*STORE_TYPES),
        ignored=True,
    )
    zookeeper_ssl_protocol = optional(
        "zookeeper.ssl.protocol",
        STRING,
        "The newest version of TLS; zookeeper.ssl.enabled.protocols says which ones are spoken.",
        one_of(*TLS_VERSIONS, "TLS"),
        importance=Importance.LOW,
        ignored=True,
    )
    zookeeper_ssl_enabled_protocols = option(
        "zookeeper.ssl.enabled.protocols",
        LIST,
        TLS_VERSIONS,
        "The versions of TLS that are spoken with ZooKeeper. Kafka's default is TLSv1.2.",
        any_of(*TLS_VERSIONS),
        importance=Importance.LOW,
    )
    zookeeper_ssl_cipher_suites = option(
        "zookeeper.ssl.cipher.suites",
        LIST,
        (),
        "The ciphers of TLS 1.2, as in ssl.cipher.suites.",
        importance=Importance.LOW,
    )
    zookeeper_ssl_endpoint_identification_algorithm = option(
        "zookeeper.ssl.endpoint.identification.algorithm",
        STRING,
        "HTTPS",
        "How to make sure that a server's certificate is for its host; an empty text lets a "
        "server be anybody whose certificate is trusted.",
        one_of("HTTPS", "https", ""),
        importance=Importance.LOW,
    )


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
