"""One name, one thing; one module, one concept.

A reader who meets a name in a traceback, in a review or in a search should not have to ask which of
two things it is: no two public classes of the package have the same name. Names that begin with an
underscore belong to their module and may be anywhere.

A module of more than 500 lines mostly has a second responsibility, which wants a module with a name
of its own. Where it has none, `LONG` says what the one is.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "moldau"

MEANT: dict[str, str] = {}
"""Names that are there twice, and why."""

MOST_LINES = 500

LONG = {
    "client/consumer_core.py": "what all faces of a consumer share, over one machine",
    "client/rules/consumer_machine.py": "a machine: its moves read best in one place",
    "client/rules/producer_machine.py": "a machine: its moves read best in one place",
    "client/rules/queue_machine.py": "a machine: its moves read best in one place",
    "errors.py": "the tree of errors, leaf by leaf",
    "groups/rules/consumer_membership.py": "one heartbeat, from who its member is to what it gets",
    "net/connection.py": "the path of every request and answer over one socket",
    "records/_codec_pure.py": "the twin of one native module, function by function",
    "shares/rules/in_flight.py": "a machine: its moves read best in one place",
    "shares/share_partition.py": "one share partition: loading, acquiring and storing in one task",
    "storage/log.py": "one log, whose parts change together without an await in between",
    "storage/segment.py": "one segment: a file and the indexes that are written along with it",
}
"""Modules that are long, and the one thing that each of them is."""


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


def test_a_module_that_is_long_is_one_concept() -> None:
    lengths = {
        path.relative_to(SOURCE).as_posix(): len(path.read_text().splitlines())
        for path in SOURCE.rglob("*.py")
    }
    long = {name: lines for name, lines in lengths.items() if lines > MOST_LINES}
    unmeant = {name: lines for name, lines in long.items() if name not in LONG}
    assert not unmeant, "give the second responsibility a module, or say in LONG that there is none"
    assert LONG.keys() <= long.keys(), "what is not long any more need not be in LONG"
