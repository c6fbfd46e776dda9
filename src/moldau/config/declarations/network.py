"""Listeners and connections, quotas, and the port for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from moldau.config.declarations import ignored
from moldau.config.listeners import SECURITY_PROTOCOLS, find_address_fault, parse_protocol_map
from moldau.config.option import (
    CLASS,
    INT,
    LIST,
    LONG,
    MAX_INT,
    STRING,
    Importance,
    Kind,
    OptionSet,
    OptionType,
    Reload,
    Rule,
    at_least,
    one_of,
    option,
    optional,
    split_list,
)

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


class QuotaOptions(OptionSet, ignored=ignored.QUOTAS):
    """How much of a quota may be used at once."""

    quota_window_num = option(
        "quota.window.num",
        INT,
        11,
        "With quota.window.size.seconds: an answer to a fetch carries the quota of all these "
        "windows but one at most, except for its first batch. In Kafka, also the number of samples "
        "that are kept of a rate.",
        at_least(1),
        importance=Importance.LOW,
    )
    quota_window_size_seconds = option(
        "quota.window.size.seconds",
        INT,
        1,
        "How many seconds' worth of a client quota may be used at once by a client that was idle. "
        "In Kafka, how many seconds one sample of rates covers.",
        at_least(1),
        importance=Importance.LOW,
    )
    controller_quota_window_num = option(
        "controller.quota.window.num",
        INT,
        11,
        "With controller.quota.window.size.seconds: how many of these windows' worth of a quota "
        "on the creation and deletion of topics may be used at once.",
        at_least(1),
        importance=Importance.LOW,
    )
    controller_quota_window_size_seconds = option(
        "controller.quota.window.size.seconds",
        INT,
        1,
        "The window of controller.quota.window.num, in seconds.",
        at_least(1),
        importance=Importance.LOW,
    )

    client_quota_callback_class = optional(
        "client.quota.callback.class",
        CLASS,
        "A Java class that decides on quotas. Moldau cannot load it, so a value stops the start.",
        importance=Importance.LOW,
    )


def split_address(text: str) -> tuple[str, int]:
    """The host and the port of `host:port`, `[::1]:port` or a port alone, which means this machine
    only; ValueError says what is wrong."""
    host, colon, port = text.strip().rpartition(":")
    if not port.isascii() or not port.isdecimal() or int(port) > 65535 or (colon and not host):
        raise ValueError("is not of the form host:port; one looks like 127.0.0.1:9404")
    bare = host.removeprefix("[").removesuffix("]")
    if ":" in bare and bare == host:
        raise ValueError("has an IPv6 address that does not stand in brackets: [::1]:9404")
    return bare or "127.0.0.1", int(port)


def _check_address(text: str) -> str:
    split_address(text)
    return text.strip()


_ADDRESS = Kind(OptionType.STRING, _check_address)


class MetricOptions(OptionSet, ignored=ignored.METRICS):
    """Prometheus, health, clients' own figures."""

    metrics_listener = optional(
        "metrics.listener",
        _ADDRESS,
        "Where /metrics (Prometheus), /healthz, /readyz, /history and /shares are served: "
        "host:port, or a port alone for this machine only; port 0 is any free one. Without it "
        "nothing is served. There is no authentication: whoever reaches the port can read it, and "
        "nothing else. Not an option of Kafka.",
        importance=Importance.HIGH,
    )
    telemetry_max_bytes = option(
        "telemetry.max.bytes",
        INT,
        1 << 20,
        "The most that a client may push of its own metrics at a time, packed or unpacked.",
        at_least(1),
        importance=Importance.LOW,
    )
