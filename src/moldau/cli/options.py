"""Options that several commands share: connections, `--json`, groups of options."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer
import typer.core

if TYPE_CHECKING:
    from moldau.cli.profiles import Profile
    from moldau.net.secured import ClientSecurity


# `--command-config FILE` and `--profile NAME`, on every command that talks to brokers or to a
# schema registry. The file is the one that Kafka's own tools take; a profile is such a file that is
# kept under a name, with the address in it (`moldau profile`). Their security settings apply to all
# clients of the command. Other settings of Kafka's clients are ignored, unless a command uses them,
# as `consume` does with `isolation.level`. A command refuses settings that would change its result
# and that it does not support. A warning is printed for names that no client knows. `${env:NAME}`
# and `${file:/path}` stand for a secret that is kept elsewhere. An option takes precedence over the
# environment, that over the profile, and that over the default. A profile belongs to one cluster:
# where the command line or the environment names another with --bootstrap, the profile that is
# merely in use is ignored, and with it its passwords; one that was named (--profile,
# MOLDAU_PROFILE) stays.


CONFIG_VARIABLE: Final = "MOLDAU_COMMAND_CONFIG"
PROFILE_VARIABLE: Final = "MOLDAU_PROFILE"

_GIVEN: Final = ("COMMANDLINE", "ENVIRONMENT")


@dataclass(slots=True)
class _Chosen:
    """What the command line says of connections, as far as it has been read."""

    name_before_command: str | None = None  # of `moldau --profile NAME topics list`
    file: Path | None = None
    profile: Profile | None = None
    is_named: bool = False  # and not merely in use
    context: typer.Context | None = None


_chosen = _Chosen()


def make_command_config_option() -> typer.core.TyperOption:
    """For a command that has --bootstrap or --schema-registry."""
    return typer.core.TyperOption(
        param_decls=["--command-config"],
        metavar="FILE",
        envvar=CONFIG_VARIABLE,
        expose_value=False,
        callback=_take_file,
        help="Client settings, as Kafka's tools take them: security.protocol and the like. A "
        "warning is printed for unknown names.",
    )


def make_profile_option() -> typer.core.TyperOption:
    """For such a command, and for the words before it. It is read before the others, so that their
    defaults are those of the profile."""
    return typer.core.TyperOption(
        param_decls=["--profile"],
        metavar="NAME",
        expose_value=False,
        is_eager=True,
        callback=_take_profile,
        help=f"Which of `moldau profile list` to use; or {PROFILE_VARIABLE}.",
    )


def _take_file(context: typer.Context, parameter: object, value: str | None) -> None:
    _chosen.file = None if value is None else Path(value)
    if value is not None:
        from moldau.cli.profiles import read_settings, warn_of_unknown_names

        # Mistakes in the file are reported before the command does anything.
        settings = read_settings(Path(value))
        if not context.resilient_parsing:
            warn_of_unknown_names(settings, value)


def use_command_config(file: Path) -> None:
    """What all clients of this command use from now on."""
    _chosen.file = file


def _take_profile(context: typer.Context, parameter: object, value: str | None) -> None:
    if context.parent is None:
        _chosen.name_before_command = value
        return
    _chosen.context, _chosen.file, _chosen.profile = context, None, None
    name = value or _chosen.name_before_command or os.environ.get(PROFILE_VARIABLE)
    _chosen.is_named = bool(name)
    if not name and not _may_be_in_use():
        return
    from moldau.cli.profiles import find_profile_in_use, require_profile

    profile = require_profile(name) if name else find_profile_in_use()
    if profile is None:
        return
    _chosen.profile = profile
    # Click asks here for what neither the command line nor the environment says. A command whose
    # --bootstrap has no default has another source of its own: the file of a pipeline.
    has_default = any(one.name == "bootstrap" and one.default for one in context.command.params)
    if profile.bootstrap is not None and (has_default or _chosen.is_named):
        context.default_map = {"bootstrap": profile.bootstrap}


def _may_be_in_use() -> bool:
    """Most people have no profiles: those do not pay for reading any."""
    from moldau.cli.profiles import in_use_file

    return in_use_file().exists()


def profile_with_address() -> str | None:
    """The name of the profile that says where the cluster is, if one does."""
    profile = _chosen.profile
    if profile is None or profile.bootstrap is None or _names_another_cluster():
        return None
    return profile.name


def words_of_command(*parameters: str) -> list[str]:
    """What the command line gave for parameters of these names, whichever the command has."""
    given = {} if _chosen.context is None else _chosen.context.params
    found = [given.get(name) for name in parameters]
    return [
        word
        for one in found
        for word in ((one,) if isinstance(one, str) else one or ())
        if isinstance(word, str)
    ]


def has_parameter(name: str) -> bool:
    """Whether the command that runs has this parameter, given or not."""
    return _chosen.context is not None and name in _chosen.context.params


def client_options() -> dict[str, str]:
    """All settings that hold for the clients of this command, by Kafka's names."""
    if _chosen.file is not None:
        from moldau.cli.profiles import read_settings

        return read_settings(_chosen.file)
    if _chosen.profile is None or (not _chosen.is_named and _names_another_cluster()):
        return {}
    return _chosen.profile.read()


def refuse_settings(refused: Mapping[str, str]) -> None:
    """Refuse settings that a command does not support; `refused` has what to do, by name."""
    for name, value in client_options().items():
        if name in refused and value.strip():
            raise typer.BadParameter(
                f"{name} would change the result and is not supported here: {refused[name]}",
                param_hint="--command-config",
            )


def _names_another_cluster() -> bool:
    context = _chosen.context
    source = None if context is None else context.get_parameter_source("bootstrap")
    return source is not None and source.name in _GIVEN


def security_options() -> dict[str, str]:
    """As keyword arguments of a client."""
    if _chosen.file is None and _chosen.profile is None:
        return {}
    from moldau.config.declarations.security import ClientSecurityOptions

    known = ClientSecurityOptions.declarations()
    return {name: value for name, value in client_options().items() if name in known}


def security_of_command() -> ClientSecurity | None:
    """For connections that are made without a client's options."""
    found = security_options()
    if not found:
        return None
    from moldau.client.cluster import client_security
    from moldau.config.client_options import AdminOptions

    return client_security(AdminOptions.read(found))


def option(
    metavar: str, text: str, *names: str, default: str | bool = True, **more: Any
) -> Any:  # as Typer's own
    """An option with a value. `default` is shown where the value itself has no good text."""
    return typer.Option(*names, metavar=metavar, help=text, show_default=default, **more)


def argument(metavar: str, text: str, *, default: str | bool = False, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=text, show_default=default, **more)


def flag(name: str, text: str, **more: Any) -> Any:
    """An option without a value."""
    return typer.Option(name, help=text, **more)


DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[
    str, option("HOST:PORT,...", "Brokers to ask first.", "--bootstrap", envvar="MOLDAU_BOOTSTRAP")
]

AsJson = Annotated[bool, flag("--json", "Print JSON for machines.")]

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def parse_settings(texts: Iterable[str], option: str) -> dict[str, str]:
    """Read repeated `key=value` texts; the last one of a key counts."""
    return dict(parse_pairs(texts, option))


def parse_pairs(texts: Iterable[str], option: str) -> list[tuple[str, str]]:
    """Read repeated `key=value` texts; the value may be empty and may contain '='."""
    pairs: list[tuple[str, str]] = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise typer.BadParameter(f"{text!r} is not of the form key=value", param_hint=option)
        pairs.append((key.strip(), value))
    return pairs


# Options that several commands share as a whole: stated once, as a dataclass.
#
# A parameter of a command whose type is such a class stands for its fields, in its place:
#
#     @with_option_groups
#     def produce(load: LoadOptions, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP) -> None: ...


def with_option_groups(function: Callable[..., None]) -> Callable[..., None]:
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, type] = {
        name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)
    }
    parameters: list[inspect.Parameter] = []
    annotations: dict[str, object] = {"return": None}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in groups:
            of_fields = get_type_hints(groups[name], include_extras=True)
            for one in fields(groups[name]):
                annotations[one.name] = of_fields[one.name]
                parameters.append(
                    inspect.Parameter(
                        one.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=one.default,
                        annotation=of_fields[one.name],
                    )
                )
        else:
            annotations[name] = hints[name]
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(annotation=hints[name], kind=kind))

    @functools.wraps(function)
    def run(**given: object) -> None:
        made = {
            name: kind(**{one.name: given.pop(one.name) for one in fields(kind)})
            for name, kind in groups.items()
        }
        function(**made, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = annotations
    return run
