"""A broker with TLS and users inside a test's process: `with moldau.testing.secured_broker()`.

Its certificates are its own and live as long as it does. Needs `pip install moldau[security]`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from moldau.security.certificates import IssuedCertificate, issue, make_authority
from moldau.security.rules.sasl import format_jaas
from moldau.testing.free_ports import take_port
from moldau.testing.running_broker import RunningBroker, broker

_NOTHING: Mapping[str, str] = MappingProxyType({})
_USERS: Mapping[str, str] = MappingProxyType({"admin": "admin-secret", "alice": "alice-secret"})

MODULES: Mapping[str, str] = MappingProxyType(
    {
        "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
        "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
        "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    }
)
"""The classes that Java's clients are told."""


class SecuredBroker:
    """A broker that wants to know who it talks to. `client_options` are for our clients."""

    def __init__(
        self,
        running: RunningBroker,
        authority: IssuedCertificate,
        folder: Path,
        users: Mapping[str, str],
    ) -> None:
        self._running = running
        self.authority = authority
        self.folder = folder
        self.users = users

    @property
    def bootstrap(self) -> str:
        return self._running.bootstrap

    def address_of(self, listener_name: str) -> str:
        return self._running.address_of(listener_name)

    @property
    def metrics_url(self) -> str | None:
        """Where it serves its metrics, if `metrics.listener` is set."""
        return self._running.metrics_url

    @property
    def authority_file(self) -> Path:
        """The certificate to trust, as PEM."""
        return self.folder / "ca.pem"

    def client_options(self, user: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Options by Kafka's names, as Java's clients take them, too."""
        named = {"username": user, "password": self.users[user]}
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority_file),
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": format_jaas(MODULES[mechanism], named),
        }

    def issue_certificate(self, name: str) -> Path:
        """A PEM file with a certificate for a client, and its key."""
        identity = issue(self.authority, name)
        path = self.folder / f"client-{name}.pem"
        path.write_text(identity.certificate + identity.key)
        path.chmod(0o600)
        return path


@contextlib.contextmanager
def secured_broker(
    config: Mapping[str, str] = _NOTHING,
    *,
    users: Mapping[str, str] = _USERS,
    folder: Path | None = None,
) -> Iterator[SecuredBroker]:
    """Start a broker with the listener SASL_SSL, stop it at the end of the block.

    `users` have passwords, with PLAIN and with both kinds of SCRAM.
    """
    with contextlib.ExitStack() as stack:
        if folder is None:
            made = tempfile.TemporaryDirectory(prefix="moldau-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
        authority = write_certificates(folder)
        running = stack.enter_context(broker({**secured_settings(folder, users), **config}))
        yield SecuredBroker(running, authority, folder, users)


def write_certificates(folder: Path) -> IssuedCertificate:
    """`ca.pem` and `broker.pem`; the authority can issue more."""
    authority = make_authority("moldau.testing")
    identity = issue(authority, "broker", ("localhost", "127.0.0.1", "::1"))
    (folder / "ca.pem").write_text(authority.certificate)
    key_store = folder / "broker.pem"
    key_store.write_text(identity.certificate + identity.key)
    key_store.chmod(0o600)
    return authority


def secured_settings(folder: Path, users: Mapping[str, str] = _USERS) -> dict[str, str]:
    """Of a broker with the certificates of the folder."""
    first, password = next(iter(users.items()))
    options = {
        "username": first,
        "password": password,
        **{f"user_{name}": word for name, word in users.items()},
    }
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    settings = {
        "listeners": f"SASL_SSL://127.0.0.1:{take_port()}",
        "security.inter.broker.protocol": "SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.enabled.mechanisms": ",".join(mechanisms),
    }
    for mechanism in mechanisms:
        text = format_jaas(MODULES[mechanism], options)
        settings[f"listener.name.sasl_ssl.{mechanism.lower()}.sasl.jaas.config"] = text
    return settings
