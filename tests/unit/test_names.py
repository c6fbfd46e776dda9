"""One name, one thing.

A reader who meets a name in a traceback, in a review or in a search should not have to ask which of
two things it is: no two public classes of the package have the same name. Names that begin with an
underscore belong to their module and may be anywhere.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "moldau"

MEANT: dict[str, str] = {}
"""Names that are there twice, and why."""


def public_names(tree: ast.Module) -> Iterator[str]:
    """Classes and type aliases at the top of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            name = node.name
        elif (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and ast.unparse(node.annotation) == "TypeAlias"
        ):
            name = node.target.id
        else:
            continue
        if not name.startswith("_"):
            yield name


def find_doubled() -> dict[str, list[str]]:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for name in public_names(ast.parse(path.read_text())):
            homes[name].append(str(path.relative_to(SOURCE)))
    return {name: found for name, found in homes.items() if len(found) > 1}


def test_a_public_name_means_one_thing() -> None:
    unmeant = {name: homes for name, homes in find_doubled().items() if name not in MEANT}
    assert not unmeant, "give one of each another name, or say in MEANT why it is there twice"
