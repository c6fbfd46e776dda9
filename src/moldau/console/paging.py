"""Which rows of many are shown. Rules: a page is cut before anything is looked up for its rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")

_DIGITS = re.compile(r"(\d+)")

Key = tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """What a person asked a table for; pages are counted from 1."""

    page: int = 1
    rows: int = 25
    sort_by: str = ""
    descending: bool = False
    search: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """The rows of one page, the number of all that match, and which page it is."""

    rows: Sequence[T]
    total: int
    number: int = 1

    def map(self, show: Callable[[T], U]) -> Page[U]:
        return self.with_rows([show(row) for row in self.rows])

    def with_rows(self, rows: Sequence[U]) -> Page[U]:
        return Page(rows, self.total, self.number)


def cut_page(rows: Sequence[T], request: PageRequest) -> Page[T]:
    """A page past the end, of a list that has become shorter, is the last one."""
    size = max(1, request.rows)
    last = max(1, -(-len(rows) // size))
    number = min(max(1, request.page), last)
    return Page(rows[(number - 1) * size : number * size], len(rows), number)


def sort_rows(
    rows: Sequence[T], keys: dict[str, Callable[[T], object]], request: PageRequest
) -> Sequence[T]:
    """By a column, if it is one of `keys`; rows without a value come last either way."""
    key = keys.get(request.sort_by)
    if key is None:
        return rows
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    known.sort(key=key, reverse=request.descending)  # type: ignore[arg-type]  # one type a column
    return known + unknown


def natural_key(name: str) -> Key:
    """Orders `t-2` before `t-10`, and does not mind upper and lower case."""
    return tuple(
        (1, int(part), "") if part.isascii() and part.isdecimal() else (0, 0, part.casefold())
        for part in _DIGITS.split(name)
        if part
    )


def matches(name: str, search: str) -> bool:
    """Every word of the search stands somewhere in the name."""
    folded = name.casefold()
    return all(word in folded for word in search.casefold().split())
