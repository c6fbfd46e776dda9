"""Who this broker is, and where the cluster's state lives."""

from __future__ import annotations

from moldau.config.declarations import ignored
from moldau.config.kinds import BOOLEAN, INT, LIST, STRING, any_of, at_least
from moldau.config.option import Fallback, Importance, OptionSet, option, optional


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
