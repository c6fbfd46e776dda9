"""Who this broker is, and where the cluster's state lives."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.kinds import BOOLEAN, INT, LIST, PASSWORD, STRING, any_of, at_least
from moldau.config.option import Fallback, Importance, OptionSet, option, optional


class IdentityOptions(OptionSet, ignored=ignored.IDENTITY):
    """The broker's id and rack, ZooKeeper, and the names of Kafka's own quorum."""

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
    zookeeper_connect = optional(
        "zookeeper.connect",
        STRING,
        "The ZooKeeper servers as host:port,host:port, with an optional path at the end under "
        "which the cluster keeps its state. Without it the broker is alone and uses the store in "
        "its own data directory.",
        importance=Importance.HIGH,
    )
    coordination_socket = optional(
        "coordination.socket",
        STRING,
        "The Unix socket on which `moldau start --brokers` serves the coordination store to its "
        "brokers, who get it from there. The broker ends when nobody serves there any more.",
    )
    zookeeper_session_timeout_ms = option(
        "zookeeper.session.timeout.ms",
        INT,
        18_000,
        "How long ZooKeeper, or the store of `moldau start --brokers`, waits for a silent broker "
        "before the cluster takes it for dead. With --brokers the default is 6000.",
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
    zookeeper_set_acl = option(
        "zookeeper.set.acl",
        BOOLEAN,
        False,
        "Protect the nodes in ZooKeeper with access lists: only those with the credential that "
        "made a node may change it, and where passwords are kept, read it.",
        importance=Importance.HIGH,
    )
    zookeeper_auth_scheme = option(
        "zookeeper.auth.scheme",
        STRING,
        "digest",
        "How the broker tells ZooKeeper who it is, if a credential is set.",
    )
    zookeeper_auth_credential = optional(
        "zookeeper.auth.credential",
        PASSWORD,
        "Who the broker is for ZooKeeper: with the digest scheme, user:password.",
        sensitive=True,
    )
    zookeeper_max_in_flight_requests = option(
        "zookeeper.max.in.flight.requests",
        INT,
        10,
        "How many requests may wait for ZooKeeper's answer at a time.",
        at_least(1),
        importance=Importance.HIGH,
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
