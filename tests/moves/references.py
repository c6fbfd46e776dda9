"""Rewrites what refers to modules that have moved: imports, dotted names in texts, paths."""

from __future__ import annotations

import ast
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from moves import MoveMap
from moves.code import Edit, Function, Source, find_bound, show_alias
from moves.merging import Problems

DOTTED = re.compile(r"(?<![\w./])(?:moldau)(?:\.\w+)+")
PATH = re.compile(r"(?<![\w.-])((?:[\w{}*-]*/)*)(\w+)\.pyi?\b")
QUOTED = re.compile(r"`([a-z_]+(?:[./][a-z_]+)*)(?:\.py)?`")
IMPORT_IN_TEXT = re.compile(r"\bfrom (moldau(?:\.\w+)*) import ([\w, ]+)")
TABLE_COLUMNS = 84


def rewrite_text(text: str, moves: MoveMap, problems: Problems, where: str) -> str:
    """A page, a script or a settings file."""
    edits = _edits_of_text(text, moves, [])
    _look_for_rest(text, moves, problems, where, [])
    return _apply(text, edits)


def rewrite_code(text: str, moves: MoveMap, problems: Problems, where: str) -> str:
    """A module."""
    try:
        source = Source(text)
    except SyntaxError:  # Cython, or a template
        return rewrite_text(text, moves, problems, where)
    edits: list[Edit] = []
    taken: list[tuple[int, int]] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            if node.level and where.startswith("src/"):
                problems.notes.append(f"{where}:{node.lineno} a relative import stays as it is")
            found = list(_edits_of_import(source, node, moves, problems, where))
            edits += found
            taken.append(source.span(node))
            taken += [(start, end) for start, end, _ in found]
    edits += _edits_of_text(text, moves, taken)
    _look_for_rest(text, moves, problems, where, taken)
    return source.edited(edits)


def _apply(text: str, edits: list[Edit]) -> str:
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


# Imports


def _edits_of_import(
    source: Source, node: ast.ImportFrom, moves: MoveMap, problems: Problems, where: str
) -> Iterator[Edit]:
    homes = moves.homes
    if node.level or not node.module:
        return
    wanted: dict[str, list[str]] = defaultdict(list)
    changed = False
    for alias in node.names:
        whole = f"{node.module}.{alias.name}"
        local = alias.asname or alias.name
        if whole in homes:
            module, _, name = homes[whole].rpartition(".")
            yield from _rename_attributes(source, local, whole, moves)
        elif node.module in homes:
            module, name = homes[node.module], moves.new_name(node.module, alias.name)
        else:
            module, name = node.module, alias.name
        if alias.name == "*" and node.module in homes:
            problems.append(f"{where}:{node.lineno} imports everything from {node.module}")
        asname = alias.asname
        if name != alias.name and asname is None:
            if _is_free(source, name, local):
                yield from _rename_uses(source, local, name)
            else:
                asname = alias.name
        wanted[module].append(show_alias(name, asname))  # `X as X` is an export
        changed |= module != node.module or name != alias.name
    if not changed:
        return
    if len(wanted) == 1 and all(
        show_alias(one.name, one.asname) == new
        for one, new in zip(node.names, next(iter(wanted.values())), strict=True)
    ):
        start, end = source.span(node)
        found = re.compile(r"from\s+([\w.]+)").match(source.text, start, end)
        assert found is not None
        yield (*found.span(1), next(iter(wanted)))
        return
    lines = source.lines[node.lineno - 1 : (node.end_lineno or node.lineno) - 1]
    if any("#" in line for line in lines):
        problems.append(f"{where}:{node.lineno} a comment in an import that has to be divided")
    indent = "\n" + " " * node.col_offset
    yield (
        *source.span(node),
        indent.join(
            f"from {module} import {', '.join(names)}" for module, names in sorted(wanted.items())
        ),
    )


def _is_free(source: Source, name: str, local: str) -> bool:
    """Whether a file may call a thing by another name: nothing else has it."""
    names = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    names |= {node.arg for node in ast.walk(source.tree) if isinstance(node, ast.arg)}
    names |= set(find_bound(source.tree.body))
    bound = [
        one
        for node in ast.walk(source.tree)
        if isinstance(node, Function | ast.Module)
        for one in find_bound(node.body)
        if one == local
    ]
    arguments = any(isinstance(n, ast.arg) and n.arg == local for n in ast.walk(source.tree))
    return name not in names and len(bound) == 1 and not arguments


def _rename_uses(source: Source, local: str, name: str) -> Iterator[Edit]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name) and node.id == local:
            yield (*source.span(node), name)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "cast":
            written = node.args[0]  # a type, which may be a text
            if isinstance(written, ast.Constant) and isinstance(written.value, str):
                start, end = source.span(written)
                for found in re.finditer(rf"\b{local}\b", source.text[start:end]):
                    yield (start + found.start(), start + found.end(), name)


def _rename_attributes(source: Source, local: str, module: str, moves: MoveMap) -> Iterator[Edit]:
    """`module.name` and `setattr(module, "name", ...)`, where the name is another one now."""
    names = {name: new for (home, name), new in moves.renames.items() if home == module}
    if not names:
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and node.attr in names:
            if isinstance(node.value, ast.Name) and node.value.id == local:
                _, end = source.span(node)
                yield (end - len(node.attr), end, names[node.attr])
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            first, second = node.args[:2]
            if (
                isinstance(first, ast.Name)
                and first.id == local
                and isinstance(second, ast.Constant)
                and second.value in names
            ):
                start, end = source.span(second)
                yield (start + 1, end - 1, names[second.value])


# Tables of names that are imported on demand


def _quote(names: Sequence[str]) -> str:
    """Names in one text, in lines that are not too long."""
    lines = textwrap.wrap(" ".join(names), TABLE_COLUMNS)
    return " ".join(f'"{line} "' for line in lines[:-1]) + f' "{"".join(lines[-1:])}"'


# Texts


def _edits_of_text(text: str, moves: MoveMap, taken: list[tuple[int, int]]) -> list[Edit]:
    found = [*_dotted_edits(text, moves), *_path_edits(text, moves), *_quoted_edits(text, moves)]
    return [
        (start, end, new)
        for start, end, new in found
        if not any(first < end and start < last for first, last in taken)
    ]


def _dotted_edits(text: str, moves: MoveMap) -> Iterator[Edit]:
    homes = moves.homes
    for found in DOTTED.finditer(text):
        words = found[0].split(".")
        for count in range(len(words), 1, -1):
            old = ".".join(words[:count])
            if old not in homes:
                continue
            rest = words[count:]
            end = found.end()
            function = re.compile(r":(\w+)").match(text, end)
            if rest:
                rest[0] = moves.new_name(old, rest[0])
            elif function is not None and moves.new_name(old, function[1]) != function[1]:
                yield (*function.span(1), moves.new_name(old, function[1]))
            new = ".".join((homes[old], *rest))
            if new != found[0]:
                yield found.start(), end, new
            break


def _path_edits(text: str, moves: MoveMap) -> Iterator[Edit]:
    for found in PATH.finditer(text):
        folder, name = found[1], found[2]
        for lead in ("src/moldau/", "moldau/", "tests/", ""):
            if not folder.startswith(lead):
                continue
            rest = folder.removeprefix(lead)
            old_test = f"tests/{rest}{name}.py"
            if lead in ("tests/", "") and old_test in moves.homes:
                new = moves.homes[old_test].removeprefix("tests/" if lead == "" else "")
                yield found.start(), found.end(), new
                break
            old = ".".join(("moldau", *rest.split("/")[:-1], name))
            if lead != "tests/" and rest and old in moves.homes:
                new = lead + "/".join(moves.homes[old].split(".")[1:])
                ending = text[found.end(2) : found.end()]
                if new + ending != found[0]:
                    yield found.start(), found.end(), new + ending
                break


def _quoted_edits(text: str, moves: MoveMap) -> Iterator[Edit]:
    """`package.module` in a text, and `package/module`."""
    for found in QUOTED.finditer(text):
        sign = "/" if "/" in found[1] else "."
        if sign not in found[1] or found[0].endswith(".py`"):
            continue
        words = found[1].split(sign)
        if words[0] == "moldau":
            continue
        for count in range(len(words), 1, -1):
            old = ".".join(("moldau", *words[:count]))
            new = moves.homes.get(old)
            if new is not None:
                rest = words[count:]
                changed = sign.join((*new.split(".")[1:], *rest))
                if changed != found[1]:
                    yield found.start(1), found.end(1), changed
                break


def _look_for_rest(
    text: str, moves: MoveMap, problems: Problems, where: str, taken: list[tuple[int, int]]
) -> None:
    """An import in a text, a program that a test starts: which module it means is for people."""
    for found in IMPORT_IN_TEXT.finditer(text):
        if any(first <= found.start() < last for first, last in taken):
            continue
        for word in found[2].split(","):
            whole = f"{found[1]}.{word.strip().split(' ')[0]}"
            if moves.homes.get(whole, whole) != whole:
                line = text.count("\n", 0, found.start()) + 1
                problems.notes.append(f"{where}:{line} an import in a text: {found[0]}")


def find_undecided(text: str, moved: Mapping[str, str], where: str) -> Iterator[str]:
    """Bare names of modules that are no more: `module` in backticks, `package.module` in texts."""
    shorts = {old.removeprefix("moldau."): new for old, new in moved.items() if "/" not in old}
    leaves = {old.rpartition(".")[2] for old in shorts}
    for number, line in enumerate(text.splitlines(), 1):
        for word in re.findall(r"(?<![\w./`])[a-z_]+(?:[./][a-z_]+)+(?![\w(])", line):
            if word.replace("/", ".") in shorts:
                yield f"{where}:{number} {word}: {line.strip()[:90]}"
        for word in re.findall(r"`([a-z]+_[a-z_]+|[a-z_]+\.py)`", line):
            if word.removesuffix(".py") in leaves and where.startswith(("src/", "docs/")):
                yield f"{where}:{number} `{word}`: {line.strip()[:90]}"
