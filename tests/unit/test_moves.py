"""The script that merges and renames modules, on small trees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from moves import MoveError, read_map
from moves.__main__ import apply

Tree = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    def make(files: Mapping[str, str]) -> Path:
        for name, text in {"src/moldau/__init__.py": "", **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text).lstrip("\n"))
        (tmp_path / "pyproject.toml").write_text('[tool.ruff]\nsrc = ["src"]\nline-length = 100\n')
        for words in (["init", "-q"], ["add", "-A"]):
            subprocess.run(["git", *words], cwd=tmp_path, check=True)
        return tmp_path

    return make


def move(root: Path, text: str, **options: bool) -> list[str]:
    return apply(read_map(dedent(text)), root, **options)


def run(root: Path, code: str) -> str:
    """What the moved code prints, in a program of its own."""
    done = subprocess.run(
        [sys.executable, "-c", dedent(code)],
        cwd=root / "src",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_code_of_several_modules_is_one_module_with_one_block_of_imports(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/x/list.py": '''
                """Lists things."""

                from __future__ import annotations

                import sys

                from moldau.x.rows import show  # as a row

                # Why this is ten.
                LIMIT = 10


                def list_things() -> str:
                    return show(LIMIT)  # here
                ''',
            "src/moldau/x/rows.py": '''
                """Rows.

                They are short.
                """

                from __future__ import annotations

                import os
                import sys


                def show(number: int) -> str:
                    return f"row {number} {os.sep} {bool(sys.argv)}"
                ''',
        }
    )
    move(root, "moldau.x.things <- moldau.x.{list,rows}")
    text = (root / "src/moldau/x/things.py").read_text()
    assert text == dedent('''\
        """Lists things."""

        from __future__ import annotations

        import os
        import sys

        # Why this is ten.
        LIMIT = 10


        def list_things() -> str:
            return show(LIMIT)  # here


        # Rows.
        #
        # They are short.


        def show(number: int) -> str:
            return f"row {number} {os.sep} {bool(sys.argv)}"
        ''')
    assert not (root / "src/moldau/x/list.py").exists()
    assert run(root, "from moldau.x.things import *; print(list_things())") == "row 10 / True"


def test_a_name_that_means_two_things_is_a_problem_and_nothing_changes(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": "def _show():\n    return 1\n",
            "src/moldau/b.py": "def _show():\n    return 2\n",
        }
    )
    with pytest.raises(MoveError, match=r"`_show` means two things in moldau\.a, moldau\.b"):
        move(root, "moldau.c <- moldau.a moldau.b")
    assert (root / "src/moldau/a.py").exists()


def test_two_modules_that_import_another_thing_by_the_same_name_clash(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": "from json import loads\n\nA = loads('1')\n",
            "src/moldau/b.py": "from ast import literal_eval as loads\n\nB = loads('1')\n",
        }
    )
    with pytest.raises(MoveError, match="`loads` means two things"):
        move(root, "moldau.c <- moldau.a moldau.b")


def test_the_map_renames_a_name_everywhere_it_means_that_thing(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": "def _show():\n    return 1\n\n\ndef one():\n    return _show()\n",
            "src/moldau/b.py": """
                def _show(text):
                    return text


                def two(_show=3):
                    return _show


                def three():
                    return [_show(one) for one in "x"]
                """,
            "tests/test_b.py": """
                from moldau import b
                from moldau.b import _show


                def test_it(monkeypatch):
                    assert _show(1) == b._show(1)
                    monkeypatch.setattr(b, "_show", None)
                    monkeypatch.setattr("moldau.b._show", None)
                """,
        }
    )
    move(root, "moldau.c <- moldau.a moldau.b\n    rename: moldau.b._show -> _show_text")
    code = "from moldau.c import one, two, three; print(one(), two(), three())"
    assert run(root, code) == "1 3 ['x']"
    assert (root / "tests/test_b.py").read_text() == dedent("""\
        from moldau import c
        from moldau.c import _show_text


        def test_it(monkeypatch):
            assert _show_text(1) == c._show_text(1)
            monkeypatch.setattr(c, "_show_text", None)
            monkeypatch.setattr("moldau.c._show_text", None)
        """)


def test_a_builtin_is_not_hidden_by_what_a_sibling_defines(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": "def all():\n    return 1\n",
            "src/moldau/b.py": "def two(rows):\n    return all(rows)\n",
        }
    )
    with pytest.raises(MoveError, match=r"moldau\.b uses the builtin `all`"):
        move(root, "moldau.c <- moldau.a moldau.b")


def test_the_same_constant_twice_is_kept_once(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": "_LIMIT = 3\nA = _LIMIT\n",
            "src/moldau/b.py": "_LIMIT = 3\nB = _LIMIT\n",
        }
    )
    notes = move(root, "moldau.c <- moldau.a moldau.b")
    assert (root / "src/moldau/c.py").read_text().count("_LIMIT = 3") == 1
    assert any("`_LIMIT`" in one and "kept once" in one for one in notes)


def test_modules_that_import_each_other_need_no_imports_any_more(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": """
                from moldau.b import Base


                class Child(Base):
                    pass


                def make():
                    return Child().name
                """,
            "src/moldau/b.py": """
                class Base:
                    @property
                    def name(self):
                        from moldau.a import Child as Heir
                        from moldau import a

                        return f"{Heir.__name__} {a.Child.__name__}"
                """,
        }
    )
    move(root, "moldau.c <- moldau.a moldau.b")
    text = (root / "src/moldau/c.py").read_text()
    assert "import" not in text
    assert run(root, "from moldau.c import make; print(make())") == "Child Child"


def test_what_is_run_at_the_top_comes_after_what_it_needs(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": """
                from moldau.b import make


                def number():
                    return 2


                TABLE = make()
                """,
            "src/moldau/b.py": """
                from moldau import a

                SIZE = 3


                def make():
                    return SIZE


                def later():
                    return a.number()


                LAST = [later]
                """,
        }
    )
    move(root, "moldau.c <- moldau.a moldau.b")
    assert run(root, "from moldau.c import *; print(TABLE, LAST[0]())") == "3 2"


def test_a_needed_definition_moves_up_where_modules_need_each_other(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": """
                FIRST = 1


                def get():
                    from moldau.b import B

                    return B
                """,
            "src/moldau/b.py": "from moldau.a import FIRST, get\n\nB = FIRST + 1\nC = get()\n",
        }
    )
    move(root, "moldau.c <- moldau.b moldau.a")
    assert run(root, "from moldau.c import *; print(FIRST, B, C)") == "1 2 2"


def test_the_last_import_for_type_checkers_may_be_one_that_the_program_makes(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/values.py": "class Value: ...\n",
            "src/moldau/a.py": """
                from __future__ import annotations

                from typing import TYPE_CHECKING

                if TYPE_CHECKING:
                    from collections.abc import Iterable

                    from moldau.values import Value


                def show(values: Iterable[Value]) -> None: ...
                """,
            "src/moldau/b.py": """
                from __future__ import annotations

                from moldau.values import Value

                B = Value
                """,
        }
    )
    move(root, "moldau.c <- moldau.a moldau.b")
    text = (root / "src/moldau/c.py").read_text()
    assert text.count("import Value") == 1


def test_imports_for_type_checkers_stay_unless_the_program_makes_them(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/values.py": "class Value: ...\n\n\nclass Other: ...\n",
            "src/moldau/a.py": """
                from __future__ import annotations

                from typing import TYPE_CHECKING

                if TYPE_CHECKING:
                    from moldau.b import B
                    from moldau.values import Other, Value


                def show(value: Value, other: Other) -> B:
                    from moldau.values import Value

                    return Value()
                """,
            "src/moldau/b.py": """
                from __future__ import annotations

                from moldau.values import Value

                B = Value
                """,
        }
    )
    move(root, "moldau.c <- moldau.a moldau.b")
    assert (root / "src/moldau/c.py").read_text() == dedent("""\
        from __future__ import annotations

        from typing import TYPE_CHECKING

        from moldau.values import Value

        if TYPE_CHECKING:
            from moldau.values import Other


        def show(value: Value, other: Other) -> B:
            return Value()


        B = Value
        """)


def test_texts_paths_and_imports_elsewhere_name_the_new_module(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/x/__init__.py": '"""X."""\n',
            "src/moldau/x/a.py": "def run():\n    return 1\n",
            "src/moldau/x/b.py": "LIMIT = 1\n",
            "src/moldau/table.py": """
                import moldau.x.a as runner
                import moldau.x.b
                from moldau.x import a, b
                from moldau.x.a import (
                    run,  # the one
                )

                COMMANDS = {"run": "moldau.x.a:run", "other": "moldau.x.another:run"}
                VALUES = run(), a.run(), moldau.x.b.LIMIT, b.LIMIT, runner.run()
                """,
            "docs/page.md": "`moldau.x.a` is in `src/moldau/x/a.py`, `x/b.py` and `x.b`; x.a is.\n",
            "Makefile": "all:\n\tpython -m moldau.x.a\n",
        }
    )
    notes = move(root, "moldau.x <- moldau.x.a moldau.x.b")
    assert (root / "src/moldau/table.py").read_text() == dedent("""\
        import moldau.x
        import moldau.x as runner
        from moldau import x
        from moldau.x import (
            run,  # the one
        )

        COMMANDS = {"run": "moldau.x:run", "other": "moldau.x.another:run"}
        VALUES = run(), x.run(), moldau.x.LIMIT, x.LIMIT, runner.run()
        """)
    page = (root / "docs/page.md").read_text()
    assert page == "`moldau.x` is in `src/moldau/x.py`, `x.py` and `x`; x.a is.\n"
    assert any("x.a: `moldau.x`" in one for one in notes)  # left to people
    assert "python -m moldau.x\n" in (root / "Makefile").read_text()
    assert not (root / "src/moldau/x").exists()


def test_a_changed_attribute_of_a_module_reaches_the_merged_code(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": "LIMIT = 1\n\n\ndef read():\n    return LIMIT\n",
            "src/moldau/b.py": "from moldau import a\n\n\ndef twice():\n    return 2 * a.LIMIT\n",
            "src/moldau/check.py": """
                from moldau import a as module
                from moldau.b import twice

                module.LIMIT = 4
                print(module.read(), twice())
                """,
        }
    )
    move(root, "moldau.c <- moldau.a moldau.b")
    assert run(root, "import moldau.check") == "4 8"


def test_a_name_that_a_module_exports_is_still_exported(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": "from moldau.values import Value as Value\n",
            "src/moldau/b.py": "B = 1\n",
            "src/moldau/values.py": "class Value: ...\n",
            "src/moldau/other.py": "OTHER = 1\n",
            "src/moldau/user.py": "from moldau.a import Value\n\nprint(Value.__name__)\n",
        }
    )
    move(root, "moldau.c <- moldau.a moldau.b\nmoldau.d <- moldau.values moldau.other")
    assert "from moldau.d import Value as Value" in (root / "src/moldau/c.py").read_text()
    assert run(root, "import moldau.user") == "Value"


def test_an_import_of_what_is_not_there_is_told(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": "A = 1\n",
            "src/moldau/b.py": "B = 1\n",
            "tests/test_a.py": "from moldau.a import NONE\n\nprint(NONE)\n",
        }
    )
    with pytest.raises(MoveError, match=r"test_a\.py:1 imports NONE, which moldau\.c does not"):
        move(root, "moldau.c <- moldau.a moldau.b")


def test_a_package_with_modules_left_would_hide_the_new_module(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/x/__init__.py": "",
            "src/moldau/x/a.py": "A = 1\n",
            "src/moldau/x/new.py": "NEW = 1\n",
        }
    )
    with pytest.raises(MoveError, match=r"the package moldau\.x would hide .*new"):
        move(root, "moldau.x <- moldau.x.a")


def test_a_map_says_what_no_rule_finds(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": "A = 1\n",
            "src/moldau/b.py": 'B = ".a." in "x"\n',
        }
    )
    text = """
        moldau.c <- moldau.a moldau.b
        replace: src/moldau/c.py
            - ".a." in
            + ".c:" in
        # a comment
        """
    move(root, text)
    assert '".c:" in "x"' in (root / "src/moldau/c.py").read_text()


def test_imports_in_functions_come_to_the_top_where_nothing_else_has_their_names(
    tree: Tree,
) -> None:
    root = tree(
        {
            "src/moldau/values.py": "Value = 1\nOther = 2\nsum = 3\n",
            "src/moldau/more.py": "Other = 4\n",
            "src/moldau/a.py": '''
                """A."""

                from __future__ import annotations

                from typing import TYPE_CHECKING

                if TYPE_CHECKING:
                    from moldau.values import Last, Value


                def one(last: Last) -> Value:
                    """One."""
                    from moldau.values import Value

                    return Value


                def two():
                    from moldau.values import Other, Value

                    return Other + Value


                def three():
                    from moldau.more import Other

                    return Other


                def four(rows):
                    import json

                    return json.dumps(sum(rows))


                def five():
                    from moldau.values import sum

                    return sum
                ''',
        }
    )
    notes = move(root, "hoist: moldau.a <- moldau.*")
    assert (root / "src/moldau/a.py").read_text() == dedent('''\
        """A."""

        from __future__ import annotations

        from moldau.values import Last, Value


        def one(last: Last) -> Value:
            """One."""
            return Value


        def two():
            from moldau.values import Other

            return Other + Value


        def three():
            from moldau.more import Other

            return Other


        def four(rows):
            import json

            return json.dumps(sum(rows))


        def five():
            from moldau.values import sum

            return sum
        ''')
    assert any("`Other` stays in `two`" in one for one in notes)


def test_a_new_circle_of_imports_is_told(tree: Tree) -> None:
    root = tree(
        {
            "src/moldau/a.py": "from moldau.b import B\n\nA = B\n",
            "src/moldau/b.py": "B = 1\n",
            "src/moldau/c.py": "from moldau.a import A\n\nC = A\n",
        }
    )
    with pytest.raises(MoveError, match=r"a circle of imports: moldau\.a - moldau\.d"):
        move(root, "moldau.d <- moldau.b moldau.c")


def test_a_dry_run_changes_nothing(tree: Tree) -> None:
    root = tree({"src/moldau/a.py": "A = 1\n", "src/moldau/b.py": "B = 1\n"})
    move(root, "moldau.c <- moldau.a moldau.b", dry=True)
    assert not (root / "src/moldau/c.py").exists()


@pytest.mark.parametrize(
    "text",
    ["moldau.c", "moldau.c <- moldau.a moldau.a", "    docstring: x", "moldau.c <- moldau.nowhere"],
)
def test_a_map_that_says_nothing_sensible_is_refused(tree: Tree, text: str) -> None:
    root = tree({"src/moldau/a.py": "A = 1\n"})
    with pytest.raises(MoveError):
        apply(read_map(text), root)
