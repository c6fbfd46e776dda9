"""The options of a broker, put together from `declarations/`.

Names, types, defaults and ranges are Kafka 4's; where a default differs, its documentation says
so. Beside the options an instance carries what follows from several of them: the listeners to
open, the data directories. Rule: values in, values out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, NoReturn, cast

from moldau.config.declarations.cluster import IdentityOptions, ReplicationOptions, ZookeeperOptions
from moldau.config.declarations.coordinators import (
    GroupOptions,
    ShareOptions,
    StreamsOptions,
    TransactionOptions,
)
from moldau.config.declarations.logs import CleanerOptions, LogOptions
from moldau.config.declarations.network import MetricOptions, NetworkOptions, QuotaOptions
from moldau.config.declarations.security import (
    AuthorizationOptions,
    DelegationTokenOptions,
    PasswordEncoderOptions,
    SecurityOptions,
)
from moldau.config.declarations.topic_defaults import TopicDefaultOptions
from moldau.config.listener_options import (
    ListenerLimits,
    ListenerOptions,
    find_listener_declaration,
)
from moldau.config.listeners import Listener, parse_listeners, parse_protocol_map
from moldau.config.option import Layers, OptionSet, OptionSource, Reload, resolve_values
from moldau.errors import ConfigurationError, InvalidConfigError
from moldau.model import GROUP_OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC

_log = logging.getLogger("moldau.config")

_NOTHING: Mapping[str, str] = MappingProxyType({})

UNKNOWN_BROKER_SETTINGS: Mapping[str, str] = MappingProxyType({"log.cleanup.suspended": "true"})
"""What applies in the place of settings that cannot be read."""

THEMES: tuple[tuple[str, type[OptionSet]], ...] = (
    ("Identity and cluster", IdentityOptions),
    ("ZooKeeper", ZookeeperOptions),
    ("Network", NetworkOptions),
    ("Access control", AuthorizationOptions),
    ("Security", SecurityOptions),
    ("Delegation tokens", DelegationTokenOptions),
    ("Stored passwords", PasswordEncoderOptions),
    ("Topics", TopicDefaultOptions),
    ("Logs", LogOptions),
    ("Compaction", CleanerOptions),
    ("Replication", ReplicationOptions),
    ("Groups and offsets", GroupOptions),
    ("Share groups", ShareOptions),
    ("Streams groups", StreamsOptions),
    ("Producers and transactions", TransactionOptions),
    ("Quotas", QuotaOptions),
    ("Metrics", MetricOptions),
)
"""The sections of the reference page, in its order."""


class BrokerOptions(
    IdentityOptions,
    ZookeeperOptions,
    NetworkOptions,
    AuthorizationOptions,
    SecurityOptions,
    DelegationTokenOptions,
    PasswordEncoderOptions,
    TopicDefaultOptions,
    LogOptions,
    CleanerOptions,
    ReplicationOptions,
    GroupOptions,
    ShareOptions,
    StreamsOptions,
    TransactionOptions,
    QuotaOptions,
    MetricOptions,
):
    """One broker's options, resolved. Implements `net.port.ConnectionLimits`."""

    layers: Layers
    """What was given, level by level: DescribeConfigs tells where each value came from."""

    open_listeners: tuple[Listener, ...]
    """Where to listen: `listeners` without those of Kafka's own quorum. Never empty."""

    told_listeners: tuple[Listener, ...]
    """`advertised.listeners`, parsed, without those of Kafka's own quorum; `advertise` uses it."""

    listener_options: Mapping[str, ListenerOptions]
    """By name, those of the listeners with TLS or SASL: a wrong one is told with all others."""

    listener_limits: Mapping[str, ListenerLimits]
    """By name, those of all listeners."""

    @property
    def is_alone(self) -> bool:
        """Whether the broker has the coordination store to itself, in its data folder."""
        return self.zookeeper_connect is None and self.coordination_socket is None

    @classmethod
    def resolve(
        cls,
        static: Mapping[str, str],
        dynamic: Mapping[str, str] = _NOTHING,
        default_dynamic: Mapping[str, str] = _NOTHING,
    ) -> BrokerOptions:
        """Put the levels together; a wrong value is a ConfigurationError that says where it is."""
        layers = Layers(dynamic=dynamic, default_dynamic=default_dynamic, static=static)
        values = resolve_values(cls.declarations(), layers)
        given = cls(values | {"layers": layers})
        values["layers"] = layers
        values["open_listeners"] = _parse_addresses(given, "listeners", given.listeners)
        values["told_listeners"] = _parse_addresses(
            given, "advertised.listeners", given.advertised_listeners
        )
        values["listener_options"] = {
            one.name: ListenerOptions.of_listener(layers, one.name)
            for one in cast("tuple[Listener, ...]", values["open_listeners"])
            if one.uses_tls or one.uses_sasl
        }
        values["listener_limits"] = {
            one.name: ListenerLimits.of_listener(layers, one.name)
            for one in cast("tuple[Listener, ...]", values["open_listeners"])
        }
        options = cls(values)
        for check in _CHECKS:
            check(options)
        unsupported = find_unsupported(static, options)
        if unsupported:
            lines = (_placed(layers, one, f"{one} {text}") for one, text in unsupported.items())
            raise ConfigurationError("\n".join(lines))
        return options

    @classmethod
    def check(cls, name: str, value: str, *, cluster_wide: bool = False) -> None:
        """Raise InvalidConfigError when a running broker cannot be given this setting.

        `cluster_wide` when it is meant for all brokers (an empty resource name in AlterConfigs).
        A name that nobody declares is taken, as Kafka takes it: a plugin might know it.
        """
        declared = cls.find_declaration(name) or find_listener_declaration(name)
        if declared is None:
            return
        if declared.reload is Reload.READ_ONLY:
            raise InvalidConfigError(
                f"{name} cannot change while the broker runs; set it in server.properties and "
                "start the broker again"
            )
        if cluster_wide and declared.reload is Reload.PER_BROKER:
            raise InvalidConfigError(f"{name} can only be set for one broker; give the broker's id")
        declared.require(value)

    def value_of(self, name: str) -> object:
        """The value of an option by its dotted name."""
        value: object = getattr(self, self.declarations()[name].attribute)
        return value

    def max_connections_for(self, host: str) -> int:
        """`max.connections.per.ip.overrides` first, then `max.connections.per.ip`."""
        return self.max_connections_per_ip_overrides.get(host, self.max_connections_per_ip)

    def max_connections_on(self, listener_name: str) -> int:
        return self.listener_limits[listener_name].max_connections

    def max_connection_creation_rate_on(self, listener_name: str) -> int:
        return self.listener_limits[listener_name].max_connection_creation_rate

    def is_protected(self, listener_name: str) -> bool:
        """Whether it is for the brokers, while clients have others."""
        inner = self.inter_broker_listener
        return inner is not None and inner.name == listener_name and len(self.open_listeners) > 1

    def of_listener(self, name: str) -> ListenerOptions:
        """The security options of one listener that is secured."""
        return self.listener_options[name]

    @property
    def inter_broker_listener(self) -> Listener | None:
        """The listener that brokers use among themselves; None where no such one is open."""
        wanted = self.inter_broker_listener_name
        for listener in self.open_listeners:
            if wanted and listener.name == wanted.upper():
                return listener
            if not wanted and listener.security_protocol == self.security_inter_broker_protocol:
                return listener
        return None

    def advertise(self, host_name: str, ports: Mapping[str, int]) -> tuple[Listener, ...]:
        """What clients are told: `advertised.listeners`, or the listeners with their real ports.

        `ports` has the bound port of each open listener by name; `host_name` stands in for
        "all interfaces", which is no address a client can reach.
        """
        if self.told_listeners:
            return self.told_listeners
        return tuple(
            listener.at(
                host_name if listener.is_on_all_interfaces else listener.host,
                ports.get(listener.name, listener.port),
            )
            for listener in self.open_listeners
        )


class CurrentBrokerOptions:
    """The options in force, and the `net.port.ConnectionLimits` of the listeners.

    `BrokerOptions` never changes; when a dynamic setting does, others take the place of the old
    ones here. Code that needs the newest value keeps this object and reads `options` each time. It
    belongs to the broker's event loop.
    """

    def __init__(self, static: Mapping[str, str]) -> None:
        self._static = static
        self._replace_options(BrokerOptions.resolve(static))

    def _replace_options(self, options: BrokerOptions) -> None:
        self.options = options
        self.connections_max_idle_ms = options.connections_max_idle_ms
        self.is_protected = options.is_protected
        self.max_connection_creation_rate = options.max_connection_creation_rate
        self.max_connection_creation_rate_on = options.max_connection_creation_rate_on
        self.max_connections = options.max_connections
        self.max_connections_for = options.max_connections_for
        self.max_connections_on = options.max_connections_on
        self.max_connections_per_ip = options.max_connections_per_ip
        self.socket_request_max_bytes = options.socket_request_max_bytes

    def apply(self, dynamic: Mapping[str, str], default: Mapping[str, str]) -> None:
        """Apply what was set dynamically, for this broker and for all.

        With values that are not valid, written past the brokers, the options in force stay; when
        the broker has just started these are a guess, by which nothing is deleted or compacted.
        """
        try:
            self._replace_options(BrokerOptions.resolve(self._static, dynamic, default))
        except ConfigurationError as error:
            _log.error("the broker's dynamic settings are not applied: %s", error)
            layers = self.options.layers
            if not layers.dynamic and not layers.default_dynamic:
                self._replace_options(
                    BrokerOptions.resolve(self._static, {}, UNKNOWN_BROKER_SETTINGS)
                )


def _parse_addresses(
    options: BrokerOptions, name: str, addresses: tuple[str, ...]
) -> tuple[Listener, ...]:
    """Read addresses, and leave out those that only Kafka's own quorum would use."""
    internal = {listener.upper() for listener in options.controller_listener_names}
    protocols = {
        **dict.fromkeys(internal, "PLAINTEXT"),
        **parse_protocol_map(options.listener_security_protocol_map),
    }
    text = ",".join(addresses)
    try:
        parsed = parse_listeners(text, protocols)
    except ValueError as fault:
        message = _placed(options.layers, name, f"{name}={text} {fault}")
        raise ConfigurationError(message) from None
    return tuple(listener for listener in parsed if listener.name not in internal)


def _placed(layers: Layers, name: str, message: str) -> str:
    """Put the line or the flag in front of a message about an option."""
    levels = (source for source, values in layers.levels() if name in values)
    return layers.origin(next(levels, OptionSource.DEFAULT), name) + message


# What must hold between several options of a broker. Each check says what to do.


def _refuse(options: BrokerOptions, name: str, message: str) -> NoReturn:
    """A whole message, reported at the line of an option."""
    raise ConfigurationError(_placed(options.layers, name, message))


def _check_ids(options: BrokerOptions) -> None:
    given = {
        name: values[name]
        for name in ("broker.id", "node.id")
        for _, values in options.layers.levels()
        if name in values
    }
    if options.broker_id != options.node_id:
        message = f"node.id={given['node.id']} differs from broker.id={given['broker.id']}; "
        _refuse(options, "node.id", message + "set one of the two")
    if options.broker_id == -1 and not options.broker_id_generation_enable:
        name = "broker.id.generation.enable"
        _refuse(options, name, f"broker.id is not set and {name} is false; set broker.id")
    generates = not options.is_alone and options.broker_id_generation_enable
    if generates and options.broker_id > options.reserved_broker_max_id:
        _refuse(
            options,
            "broker.id",
            f"broker.id={options.broker_id} is above reserved.broker.max.id="
            f"{options.reserved_broker_max_id}; take a smaller id or raise the limit",
        )


def _check_directories(options: BrokerOptions) -> None:
    name = "log.dirs" if _is_set(options, "log.dirs") else "log.dir"
    if not options.log_dirs:
        _refuse(options, name, f"{name} is empty; name at least one directory")
    repeated = _find_repeated(options.log_dirs)
    if repeated is not None:
        _refuse(options, name, f"{name} names {repeated} twice; name it once")


def _check_listeners(options: BrokerOptions) -> None:
    if not options.open_listeners:
        _refuse(
            options,
            "listeners",
            "listeners leaves nothing to listen on; name an address that is not in "
            "controller.listener.names, e.g. PLAINTEXT://127.0.0.1:9092",
        )
    repeated = _find_repeated(
        f"{one.host}:{one.port}" for one in options.open_listeners if one.port != 0
    )
    if repeated is not None:
        message = f"listeners names the address {repeated} twice; give each its own port"
        _refuse(options, "listeners", message)


def _check_advertised(options: BrokerOptions) -> None:
    name = "advertised.listeners"
    opened = {listener.name for listener in options.open_listeners}
    for listener in options.told_listeners:
        if listener.is_on_all_interfaces:
            advice = ", which no client can connect to; name a host or an address that clients can "
            _refuse(options, name, f"{name} has {listener}{advice}reach")
        if listener.port == 0:
            _refuse(options, name, f"{name} has {listener}; name the real port")
        if listener.name not in opened:
            advice = f", but listeners has no {listener.name}; add it there or remove it here"
            _refuse(options, name, f"{name} has {listener}{advice}")


def _check_inter_broker(options: BrokerOptions) -> None:
    name, other = "inter.broker.listener.name", "security.inter.broker.protocol"
    wanted = options.inter_broker_listener_name
    if not wanted and options.inter_broker_listener is None and not options.is_alone:
        _refuse(
            options,
            other,
            f"{other}={options.security_inter_broker_protocol} is the protocol of no listener, so "
            f"brokers would not find each other; set it to that of one, or set {name}",
        )
    if wanted and _is_set(options, other):
        _refuse(options, name, f"{name} and {other} are both set; remove one")
    if wanted and wanted.upper() not in {listener.name for listener in options.open_listeners}:
        _refuse(options, name, f"{name}={wanted} is not among listeners; name one of them")


_GROUP_UNITS = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
_SHARE_UNITS = ("record.lock.duration.ms", "delivery.count.limit", "partition.max.record.locks")


def _check_groups(options: BrokerOptions) -> None:
    _check_order(options, "group.min.session.timeout.ms", "group.max.session.timeout.ms")
    _check_group_defaults(options, "consumer", _GROUP_UNITS)
    _check_group_defaults(options, "share", (*_GROUP_UNITS, *_SHARE_UNITS))
    copies, most = (
        options.group_streams_num_standby_replicas,
        options.group_streams_max_standby_replicas,
    )
    if copies > most:
        name = "group.streams.num.standby.replicas"
        message = f"{name}={copies} is more than group.streams.max.standby.replicas={most}; "
        _refuse(options, name, message + "lower it or raise the bound")
    _check_group_defaults(options, "streams", _GROUP_UNITS)


def _check_group_defaults(options: BrokerOptions, kind: str, units: tuple[str, ...]) -> None:
    """What a group has by default lies within what a single one may be given."""
    for unit in units:
        name, least, most = (f"group.{kind}.{word}{unit}" for word in ("", "min.", "max."))
        value, lowest, highest = (_number(options, one) for one in (name, least, most))
        if not lowest <= value <= highest:
            _refuse(
                options,
                next((one for one in (name, least, most) if _is_set(options, one)), name),
                f"{name}={value} is not within {least}={lowest} and {most}={highest}; "
                "change it or the bounds",
            )
    heartbeat, session = (f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms")
    heartbeat_ms, session_ms = _number(options, heartbeat), _number(options, session)
    if heartbeat_ms >= session_ms:
        _refuse(
            options,
            heartbeat if _is_set(options, heartbeat) else session,
            f"{heartbeat}={heartbeat_ms} is not smaller than {session}={session_ms}, so "
            "members would be lost between two heartbeats; lower it",
        )


def _check_compaction_lag(options: BrokerOptions) -> None:
    lag = "log.cleaner.{}.compaction.lag.ms"
    _check_order(options, lag.format("min"), lag.format("max"))


def _check_follower_waits(options: BrokerOptions) -> None:
    if options.replica_fetch_wait_max_ms > options.replica_lag_time_max_ms:
        _refuse(
            options,
            "replica.fetch.wait.max.ms",
            f"replica.fetch.wait.max.ms={options.replica_fetch_wait_max_ms} is larger than "
            f"replica.lag.time.max.ms={options.replica_lag_time_max_ms}, so idle followers would "
            "fall out of sync; lower it",
        )


def _check_order(options: BrokerOptions, least: str, most: str) -> None:
    lowest, highest = _number(options, least), _number(options, most)
    if lowest > highest:
        message = f"{least}={lowest} is larger than {most}={highest}; lower one or raise the other"
        _refuse(options, least, message)


def _number(options: BrokerOptions, name: str) -> int:
    return cast("int", options.value_of(name))


def _is_set(options: BrokerOptions, name: str) -> bool:
    return any(name in values for _, values in options.layers.levels())


def _find_repeated(items: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None


_CHECKS: tuple[Callable[[BrokerOptions], None], ...] = (
    _check_ids,
    _check_directories,
    _check_listeners,
    _check_advertised,
    _check_inter_broker,
    _check_groups,
    _check_compaction_lag,
    _check_follower_waits,
)


# Settings that ask for protection or for copies that this broker cannot give.
#
# A file that was written for another broker may say who may connect, who may read, where the other
# copies are. A broker that ignores such a line serves everybody, or keeps the only copy, unnoticed.
# So these stop the start, each with what to do instead; options whose loss costs nothing only cause
# a warning (`describe.find_unknown`). An empty value asks for nothing.


_NO_KERBEROS: Final = (
    "asks for Kerberos, and Moldau has no GSSAPI: use SCRAM-SHA-512, OAUTHBEARER or client "
    "certificates, and remove the line"
)
_NO_JAVA_SECURITY: Final = (
    "names a class of Java that decides who a client is, and Moldau cannot load it: remove the "
    "line if what Moldau decides is right (docs/security.md)"
)
_NO_PLUGIN: Final = (
    "names a class of Java that limits what clients may do, and Moldau cannot load it: remove the "
    "line if they may do all of it"
)
_NOT_REMOTE: Final = (
    "asks for a copy of closed segments in another store, and Moldau keeps them on this disk only: "
    "remove the line if that is enough"
)
_NOT_REVOKED: Final = (
    "asks whether certificates were revoked, and Moldau does not look that up: remove the line, "
    "and change the authority where a certificate must not count any more"
)

_PATTERNS: Final[tuple[tuple[str, str], ...]] = (
    ("sasl.kerberos.*", _NO_KERBEROS),
    ("listener.name.*.gssapi.*", _NO_KERBEROS),
    ("sasl.server.callback.handler.class", _NO_JAVA_SECURITY),
    ("listener.name.*.sasl.server.callback.handler.class", _NO_JAVA_SECURITY),
    ("ssl.engine.factory.class", _NO_JAVA_SECURITY),
    ("principal.builder.class", _NO_JAVA_SECURITY),
    ("create.topic.policy.class.name", _NO_PLUGIN),
    ("alter.config.policy.class.name", _NO_PLUGIN),
    ("client.quota.callback.class", _NO_PLUGIN),
    ("remote.log.storage.system.enable", _NOT_REMOTE),
    ("zookeeper.ssl.crl.enable", _NOT_REVOKED),
    ("zookeeper.ssl.ocsp.enable", _NOT_REVOKED),
)
"""Names, with `*` for any text, and what is missing. Kafka's defaults of them protect nothing."""

_HARMLESS: Final = frozenset({"", "none", "false"})
"""Values that ask for nothing: `ssl.client.auth=none`, `remote.log.storage.system.enable=false`."""


def find_unsupported(settings: Mapping[str, str], options: BrokerOptions) -> dict[str, str]:
    """What a broker must not be started with: settings, and the rest of the message about each."""
    named = ((name, find_missing_support(name, value)) for name, value in settings.items())
    found = {name: missing for name, missing in named if missing}
    if options.is_alone:
        quorum = _find_quorum(options)
        if quorum is not None:
            found[quorum[0]] = _ALONE.format(quorum[1])
        roles = set(options.process_roles)
        if len(roles) == 1:
            found["process.roles"] = _ONE_ROLE[roles.pop()]
    return found


def find_missing_support(name: str, value: str) -> str | None:
    """What a setting asks for in vain; None when it asks for nothing that would be missed."""
    if value.strip().lower() in _HARMLESS:
        return None
    return next((missing for pattern, missing in _PATTERNS if _is_like(name, pattern)), None)


def _is_like(name: str, pattern: str) -> bool:
    """The plain beginning first: few names get past it, and a pattern is dear to make."""
    return name.startswith(pattern.partition("*")[0]) and fnmatchcase(name, pattern)


def _find_quorum(options: BrokerOptions) -> tuple[str, int] | None:
    """Several controllers mean several brokers that share their topics. Here each would be alone
    with topics of its own, and acks=all would be one copy."""
    members = {
        "controller.quorum.voters": options.controller_quorum_voters,
        "controller.quorum.bootstrap.servers": options.controller_quorum_bootstrap_servers,
    }
    return next(((name, len(given)) for name, given in members.items() if len(given) > 1), None)


_NO_QUORUM: Final = (
    "and Moldau has no quorum of its own: this broker would be alone, with copies nowhere else. "
    "Join brokers by a ZooKeeper (zookeeper.connect=host:port, or moldau start --zookeeper "
    "host:port), or "
)
_ALONE: Final = f"names {{}} controllers, {_NO_QUORUM}remove the line for a broker alone"
_ONE_ROLE: Final = {
    "controller": "asks for a controller without a broker, and every Moldau broker can be the "
    "controller: start the brokers only",
    "broker": f"asks for a broker whose controller is another process, {_NO_QUORUM}set "
    "process.roles=broker,controller for a broker alone",
}


# The settings that the brokers' own topics have, wherever they come from. A rule.
#
# Kafka's own (`GroupCoordinatorService`, `TransactionStateManager`, `ShareCoordinatorService`):
# what is in these topics is the latest word on something, and a policy that deletes by age loses
# it.


def find_internal_configs(topic: str, options: BrokerOptions) -> Mapping[str, str] | None:
    """None for a topic that is not one of them."""
    if topic == GROUP_OFFSETS_TOPIC:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(options.offsets_topic_segment_bytes),
        }
    if topic == TRANSACTION_STATE_TOPIC:
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(options.transaction_state_log_min_isr),
            "segment.bytes": str(options.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    if topic == SHARE_GROUP_STATE_TOPIC:
        return {
            "cleanup.policy": "delete",  # its coordinator deletes what is superseded
            "compression.type": "producer",
            "min.insync.replicas": str(options.share_coordinator_state_topic_min_isr),
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "segment.bytes": str(options.share_coordinator_state_topic_segment_bytes),
        }
    return None
