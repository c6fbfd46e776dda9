"""Options that several commands share, alone or as a whole, and readers of their texts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Annotated, get_type_hints

import typer

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        envvar="MOLDAU_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Brokers to ask first.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]

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
