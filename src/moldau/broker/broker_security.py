"""Puts together how a broker's listeners and its connections to other brokers are secured.

Part of the composition root: certificates are loaded before anybody listens, and looked at again
while the broker runs; logins are checked against the settings and the users in the store. A broker
without TLS and SASL makes nothing of it, and does not import it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.ports import Ports
from moldau.config.current import CurrentBrokerOptions
from moldau.config.listeners import Listener
from moldau.errors import ConfigurationError, MissingExtraError, StartupError
from moldau.metrics.figures import BrokerFigures
from moldau.workers import ThreadWorkers

if TYPE_CHECKING:
    from moldau.broker.certificate_watch import CertificateWatch, KeyStore
    from moldau.config.listener_options import ListenerOptions
    from moldau.net.port import ServerTls
    from moldau.net.secured import ClientSecurity, NewLogin
    from moldau.security.rules.certificate_names import MappingRule
    from moldau.security.rules.sasl_client import Login
    from moldau.security.sasl_server import CheckToken, SaslMechanisms, StoredLogins
    from moldau.security.watched_context import WatchedContext

_log = logging.getLogger("moldau.broker.security")

LOOK_SECONDS: Final = 5.0
"""How often files with certificates are looked at."""


class BrokerSecurity:
    """The security of one broker. `load` before it listens, then `run`."""

    def __init__(self, ports: Ports, current: CurrentBrokerOptions, figures: BrokerFigures) -> None:
        self._ports = ports
        self._current = current
        self._figures = figures
        self._certificates: CertificateWatch | None = None  # only where there are any
        self._tls: dict[str, _LoadedTls] = {}  # by the listener's name
        self._watched: list[WatchedContext[ListenerOptions]] = []
        self._mechanisms: dict[str, tuple[object, SaslMechanisms]] = {}
        self._client: ClientSecurity | None = None
        self._token_workers: ThreadWorkers | None = None  # only where there are tokens

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
        if self._watched or self._current.options.zookeeper_ssl_client_enable:
            from moldau.broker.certificate_watch import CertificateWatch

            self._certificates = CertificateWatch(
                self._key_stores,
                clock=self._ports.clock,
                workers=self._ports.workers,
                figures=self._figures,
            )
            await self._certificates.look()

    def _key_stores(self) -> Iterator[KeyStore]:
        """The certificates that this broker shows."""
        from moldau.broker.certificate_watch import KeyStore
        from moldau.broker.zookeeper_coordination import zookeeper_tls_options

        options = self._current.options
        for listener in options.open_listeners:
            if listener.uses_tls:
                yield KeyStore(f"the listener {listener.name}", self.options_of(listener.name))
        tls = zookeeper_tls_options(options)
        if tls is not None:
            yield KeyStore("the connection to ZooKeeper", tls)

    async def _load_tls(self, listener: Listener) -> _LoadedTls:
        from moldau.security.rules.certificate_names import parse_mapping_rules
        from moldau.security.tls import server_context
        from moldau.security.watched_context import WatchedContext

        watched = WatchedContext(
            f"the listener {listener.name}",
            partial(self.options_of, listener.name),
            lambda options: server_context(options, options.ssl_client_auth),
            self._ports.workers,
        )
        await _load(watched, listener)
        self._watched.append(watched)
        try:
            rules = self.options_of(listener.name).ssl_principal_mapping_rules
            return _LoadedTls(watched, parse_mapping_rules(rules))
        except ValueError as fault:
            raise StartupError(
                f"the listener {listener}: ssl.principal.mapping.rules {fault}"
            ) from None

    async def _load_client(self, listener: Listener) -> ClientSecurity:
        from moldau.net.secured import ClientSecurity
        from moldau.security.tls import client_context
        from moldau.security.watched_context import WatchedContext

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
        new_login: NewLogin | None = None
        if listener.uses_sasl:
            mechanism = options.sasl_mechanism_inter_broker_protocol
            if mechanism not in options.sasl_enabled_mechanisms:
                raise ConfigurationError(
                    f"sasl.mechanism.inter.broker.protocol={mechanism} is not among "
                    "sasl.enabled.mechanisms; add it there"
                )
            self._make_login(listener.name, mechanism)  # a wrong setting is told now

            async def new_login() -> Login:
                # As the options are now: a password that is changed while brokers run counts for
                # the next connection.
                return await self._make_login(listener.name, mechanism)()

        return ClientSecurity(tls=watched, new_login=new_login, client_id="broker")

    def _make_login(self, listener_name: str, mechanism: str) -> NewLogin:
        from moldau.security.logins import login_maker

        options = self.options_of(listener_name)
        return login_maker(
            mechanism,
            options.jaas_config_of(mechanism),
            token_url=options.sasl_oauthbearer_token_endpoint_url,
        )

    def options_of(self, listener_name: str) -> ListenerOptions:
        return self._current.options.of_listener(listener_name)

    def secure_ports(self) -> Ports:
        """The ports with a network on which this broker says who it is."""
        if self._client is None:
            return self._ports
        from moldau.net.secured import SecuredNetwork

        network = SecuredNetwork(self._ports.network, self._ports.clock, self._client)
        return replace(self._ports, network=network)

    def tls_of(
        self, listener: Listener, on_refused: Callable[[str, str, str], None]
    ) -> ServerTls | None:
        """`on_refused` hears of a client's host, the listener, and why it was refused."""
        loaded = self._tls.get(listener.name)
        if loaded is None:
            return None
        from moldau.broker.listener_tls import ListenerTls

        return ListenerTls(
            loaded.watched,
            loaded.rules,
            lambda host, reason: on_refused(host, listener.name, reason),
        )

    def mechanisms_of(self, listener_name: str, stored: StoredLogins) -> SaslMechanisms:
        """As the options are now; made again when they have changed."""
        key = self._current.options.layers
        known = self._mechanisms.get(listener_name)
        if known is None or known[0] is not key:
            try:
                made = self._make_mechanisms(listener_name, stored)
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

    def _make_mechanisms(self, name: str, stored: StoredLogins) -> SaslMechanisms:
        from moldau.security.sasl_server import SaslMechanisms

        options = self.options_of(name)
        return SaslMechanisms(
            options,
            stored=stored,
            check_token=self._token_check(options),
            workers=self._ports.workers,
        )

    def _token_check(self, options: ListenerOptions) -> CheckToken | None:
        if "OAUTHBEARER" not in options.sasl_enabled_mechanisms:
            return None
        from moldau.security.tokens import THREADS, token_check

        if self._token_workers is None:
            self._token_workers = ThreadWorkers(THREADS, "moldau-tokens")
        return token_check(options, self._token_workers, self._ports.clock)

    async def close(self) -> None:
        if self._token_workers is not None:
            await asyncio.to_thread(self._token_workers.close)

    async def run(self) -> None:
        """Look after the certificates as long as the broker lives."""
        while True:
            await self._ports.clock.sleep(LOOK_SECONDS)
            await self.refresh()

    async def refresh(self) -> None:
        for watched in self._watched:
            await watched.refresh()
        if self._certificates is not None:
            await self._certificates.look()

    @property
    def has_certificates(self) -> bool:
        return self._certificates is not None


class _LoadedTls(NamedTuple):
    watched: WatchedContext[ListenerOptions]
    rules: tuple[MappingRule, ...]  # from a certificate to a user


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
