"""`moldau configs alter`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.configs.target import (
    Broker,
    ClientMetrics,
    Group,
    Loggers,
    Topic,
    require_target,
)
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_settings


def alter(
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    loggers: Loggers = None,
    client_metrics: ClientMetrics = None,
    to_set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set this; repeat for more."),
    ] = None,
    to_unset: Annotated[
        list[str] | None,
        typer.Option("--unset", metavar="KEY", help="Go back to the default; repeat for more."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change settings of a topic, broker, group or subscription. What is not named stays."""
    from moldau.cli.output import note, print_document
    from moldau.cli.session import with_admin
    from moldau.client.admin_values import ConfigChange, ConfigOperation
    from moldau.config.unknown import find_unknown

    resource = require_target(topic, broker, group, loggers, client_metrics)
    settings = parse_settings(to_set or (), "--set")
    removed = to_unset or []
    if not settings and not removed:
        raise typer.BadParameter("name what to change with --set or --unset", param_hint="--set")
    changes = [ConfigChange(name=name, value=value) for name, value in settings.items()]
    changes += [ConfigChange(name=name, operation=ConfigOperation.DELETE) for name in removed]
    answer = with_admin(bootstrap, lambda admin: admin.alter_configs({resource: changes}))[resource]
    if answer is not None:
        raise answer
    for unknown in find_unknown(settings) if broker is not None else ():
        note(f"warning: {unknown}")  # a broker takes any name
    if as_json:
        print_document({"resource": str(resource), "set": settings, "unset": removed})
    else:
        done = [f"set {name}={value}" for name, value in settings.items()]
        done += [f"unset {name}" for name in removed]
        typer.echo(f"{resource}: {', '.join(done)}")
