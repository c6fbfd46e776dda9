"""Finds the place of an edit in a parsed module, and puts something else there.

A place is a piece of code in a function that is named. It is compared as a syntax tree, so it does
not matter how the code is formatted, and where in the module the function is. `...` as the body of
a compound statement stands for any body. A piece that is not in the function exactly once is an
error: the code has changed, and the mutant has to be changed too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mutants.mutant import Edit


class EditError(Exception):
    """A mutant does not fit the code any more."""


class Place(NamedTuple):
    """One match: nodes that follow each other in a list, or one node that is a field."""

    parent: ast.AST
    field: str
    first: int | None
    """The index in the field; None where the field is a node, not a list."""
    nodes: list[ast.AST]
    held: list[list[ast.stmt]]
    """What each `...` stands for."""

    def put(self, nodes: Sequence[ast.AST]) -> None:
        if self.first is None:
            (node,) = nodes
            setattr(self.parent, self.field, node)
        else:
            found = getattr(self.parent, self.field)
            found[self.first : self.first + len(self.nodes)] = nodes
            if not found and self.field == "body":
                found.append(ast.copy_location(ast.Pass(), self.nodes[0]))


def edited_tree(source: str, edits: Sequence[Edit]) -> ast.Module:
    """The module with all the edits, one after the other; they have to be about this module."""
    tree = ast.parse(source)
    for edit in edits:
        _apply(tree, edit)
    _Simplified().visit(tree)
    return ast.fix_missing_locations(tree)


class _Simplified(ast.NodeTransformer):
    """An `and` that has lost all operands but one is that operand."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        return node if len(node.values) > 1 else node.values[0]


def _apply(tree: ast.Module, edit: Edit) -> None:
    scopes = list(find_scopes(tree, edit.function))
    if not scopes:
        raise EditError(f"{edit.module} has no {edit.function}")
    wanted, substitute = ast.parse(edit.replace).body, ast.parse(edit.by).body
    places = [place for scope in scopes for place in _find_places(scope, wanted, substitute)]
    if len(places) != 1:
        where = f"{edit.module}, {edit.function or 'the whole module'}"
        raise EditError(f"{where} has {len(places)} times, not once: {edit.replace!r}")
    (place,) = places
    place.put(_make_nodes(place, substitute))


def find_scopes(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """The functions and classes with a qualified name (a property has several); "" is the tree."""
    if not name:
        yield tree
        return
    first, _, rest = name.partition(".")
    for scope in _find_definitions(tree):
        if scope.name == first:
            yield from find_scopes(scope, rest)


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _find_definitions(tree: ast.AST) -> Iterator[_Definition]:
    """Those directly below, also within `if` or `try`."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, _Definition):
            yield child
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _find_definitions(child)


def _find_places(
    scope: ast.AST, wanted: Sequence[ast.stmt], substitute: Sequence[ast.stmt]
) -> Iterator[Place]:
    expression, argument = _find_expression(wanted), _find_argument(wanted)
    is_replaced = expression is not None and _find_expression(substitute) is not None
    for parent in ast.walk(scope):
        for field, value in ast.iter_fields(parent):
            if expression is not None and (is_replaced or (field in _PARTS and not substitute)):
                yield from _find_nodes(parent, field, value, expression)
            elif argument is not None and isinstance(parent, ast.Call) and field == "keywords":
                yield from _find_nodes(parent, field, value, argument)
            elif _is_block(value):
                yield from _find_runs(parent, field, value, wanted)


_PARTS = ("values", "elts", "args", "ifs")
"""Lists of expressions of which one can be left out: of `and`, a list, a call, a comprehension."""


def _find_expression(block: Sequence[ast.stmt]) -> ast.expr | None:
    if len(block) == 1 and isinstance(block[0], ast.Expr) and not _is_open(block):
        return block[0].value
    return None


def _find_argument(block: Sequence[ast.stmt]) -> ast.keyword | None:
    """`name=value` is an assignment or an argument of a call, whichever there is."""
    if len(block) == 1 and isinstance(block[0], ast.Assign):
        target = block[0].targets[0]
        if len(block[0].targets) == 1 and isinstance(target, ast.Name):
            return ast.keyword(arg=target.id, value=block[0].value)
    return None


def _find_nodes(parent: ast.AST, field: str, value: object, wanted: ast.AST) -> Iterator[Place]:
    if isinstance(value, ast.AST):
        if _fits(wanted, value, []):
            yield Place(parent, field, None, [value], [])
    elif isinstance(value, list):
        for index, node in enumerate(value):
            if isinstance(node, ast.AST) and _fits(wanted, node, []):
                yield Place(parent, field, index, [node], [])


def _find_runs(
    parent: ast.AST, field: str, block: Sequence[ast.stmt], wanted: Sequence[ast.stmt]
) -> Iterator[Place]:
    for first in range(len(block) - len(wanted) + 1):
        held: list[list[ast.stmt]] = []
        run = block[first : first + len(wanted)]
        if all(_fits(one, node, held) for one, node in zip(wanted, run, strict=True)):
            yield Place(parent, field, first, list(run), held)


def _fits(wanted: ast.AST, node: ast.AST, held: list[list[ast.stmt]]) -> bool:
    if type(wanted) is not type(node):
        return False
    is_open = _is_open(getattr(wanted, "body", None))
    for field, value in ast.iter_fields(wanted):
        found = getattr(node, field)
        if field == "body" and is_open:
            held.append(found)
        elif is_open and field in _REST and not value:
            continue
        elif isinstance(value, ast.AST):
            if not isinstance(found, ast.AST) or not _fits(value, found, held):
                return False
        elif isinstance(value, list):
            if len(value) != len(found) or not all(map(_both_fit(held), value, found)):
                return False
        elif value != found or type(value) is not type(found):
            return False
    return True


_REST = ("orelse", "finalbody")


def _both_fit(held: list[list[ast.stmt]]) -> Callable[[object, object], bool]:
    def fit(value: object, found: object) -> bool:
        if isinstance(value, ast.AST) and isinstance(found, ast.AST):
            return _fits(value, found, held)
        return value == found

    return fit


def _is_block(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], ast.stmt)


def _is_open(block: object) -> bool:
    """Whether a block is `...`."""
    match block:
        case [ast.Expr(value=ast.Constant(value=value))]:
            return value is ...
    return False


def _make_nodes(place: Place, substitute: Sequence[ast.stmt]) -> Sequence[ast.AST]:
    """What comes into the place, with its position in the source for the sake of tracebacks."""
    found = place.nodes[0]
    made: Sequence[ast.AST | None] = substitute
    if isinstance(found, ast.expr) and substitute:
        made = [_find_expression(substitute)]
    elif isinstance(found, ast.keyword) and substitute:
        made = [_find_argument(substitute)]
    nodes = [node for node in made if node is not None]
    for node in nodes:
        for each in ast.walk(node):
            ast.copy_location(each, found)
    if _is_open(nodes):
        return place.held[0]
    _fill(nodes, place)
    return nodes


def _fill(nodes: Sequence[ast.AST], place: Place) -> None:
    """Each `...` gets its body back, and an `if` its `else`."""
    held = list(place.held)
    for node in nodes:
        for each in list(ast.walk(node)):
            if _is_open(getattr(each, "body", None)):
                vars(each)["body"] = held.pop(0)
    if nodes and place.held and type(nodes[0]) is type(place.nodes[0]):
        for field in _REST:
            if not getattr(nodes[0], field, True):
                setattr(nodes[0], field, getattr(place.nodes[0], field))
