"""Merges and renames modules by a map: `python -m moves MAP`.

A map is a text file. An entry names the new module, and the old modules whose code it takes:

    # a comment
    moldau.cli.topics <- moldau.cli.topics.{create,list,describe}
        moldau.cli.topics.trim
        docstring: `moldau topics`: what the new module is responsible for.
        | Further lines of the docstring begin with a bar.
        rename: moldau.cli.topics.list._print -> _print_list
        comment: moldau.cli.topics.trim -> Trimming asks before it deletes.
        comment: moldau.cli.topics.list ->
        comment: moldau.cli.topics.create -> (rest)
    tests/unit/cli/test_status.py <- tests/unit/cli/cluster/test_status.py
    replace: src/moldau/cli/lazy.py
        - ".cli.schemas." in path
        + ".cli.schemas:" in path
    hoist: moldau.cli.topics moldau.cli.groups <- moldau.cli.output moldau.client.*

Without `docstring:`, the docstring of the first old module stays. The other docstrings become
comments when they have more than one paragraph; `comment:` gives another text, or none, or `(rest)`
for what follows the first paragraph. Names that stand for two things in the merged code have to be
renamed by the map. `replace:` is for what no rule finds: the text behind `-` has to be in the file,
and is looked for after everything else. `hoist:` takes imports of the modules behind the arrow out
of the functions of those before it; both may be patterns.

A map can be applied again to a newer tree: nothing of the result is written by hand.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path


class MoveError(Exception):
    """The map cannot be applied. The message lists every reason that was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One entry of the map. Names without a dot are paths of tests."""

    name: str
    sources: tuple[str, ...]
    docstring: str | None = None
    comments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hoist:
    """Patterns of modules, and of what they import at their top from now on."""

    modules: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveMap:
    targets: tuple[Target, ...]
    renames: Mapping[tuple[str, str], str]
    replacements: tuple[Replacement, ...] = ()
    hoists: tuple[Hoist, ...] = ()

    @property
    def homes(self) -> dict[str, str]:
        """Old module to new module."""
        return {old: one.name for one in self.targets for old in one.sources}

    def new_name(self, module: str, name: str) -> str:
        return self.renames.get((module, name), name)


def path_of(module: str) -> Path:
    """Where a module is, in the repository. Modules of the tests are given by their paths."""
    if module.endswith(".py"):
        return Path(module)
    return Path("src", *module.split(".")).with_suffix(".py")


def find_source(root: Path, module: str) -> Path | None:
    """The file of a module or the `__init__` of a package."""
    plain = root / path_of(module)
    package = plain.with_suffix("") / "__init__.py"
    return next((one for one in (plain, package) if one.is_file()), None)


def expand(word: str) -> Iterator[str]:
    """`a.{b,c}` means `a.b` and `a.c`."""
    found = re.fullmatch(r"(.*)\{([^{}]*)\}(.*)", word)
    if found is None:
        yield word
        return
    for choice in found[2].split(","):
        yield from expand(found[1] + choice.strip() + found[3])


def read_map(text: str) -> MoveMap:
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            reader.read(line)
        except ValueError as error:
            raise MoveError(f"line {number} of the map: {error}") from error
    return reader.finish()


class _Reader:
    def __init__(self) -> None:
        self._entries: list[tuple[str, list[str], list[str], dict[str, str]]] = []
        self._renames: dict[tuple[str, str], str] = {}
        self._replacements: list[tuple[str, list[str], list[str]]] = []
        self._hoists: list[Hoist] = []
        self._is_replacing = False

    def read(self, line: str) -> None:
        text = line.strip()
        if not text or text.startswith("#"):
            return
        if not line[0].isspace():
            self._begin(text)
        elif self._is_replacing:
            self._read_replaced(line.lstrip())
        else:
            self._continue(text)

    def _begin(self, text: str) -> None:
        self._is_replacing = text.startswith("replace:")
        if self._is_replacing:
            self._replacements.append((text.removeprefix("replace:").strip(), [], []))
            return
        name, arrow, sources = text.partition("<-")
        if not arrow:
            raise ValueError(f"no `<-` in {text!r}")
        words = _read_words(sources)
        if name.startswith("hoist:"):
            modules = _read_words(name.removeprefix("hoist:"))
            self._hoists.append(Hoist(modules=tuple(modules), sources=tuple(words)))
            return
        self._entries.append((name.strip(), words, [], {}))

    def _read_replaced(self, text: str) -> None:
        sign, rest = text[:1], text[2:]
        if sign not in ("-", "+"):
            raise ValueError("a replaced line begins with - or +")
        self._replacements[-1][1 if sign == "-" else 2].append(rest)

    def _continue(self, text: str) -> None:
        if not self._entries:
            raise ValueError("an indented line before the first entry")
        _, sources, docstring, comments = self._entries[-1]
        if text.startswith("|"):
            docstring.append(text.removeprefix("|").removeprefix(" "))
            return
        key, _, value = (part.strip() for part in text.partition(":"))
        if key == "docstring":
            docstring.append(value)
        elif key == "rename":
            for pair in value.split(","):
                old, new = _read_arrow(pair)
                module, _, name = old.rpartition(".")
                self._renames[module, name] = new
        elif key == "comment":
            module, comments[module] = _read_arrow(value)
        else:
            sources += _read_words(text)

    def finish(self) -> MoveMap:
        targets = tuple(
            Target(
                name=name,
                sources=tuple(sources),
                docstring="\n".join(docstring) if docstring else None,
                comments=comments,
            )
            for name, sources, docstring, comments in self._entries
        )
        olds = [old for one in targets for old in one.sources]
        news = [one.name for one in targets]
        twice = sorted({one for one in olds if olds.count(one) > 1})
        twice += sorted({one for one in news if news.count(one) > 1})
        if twice:
            raise MoveError(f"twice in the map: {', '.join(twice)}")
        strangers = sorted({module for module, _ in self._renames} - set(olds))
        if strangers:
            raise MoveError(f"names of modules that do not move are renamed: {strangers}")
        return MoveMap(
            targets=targets,
            renames=self._renames,
            hoists=tuple(self._hoists),
            replacements=tuple(
                Replacement(path=path, old="\n".join(old), new="\n".join(new))
                for path, old, new in self._replacements
            ),
        )


def _read_words(text: str) -> list[str]:
    return [one for word in shlex.split(text) for one in expand(word)]


def _read_arrow(text: str) -> tuple[str, str]:
    left, arrow, right = text.partition("->")
    if not arrow:
        raise ValueError(f"no `->` in {text!r}")
    return left.strip(), right.strip()
