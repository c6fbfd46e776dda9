"""The options of one listener: its own (`listener.name.NAME.`) before those of all.

What belongs to one mechanism of SASL has the mechanism in its name as well:
`listener.name.NAME.scram-sha-512.sasl.jaas.config`, and
`listener.name.NAME.oauthbearer.sasl.oauthbearer.jwks.endpoint.url`. Rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, cast

from moldau.config.declarations.network import NetworkOptions
from moldau.config.declarations.security import MECHANISMS, SecurityOptions
from moldau.config.option import AnyOption, Layers, resolve_values
from moldau.errors import ConfigurationError

PREFIX = "listener.name."
_OAUTHBEARER = "oauthbearer."
_OAUTHBEARER_OPTIONS = "sasl.oauthbearer."
_MAX_REAUTH = SecurityOptions.connections_max_reauth_ms
_OF_A_MECHANISM = frozenset({"sasl.jaas.config", _MAX_REAUTH.name})
_LIMITS: Mapping[str, AnyOption] = {
    name: NetworkOptions.declarations()[name]
    for name in ("max.connections", "max.connection.creation.rate")
}


class ListenerOptions(SecurityOptions):
    """`SecurityOptions` as they are for one listener."""

    jaas_configs: Mapping[str, str]
    """The text for each mechanism that has one of its own, by the mechanism's name."""

    max_reauth_ms: Mapping[str, int]
    """The same for `connections.max.reauth.ms`."""

    @classmethod
    def of_listener(cls, layers: Layers, listener_name: str) -> ListenerOptions:
        own = own_layers(layers, listener_name)
        values = resolve_values(SecurityOptions.declarations(), own)
        merged = _merged(own)
        jaas = {
            mechanism: text
            for mechanism in MECHANISMS
            if (text := merged.get(f"{mechanism.lower()}.sasl.jaas.config"))
        }
        reauth = {
            mechanism: _read_reauth(text)
            for mechanism in MECHANISMS
            if (text := merged.get(f"{mechanism.lower()}.{_MAX_REAUTH.name}")) is not None
        }
        return cls(values | {"jaas_configs": jaas, "max_reauth_ms": reauth})

    def jaas_config_of(self, mechanism: str) -> str | None:
        """Its own, else the one of all mechanisms."""
        return self.jaas_configs.get(mechanism, self.sasl_jaas_config)

    def max_reauth_ms_of(self, mechanism: str) -> int:
        """Its own, else the one of all mechanisms."""
        return self.max_reauth_ms.get(mechanism, self.connections_max_reauth_ms)


class ListenerLimits(NamedTuple):
    """What one listener may hold. Only what is set for it counts: those of the broker hold for all
    of them together."""

    max_connections: int
    max_connection_creation_rate: int

    @classmethod
    def of_listener(cls, layers: Layers, listener_name: str) -> ListenerLimits:
        own = own_layers(
            Layers(
                dynamic=_prefixed(layers.dynamic),
                default_dynamic=_prefixed(layers.default_dynamic),
                static=_prefixed(layers.static),
            ),
            listener_name,
        )
        values = cast("Mapping[str, int]", resolve_values(_LIMITS, own))
        return cls(**values)


def own_layers(layers: Layers, listener_name: str) -> Layers:
    """Settings with those of a listener in front, under their plain names."""
    prefix = f"{PREFIX}{listener_name.lower()}."
    return Layers(
        dynamic=_own(layers.dynamic, prefix),
        default_dynamic=_own(layers.default_dynamic, prefix),
        static=_own(layers.static, prefix),
    )


def is_listener_option(name: str) -> bool:
    """Whether a name is that of an option with a listener's prefix in front."""
    if not name.startswith(PREFIX):
        return False
    _, _, rest = name.removeprefix(PREFIX).partition(".")
    if rest in SecurityOptions.declarations() or rest in _LIMITS:
        return True
    mechanism, _, option_name = rest.partition(".")
    if mechanism.upper() == "OAUTHBEARER" and option_name.startswith(_OAUTHBEARER_OPTIONS):
        return option_name in SecurityOptions.declarations()
    return mechanism.upper() in MECHANISMS and option_name in _OF_A_MECHANISM


def find_listener_declaration(name: str) -> AnyOption | None:
    """The option that a name is for one listener; None for every other name."""
    if not is_listener_option(name):
        return None
    declared = SecurityOptions.declarations()
    _, _, rest = name.removeprefix(PREFIX).partition(".")
    return _LIMITS.get(rest) or declared.get(rest) or declared.get(rest.partition(".")[2])


def _own(settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    own = {
        name[len(prefix) :]: text
        for name, text in settings.items()
        if name.lower().startswith(prefix)
    }
    # These options exist for one mechanism only. With its name they take precedence, as in Kafka.
    of_oauthbearer = {
        name[len(_OAUTHBEARER) :]: text
        for name, text in own.items()
        if name.lower().startswith(_OAUTHBEARER + _OAUTHBEARER_OPTIONS)
    }
    return {**settings, **own, **of_oauthbearer}


def _prefixed(settings: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in settings.items() if name.startswith(PREFIX)}


def _read_reauth(text: str) -> int:
    try:
        return _MAX_REAUTH.parse(text)
    except ValueError as fault:
        raise ConfigurationError(_MAX_REAUTH.message(text, fault)) from None


def _merged(layers: Layers) -> dict[str, str]:
    merged: dict[str, str] = {}
    for _, settings in reversed(layers.levels()):
        merged.update(settings)
    return merged
