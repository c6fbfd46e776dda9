"""Puts together how a broker's listeners and its connections to other brokers are secured.

Part of the composition root: certificates are loaded before anybody listens, and looked at again
while the broker runs; logins are checked against the settings and the users in the store. A broker
without TLS and SASL makes nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from moldau.broker.ports import Ports
from moldau.config.current import CurrentBrokerOptions
from moldau.config.listener_options import ListenerOptions
from moldau.config.listeners import Listener
from moldau.errors import ConfigurationError, MissingExtraError, StartupError
from moldau.model import ANONYMOUS, Principal
from moldau.model.principal import USER
from moldau.net.port import ServerTls
from moldau.net.secured import ClientSecurity, SecuredNetwork
from moldau.security.rules.certificate_names import (
    distinguished_name,
    map_name,
    parse_mapping_rules,
)
from moldau.security.sasl_server import CheckToken, FindCredential, SaslMechanisms
from moldau.security.tls import client_context, server_context
from moldau.security.watched_context import WatchedContext

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""How often files with certificates are looked at."""


class ListenerTls:
    """The certificates of one listener. Implements `net.port.ServerTls`."""

    def __init__(self, watched: WatchedContext[ListenerOptions], rules: str) -> None:
        self._watched = watched
        self._rules = parse_mapping_rules(rules)

    @property
    def context(self) -> Any:
        return self._watched.context

    def identify(self, certificate: Mapping[str, Any]) -> Principal:
        if not certificate:
            return ANONYMOUS
        name = distinguished_name(certificate["subject"])
        mapped = map_name(name, self._rules)
        if mapped is None:
            raise ValueError(f"has the name {name}, which no ssl.principal.mapping.rules take")
        return Principal(USER, mapped)


class BrokerSecurity:
    """The security of one broker. `load` before it listens, then `run`."""

    def __init__(self, ports: Ports, current: CurrentBrokerOptions) -> None:
        self._ports = ports
        self._current = current
        self._tls: dict[str, ListenerTls] = {}  # by the listener's name
        self._watched: list[WatchedContext[ListenerOptions]] = []
        self._mechanisms: dict[str, tuple[object, SaslMechanisms]] = {}
        self._client: ClientSecurity | None = None

    async def load(self) -> None:
        """Read all certificates. Raises StartupError or ConfigurationError that says what to do."""
        for listener in self._current.options.open_listeners:
            if listener.uses_tls:
                self._tls[listener.name] = await self._load_tls(listener)
            if listener.uses_sasl and listener.security_protocol == "SASL_PLAINTEXT":
                _warn_of_clear_text(listener)
        inner = self._current.options.inter_broker_listener
        if inner is not None and inner.security_protocol != "PLAINTEXT":
            self._client = await self._load_client(inner)

    async def _load_tls(self, listener: Listener) -> ListenerTls:
        watched = WatchedContext(
            f"the listener {listener.name}",
            partial(self.options_of, listener.name),
            lambda options: server_context(options, options.ssl_client_auth),
            self._ports.workers,
        )
        await _load(watched, listener)
        self._watched.append(watched)
        try:
            return ListenerTls(watched, self.options_of(listener.name).ssl_principal_mapping_rules)
        except ValueError as fault:
            raise StartupError(
                f"the listener {listener}: ssl.principal.mapping.rules {fault}"
            ) from None

    async def _load_client(self, listener: Listener) -> ClientSecurity:
        from moldau.security.logins import login_maker

        options = self.options_of(listener.name)
        watched = None
        if listener.uses_tls:
            watched = WatchedContext(
                "the connections to other brokers",
                partial(self.options_of, listener.name),
                client_context,
                self._ports.workers,
            )
            await _load(watched, listener)
            self._watched.append(watched)
        new_login = None
        if listener.uses_sasl:
            mechanism = options.sasl_mechanism_inter_broker_protocol
            if mechanism not in options.sasl_enabled_mechanisms:
                raise ConfigurationError(
                    f"sasl.mechanism.inter.broker.protocol={mechanism} is not among "
                    "sasl.enabled.mechanisms; add it there"
                )
            new_login = login_maker(
                mechanism,
                options.jaas_config_of(mechanism),
                token_url=options.sasl_oauthbearer_token_endpoint_url,
            )
        return ClientSecurity(tls=watched, new_login=new_login, client_id="broker")

    def options_of(self, listener_name: str) -> ListenerOptions:
        return self._current.options.of_listener(listener_name)

    def secure_ports(self) -> Ports:
        """The ports with a network on which this broker says who it is."""
        if self._client is None:
            return self._ports
        network = SecuredNetwork(self._ports.network, self._ports.clock, self._client)
        return replace(self._ports, network=network)

    def tls_of(self, listener: Listener) -> ServerTls | None:
        return self._tls.get(listener.name)

    def mechanisms_of(self, listener_name: str, find_credential: FindCredential) -> SaslMechanisms:
        """As the options are now; made again when they have changed."""
        key = self._current.options.layers
        known = self._mechanisms.get(listener_name)
        if known is None or known[0] is not key:
            try:
                made = self._make_mechanisms(listener_name, find_credential)
            except (ConfigurationError, MissingExtraError) as error:
                if known is None:
                    raise
                made = known[1]
                _log.error(
                    "the changed users of the listener %s are not used, the former stay in "
                    "force: %s",
                    listener_name,
                    error,
                )
            known = self._mechanisms[listener_name] = (key, made)
        return known[1]

    def _make_mechanisms(self, name: str, find_credential: FindCredential) -> SaslMechanisms:
        options = self.options_of(name)
        return SaslMechanisms(
            options,
            find_credential=find_credential,
            check_token=self._token_check(options),
            workers=self._ports.workers,
        )

    def _token_check(self, options: ListenerOptions) -> CheckToken | None:
        if "OAUTHBEARER" not in options.sasl_enabled_mechanisms:
            return None
        from moldau.security.tokens import token_check

        return token_check(options, self._ports.workers, self._ports.clock)

    async def run(self) -> None:
        """Look after the certificates as long as the broker lives."""
        while True:
            await self._ports.clock.sleep(LOOK_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        for watched in self._watched:
            await watched.refresh()

    @property
    def has_certificates(self) -> bool:
        return bool(self._watched)


async def _load(watched: WatchedContext[ListenerOptions], listener: Listener) -> None:
    try:
        await watched.load()
    except (ConfigurationError, MissingExtraError) as error:
        raise StartupError(f"the listener {listener}: {error}") from None


def _warn_of_clear_text(listener: Listener) -> None:
    if not listener.is_on_loopback:
        _log.warning(
            "the listener %s asks who clients are, and encrypts nothing: whoever can listen to "
            "the network reads records, and with PLAIN passwords; use SASL_SSL",
            listener,
        )
