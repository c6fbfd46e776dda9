"""What strangers could reach: listeners and metrics without security, keys that all can read.

Looked at when a broker starts, before it listens.
"""

from __future__ import annotations

import logging
import stat
from pathlib import Path

from moldau.config.broker_options import BrokerOptions
from moldau.config.declarations.network import split_address
from moldau.config.listeners import Listener, is_loopback
from moldau.errors import StartupError

_log = logging.getLogger("moldau.broker.security")

_PROTECTING = (
    "ssl.client.auth",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
)
"""Who sets one of these means to be protected."""


def refuse_insecure(options: BrokerOptions) -> None:
    """Raises StartupError where anybody on the network could read and delete everything, unless
    that is wanted; then it is said at each start."""
    _warn_of_idle_settings(options)
    for listener in options.open_listeners:
        if listener.is_on_loopback:
            continue
        if listener.security_protocol != "PLAINTEXT":
            _warn_of_strangers(listener, options)
            continue
        if not options.insecure_listeners_enable:
            raise StartupError(
                f"the listener {listener} would be open to everybody who can reach this machine: "
                "nobody has to say who he is, and nothing is encrypted. Secure it (`moldau secure "
                "init` makes what that needs; see docs/security.md), or start with --insecure "
                "where the network is yours alone"
            )
        _log.warning(
            "the listener %s is not secured (--insecure): whoever can reach it reads, writes and "
            "deletes everything",
            listener,
        )
    _refuse_open_metrics(options)


def _refuse_open_metrics(options: BrokerOptions) -> None:
    """They tell the names of topics, groups and clients to everybody who asks."""
    address = options.metrics_listener
    if address is None or is_loopback(split_address(address)[0]):
        return
    if not options.insecure_listeners_enable:
        raise StartupError(
            f"metrics.listener={address} would tell everybody who can reach this machine the names "
            "of topics, groups and clients: there is no login, and nothing is encrypted. Serve "
            "them on 127.0.0.1, behind a proxy that asks who it is, or start with --insecure where "
            "the network is yours alone"
        )
    _log.warning(
        "the metrics on %s are not secured (--insecure): whoever can reach them reads them", address
    )


def warn_of_open_keys(options: BrokerOptions) -> None:
    """Say which private keys everybody on this machine can read. Blocks for a moment."""
    secured = [one for one in options.open_listeners if one.uses_tls]
    stores = [options.of_listener(one.name).ssl_keystore_location for one in secured]
    if options.zookeeper_ssl_client_enable:
        stores.append(options.zookeeper_ssl_keystore_location)
    for path in dict.fromkeys(filter(None, stores)):
        if is_readable_by_all(Path(path)):
            _log.warning(
                "everybody on this machine can read the private key in %s: chmod 600 it", path
            )


def is_readable_by_all(path: Path) -> bool:
    """Not when it is missing: others say that."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _warn_of_idle_settings(options: BrokerOptions) -> None:
    if any(one.uses_tls or one.uses_sasl for one in options.open_listeners):
        return
    for name in _PROTECTING:
        if name in options.layers.static:
            _log.warning(
                "%s is set and protects nothing: no listener uses TLS or SASL. Name one of SSL, "
                "SASL_SSL or SASL_PLAINTEXT in listeners",
                name,
            )


def _warn_of_strangers(listener: Listener, options: BrokerOptions) -> None:
    """Encryption alone keeps nobody out."""
    if listener.uses_sasl or options.authorizer_class_name:
        return
    if options.of_listener(listener.name).ssl_client_auth != "required":
        _log.warning(
            "the listener %s is encrypted, and nobody has to say who he is: whoever can reach it "
            "reads, writes and deletes everything. Set ssl.client.auth=required, or use SASL_SSL",
            listener,
        )
