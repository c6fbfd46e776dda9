"""Whether `moldau[console]` is installed. Cheap: nothing of it is imported."""

from __future__ import annotations

from importlib.util import find_spec


def is_installed() -> bool:
    return find_spec("nicegui") is not None


def missing_text() -> str:
    return "the web console is an extra: pip install 'moldau[console]'"
