"""The options of a broker, put together from `declarations/`.

Names, types, defaults and ranges are Kafka 4's; where a default differs, its documentation says
so. Beside the options an instance carries what follows from several of them: the listeners to
open, the data directories. Rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from moldau.config.broker_checks import find_conflict
from moldau.config.declarations.authorization import AuthorizationOptions
from moldau.config.declarations.cleaner import CleanerOptions
from moldau.config.declarations.delegation_tokens import DelegationTokenOptions
from moldau.config.declarations.groups import GroupOptions
from moldau.config.declarations.identity import IdentityOptions
from moldau.config.declarations.logs import LogOptions
from moldau.config.declarations.metrics import MetricOptions
from moldau.config.declarations.network import NetworkOptions
from moldau.config.declarations.password_encoder import PasswordEncoderOptions
from moldau.config.declarations.quotas import QuotaOptions
from moldau.config.declarations.replication import ReplicationOptions
from moldau.config.declarations.security import SecurityOptions
from moldau.config.declarations.shares import ShareOptions
from moldau.config.declarations.streams import StreamsOptions
from moldau.config.declarations.topic_defaults import TopicDefaultOptions
from moldau.config.declarations.transactions import TransactionOptions
from moldau.config.declarations.zookeeper import ZookeeperOptions
from moldau.config.listener_options import (
    ListenerLimits,
    ListenerOptions,
    find_listener_declaration,
)
from moldau.config.listeners import Listener, parse_listeners, parse_protocol_map
from moldau.config.option import OptionSet, Reload
from moldau.config.resolve import Layers, OptionSource, resolve_values
from moldau.config.unserved import find_unserved
from moldau.errors import ConfigurationError, InvalidConfigError

_NOTHING: Mapping[str, str] = MappingProxyType({})

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
        conflict = find_conflict(options)
        if conflict is not None:
            raise ConfigurationError(_placed(layers, conflict.name, conflict.message))
        unserved = find_unserved(static, options)
        if unserved:
            lines = (_placed(layers, one.name, f"{one.name} {one.message}") for one in unserved)
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
        try:
            declared.parse(value)
        except ValueError as fault:
            raise InvalidConfigError(declared.message(value, fault)) from None

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
