"""`moldau secure renew`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from moldau.cli.secure.folder import DEFAULT_FOLDER, SecureFolder, write_file


def renew(
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="DIR", file_okay=False, help="Where `secure init` put the files."
        ),
    ] = DEFAULT_FOLDER,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="One more name or address of the brokers' machines; repeat for more.",
            show_default="those of the former certificate",
        ),
    ] = None,
) -> None:
    """Make new certificates of the same authority, in place of those of `moldau secure init`.

    Brokers that run use them for new connections within seconds, and ZooKeeper's servers do;
    nobody has to be restarted. Needs the keys of the authorities (ca.key).
    """
    from moldau.cli.output import warn
    from moldau.errors import ConfigurationError
    from moldau.security.certificates import require_cryptography

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
    import time

    from moldau.cli.output import warn
    from moldau.security.certificates import (
        CERTIFICATE_DAYS,
        IssuedCertificate,
        issue,
        read_names,
    )
    from moldau.security.rules.certificate_dates import DAY_MS, first_end_ms

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
