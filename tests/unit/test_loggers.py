"""Loggers have documented names that do not depend on module names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
AUDIT = "moldau.audit"
"""Its name is a constant."""


def find_logger_names() -> set[str]:
    """The literal names in `getLogger("...")`. Names below `moldau` only."""
    return {
        call.args[0].value
        for path in SOURCES
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).endswith("getLogger")
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and str(call.args[0].value).startswith("moldau.")
    }


def test_no_logger_is_named_after_its_module() -> None:
    named = [path for path in SOURCES if re.search(r"getLogger\(.*__name__", path.read_text())]
    assert not named


def test_the_documentation_lists_every_logger() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    listed = {*re.findall(r"^\| `(moldau\.[\w.]+)` \|", page, re.MULTILINE)}
    assert listed == find_logger_names() | {AUDIT}
