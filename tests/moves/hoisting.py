"""Takes imports out of functions, to the top of their modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from fnmatch import fnmatchcase

from moves import Hoist
from moves.code import (
    Edit,
    Function,
    Import,
    Source,
    find_bound,
    find_globals,
    is_type_checking,
    show_alias,
    walk_scope,
)
from moves.merging import BUILTINS, keep_aliases


def hoist(module: str, text: str, rule: Hoist, notes: list[str]) -> str:
    """The module without imports of the rule's sources in functions. One that means another thing
    than a name of the module stays where it is."""
    source = Source(text)
    parents = {
        id(child): node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)
    }
    made = _find_made(source.tree.body)
    inner = [
        (function, node, alias)
        for function in ast.walk(source.tree)
        if isinstance(function, Function)
        for node in walk_scope(function.body)
        if isinstance(node, ast.ImportFrom) and not node.level
        for alias in node.names
        if any(fnmatchcase(node.module or "", one) for one in rule.sources)
    ]
    wanted: dict[str, set[str]] = defaultdict(set)
    for _, node, alias in inner:
        wanted[alias.asname or alias.name].add(f"{node.module}.{alias.name}")
    used_builtins = {one.id for one in find_globals(source.tree) if one.id in BUILTINS}
    hoisted: list[tuple[ast.ImportFrom, ast.alias]] = []
    for function, node, alias in inner:
        local = alias.asname or alias.name
        origin = f"{node.module}.{alias.name}"
        is_other = made.get(local, origin) != origin or len(wanted[local]) > 1
        bound = [*find_bound(function.body)].count(local)
        imports = sum(one is function and (a.asname or a.name) == local for one, _, a in inner)
        lines = source.lines[node.lineno - 1 : node.end_lineno]
        has_comment = any("#" in line for line in lines)
        if is_other or has_comment or bound > imports or local in used_builtins:
            notes.append(f"{module}:{node.lineno} `{local}` stays in `{function.name}`")
        else:
            hoisted.append((node, alias))
    edits: list[Edit] = []
    for node in {id(one): one for one, _ in hoisted}.values():
        gone = [alias for one, alias in hoisted if one is node]
        edits += keep_aliases(source, node, [one for one in node.names if one not in gone], parents)
    names = {(one.module, show_alias(alias.name, alias.asname)) for one, alias in hoisted}
    names |= _find_for_type_checkers(source, {one for one, _ in names})
    edits += _drop_for_type_checkers(source, names)
    place = _find_place(source)
    lines = "".join(f"from {one} import {name}\n" for one, name in sorted(names, key=str))
    if lines:
        edits.append((place, place, lines))
    return source.edited(edits)


def _find_made(body: list[ast.stmt]) -> dict[str, str]:
    """What names at the top mean: the origin of what is imported, itself of what is defined."""
    made = {}
    for node in body:
        nodes = node.body if is_type_checking(node) else [node]  # type: ignore[attr-defined]
        for one in nodes:
            if isinstance(one, ast.ImportFrom):
                made |= {a.asname or a.name: f"{one.module}.{a.name}" for a in one.names}
            else:
                made |= {name: f"<{name}>" for name in find_bound([one])}
    return made


def _find_for_type_checkers(
    source: Source, modules: set[str | None]
) -> set[tuple[str | None, str]]:
    """What type checkers alone import of these modules: they are loaded in any case."""
    return {
        (node.module, show_alias(alias.name, alias.asname))
        for block in source.tree.body
        if is_type_checking(block)
        for node in block.body  # type: ignore[attr-defined]
        if isinstance(node, ast.ImportFrom) and node.module in modules
        for alias in node.names
    }


def _drop_for_type_checkers(source: Source, names: set[tuple[str | None, str]]) -> list[Edit]:
    edits: list[Edit] = []
    for block in source.tree.body:
        if not is_type_checking(block):
            continue
        assert isinstance(block, ast.If)
        left = 0
        found: list[Edit] = []
        for node in block.body:
            assert isinstance(node, Import)
            module = node.module if isinstance(node, ast.ImportFrom) else None
            kept = [a for a in node.names if (module, show_alias(a.name, a.asname)) not in names]
            left += len(kept)
            found += keep_aliases(source, node, kept)
        if left:
            edits += found
        else:
            edits.append((*source.line_span(block.lineno, block.end_lineno or 0), ""))
    return edits


def _find_place(source: Source) -> int:
    """Before the first import at the top that is not of the future."""
    for node in source.tree.body:
        if isinstance(node, Import) and getattr(node, "module", "") != "__future__":
            return source.line_span(node.lineno, node.lineno)[0]
    body = source.tree.body
    after = [
        one
        for one in body
        if isinstance(one, ast.ImportFrom)
        or (one is body[0] and isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
    ]
    return source.line_span(1, after[-1].end_lineno or 1)[1] if after else 0
