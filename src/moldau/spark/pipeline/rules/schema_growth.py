"""How the columns of a lake may change from one run to the next: by growing. A rule."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.errors import ConfigurationError


def grow_columns(kept: Mapping[str, str], new: Mapping[str, str], where: str) -> dict[str, str]:
    """All columns of a lake, the new ones last; raises ConfigurationError.

    Both map names to types. A column that is new is null in what was written before. One that is
    gone, or is of another type, would make old and new files disagree.
    """
    gone = [name for name in kept if name not in new]
    if gone:
        raise ConfigurationError(
            f"{where} has the column {gone[0]!r}, which is no longer written; select it, as NULL "
            "if there is nothing to put in it, or load into another folder"
        )
    for name, kind in kept.items():
        if new[name] != kind:
            raise ConfigurationError(
                f"{where} has the column {name!r} as {kind}, now it is {new[name]}; cast it to "
                f"{kind}, or load into another folder"
            )
    return {**kept, **{name: kind for name, kind in new.items() if name not in kept}}
