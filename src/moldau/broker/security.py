"""TLS and SASL of a broker: of its listeners and of its connections to other brokers.

Certificates are loaded before the broker listens, and are checked again while it runs; a warning is
logged before one expires. Logins are checked against the settings and the users in the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from moldau.broker.ports import Ports, zookeeper_tls_options
from moldau.clock import Clock
from moldau.config.broker_options import CurrentBrokerOptions
from moldau.config.declarations.security import TlsOptions
from moldau.config.listener_options import ListenerOptions
from moldau.config.listeners import Listener
from moldau.errors import ConfigurationError, MissingExtraError, StartupError
from moldau.metrics.figures import BrokerFigures
from moldau.model import ANONYMOUS, USER, Principal
from moldau.net.secured import ClientSecurity, NewLogin, SecuredNetwork
from moldau.security.rules.certificates import (
    MappingRule,
    distinguished_name,
    is_to_be_told,
    map_name,
    parse_mapping_rules,
    remaining,
)
from moldau.security.sasl_server import (
    THREADS,
    CheckToken,
    SaslMechanisms,
    StoredLogins,
    token_check,
)
from moldau.security.tls import WatchedContext, client_context, find_chain_end_ms, server_context
from moldau.workers import ThreadWorkers, Workers

if TYPE_CHECKING:
    from moldau.net.port import ServerTls
    from moldau.security.rules.sasl import Login

_log = logging.getLogger("moldau.broker.security")

LOOK_SECONDS: Final = 5.0
"""How often files with certificates are looked at."""

_SECONDS_BETWEEN_LOOKS: Final = 60.0


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
            self._certificates = CertificateWatch(
                self._key_stores,
                clock=self._ports.clock,
                workers=self._ports.workers,
                figures=self._figures,
            )
            await self._certificates.look()

    def _key_stores(self) -> Iterator[KeyStore]:
        """The certificates that this broker shows."""
        options = self._current.options
        for listener in options.open_listeners:
            if listener.uses_tls:
                yield KeyStore(f"the listener {listener.name}", self.options_of(listener.name))
        tls = zookeeper_tls_options(options)
        if tls is not None:
            yield KeyStore("the connection to ZooKeeper", tls)

    async def _load_tls(self, listener: Listener) -> _LoadedTls:
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
        from moldau.security.client_security import login_maker

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

        network = SecuredNetwork(self._ports.network, self._ports.clock, self._client)
        return replace(self._ports, network=network)

    def tls_of(
        self, listener: Listener, on_refused: Callable[[str, str, str], None]
    ) -> ServerTls | None:
        """`on_refused` hears of a client's host, the listener, and why it was refused."""
        loaded = self._tls.get(listener.name)
        if loaded is None:
            return None

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


class ListenerTls:
    """The certificates of one listener. Implements `net.port.ServerTls`."""

    def __init__(
        self,
        watched: WatchedContext[ListenerOptions],
        rules: Sequence[MappingRule],
        on_refused: Callable[[str, str], None],
    ) -> None:
        """`on_refused` hears of a client's host, and why it was refused."""
        self._watched = watched
        self._rules = rules
        self.refused = on_refused

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


class KeyStore(NamedTuple):
    """A certificate in use, and for what."""

    used_for: str
    options: TlsOptions


class CertificateWatch:
    """Warns in good time that a certificate of this broker expires, in its log and its metrics.

    Call `look` now and then: it reads files at most once a minute. `security.tls` loads new
    certificates. Owned by the event loop.
    """

    def __init__(
        self,
        stores: Callable[[], Iterable[KeyStore]],
        *,
        clock: Clock,
        workers: Workers,
        figures: BrokerFigures,
    ) -> None:
        self._stores = stores
        self._clock = clock
        self._workers = workers
        self._figures = figures
        self._looks_at = float("-inf")  # monotonic seconds
        self._told_ms: dict[tuple[str, int], int] = {}  # by what it is used for, and its end

    async def look(self) -> None:
        now = self._clock.monotonic()
        if now < self._looks_at:
            return
        self._looks_at = now + _SECONDS_BETWEEN_LOOKS

        ends: dict[str, int] = {}
        for used_for, options in self._stores():
            try:
                end_ms = await self._workers.run(partial(find_chain_end_ms, options))
            except (ConfigurationError, MissingExtraError):
                continue  # who uses it says so
            if end_ms is not None:
                ends[used_for] = end_ms
        self._figures.certificates_end_ms = min(ends.values(), default=None)
        self._tell(ends)

    def _tell(self, ends: dict[str, int]) -> None:
        now_ms = self._clock.now_ms()
        told = {key: at for key, at in self._told_ms.items() if ends.get(key[0]) == key[1]}
        for key in ends.items():
            used_for, end_ms = key
            if is_to_be_told(end_ms, now_ms, told.get(key)):
                told[key] = now_ms
                level = logging.ERROR if end_ms <= now_ms else logging.WARNING
                text = remaining(end_ms, now_ms)
                _log.log(level, "the certificate of %s %s; renew it", used_for, text)
        self._told_ms = told
