"""The changes that the generator makes, and what it leaves alone."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from mutants.operators import Change, find_changes


def changes(source: str) -> list[str]:
    return [describe(change) for change in find_changes(ast.parse(dedent(source)))]


def describe(change: Change) -> str:
    return f"{change.replace} -> {change.by}" if change.by else f"{change.replace} goes"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a < b", "a <= b"),
        ("a >= b", "a > b"),
        ("a == b", "a != b"),
        ("a is b", "a is not b"),
        ("a in b", "a not in b"),
        ("a and b", "a or b"),
        ("not a", "not not a"),
        ("a + b", "a - b"),
        ("a * b", "a // b"),
        ("a | b", "a & b"),
        ("f(a, True)", "f(a, False)"),
        ("f(a, 1)", "f(a, 2)"),
        ("max(a, b)", "min(a, b)"),
        ("any(a)", "all(a)"),
    ],
)
def test_an_expression_is_changed(before: str, after: str) -> None:
    assert changes(f"def f(a, b):\n    return {before}") == [f"{before} -> {after}"]


def test_each_change_is_alone_and_can_be_undone() -> None:
    tree = ast.parse("def f(a, b):\n    return a < b < 3 and not a")
    before = ast.dump(tree)
    seen = set()
    for change in find_changes(tree):
        change.make()
        seen.add(ast.dump(tree))
        change.undo()
        assert ast.dump(tree) == before
    assert len(seen) == 5
    assert before not in seen


def test_statements_go() -> None:
    found = changes(
        """
        def f(self, items):
            "What it does."
            self.size = items.size
            for item in items:
                if item:
                    continue
                self.add(item)
            del items
        """
    )
    assert found == [
        "self.size = items.size goes",
        "continue goes",
        "self.add(item) goes",
        "del items goes",
    ]


def test_a_name_that_is_bound_once_stays_bound() -> None:
    source = "def f(a):\n    a = a.b\n    c = a\n    return c"
    assert changes(source) == ["a = a.b goes"]


def test_an_early_return_goes_and_the_last_one_stays() -> None:
    source = "def f(a):\n    if a:\n        return a\n    return a.b"
    assert changes(source) == ["return a goes"]


def test_a_function_that_may_return_none_does() -> None:
    assert changes("def f(a) -> int | None:\n    return a") == ["return a -> return None"]
    assert changes("def f(a) -> int:\n    return a") == []


def test_functions_in_classes_and_functions_have_their_names() -> None:
    source = """
        class Log:
            def append(self):
                def check():
                    return 1
                return check
        """
    (change,) = find_changes(ast.parse(dedent(source)))
    assert change.function == "Log.append.check"
    assert isinstance(change.outermost, ast.FunctionDef)
    assert change.outermost.name == "append"
    assert change.function_to_replace == "Log.append"


def test_what_no_test_should_be_about_is_left_alone() -> None:
    source = """
        LIMIT = 1

        def f(a: int = 1) -> None:
            assert a == 1
            b: list[1] = f"{a + 1}"
            if b.a:
                raise InvariantViolation(f"{a}", a + 1)
            match a:
                case 1:
                    assert_never(a)
            return b"x" + zip(a, b, strict=True)
        """
    assert changes(source) == []


def test_the_guard_of_a_case_is_changed() -> None:
    source = "def f(a):\n    match a:\n        case int() if a < 1:\n            return a\n"
    found = list(find_changes(ast.parse(source)))
    assert [describe(change) for change in found] == [
        "a < 1 -> a <= 1",
        "a < 1 -> a < 2",
        "return a goes",
    ]
    assert [change.lines for change in found] == [(2, 3), (2, 3), (4, 4)]


def test_a_compound_statement_has_the_lines_before_its_body() -> None:
    source = "def f(a, b):\n    if (\n        a\n        and b\n    ):\n        a.b()\n"
    assert [change.lines for change in find_changes(ast.parse(source))] == [(2, 5), (6, 6)]
