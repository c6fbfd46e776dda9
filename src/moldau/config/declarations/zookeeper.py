"""The coordination of a cluster by ZooKeeper: where it is, how long to wait, who the broker is.

The names of TLS are those of Kafka 3.9, the last version with ZooKeeper.
"""

from __future__ import annotations

from moldau.config.declarations.security import STORE_TYPES, TLS_VERSIONS
from moldau.config.kinds import BOOLEAN, INT, LIST, PASSWORD, STRING, any_of, at_least, one_of
from moldau.config.option import Fallback, Importance, OptionSet, option, optional


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
