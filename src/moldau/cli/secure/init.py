"""`moldau secure init`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from moldau.cli.secure.folder import DEFAULT_FOLDER, PUBLIC, SecureFolder, write_file

_PASSWORD_BYTES: Final = 24
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BROKER: Final = "broker"  # who brokers are for each other


def init(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", file_okay=False, help="Where the files go.")
    ] = DEFAULT_FOLDER,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="A name or an address of the brokers' machines; repeat for more.",
            show_default="localhost",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the first broker listens.")
    ] = "127.0.0.1:9092",
    user: Annotated[
        str, typer.Option(metavar="NAME", help="The first user, who may do everything.")
    ] = "admin",
) -> None:
    """Make certificates, a first user and the settings of brokers and clients.

    \b
    Then a secured cluster of three brokers on this machine is one command:
    moldau cluster start --secure moldau-secure
    moldau topics list --command-config moldau-secure/client.properties
    """
    from moldau.errors import ConfigurationError
    from moldau.security.certificates import require_cryptography

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
    from moldau.security.certificates import issue, make_authority

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
    from moldau.security.rules.jaas import format_jaas

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
    from moldau.security.rules.jaas import format_jaas

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
