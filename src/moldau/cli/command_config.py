"""`--command-config FILE`: the same file that Kafka's own tools take, on every command that talks
to brokers.

What it says about security counts for all clients of the command; other options of Kafka's tools
are passed over. `${env:NAME}` and `${file:/path}` stand for a secret that is kept elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer
import typer.core

if TYPE_CHECKING:
    from moldau.net.secured import ClientSecurity

VARIABLE: Final = "MOLDAU_COMMAND_CONFIG"

_given: dict[str, str] = {}


def make_option() -> typer.core.TyperOption:
    """For a command that has --bootstrap."""
    return typer.core.TyperOption(
        param_decls=["--command-config"],
        metavar="FILE",
        envvar=VARIABLE,
        expose_value=False,
        callback=_take,
        help="Client settings, as Kafka's tools take them: security.protocol and the like.",
    )


def _take(context: object, parameter: object, value: str | None) -> None:
    from moldau.config.declarations.security import ClientSecurityOptions
    from moldau.config.secrets import expand_secrets
    from moldau.config.static import load_properties

    _given.clear()
    if value is None:
        return
    path = Path(value)
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise typer.BadParameter(
            f"{path} cannot be read: {error.strerror}", param_hint="--command-config"
        ) from None
    settings = expand_secrets(load_properties(text, path.name))
    known = ClientSecurityOptions.declarations()
    _given.update({name: word for name, word in settings.items() if name in known})


def security_options() -> dict[str, str]:
    """As keyword arguments of a client."""
    return dict(_given)


def security_of_command() -> ClientSecurity | None:
    """For connections that are made without a client's options."""
    if not _given:
        return None
    from moldau.client.option_settings import client_security
    from moldau.config.client_options import AdminOptions

    return client_security(AdminOptions.read(_given))
