"""`moldau secure init`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

_PRIVATE = 0o600
_PRIVATE_FOLDER = 0o700
_PASSWORD_BYTES = 24
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def init(
    folder: Annotated[
        Path, typer.Option("--out", file_okay=False, help="Where the files go.")
    ] = Path("moldau-secure"),
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            help="A name or an address of the brokers' machines; repeat for more.",
            show_default="localhost",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the first broker listens.")
    ] = "127.0.0.1:9092",
    user: Annotated[str, typer.Option(help="The first user, who may do everything.")] = "admin",
) -> None:
    """Make certificates, a first user and the settings of brokers and clients.

    \b
    Then a secured cluster of three brokers on this machine is one command:
    moldau start --brokers 3 --config moldau-secure/server.properties
    moldau topics list --command-config moldau-secure/client.properties
    """
    from moldau.errors import ConfigurationError
    from moldau.security.certificates import issue, make_authority, require_cryptography
    from moldau.security.rules.jaas import format_jaas

    require_cryptography()
    if folder.exists() and any(folder.iterdir()):
        raise ConfigurationError(
            f"{folder} is not empty, and keys in it may be in use; name another folder with --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(_PRIVATE_FOLDER)
    names = list(dict.fromkeys([*(hosts or ()), "localhost", "127.0.0.1", "::1"]))
    authority = make_authority("Moldau cluster authority")
    broker = issue(authority, "moldau-broker", names)
    client = issue(authority, user)
    words = {one: secrets.token_urlsafe(_PASSWORD_BYTES) for one in ("broker", user)}
    _write(folder / "ca.pem", authority.certificate, 0o644)
    _write(folder / "ca.key", authority.key)
    _write(folder / "broker.pem", broker.certificate + broker.key)
    _write(folder / "client.pem", client.certificate + client.key)
    users = {f"user_{one}": word for one, word in words.items()}
    broker_jaas = format_jaas(_SCRAM, {"username": "broker", "password": words["broker"], **users})
    here = folder.resolve()
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(here / "ca.pem")}
    _write(
        folder / "server.properties",
        _properties(
            {
                "listeners": f"SASL_SSL://{listen}",
                "security.inter.broker.protocol": "SASL_SSL",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": broker_jaas,
                "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": broker_jaas,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(here / "broker.pem"),
                **trust,
                "authorizer.class.name": (
                    "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
                ),
                "super.users": f"User:broker;User:{user}",
            }
        ),
    )
    jaas = format_jaas(_SCRAM, {"username": user, "password": words[user]})
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    _write(
        folder / "client.properties",  # Java's clients and tools, Moldau's, Spark
        _properties({**sasl, "sasl.jaas.config": jaas, **trust}),
    )
    _write(
        folder / "librdkafka.properties",
        _properties(
            {
                **sasl,
                "sasl.username": user,
                "sasl.password": words[user],
                "ssl.ca.location": str(here / "ca.pem"),
            }
        ),
    )
    typer.echo(f"made a cluster's certificates and the user {user} in {folder}")
    typer.echo(f"start:   moldau start --brokers 3 --config {folder}/server.properties")
    typer.echo(f"use:     moldau topics list --command-config {folder}/client.properties")
    typer.echo(f"keep {folder}/ca.key elsewhere: who has it can be anybody in this cluster")


def _properties(settings: Mapping[str, str]) -> str:
    lines = (f"{name}={value.replace(chr(92), chr(92) * 2)}" for name, value in settings.items())
    return "\n".join(lines) + "\n"


def _write(path: Path, text: str, mode: int = _PRIVATE) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
