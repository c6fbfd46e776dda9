"""`moldau profile`: keeps addresses and security settings of clusters under names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from moldau.cli import profiles
from moldau.cli.options import PROFILE_VARIABLE, AsJson, argument, flag, option, parse_settings
from moldau.cli.output import can_ask, note, print_document, print_table
from moldau.cli.profiles import delete_profile, require_profile, use_profile
from moldau.client.rules.cluster_metadata import parse_bootstrap


def create(
    name: Annotated[str, argument("NAME", "What it is called.")],
    brokers: Annotated[
        str | None, option("HOST:PORT,...", "Brokers to ask first.", "--bootstrap")
    ] = None,
    command_config: Annotated[
        Path | None,
        option(
            "FILE",
            "A file of client settings; it stays where it is, and is read each time.",
            default="none",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    to_set: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE",
            "A setting of the connection: security.protocol, sasl.mechanism, ssl.ca.location, "
            "...; repeat for more.",
            "--set",
        ),
    ] = None,
    to_ask: Annotated[
        list[str] | None,
        option(
            "KEY",
            "A setting to ask for, without showing it: sasl.password; repeat for more.",
            "--ask",
        ),
    ] = None,
    schema_registry: Annotated[
        str | None, option("URL", "The schema registry of the cluster.", default="none")
    ] = None,
    use: Annotated[bool, flag("--use", "Use it from now on.")] = False,
    replace: Annotated[bool, flag("--replace", "In place of one of that name.")] = False,
    as_json: AsJson = False,
) -> None:
    """Keep the address and the security settings of a cluster under a name.

    In a file that only you can read. A password need not be in it: ${env:NAME} is read from the
    environment, ${file:/path} from a file, each time.

    \b
    For example:
    moldau profile create here --bootstrap 127.0.0.1:9092 --use
    moldau profile create prod --bootstrap kafka:9093 --ask sasl.password \\
      --set security.protocol=SASL_SSL --set sasl.username=ann
    moldau profile create test --bootstrap kt:9093 --command-config ssl.properties
    """
    if brokers is None and command_config is None:
        raise typer.BadParameter("say where the cluster is", param_hint="--bootstrap")
    given = parse_settings(to_set or (), "--set")
    profiles.check_settings(given, "--set")
    profiles.check_settings(dict.fromkeys(to_ask or (), "${env:ASKED}"), "--ask")
    if brokers is not None:
        parse_bootstrap(brokers)
    if not replace and name in [one.name for one in profiles.list_profiles()]:
        raise typer.BadParameter(
            f"there is a profile {name!r}; --replace takes its place", param_hint="NAME"
        )
    settings = {} if brokers is None else {profiles.BOOTSTRAP: brokers}
    if command_config is not None:
        settings[profiles.COMMAND_CONFIG] = str(command_config.absolute())
    if schema_registry is not None:
        settings[profiles.SCHEMA_REGISTRY] = schema_registry
    settings |= given
    if to_ask and not can_ask():
        raise typer.BadParameter(
            "nobody can be asked here: ${env:NAME} or ${file:/path} says where a secret is",
            param_hint="--ask",
        )
    for key in to_ask or ():
        settings[key] = typer.prompt(key, hide_input=True, err=True)
    profile = profiles.save_profile(name, settings)
    if use:
        profiles.use_profile(name)
    if as_json:
        print_document({"profile": name, "path": str(profile.path), "in_use": use})
    else:
        typer.echo(f"created profile {name}{' and use it' if use else ''} ({profile.path})")


def use(
    name: Annotated[str | None, argument("NAME", "The profile.")] = None,
    none: Annotated[bool, flag("--none", "Use none of them any more.")] = False,
) -> None:
    """Let commands talk to the cluster of a profile unless they are told otherwise.

    --bootstrap and MOLDAU_BOOTSTRAP name another cluster, --profile and MOLDAU_PROFILE another
    profile.
    """
    if (name is None) is not none:
        raise typer.BadParameter("name a profile, or give --none", param_hint="NAME")
    use_profile(name)
    typer.echo("using no profile" if name is None else f"using profile {name}")
    for variable in (PROFILE_VARIABLE, "MOLDAU_BOOTSTRAP"):
        if os.environ.get(variable):
            note(f"{variable} is set here and goes before it: {os.environ[variable]}")


def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles; a star marks the one in use."""
    found, in_use = profiles.list_profiles(), profiles.name_in_use()
    if as_json:
        print_document(
            [
                {
                    "profile": one.name,
                    "in_use": one.name == in_use,
                    "bootstrap": one.bootstrap,
                    "path": str(one.path),
                }
                for one in found
            ]
        )
    elif found:
        columns = "", "profile", "bootstrap", "security"
        rows = [
            (
                "*" if one.name == in_use else "",
                one.name,
                one.bootstrap or "-",
                one.settings.get("security.protocol")
                or one.settings.get(profiles.COMMAND_CONFIG, "-"),
            )
            for one in found
        ]
        print_table(columns, rows)
    else:
        note("there are no profiles; make one with `moldau profile create NAME --bootstrap ...`")


def show(
    name: Annotated[str | None, argument("NAME", "The profile.", default="the one in use")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a profile says. Secrets are not shown."""
    profile = profiles.find_profile_in_use() if name is None else profiles.require_profile(name)
    if profile is None:
        raise typer.BadParameter("no profile is in use; name one", param_hint="NAME")
    if as_json:
        print_document(
            {"profile": profile.name, "path": str(profile.path), "settings": profile.shown()}
        )
        return
    typer.secho(profile.name, bold=True)
    typer.echo(f"  {profile.path}")
    for key, value in profile.shown().items():
        typer.echo(f"  {key}={value}")


def delete(
    names: Annotated[list[str], argument("NAME...", "The profiles.")],
    as_json: AsJson = False,
) -> None:
    """Delete profiles. The clusters do not hear of it."""
    for name in names:
        require_profile(name)
    for name in names:
        delete_profile(name)
    if as_json:
        print_document({"deleted": names})
    else:
        typer.echo(f"deleted {', '.join(names)}")
