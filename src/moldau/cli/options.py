"""Options that several commands share, and readers of their texts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

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
