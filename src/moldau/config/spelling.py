"""What a misspelt name was probably meant to be. Rule: values in, values out."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean log.retention.hours?`, or nothing when no name is close."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""
