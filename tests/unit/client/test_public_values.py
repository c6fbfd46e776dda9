"""What a method of the administrator takes can be made with names that `moldau` itself has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import moldau
import moldau.client.blocking

STUB = ast.parse(Path(str(moldau.client.blocking.__file__)).with_suffix(".pyi").read_text())

NEEDS_NO_NAME = {
    "ClientSettings": "options say the same",
    "WantedName": "an alias: a text will do",
}


def imported_names() -> set[str]:
    """What the stub has from Moldau's own modules."""
    return {
        name.name
        for node in STUB.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("moldau.")
        for name in node.names
    }


def taken_names() -> set[str]:
    (admin,) = (one for one in STUB.body if isinstance(one, ast.ClassDef) and one.name == "Admin")
    methods = [node for node in admin.body if isinstance(node, ast.FunctionDef)]
    parameters = [one for method in methods for one in [*method.args.args, *method.args.kwonlyargs]]
    return {
        node.id
        for one in parameters
        if one.annotation is not None
        for node in ast.walk(one.annotation)
        if isinstance(node, ast.Name)
    } & imported_names()


def own_classes(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("moldau."):
        yield hint
    for part in get_args(hint):
        yield from own_classes(part)


def test_all_that_the_administrator_takes_is_public() -> None:
    assert taken_names() - set(moldau.__all__) - set(NEEDS_NO_NAME) == set()


def test_so_is_what_these_values_are_made_of() -> None:
    known: list[type] = [getattr(moldau, name) for name in taken_names() - set(NEEDS_NO_NAME)]
    for kind in known:
        if issubclass(kind, Enum):
            continue
        for name, hint in get_type_hints(kind).items():
            for part in own_classes(hint):
                assert part.__name__ in {*moldau.__all__, "Default"}, f"{kind.__name__}.{name}"
                if part not in known:
                    known.append(part)


def test_the_documented_names_of_quota_entities_are_where_they_were() -> None:
    documented = import_module("moldau.client.admin_quotas")
    assert {documented.ANY, documented.DEFAULT}
