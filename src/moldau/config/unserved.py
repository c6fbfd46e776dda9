"""Settings that ask for protection or for copies that this broker cannot give.

A file that was written for another broker may say who may connect, who may read, where the other
copies are. Whoever passes over such a line serves everybody, or keeps the only copy, and nobody
knows. So these stop the start, each with what to do instead; options whose loss costs nothing are
only warned of (`unknown`). An empty value asks for nothing. Rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from moldau.config.broker_options import BrokerOptions


class Unserved(NamedTuple):
    """A setting and the rest of the message that begins with its name."""

    name: str
    message: str


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


def find_unserved(settings: Mapping[str, str], options: BrokerOptions) -> list[Unserved]:
    """Everything in what a broker is started with that it must not be started with."""
    named = ((name, find_missing(name, value)) for name, value in settings.items())
    found = (unserved for check in _CHECKS if (unserved := check(options)) is not None)
    return [*(Unserved(name, missing) for name, missing in named if missing), *found]


def find_missing(name: str, value: str) -> str | None:
    """What a setting asks for in vain; None when it asks for nothing that would be missed."""
    if value.strip().lower() in _HARMLESS:
        return None
    return next((missing for pattern, missing in _PATTERNS if _is_like(name, pattern)), None)


def _is_like(name: str, pattern: str) -> bool:
    """The plain beginning first: few names get past it, and a pattern is dear to make."""
    return name.startswith(pattern.partition("*")[0]) and fnmatchcase(name, pattern)


def _check_quorum(options: BrokerOptions) -> Unserved | None:
    """Several controllers mean several brokers that share their topics. Here each would be alone
    with topics of its own, and acks=all would be one copy."""
    if not options.is_alone:
        return None
    for name, members in (
        ("controller.quorum.voters", options.controller_quorum_voters),
        ("controller.quorum.bootstrap.servers", options.controller_quorum_bootstrap_servers),
    ):
        if len(members) > 1:
            return Unserved(
                name,
                f"names {len(members)} controllers, and Moldau has no quorum of its own: this "
                "broker would be alone, with copies nowhere else. Join brokers by a ZooKeeper "
                "(zookeeper.connect=host:port, or moldau start --zookeeper host:port), or remove "
                "the line for a broker alone",
            )
    return None


def _check_roles(options: BrokerOptions) -> Unserved | None:
    roles = options.process_roles
    if not options.is_alone or not roles or {"broker", "controller"} <= set(roles):
        return None
    (role,) = set(roles)
    if role == "controller":
        return Unserved(
            "process.roles",
            "asks for a controller without a broker, and every Moldau broker can be the "
            "controller: start the brokers only",
        )
    return Unserved(
        "process.roles",
        "asks for a broker whose controller is another process, and Moldau has no quorum of its "
        "own: this broker would be alone, with copies nowhere else. Join brokers by a ZooKeeper "
        "(zookeeper.connect=host:port, or moldau start --zookeeper host:port), or set "
        "process.roles=broker,controller for a broker alone",
    )


_CHECKS: Final[tuple[Callable[[BrokerOptions], Unserved | None], ...]] = (
    _check_quorum,
    _check_roles,
)
