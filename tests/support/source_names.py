"""Which names a program asks of our packages, and which of them are not there; nothing is run.

A name is asked for by an import, by `module.name` on a module that was imported, and by
`setattr(module, "name", ...)` as `monkeypatch` has it. Programs that stand in texts are looked
through for imports.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PLACES = {
    "moldau": ROOT / "src",
    "pyspark_moldau": ROOT / "src",
    "bench": ROOT,
    "support": ROOT / "tests",
}
"""Our packages, and the folders that have them."""

_IN_TEXT = re.compile(r"\bfrom ((?:moldau|pyspark_moldau)[\w.]*) import (\w+(?:, *\w+)*)")
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Missing(NamedTuple):
    line: int
    name: str


def find_missing(program: str) -> list[Missing]:
    """Raises SyntaxError where it is not Python."""
    tree = ast.parse(program)
    modules = _imported_modules(tree)
    return sorted(
        Missing(node.lineno, name)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt | ast.expr)
        for name in _names_asked(node, modules)
        if not is_there(name)
    )


def find_missing_in_text(text: str) -> list[Missing]:
    """By its import statements alone: of programs with gaps, as pages and templates have them."""
    return [
        Missing(text.count("\n", 0, found.start()) + 1, name)
        for found in _IN_TEXT.finditer(text)
        for name in (f"{found[1]}.{one.strip()}" for one in found[2].split(","))
        if not is_there(name)
    ]


def _names_asked(node: ast.AST, modules: dict[str, str]) -> Iterator[str]:
    match node:
        case ast.Import():
            yield from (alias.name for alias in node.names)
        case ast.ImportFrom(module=str(module), level=0):
            yield from (f"{module}.{alias.name}" for alias in node.names if alias.name != "*")
        case ast.Attribute(value=ast.Name() | ast.Attribute() as value, attr=name):
            module = _module_of(value, modules)
            if module is not None:
                yield f"{module}.{name}"
        case ast.Call(
            func=ast.Attribute(attr="setattr") | ast.Name(id="setattr"),
            args=[value, ast.Constant(value=str(name)), *_],
        ):
            module = _module_of(value, modules)
            if module is not None:
                yield f"{module}.{name}"
        case ast.Constant(value=str(text)):
            yield from (missing.name for missing in find_missing_in_text(text))


def _imported_modules(tree: ast.Module) -> dict[str, str]:
    """Modules of ours by the names that a program has for them, and nothing else has."""
    found: dict[str, str] = {}
    others: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    whole = alias.name if alias.asname else alias.name.partition(".")[0]
                    found[alias.asname or whole] = whole
            case ast.ImportFrom(module=str(module), level=0):
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{module}.{alias.name}"
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                others.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                others.add(name)
            case ast.ClassDef(name=name):
                others.add(name)
    return {
        name: module
        for name, module in found.items()
        if name not in others and _find_module(module) is not None
    }


def _module_of(value: ast.AST, modules: dict[str, str]) -> str | None:
    """The module that an expression stands for."""
    match value:
        case ast.Name(id=name):
            return modules.get(name)
        case ast.Attribute(value=inner, attr=name):
            above = _module_of(inner, modules)
            whole = f"{above}.{name}"
            return whole if above is not None and _find_module(whole) is not None else None
    return None


@functools.cache
def is_there(name: str) -> bool:
    """A module, or a name in one; names of packages that are not ours are taken for granted."""
    if name.partition(".")[0] not in PLACES:
        return True
    module, _, last = name.rpartition(".")
    if _find_module(name) is not None:
        return True
    return bool(module) and _find_module(module) is not None and last in _names_in(module)


def _find_module(name: str) -> Path | None:
    place = PLACES.get(name.partition(".")[0])
    if place is None:
        return None
    path = place.joinpath(*name.split("."))
    candidates = (*(path.with_suffix(end) for end in (".py", ".pyi")), path / "__init__.py", path)
    return next((one for one in candidates if one.exists()), None)


@functools.cache
def _names_in(module: str) -> frozenset[str]:
    path = _find_module(module)
    if path is None or path.is_dir():
        return frozenset()
    return frozenset({*_defined(ast.parse(path.read_text(encoding="utf-8"))), *_OF_EVERY_MODULE})


_OF_EVERY_MODULE = ("__doc__", "__file__", "__name__", "__path__", "__spec__", "__dict__")


def _defined(node: ast.AST) -> Iterator[str]:
    """What the statements at the top of a module bind, also under an `if` or a `try`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _SCOPES):
            yield child.name
        elif isinstance(child, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in child.names)
        else:
            if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                yield child.id
            yield from _defined(child)
