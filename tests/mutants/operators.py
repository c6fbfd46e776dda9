"""The mutants of a module that are made from its syntax tree, one small change in each.

Changes are made within functions. Left alone is what no test should be about: docstrings,
annotations, default values, the texts of errors, and checks of invariants.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
FUNCTIONS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
INVARIANTS: Final = {"InvariantViolation", "AssertionError", "NotImplementedError", "assert_never"}
"""Names in statements that nothing reaches while the code is right."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_UNREAD = ast.JoinedStr | ast.Lambda | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a tree, which `make` makes and `undo` takes back."""

    function: str
    """Its qualified name."""
    outermost: ast.FunctionDef | ast.AsyncFunctionDef
    """The function that is no part of another one: its code object is what is replaced."""
    function_to_replace: str
    """The name of that one."""
    replace: str
    by: str
    """As in an edit of the catalogue; empty for a statement that goes."""
    lines: tuple[int, int]
    """First and last of its statement. A test that runs none of them cannot notice."""
    make: Callable[[], None]
    undo: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    name: str
    function: _Function
    outermost: _Function
    outermost_name: str
    bindings: dict[str, int]


def find_changes(tree: ast.Module) -> Iterator[Change]:
    for scope in _find_scopes(tree.body, "", None):
        yield from _in_block(scope.function, "body", scope)


def _find_scopes(
    body: Sequence[ast.stmt], prefix: str, outermost: tuple[_Function, str] | None
) -> Iterator[_Scope]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _find_scopes(node.body, f"{prefix}{node.name}.", outermost)
        elif isinstance(node, _Function):
            name = f"{prefix}{node.name}"
            outer = outermost or (node, name)
            yield _Scope(
                name=name,
                function=node,
                outermost=outer[0],
                outermost_name=outer[1],
                bindings=_count_bindings(node),
            )
            yield from _find_scopes(node.body, f"{name}.", outer)
        else:
            for block in _blocks_of(node):
                yield from _find_scopes(getattr(*block), prefix, outermost)


def _count_bindings(function: _Function) -> dict[str, int]:
    """How often each name is bound; a statement that binds it alone cannot go."""
    found: dict[str, int] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            found[node.arg] = found.get(node.arg, 0) + 1
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = found.get(node.id, 0) + 1
    return found


def _blocks_of(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    for field in ("body", "orelse", "finalbody"):
        if getattr(node, field, None) and isinstance(getattr(node, field), list):
            yield node, field
    for child in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
        yield child, "body"


def _in_block(parent: ast.AST, field: str, scope: _Scope) -> Iterator[Change]:
    block: list[ast.stmt] = getattr(parent, field)
    for index, node in enumerate(list(block)):
        if isinstance(node, _Function | ast.ClassDef | _UNREAD) and not isinstance(node, ast.Raise):
            continue
        if _may_go(node, scope):
            yield _deletion(block, index, scope)
        if not isinstance(node, ast.Raise):
            yield from _in_expressions(node, node, _lines_of(node), scope)
        for case in getattr(node, "cases", ()):
            if case.guard is not None:
                yield from _in_expressions(case.guard, case.guard, _lines_of(node), scope)
        for below in _blocks_of(node):
            yield from _in_block(*below, scope)


def _may_go(node: ast.stmt, scope: _Scope) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name not in INVARIANTS
        case ast.Expr(value=value):
            return not isinstance(value, ast.Constant)
        case ast.Raise():
            return not any(
                isinstance(each, ast.Name) and each.id in INVARIANTS for each in ast.walk(node)
            )
        case ast.Assign(targets=[ast.Name(id=name)]):
            return scope.bindings[name] > 1
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target, value=ast.expr()):
            return isinstance(target, ast.Attribute | ast.Subscript)
        case ast.Return():
            return node is not scope.function.body[-1]
    return isinstance(node, ast.AugAssign | ast.Continue | ast.Break | ast.Delete)


def _deletion(block: list[ast.stmt], index: int, scope: _Scope) -> Change:
    node = block[index]
    nothing = ast.copy_location(ast.Pass(), node)

    def put(statement: ast.stmt) -> Callable[[], None]:
        return lambda: block.__setitem__(index, statement)

    return Change(
        function=scope.name,
        outermost=scope.outermost,
        function_to_replace=scope.outermost_name,
        replace=ast.unparse(node),
        by="",
        lines=_lines_of(node),
        make=put(nothing),
        undo=put(node),
    )


def _lines_of(node: ast.stmt) -> tuple[int, int]:
    """Of a compound statement, those before its body."""
    blocks = [getattr(*block) for block in _blocks_of(node)]
    if blocks:
        return node.lineno, max(node.lineno, blocks[0][0].lineno - 1)
    return node.lineno, node.end_lineno or node.lineno


def _in_expressions(
    node: ast.AST, parent: ast.AST, lines: tuple[int, int], scope: _Scope
) -> Iterator[Change]:
    """All changes at and below a node, but for those in the blocks of a statement."""
    for make, undo in _changes_of(node, scope):
        shown = parent if isinstance(node, ast.Constant) else node
        yield _described(shown, make, undo, lines, scope)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "cases", "handlers", "pattern"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue  # of `zip`: a check of an invariant
            if isinstance(child, ast.AST) and not isinstance(child, ast.stmt | _UNREAD):
                yield from _in_expressions(child, node, lines, scope)


def _described(
    shown: ast.AST,
    make: Callable[[], None],
    undo: Callable[[], None],
    lines: tuple[int, int],
    scope: _Scope,
) -> Change:
    before = _text(shown)
    make()
    after = _text(shown)
    undo()
    return Change(
        function=scope.name,
        outermost=scope.outermost,
        function_to_replace=scope.outermost_name,
        replace=before,
        by=after,
        lines=lines,
        make=make,
        undo=undo,
    )


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.stmt) and any(True for _ in _blocks_of(node)):
        return ast.unparse(node).partition("\n")[0]
    if isinstance(node, ast.keyword):
        return f"{node.arg}={ast.unparse(node.value)}"
    return ast.unparse(node)


_Pair = tuple[Callable[[], None], Callable[[], None]]


def _changes_of(node: ast.AST, scope: _Scope) -> Iterator[_Pair]:
    match node:
        case ast.Compare():
            for index, operator in enumerate(node.ops):
                yield _item(node.ops, index, COMPARISONS[type(operator)]())
        case ast.BoolOp():
            yield _attribute(node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not()):
            # `not not x` is `x`, as far as a condition goes
            same = ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=node.operand), node)
            yield _attribute(node, "operand", same)
        case ast.BinOp() | ast.AugAssign() if type(node.op) in ARITHMETIC:
            if not _is_text(node):
                yield _attribute(node, "op", ARITHMETIC[type(node.op)]())
        case ast.Constant(value=bool() as value):
            yield _attribute(node, "value", not value)
        case ast.Constant(value=int() | float() as number):
            yield _attribute(node, "value", number + 1)
        case ast.Call(func=ast.Name(id=name) as function) if name in FUNCTIONS:
            yield _attribute(function, "id", FUNCTIONS[name])
        case ast.Return(value=ast.expr() as value) if _may_be_none(scope.function.returns):
            if not (isinstance(value, ast.Constant) and value.value is None):
                none = ast.copy_location(ast.Constant(value=None), value)
                yield _attribute(node, "value", none)


def _is_text(node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether it puts texts, tuples or lists together, which have no difference."""
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    return any(
        isinstance(side, ast.JoinedStr | ast.Tuple | ast.List)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in sides
    )


def _may_be_none(returns: ast.expr | None) -> bool:
    return isinstance(returns, ast.BinOp) and ast.unparse(returns).endswith("| None")


def _attribute(node: ast.AST, field: str, value: object) -> _Pair:
    old = getattr(node, field)
    return lambda: setattr(node, field, value), lambda: setattr(node, field, old)


def _item(found: list[ast.cmpop], index: int, value: ast.cmpop) -> _Pair:
    old = found[index]
    return lambda: found.__setitem__(index, value), lambda: found.__setitem__(index, old)
