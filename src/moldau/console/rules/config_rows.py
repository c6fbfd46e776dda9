"""Settings as rows, and what an edit of one of them means. Rules."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moldau.client.admin_values import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    ResourceType,
)
from moldau.console.rules.paging import matches

HIDDEN = "(hidden)"

_OWN_SOURCES = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER,
    ResourceType.GROUP: ConfigSource.DYNAMIC_GROUP,
}
"""What was set for the resource itself, and can be removed from it: the rest is inherited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """A setting; `fallback` is what would apply if it were removed, None where nobody says."""

    name: str
    value: str
    source: str
    fallback: str | None
    is_set: bool
    is_editable: bool
    documentation: str


def config_rows(entries: Iterable[ConfigEntry], kind: ResourceType) -> list[ConfigRow]:
    """What was set for it comes first, each part by name."""
    own = _OWN_SOURCES.get(kind)
    rows = [_row(entry, is_set=entry.source is own) for entry in entries]
    return sorted(rows, key=lambda row: (not row.is_set, row.name))


def choose_configs(
    rows: Sequence[ConfigRow], search: str, *, only_set: bool
) -> Sequence[ConfigRow]:
    return [row for row in rows if matches(row.name, search) and (row.is_set or not only_set)]


def _row(entry: ConfigEntry, *, is_set: bool) -> ConfigRow:
    return ConfigRow(
        name=entry.name,
        value=HIDDEN if entry.is_sensitive else _text(entry.value),
        source=entry.source.label,
        fallback=_fallback(entry, is_set=is_set),
        is_set=is_set,
        is_editable=not entry.is_read_only and not entry.is_sensitive,
        documentation=entry.documentation or "",
    )


def _fallback(entry: ConfigEntry, *, is_set: bool) -> str | None:
    """Synonyms are in the order in which they apply; the one that does is the first of them."""
    if not is_set:
        return _text(entry.value)
    others = [one for one in entry.synonyms if one.source is not entry.source]
    return _text(others[0].value) if others else None


def _text(value: str | None) -> str:
    return "" if value is None else value


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """A change that was asked for, in words and as the protocol has it; None: nothing changes."""

    change: ConfigChange
    message: str


def plan_edit(row: ConfigRow, wanted: str) -> ConfigEdit | None:
    """Set another value. An empty text is a value, too: lists may be empty."""
    wanted = wanted.strip()
    if wanted == row.value:
        return None
    change = ConfigChange(name=row.name, operation=ConfigOperation.SET, value=wanted)
    return ConfigEdit(change, f"{row.name}: {row.value or '(empty)'} → {wanted or '(empty)'}")


def plan_removal(row: ConfigRow) -> ConfigEdit | None:
    """Go back to what applies otherwise."""
    if not row.is_set:
        return None
    change = ConfigChange(name=row.name, operation=ConfigOperation.DELETE, value=None)
    then = "what applies without it" if row.fallback is None else row.fallback or "(empty)"
    return ConfigEdit(change, f"{row.name}: {row.value or '(empty)'} → {then}, as for others")
