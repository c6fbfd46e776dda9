"""The stubs of derived classes (`moldau.client.blocking_face`): `make stubs` writes them.

A stub says what the asynchronous class says, without `async`: annotations and defaults in the words
of its source, and the docstrings, which editors show.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import FunctionType

from moldau.client.blocking_face import HANDED_IN, BlockingFace

HOMES = ("moldau.client.blocking",)
"""The modules with derived classes."""


def path_of(home: str) -> Path:
    return Path(str(import_module(home).__file__)).with_suffix(".pyi")


def render(home: str) -> str:
    """The stub of a module, in the shape that `ruff format` gives it."""
    module = import_module(home)
    imports: set[str] = set()
    classes = [
        ast.unparse(_stub_class(found, imports))
        for found in vars(module).values()
        if inspect.isclass(found) and "made_of" in vars(found)
    ]
    docstring = f'"""{inspect.getdoc(module)}\n\nWritten by `make stubs`.\n"""'
    return _shape("\n".join([docstring, *sorted(imports), *classes]))


def _stub_class(cls: type[BlockingFace], imports: set[str]) -> ast.ClassDef:
    base = cls.__bases__[0]
    imports.add(f"from {base.__module__} import {base.__name__}")
    body: list[ast.stmt] = [ast.Expr(ast.Constant(_margin(inspect.getdoc(cls) or "", 4)))]
    for name in vars(cls):
        operation = inspect.getattr_static(cls.made_of, name, None)
        if isinstance(operation, property):
            operation = operation.fget
        if isinstance(operation, FunctionType):
            body.append(_stub_function(operation, imports))
    (stub,) = ast.parse(f"class {cls.__name__}({base.__name__}): pass").body
    assert isinstance(stub, ast.ClassDef)
    stub.body = body
    return stub


def _stub_function(function: FunctionType, imports: set[str]) -> ast.FunctionDef:
    (node,) = ast.parse(dedent(inspect.getsource(function))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    if node.name == "__init__":
        _drop(node.args, HANDED_IN)
    stub = ast.FunctionDef(
        node.name, node.args, [], node.decorator_list, node.returns, lineno=0, type_params=[]
    )
    imports.update(_imports_for(stub, function))
    docstring = function.__doc__ and _margin(inspect.cleandoc(function.__doc__), 8)
    stub.body.append(ast.Expr(ast.Constant(docstring or ...)))
    return stub


def _drop(arguments: ast.arguments, names: frozenset[str]) -> None:
    kept = [
        (one, default)
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if one.arg not in names
    ]
    arguments.kwonlyargs = [one for one, _ in kept]
    arguments.kw_defaults = [default for _, default in kept]


def _imports_for(stub: ast.FunctionDef, function: FunctionType) -> Iterator[str]:
    """How the names of a signature come into the module that the function is from."""
    names = {node.id for node in ast.walk(stub) if isinstance(node, ast.Name)}
    module = sys.modules[function.__module__]
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                words = ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
                found[alias.asname or alias.name] = words
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name] = ast.unparse(ast.Import([alias]))
    for name in sorted(names):
        if name in found:
            yield found[name]
        elif not hasattr(builtins, name):
            yield f"from {module.__name__} import {name}"


def _margin(docstring: str, width: int) -> str:
    """As it stands in a class or a function; the end of several lines has a line of its own."""
    first, *others = docstring.splitlines()
    if not others:
        return first
    return "\n".join([first, *(f"{' ' * width}{line}".rstrip() for line in others), " " * width])


def _shape(source: str) -> str:
    for command in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", "stub.pyi", "-"],
            input=source,
            capture_output=True,
            text=True,
            check=True,
        )
        source = done.stdout
    return source
