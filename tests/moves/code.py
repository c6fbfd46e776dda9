"""What the source of one module says: its scopes, its imports, and edits of its text.

Python's own `ast` gives positions, and the text between them is kept as it is: comments and the
way things are written survive.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

Function = ast.FunctionDef | ast.AsyncFunctionDef
Import = ast.Import | ast.ImportFrom
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Edit = tuple[int, int, str]


class Source:
    """A text, its tree, and where the tree's nodes are in the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.lines = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self.lines)]

    def at(self, line: int, column: int) -> int:
        """The place of a byte column, as `ast` counts them, in the text."""
        return self._starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self.at(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self.at(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def line_span(self, first: int, last: int) -> tuple[int, int]:
        """Whole lines, with the end of the last one."""
        end = self._starts[last] if last < len(self._starts) else len(self.text)
        return self._starts[first - 1], min(end, len(self.text))

    def name_span(self, node: Function | ast.ClassDef) -> tuple[int, int]:
        """Where a definition has its name."""
        start, end = self.span(node)
        found = re.compile(r"(?:async\s+def|def|class)\s+(\w+)").match(self.text, start, end)
        assert found is not None
        return found.span(1)

    def edited(self, edits: Iterable[Edit]) -> str:
        text, end_before = [], 0
        for start, end, new in sorted(set(edits)):
            if start < end_before:
                raise AssertionError(f"two edits of the same text: {self.text[start:end]!r}")
            text += [self.text[end_before:start], new]
            end_before = end
        return "".join((*text, self.text[end_before:]))


def is_type_checking(node: ast.stmt) -> bool:
    """`if TYPE_CHECKING:` with nothing but imports in it."""
    return (
        isinstance(node, ast.If)
        and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        and not node.orelse
        and all(isinstance(one, Import) for one in node.body)
    )


def find_bound(statements: Iterable[ast.AST]) -> Iterator[str]:
    """The names that statements bind in their own scope."""
    for node in statements:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, Comprehension):
            yield from find_bound(
                walrus for walrus in ast.walk(node) if isinstance(walrus, ast.NamedExpr)
            )
            continue
        if isinstance(node, ast.Import):
            yield from (one.asname or one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (one.asname or one.name for one in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        yield from find_bound(ast.iter_child_nodes(node))


def find_locals(function: Function | ast.Lambda) -> frozenset[str]:
    arguments = function.args
    names = {
        one.arg
        for one in (
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        )
        if one is not None
    }
    body = function.body if isinstance(function.body, list) else [function.body]
    names.update(find_bound(body))
    for node in walk_scope(body):
        if isinstance(node, ast.Global):
            names.difference_update(node.names)
    return frozenset(names)


def walk_scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Everything in a scope, without what is in the functions and classes in it."""
    for node in nodes:
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            yield from walk_scope(ast.iter_child_nodes(node))


def find_globals(node: ast.AST, hidden: frozenset[str] = frozenset()) -> Iterator[ast.Name]:
    """The names that stand for something at the top of the module."""
    if isinstance(node, ast.Name):
        if node.id not in hidden:
            yield node
    elif isinstance(node, Function | ast.Lambda):
        inner = hidden | find_locals(node)
        body = node.body if isinstance(node.body, list) else [node.body]
        outside = [one for one in ast.iter_child_nodes(node) if one not in body]
        for child in outside:
            yield from find_globals(child, hidden)
        for child in body:
            yield from find_globals(child, inner)
    elif isinstance(node, ast.ClassDef):
        for child in (*node.decorator_list, *node.bases, *node.keywords):
            yield from find_globals(child, hidden)
        own = hidden | frozenset(find_bound(node.body))
        for child in node.body:
            # A method does not see the names of its class.
            yield from _find_in_class(child, hidden, own)
    elif isinstance(node, Comprehension):
        targets = [one.target for one in node.generators]
        inner = hidden | frozenset(find_bound(targets))
        for child in ast.iter_child_nodes(node):
            yield from find_globals(child, inner)
    else:
        for child in ast.iter_child_nodes(node):
            yield from find_globals(child, hidden)


def _find_in_class(
    node: ast.AST, hidden: frozenset[str], own: frozenset[str]
) -> Iterator[ast.Name]:
    if not isinstance(node, Function):
        yield from find_globals(node, own)
        return
    inside = set(map(id, node.body))
    inner = hidden | find_locals(node)
    for child in ast.iter_child_nodes(node):
        yield from find_globals(child, inner if id(child) in inside else own)


def find_import_time(node: ast.AST) -> Iterator[ast.Name]:
    """The names of the module that are needed when the statement is run, with annotations left
    out: `from __future__ import annotations` does not evaluate them."""
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, Function):
        for child in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if child is not None:
                yield from find_import_time(child)
    elif isinstance(node, ast.Lambda):
        for child in (*node.args.defaults, *node.args.kw_defaults):
            if child is not None:
                yield from find_import_time(child)
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield from find_import_time(node.value)
    elif isinstance(node, ast.ClassDef):
        own = set(find_bound(node.body))
        for child in (*node.decorator_list, *node.bases, *node.keywords):
            yield from find_import_time(child)
        for child in node.body:
            yield from (one for one in find_import_time(child) if one.id not in own)
    else:
        for child in ast.iter_child_nodes(node):
            yield from find_import_time(child)


def find_called(node: ast.AST) -> Iterator[str]:
    """What is called when the statement is run."""
    if isinstance(node, Function | ast.ClassDef):
        for one in node.decorator_list:
            yield ast.unparse(one.func if isinstance(one, ast.Call) else one)
    if isinstance(node, Function | ast.Lambda):
        return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield node.func.id
    for child in ast.iter_child_nodes(node):
        yield from find_called(child)


def show_alias(name: str, local: str | None) -> str:
    return name if local is None else f"{name} as {local}"
