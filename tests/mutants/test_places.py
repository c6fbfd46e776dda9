"""Edits find their place by the syntax tree, whatever the code looks like."""

from __future__ import annotations

import ast

import pytest

from mutants.mutant import Edit
from mutants.places import EditError, edited_tree

SOURCE = '''
LIMIT = 3


class Log:
    size = 0

    @property
    def limit(self):
        return self.size  # of the log

    @limit.setter
    def limit(self, size):
        self.size = max(size,
                        0)

    def append(self, batch, *, now=None):
        """Append it."""
        if (
            batch.size < 0
            or batch.is_empty
        ):
            raise ValueError(batch)
        else:
            self.size += batch.size
        self.flush(now=now, force=True)
        self.size += 1

        def follow():
            return batch.size

        return follow


def append(batch):
    if batch.size < 0:
        return None
    return [batch, LIMIT]
'''


def edit(function: str, replace: str, by: str = "") -> list[str]:
    """The lines that are no longer there, and those that are new."""
    tree = edited_tree(SOURCE, [Edit("log", function, replace, by)])
    compile(tree, "log", "exec")
    before = ast.unparse(ast.parse(SOURCE)).splitlines()
    after = ast.unparse(tree).splitlines()
    gone = [f"- {line.strip()}" for line in before if line not in after]
    return gone + [f"+ {line.strip()}" for line in after if line not in before]


def test_an_expression_is_found_over_lines_and_comments() -> None:
    assert edit("Log.append", "batch.size < 0 or batch.is_empty", "batch.is_empty") == [
        "- if batch.size < 0 or batch.is_empty:",
        "+ if batch.is_empty:",
    ]


def test_a_function_is_told_from_another_of_the_same_name() -> None:
    assert edit("append", "batch.size < 0", "batch.size < 1") == [
        "- if batch.size < 0:",
        "+ if batch.size < 1:",
    ]


def test_a_function_may_be_inside_another() -> None:
    assert edit("Log.append.follow", "return batch.size", "return 0") == [
        "- return batch.size",
        "+ return 0",
    ]


def test_a_property_is_searched_with_its_setter() -> None:
    assert edit("Log.limit", "max(size, 0)", "size") == [
        "- self.size = max(size, 0)",
        "+ self.size = size",
    ]


def test_classes_and_modules_have_places_too() -> None:
    assert edit("Log", "size = 0", "size = 1") == ["- size = 0", "+ size = 1"]
    assert edit("", "LIMIT = 3", "LIMIT = 4") == ["- LIMIT = 3", "+ LIMIT = 4"]


def test_without_a_substitute_statements_go() -> None:
    assert edit("Log.append", "self.size += 1") == ["- self.size += 1"]
    gone = edit("Log.append", "self.flush(now=now, force=True)\nself.size += 1")
    assert gone == ["- self.flush(now=now, force=True)", "- self.size += 1"]


def test_a_block_whose_only_statement_goes_passes() -> None:
    assert edit("Log.append", "raise ValueError(batch)") == ["- raise ValueError(batch)", "+ pass"]


def test_without_a_substitute_operands_elements_and_arguments_go() -> None:
    assert edit("Log.append", "batch.size < 0") == [
        "- if batch.size < 0 or batch.is_empty:",
        "+ if batch.is_empty:",
    ]
    assert edit("append", "LIMIT") == ["- return [batch, LIMIT]", "+ return [batch]"]
    assert edit("Log.append", "force=True") == [
        "- self.flush(now=now, force=True)",
        "+ self.flush(now=now)",
    ]


def test_dots_stand_for_any_body_and_an_else_stays() -> None:
    head = "if batch.size < 0 or batch.is_empty: ..."
    assert edit("Log.append", head, "if batch.is_empty: ...") == [
        "- if batch.size < 0 or batch.is_empty:",
        "+ if batch.is_empty:",
    ]
    assert edit("Log.append", head, "...") == [
        "- if batch.size < 0 or batch.is_empty:",
        "- raise ValueError(batch)",
        "- else:",
        "- self.size += batch.size",
        "+ raise ValueError(batch)",
    ]


def test_a_piece_that_is_not_there_once_is_an_error() -> None:
    with pytest.raises(EditError, match="has 0 times"):
        edit("append", "batch.is_empty", "False")
    with pytest.raises(EditError, match="has 3 times"):
        edit("Log.append", "batch.size", "0")


def test_a_function_that_is_not_there_is_an_error() -> None:
    with pytest.raises(EditError, match=r"has no Log\.read"):
        edit("Log.read", "batch.size", "0")


def test_edits_are_applied_one_after_the_other() -> None:
    edits = [Edit("log", "append", "LIMIT", "batch"), Edit("log", "append", "[batch, batch]", "[]")]
    assert "return []" in ast.unparse(edited_tree(SOURCE, edits))
