"""What a misspelt name was probably meant to be. Rule: values in, values out."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean log.retention.hours?`, or nothing when no name is close."""
    close = find_close(name, known)
    return "" if close is None else f"; did you mean {close}?"


def find_close(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # few make mistakes

    found = get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return found[0] if found else None
