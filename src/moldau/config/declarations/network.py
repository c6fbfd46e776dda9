"""Where the broker listens, what it advertises, and how much a client may ask of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from moldau.config.declarations import ignored
from moldau.config.kinds import (
    INT,
    LIST,
    LONG,
    MAX_INT,
    STRING,
    Kind,
    OptionType,
    Rule,
    at_least,
    one_of,
    split_list,
)
from moldau.config.listeners import SECURITY_PROTOCOLS, find_address_fault, parse_protocol_map
from moldau.config.option import Importance, OptionSet, Reload, option, optional

_ADDRESSES: Rule[tuple[str, ...]] = Rule("a list of NAME://host:port", find_address_fault)


def parse_connection_overrides(text: str) -> Mapping[str, int]:
    """Read `host:count,…`; an IPv6 address keeps its colons, only the last one separates."""
    overrides: dict[str, int] = {}
    for item in split_list(text):
        host, _, count = item.rpartition(":")
        if not host or not count.isascii() or not count.isdigit():
            raise ValueError(f"has the entry {item!r}, which is not of the form host:count")
        overrides[host.strip("[] ")] = int(count)
    return MappingProxyType(overrides)


def _check_protocol_map(text: str) -> str:
    parse_protocol_map(text)
    return text.strip()


_PROTOCOL_MAP = Kind(OptionType.STRING, _check_protocol_map)
_OVERRIDES = Kind(OptionType.STRING, parse_connection_overrides)


class NetworkOptions(OptionSet, ignored=ignored.NETWORK):
    """Listeners, connections, requests."""

    listeners = option(
        "listeners",
        LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses to listen on: NAME://host:port, comma-separated. An empty host or 0.0.0.0 "
        "means all interfaces, port 0 any free port; IPv6 addresses stand in brackets. A name that "
        "is not a security protocol needs an entry in listener.security.protocol.map. Kafka's "
        "default is all interfaces; Moldau's is this machine only, because the default listener "
        "has no authentication.",
        _ADDRESSES,
        importance=Importance.HIGH,
    )
    advertised_listeners = option(
        "advertised.listeners",
        LIST,
        (),
        "The addresses that clients and other brokers are told to use, where they differ from "
        "listeners: behind a proxy, in a container, in a cloud. Without it, listeners are "
        "advertised, with the host's name in place of 0.0.0.0.",
        _ADDRESSES,
        importance=Importance.HIGH,
    )
    listener_security_protocol_map = option(
        "listener.security.protocol.map",
        _PROTOCOL_MAP,
        ",".join(f"{name}:{name}" for name in SECURITY_PROTOCOLS),
        "The security protocol of each listener name: INTERNAL:PLAINTEXT,EXTERNAL:SASL_SSL.",
        importance=Importance.LOW,
    )
    inter_broker_listener_name = optional(
        "inter.broker.listener.name",
        STRING,
        "The listener that brokers use among themselves. Without it, the one that has the "
        "protocol of security.inter.broker.protocol. Set only one of the two.",
    )
    security_inter_broker_protocol = option(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "The security protocol that brokers use among themselves.",
        one_of(*SECURITY_PROTOCOLS),
    )
    socket_request_max_bytes = option(
        "socket.request.max.bytes",
        INT,
        100 << 20,
        "The largest request that is read. A larger one ends its connection before any memory is "
        "taken for it.",
        at_least(1),
        importance=Importance.HIGH,
    )
    max_connections = option(
        "max.connections",
        INT,
        MAX_INT,
        "How many connections the broker holds at a time, and with the prefix "
        "listener.name.NAME. one listener. Beyond it no connection is accepted before another "
        "ends. The inter-broker listener has room always, where there are others: of those, the "
        "connection that was not used for longest is closed for it.",
        at_least(0),
        reload=Reload.CLUSTER_WIDE,
    )
    max_connection_creation_rate = option(
        "max.connection.creation.rate",
        INT,
        MAX_INT,
        "How many connections are accepted per second, by the broker, and with the prefix "
        "listener.name.NAME. by one listener; others wait. The inter-broker listener has only its "
        "own limit, where there are others.",
        at_least(0),
        reload=Reload.CLUSTER_WIDE,
    )
    max_connections_per_ip = option(
        "max.connections.per.ip",
        INT,
        MAX_INT,
        "How many connections one address may hold. 0 refuses all but those in "
        "max.connections.per.ip.overrides.",
        at_least(0),
        reload=Reload.CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides = option(
        "max.connections.per.ip.overrides",
        _OVERRIDES,
        MappingProxyType({}),
        "Limits for single addresses that differ from max.connections.per.ip: "
        "10.0.0.7:100,127.0.0.1:200.",
        reload=Reload.CLUSTER_WIDE,
    )
    connections_max_idle_ms = option(
        "connections.max.idle.ms",
        LONG,
        600_000,
        "A connection on which nothing happened for this long is closed; a negative value never "
        "closes one.",
    )
    request_timeout_ms = option(
        "request.timeout.ms",
        INT,
        30_000,
        "How long the broker waits for another broker's answer.",
        at_least(1),
        importance=Importance.HIGH,
    )
    socket_connection_setup_timeout_ms = option(
        "socket.connection.setup.timeout.ms",
        LONG,
        10_000,
        "How long the broker waits for a connection to another broker.",
        at_least(1),
    )
    fetch_max_bytes = option(
        "fetch.max.bytes",
        INT,
        55 << 20,
        "The most that one answer to a fetch carries, whatever the client asks for. A single "
        "larger batch is still sent, so that a reader can always go on.",
        at_least(1024),
    )
    max_incremental_fetch_session_cache_slots = option(
        "max.incremental.fetch.session.cache.slots",
        INT,
        1000,
        "How many fetch sessions are remembered. A session spares a consumer with many partitions "
        "from naming all of them in every fetch.",
        at_least(0),
    )
    max_request_partition_size_limit = option(
        "max.request.partition.size.limit",
        INT,
        2000,
        "The most partitions that one answer to DescribeTopicPartitions names.",
        at_least(1),
    )
    background_threads = option(
        "background.threads",
        INT,
        10,
        "Worker threads for what would block the event loop: flushing, recovery, compaction. What "
        "unpacks batches of clients has four threads of its own. "
        "What the file or the command line says counts; a dynamic value has no effect.",
        at_least(1),
        reload=Reload.CLUSTER_WIDE,
        importance=Importance.HIGH,
    )
