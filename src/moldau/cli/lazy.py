"""Commands that are imported when they are run: `moldau start` should not pay for the others.

A command is one function in one file, with Typer's annotations. Its module imports at the top only
what its signature needs; what it works with (the client, Rich, kio) is imported in its body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TypeVar

import typer
import typer.core
import typer.main

CONTEXT_SETTINGS: dict[str, list[str]] = {"help_option_names": ["-h", "--help"]}

Runnable = typer.core.TyperCommand | typer.core.TyperGroup
Function = TypeVar("Function", bound=Callable[..., object])
Wrap = Callable[[Callable[..., object]], Callable[..., object]]


@dataclass(frozen=True, slots=True)
class Command:
    """Names a function as `module:function`."""

    path: str

    def load(self, name: str, wrap: Wrap) -> Runnable:
        module, _, function = self.path.partition(":")
        # Help is plain text: Typer would import Rich for it.
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.command(name, context_settings=CONTEXT_SETTINGS)(
            wrap(getattr(import_module(module), function))
        )
        command = typer.main.get_command(app)
        command.name = name
        if any(parameter.name == "bootstrap" for parameter in command.params):
            from moldau.cli.command_config import make_option

            command.params.append(make_option())
        return command  # type: ignore[return-value]  # Typer's annotation names its private base


@dataclass(frozen=True, slots=True)
class LazyGroup:
    """Commands under one word."""

    help: str
    commands: Mapping[str, Command | LazyGroup] = field(default_factory=dict)

    def load(self, name: str, wrap: Wrap) -> Runnable:
        return typer.core.TyperGroup(
            name=name,
            help=self.help,
            commands=LazyCommands(self.commands, wrap),  # type: ignore[arg-type]  # any mapping does
            rich_markup_mode=None,
            no_args_is_help=True,
            context_settings=CONTEXT_SETTINGS,
        )


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
