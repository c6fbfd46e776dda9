"""Commands that are imported when they are run: `moldau start` should not pay for the others.

A command is one function in one file, with Typer's annotations. Its module imports at the top only
what its signature needs; what it works with (the client, Rich, kio) is imported in its body.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TypeVar

import typer
import typer.core
import typer.main

from moldau.cli.connection_options import make_command_config_option, make_profile_option
from moldau.cli.reporting import make_options

CONTEXT_SETTINGS: dict[str, list[str]] = {"help_option_names": ["-h", "--help"]}

Runnable = typer.core.TyperCommand | typer.core.TyperGroup
Function = TypeVar("Function", bound=Callable[..., object])
Resolved = tuple[str | None, Runnable | None, list[str]]
Wrap = Callable[[Callable[..., object]], Callable[..., object]]


@dataclass(frozen=True, slots=True)
class Command:
    """Names a function as `module:function`."""

    path: str

    def load(self, name: str, wrap: Wrap) -> Runnable:
        module, _, function = self.path.partition(":")
        # Help is plain text: Typer would import Rich for it.
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.command(name, cls=_Command, context_settings=CONTEXT_SETTINGS)(
            wrap(getattr(import_module(module), function))
        )
        command = typer.main.get_command(app)
        command.name = name
        command.short_help = _first_sentence(command.help or "")
        is_of_registry = ".cli.schemas." in self.path
        if is_of_registry or any(one.name == "bootstrap" for one in command.params):
            command.params += [make_command_config_option(), make_profile_option()]
        command.params += make_options()
        if "_MOLDAU_COMPLETE" in os.environ:
            from moldau.cli.completion import attach

            attach(command, self.path)  # type: ignore[arg-type]  # Typer's annotation, as below
        return command  # type: ignore[return-value]  # Typer's annotation names its private base


@dataclass(frozen=True, slots=True)
class LazyGroup:
    """Commands under one word."""

    help: str
    commands: Mapping[str, Command | LazyGroup] = field(default_factory=dict)

    def load(self, name: str, wrap: Wrap) -> Runnable:
        return _Group(
            name=name,
            help=self.help,
            short_help=self.help,
            commands=LazyCommands(self.commands, wrap),  # type: ignore[arg-type]  # any mapping does
            rich_markup_mode=None,
            no_args_is_help=True,
            context_settings=CONTEXT_SETTINGS,
        )


_OPTIONS_OF_OTHERS = {"--port": "--listen", "--host": "--listen"}
"""What other servers call it, and nothing here is spelled like it."""


class _Command(typer.core.TyperCommand):
    """Says what was probably meant by an option that other tools have."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            given = getattr(error, "option_name", None)
            ours = _OPTIONS_OF_OTHERS.get(str(given))
            for one in self.params:
                if ours in one.opts:
                    error.possibilities = [f"{ours} {one.metavar}"]  # type: ignore[attr-defined]
                elif given == "--topic" and one.param_type_name == "argument":
                    error.message += f"; {one.human_readable_name} stands alone, without an option"
                    error.possibilities = None  # type: ignore[attr-defined]
            raise


class _Group(typer.core.TyperGroup):
    """Says which words there are, where none is like the one that was given."""

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Resolved:  # type: ignore[override]
        try:
            return super().resolve_command(ctx, args)  # type: ignore[return-value]  # as above
        except typer.TyperException as error:
            if "Did you mean" not in error.message:
                error.message += f" There are {', '.join(self.commands)}."
            raise


def _first_sentence(text: str) -> str:
    """How a list of commands shows one: whole, where Typer would cut it to the width of a line."""
    words = " ".join(text.partition("\n\n")[0].split())
    sentence, stop, _ = words.partition(". ")
    return sentence + stop.strip()


class LazyCommands(MutableMapping[str, Runnable]):
    """What Typer takes for a dictionary of commands; looking one up imports it."""

    def __init__(self, declared: Mapping[str, Command | LazyGroup], wrap: Wrap) -> None:
        self._declared = declared
        self._wrap = wrap
        self._loaded: dict[str, Runnable] = {}

    def __getitem__(self, name: str) -> Runnable:
        if name not in self._loaded:
            self._loaded[name] = self._declared[name].load(name, self._wrap)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Runnable) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)
