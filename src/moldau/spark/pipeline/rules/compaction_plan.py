"""Which small files of a folder are merged. A rule.

Files are merged in their order until the target is reached. A folder is left alone until there are
enough small files: merging two at a time would write the same rows again and again. A folder where
nothing has arrived for a while (`is_closed`) is merged for good, as soon as there are two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_SMALL_SHARE = 2
"""A file is small below this part of the target: a larger one would not become much fewer."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class FileSize:
    """A published file."""

    path: str
    size_bytes: int


def plan_compaction(
    files: Iterable[FileSize], *, target_bytes: int, min_files: int, is_closed: bool = False
) -> list[tuple[str, ...]]:
    """Groups of files of one folder, each to become one file."""
    small = [one for one in sorted(files) if one.size_bytes * _SMALL_SHARE < target_bytes]
    if len(small) < (2 if is_closed else min_files):
        return []
    groups: list[list[str]] = [[]]
    filled = 0
    for one in small:
        if groups[-1] and filled + one.size_bytes > target_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(one.path)
        filled += one.size_bytes
    return [tuple(group) for group in groups if len(group) > 1]
