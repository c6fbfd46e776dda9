"""`moldau users` and `moldau tokens`: who may log in with SCRAM, and delegation tokens."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    argument,
    client_options,
    option,
)
from moldau.cli.output import can_ask, note, print_document, print_table
from moldau.cli.secure import write_file
from moldau.cli.session import with_admin
from moldau.client.admin.access import DelegationTokenDescription
from moldau.client.admin.client import AsyncAdmin
from moldau.errors import ConfigurationError
from moldau.model import Principal
from moldau.ops.formatting import parse_duration_ms
from moldau.security.rules.sasl import format_jaas


def list_users(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the users that the cluster keeps, and how they may log in.

    Those who stand in the brokers' settings (sasl.jaas.config), as the first user of `moldau secure
    init`, are not among them: no broker tells who they are.
    """
    found = with_admin(bootstrap, lambda admin: admin.describe_scram_credentials())
    rows = [
        (user, one.mechanism, str(one.iterations))
        for user, credentials in found.items()
        for one in credentials
    ]
    if as_json:
        names = ("user", "mechanism", "iterations")
        print_document([dict(zip(names, row, strict=True)) for row in rows])
    elif rows:
        print_table(("user", "mechanism", ">iterations"), rows)
        note("users in the brokers' settings (sasl.jaas.config) are not listed")
    else:
        note(
            "the cluster keeps no users; make one with `moldau users set NAME`. Users in the "
            "brokers' settings (sasl.jaas.config) are not listed"
        )


def set_user(
    name: Annotated[str, argument("USER", "Who it is.")],
    password_file: Annotated[
        Path | None,
        option(
            "FILE",
            "A file with the password; without it, it is asked for, or read from a pipe.",
            default="none",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    mechanism: Annotated[str, option("NAME", "SCRAM-SHA-256, SCRAM-SHA-512 or both.")] = "both",
    iterations: Annotated[
        int, option("N", "How often the password is hashed.", min=4096, max=16384)
    ] = 8192,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Give a user a password, or another one.

    The password is no argument, as others on this machine can see those. What the broker gets and
    keeps of it is salted and stretched.
    """
    names = ("SCRAM-SHA-256", "SCRAM-SHA-512") if mechanism == "both" else (mechanism,)
    if any(one not in ("SCRAM-SHA-256", "SCRAM-SHA-512") for one in names):
        raise typer.BadParameter(
            f"{mechanism!r} is not SCRAM-SHA-256, SCRAM-SHA-512 or both", param_hint="--mechanism"
        )
    password = _read_password(password_file)
    warning = with_admin(
        bootstrap,
        lambda admin: admin.set_scram_password(
            name, password, mechanisms=names, iterations=iterations
        ),
    )
    if warning is not None:  # of a success: it has no effect yet
        note(f"moldau: warning: {warning}")
    typer.echo(f"set the password of {name} for {' and '.join(names)}")


def _read_password(file: Path | None) -> str:
    if file is not None:
        text = file.read_text().rstrip("\n")
    elif can_ask():
        text = typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    elif sys.stdin.isatty():
        raise typer.BadParameter(
            "nobody would see that it is asked for, since stderr is no terminal",
            param_hint="--password-file",
        )
    else:
        text = sys.stdin.readline().rstrip("\n")
    if not text:
        raise typer.BadParameter("the password is empty")
    return text


def delete_user(
    name: Annotated[str, argument("USER", "Who it is.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Take a user's password away. Who is connected stays so until the connection ends."""
    with_admin(bootstrap, lambda admin: admin.delete_scram_credentials(name))
    typer.echo(f"deleted the password of {name}")


# `moldau tokens`: jobs log in with one as a user without his password


TokenId = Annotated[str, argument("ID", "As `moldau tokens describe` shows it.")]
Period = Annotated[str | None, option("DURATION", "From now on: 90m, 12h or 7d.")]


def parse_principals(texts: Sequence[str]) -> list[Principal]:
    try:
        return [Principal.parse(text) for text in texts]
    except ValueError:
        raise typer.BadParameter(f"{', '.join(texts)}: a principal is written User:NAME") from None


def parse_period(text: str | None) -> int:
    """In milliseconds; -1 without any."""
    return -1 if text is None else parse_duration_ms(text)


def show_time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def token_document(token: DelegationTokenDescription) -> dict[str, object]:
    """Without what is secret."""
    return {
        "id": token.token_id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(one) for one in token.renewers],
        "issue_ms": token.issue_ms,
        "expiry_ms": token.expiry_ms,
        "max_ms": token.max_ms,
    }


async def find_secret(admin: AsyncAdmin, token_id: str) -> bytes:
    """By its id: so nobody has to write the secret on a command line, where others can see it."""
    for token in await admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token.hmac
    raise ConfigurationError(
        f"there is no delegation token {token_id!r} that you may see; `moldau tokens describe` "
        "lists them"
    )


_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_REPLACED = ("sasl.jaas.config", "sasl.username", "sasl.password")


def create_token(
    owner: Annotated[
        str | None, option("User:NAME", "Whose token it is.", default="one's own")
    ] = None,
    renewers: Annotated[
        list[str] | None,
        option(
            "User:NAME",
            "Who may renew it, beside its owner; repeat for more.",
            "--renewer",
            default="none",
        ),
    ] = None,
    max_lifetime: Annotated[
        str | None,
        option(
            "DURATION",
            "After which it cannot be renewed: 12h or 7d.",
            default="what the brokers' settings say",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "FILE",
            "Write client settings with the token there, for --command-config and Java's "
            "clients; the secret is not printed then.",
            default="none",
            dir_okay=False,
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Make a token, with which a job logs in without a password.

    \b
    For example:
    moldau tokens create --max-lifetime 7d --out job.properties
    moldau topics list --command-config job.properties
    """
    owners = parse_principals([owner] if owner else [])
    allowed, lifetime_ms = parse_principals(renewers or []), parse_period(max_lifetime)
    if out is not None:
        _require_free(out)
    token = with_admin(
        bootstrap,
        lambda admin: admin.create_delegation_token(
            owner=owners[0] if owners else None, renewers=allowed, max_lifetime_ms=lifetime_ms
        ),
    )
    if out is not None:
        _write(out, token)
    if as_json:
        secret = {} if out is not None else {"hmac": token.password}
        print_document({**token_document(token), **secret})
        return
    typer.echo(f"made a token of {token.owner}, good until {show_time(token.expiry_ms)}")
    typer.echo(f"id:       {token.token_id}")
    if out is None:
        typer.echo(f"hmac:     {token.password}")
    else:
        typer.echo(f"settings: {out}")


def _require_free(path: Path) -> None:
    """Before the token is made: nobody is told its secret again."""
    if path.exists():
        raise typer.BadParameter(f"{path} is there already", param_hint="--out")
    if not os.access(path.absolute().parent, os.W_OK):
        raise typer.BadParameter(f"nothing can be written beside {path}", param_hint="--out")


def _write(path: Path, token: DelegationTokenDescription) -> None:
    kept = {name: text for name, text in client_options().items() if name not in _REPLACED}
    mechanism = kept.get("sasl.mechanism", "")
    named = {"username": token.token_id, "password": token.password, "tokenauth": "true"}
    settings: Mapping[str, str] = {
        **kept,
        "sasl.mechanism": mechanism if mechanism.startswith("SCRAM-") else "SCRAM-SHA-512",
        "sasl.jaas.config": format_jaas(_SCRAM, named),
    }
    lines = (f"{name}={text.replace(chr(92), chr(92) * 2)}" for name, text in settings.items())
    write_file(path, "\n".join(lines) + "\n")


def describe_tokens(
    owners: Annotated[
        list[str] | None,
        option(
            "User:NAME", "Whose tokens; repeat for more.", "--owner", default="all that one may see"
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List tokens: whose they are, who may renew them, and until when they are good."""
    wanted = parse_principals(owners) if owners else None
    tokens = with_admin(bootstrap, lambda admin: admin.describe_delegation_tokens(wanted))
    if as_json:
        print_document([token_document(one) for one in tokens])
    elif tokens:
        titles = ("id", "owner", "requester", "renewers", "expires", "at the latest")
        print_table(
            titles,
            [
                (
                    one.token_id,
                    str(one.owner),
                    str(one.requester),
                    ", ".join(map(str, one.renewers)),
                    show_time(one.expiry_ms),
                    show_time(one.max_ms),
                )
                for one in tokens
            ],
        )
    else:
        note("there are no tokens that you may see; make one with `moldau tokens create`")


def renew_token(
    token_id: TokenId, period: Period = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
) -> None:
    """Let a token be good for longer: as the brokers' settings say, or for a period from now on."""
    period_ms = parse_period(period)

    async def work(admin: AsyncAdmin) -> int:
        return await admin.renew_delegation_token(await find_secret(admin, token_id), period_ms)

    typer.echo(f"{token_id} is good until {show_time(with_admin(bootstrap, work))}")


def expire_token(
    token_id: TokenId, period: Period = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
) -> None:
    """End a token: at once, or after a period. Who is connected by it stays until the end that the
    token had when he logged in."""
    period_ms = parse_period(period)

    async def work(admin: AsyncAdmin) -> int:
        return await admin.expire_delegation_token(await find_secret(admin, token_id), period_ms)

    ends_ms = with_admin(bootstrap, work)
    typer.echo(
        f"{token_id} has ended" if period is None else f"{token_id} ends at {show_time(ends_ms)}"
    )
