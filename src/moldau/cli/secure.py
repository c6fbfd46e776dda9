"""`moldau secure`: makes what a secured cluster needs, and the folder that holds it."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from moldau.broker.ports import zookeeper_settings
from moldau.cli.options import option
from moldau.cli.output import warn
from moldau.cli.start import gather_settings
from moldau.clock import SystemClock
from moldau.cluster.entity_znodes import STORE_ROOTS
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.tree import ROOT
from moldau.coordination.zookeeper.client import AccessMigration, ZookeeperClient
from moldau.coordination.zookeeper.server import ServerSecurity
from moldau.coordination.zookeeper.settings import ZookeeperSettings
from moldau.errors import ConfigurationError, StartupError
from moldau.security.certificates import (
    CERTIFICATE_DAYS,
    IssuedCertificate,
    issue,
    make_authority,
    read_names,
    require_cryptography,
)
from moldau.security.rules.certificates import DAY_MS, first_end_ms
from moldau.security.rules.sasl import format_jaas
from moldau.workers import ThreadWorkers

DEFAULT_FOLDER: Final = Path("moldau-secure")
PUBLIC: Final = 0o644
_PRIVATE: Final = 0o600
_PRIVATE_FOLDER: Final = 0o700


class SecureFolder:
    """Paths only: whether they exist is for those who use them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        here = folder.resolve()
        self.authority = here / "ca.pem"
        self.authority_key = here / "ca.key"
        self.broker = here / "broker.pem"
        self.client = here / "client.pem"
        self.server_properties = here / "server.properties"
        self.client_properties = here / "client.properties"
        self.librdkafka_properties = here / "librdkafka.properties"
        self.zookeeper = here / "zookeeper"
        """Its authority signs for servers and brokers alone: no client can have a certificate."""
        self.zookeeper_authority = self.zookeeper / "ca.pem"
        self.zookeeper_authority_key = self.zookeeper / "ca.key"
        self.zookeeper_server = self.zookeeper / "server.pem"
        self.zookeeper_broker = self.zookeeper / "broker.pem"

    def make(self) -> None:
        for folder in (self.path, self.zookeeper):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(_PRIVATE_FOLDER)

    def require(self) -> None:
        """Raises StartupError where `moldau secure init` was not."""
        missing = [path for path in (self.server_properties, self.authority) if not path.is_file()]
        if missing:
            raise StartupError(
                f"{self.path} has no {missing[0].name}; `moldau secure init --out {self.path}` "
                "makes what is needed"
            )

    def server_security(self) -> ServerSecurity:
        """For ZooKeeper's servers."""
        for path in (self.zookeeper_server, self.zookeeper_authority):
            if not path.is_file():
                raise StartupError(
                    f"there is no {path}; `moldau secure init` makes one, in a folder of its own"
                )
        return ServerSecurity(key_store=self.zookeeper_server, trust_store=self.zookeeper_authority)


def write_file(path: Path, text: str, mode: int = _PRIVATE) -> None:
    """All of it or nothing; in place of a former one. Secrets are for their owner alone."""
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, mode)  # whatever the umask takes away
        file.write(text)
    beside.replace(path)


_PASSWORD_BYTES: Final = 24
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BROKER: Final = "broker"  # who brokers are for each other


def init(
    out: Annotated[
        Path, option("DIR", "Where the files go.", "--out", file_okay=False)
    ] = DEFAULT_FOLDER,
    hosts: Annotated[
        list[str] | None,
        option(
            "HOST",
            "A name or an address of the brokers' machines; repeat for more.",
            "--host",
            default="localhost",
        ),
    ] = None,
    listen: Annotated[
        str, option("HOST:PORT", "Where the first broker listens.")
    ] = "127.0.0.1:9092",
    user: Annotated[str, option("NAME", "The first user, who may do everything.")] = "admin",
) -> None:
    """Make certificates, a first user and the settings of brokers and clients.

    \b
    Then a secured cluster of three brokers on this machine is one command:
    moldau cluster start --secure moldau-secure
    moldau topics list --command-config moldau-secure/client.properties
    """
    require_cryptography()
    if out.exists() and any(out.iterdir()):
        raise ConfigurationError(
            f"{out} is not empty, and keys in it may be in use; name another folder with --out, "
            "or `moldau secure renew` for new certificates"
        )
    folder = SecureFolder(out)
    folder.make()
    names = list(dict.fromkeys([*(hosts or ()), "localhost", "127.0.0.1", "::1"]))
    _make_certificates(folder, names, user)
    words = {one: secrets.token_urlsafe(_PASSWORD_BYTES) for one in (_BROKER, user)}
    _write_properties(folder.server_properties, _server_settings(folder, listen, user, words))
    _write_client_settings(folder, user, words[user])
    typer.echo(f"made a cluster's certificates and the user {user} in {out}")
    typer.echo(f"start:   moldau cluster start --secure {out}")
    typer.echo(f"use:     moldau topics list --command-config {out}/client.properties")
    typer.echo(f"renew:   moldau secure renew --out {out}")
    typer.echo(
        f"keep {out}/ca.key and {out}/zookeeper/ca.key elsewhere: who has them can be anybody in "
        "this cluster"
    )


def _make_certificates(folder: SecureFolder, hosts: list[str], user: str) -> None:
    authority = make_authority("Moldau cluster authority")
    write_file(folder.authority, authority.certificate, PUBLIC)
    write_file(folder.authority_key, authority.key)
    for path, identity in (
        (folder.broker, issue(authority, "moldau-broker", hosts)),
        (folder.client, issue(authority, user)),
    ):
        write_file(path, identity.certificate + identity.key)
    inner = make_authority("Moldau ZooKeeper authority")
    write_file(folder.zookeeper_authority, inner.certificate, PUBLIC)
    write_file(folder.zookeeper_authority_key, inner.key)
    for path, identity in (
        (folder.zookeeper_server, issue(inner, "moldau-zookeeper", hosts)),
        (folder.zookeeper_broker, issue(inner, "moldau-broker")),
    ):
        write_file(path, identity.certificate + identity.key)


def _server_settings(
    folder: SecureFolder, listen: str, user: str, words: Mapping[str, str]
) -> dict[str, str]:
    users = {f"user_{one}": word for one, word in words.items()}
    jaas = format_jaas(_SCRAM, {"username": _BROKER, "password": words[_BROKER], **users})
    return {
        "listeners": f"SASL_SSL://{listen}",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": jaas,
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": jaas,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder.broker),
        **_trust(folder),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{_BROKER};User:{user}",
        "zookeeper.ssl.client.enable": "true",  # these count where there is a zookeeper.connect
        "zookeeper.ssl.keystore.type": "PEM",
        "zookeeper.ssl.keystore.location": str(folder.zookeeper_broker),
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.truststore.location": str(folder.zookeeper_authority),
        "zookeeper.set.acl": "true",
    }


def _write_client_settings(folder: SecureFolder, user: str, word: str) -> None:
    jaas = format_jaas(_SCRAM, {"username": user, "password": word})
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    java = {**sasl, "sasl.jaas.config": jaas, **_trust(folder)}  # and Moldau's clients, Spark
    _write_properties(folder.client_properties, java)
    native = {
        **sasl,
        "sasl.username": user,
        "sasl.password": word,
        "ssl.ca.location": str(folder.authority),
    }
    _write_properties(folder.librdkafka_properties, native)


def _trust(folder: SecureFolder) -> dict[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder.authority)}


def _write_properties(path: Path, settings: Mapping[str, str]) -> None:
    lines = (f"{name}={value.replace(chr(92), chr(92) * 2)}" for name, value in settings.items())
    write_file(path, "\n".join(lines) + "\n")


def renew(
    out: Annotated[
        Path, option("DIR", "Where `secure init` put the files.", "--out", file_okay=False)
    ] = DEFAULT_FOLDER,
    hosts: Annotated[
        list[str] | None,
        option(
            "HOST",
            "One more name or address of the brokers' machines; repeat for more.",
            "--host",
            default="those of the former certificate",
        ),
    ] = None,
) -> None:
    """Make new certificates of the same authority, in place of those of `moldau secure init`.

    Brokers that run use them for new connections within seconds, and ZooKeeper's servers do;
    nobody has to be restarted. Needs the keys of the authorities (ca.key).
    """
    require_cryptography()
    folder = SecureFolder(out)
    folder.require()
    signed = [
        _Signed(folder.authority, folder.authority_key, (folder.broker, folder.client)),
        _Signed(
            folder.zookeeper_authority,
            folder.zookeeper_authority_key,
            (folder.zookeeper_server, folder.zookeeper_broker),
        ),
    ]
    if not folder.zookeeper_authority.is_file():
        signed.pop()
        warn(f"{out} has no certificates for ZooKeeper (it was made before there were any)")
    for one in signed:  # all or nothing
        if not one.key.is_file():
            raise ConfigurationError(
                f"there is no {one.key}: put it back to renew what it has signed"
            )
    for one in signed:
        _renew(one, hosts or [])


class _Signed(NamedTuple):
    """What an authority has signed, if it is there."""

    authority: Path
    key: Path
    paths: tuple[Path, ...]


def _renew(signed: _Signed, more_hosts: list[str]) -> None:

    text = signed.authority.read_text()
    signer = IssuedCertificate(text, signed.key.read_text())
    for path in signed.paths:
        if not path.is_file():
            warn(f"there is no {path}, so there is nothing to renew")
            continue
        name, former = read_names(path.read_text())
        names = list(dict.fromkeys([*former, *more_hosts])) if former else []
        identity = issue(signer, name, names)
        write_file(path, identity.certificate + identity.key)
        typer.echo(f"renewed {path}")
    end_ms = first_end_ms(text.encode()) or 0
    days = int((end_ms / 1000 - time.time()) * 1000 // DAY_MS)
    if days < CERTIFICATE_DAYS:
        warn(
            f"the authority {signed.authority} itself ends in {days} days, and what it signed ends "
            "with it; docs/security.md says how to change it"
        )


_NAMED = 5


class Access(StrEnum):
    """Kafka's words."""

    SECURE = "secure"
    UNSECURE = "unsecure"


def migrate_zookeeper(
    config: Annotated[
        Path,
        option(
            "FILE",
            "A broker's server.properties: who brokers are for ZooKeeper (zookeeper.ssl.*, "
            "zookeeper.auth.*).",
            exists=True,
            dir_okay=False,
        ),
    ],
    access: Annotated[
        Access,
        option("secure|unsecure", "secure: only brokers may write. unsecure: everybody.", "--acl"),
    ] = Access.SECURE,
    zookeeper: Annotated[
        str | None, option("HOST:PORT,...[/PATH]", "Where it is.", default="what the file says")
    ] = None,
) -> None:
    """Give the nodes that a cluster has in ZooKeeper the access lists of zookeeper.set.acl.

    New nodes get them from brokers with zookeeper.set.acl=true; this is for those from before, as
    Kafka's zookeeper-security-migration. Brokers may run meanwhile. Start it again if it is cut
    off: what is done is left alone.

    To secure a cluster that runs, start the brokers anew, one after the other, with
    zookeeper.ssl.* or zookeeper.auth.*; once more, with zookeeper.set.acl=true; then do this. Back:
    zookeeper.set.acl=false on all brokers, then this with --acl unsecure.
    """

    settings = _read_settings(config, zookeeper, is_protected=access is Access.SECURE)
    done = asyncio.run(_migrate(settings, is_protected=access is Access.SECURE))
    if done.seen <= bool(settings.root) and not done.refused:  # a path is a node itself
        raise ConfigurationError(
            f"no cluster has nodes at {','.join(settings.servers)}{settings.root}; what brokers "
            "have as zookeeper.connect, with the path at its end, is what --zookeeper takes"
        )
    word = "belong to the brokers" if access is Access.SECURE else "are open to everybody"
    typer.echo(f"{done.seen:,} nodes {word}; {done.changed:,} of them were changed")
    if done.refused:
        more = len(done.refused) - _NAMED
        names = ", ".join(sorted(done.refused)[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        raise ConfigurationError(
            f"{len(done.refused)} nodes belong to somebody else, and are as they were: {names}. "
            "Do this again with the credential or the certificate that made them"
        )


def _read_settings(config: Path, connect: str | None, *, is_protected: bool) -> ZookeeperSettings:
    static = gather_settings(
        config=config, sets=(), data_dir=None, listen=None, broker_id=None, zookeeper=connect
    )
    options = BrokerOptions.resolve({**static, "zookeeper.set.acl": str(is_protected).lower()})
    if not options.zookeeper_connect:
        raise ConfigurationError(f"{config} has no zookeeper.connect; name it with --zookeeper")
    return zookeeper_settings(options.zookeeper_connect, options)


async def _migrate(settings: ZookeeperSettings, *, is_protected: bool) -> AccessMigration:
    workers = ThreadWorkers(1)
    try:
        session = await ZookeeperClient.open(settings, clock=SystemClock(), workers=workers)
        try:
            migration = AccessMigration(session, is_protected=is_protected)
            roots = list(STORE_ROOTS)
            if settings.root:  # all below it is the cluster's
                roots = [ROOT, *(f"/{name}" for name in await session.children(ROOT))]
            await migration.run(roots)
            return migration
        finally:
            await session.close()
    finally:
        workers.close()
