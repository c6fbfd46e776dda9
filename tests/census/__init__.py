"""How the source is cut into modules, in figures: `python -m census`.

Large numbers of small modules are hard to read: a reader opens many files to follow one request.
`limits.json` keeps the highest allowed value of each figure. `make lint` fails when a figure is
above its limit. A change that raises a limit does so in a commit of its own that gives the reason.

The figures are read from the files; nothing is imported. A line counts when it has code on it: no
blank line, comment or docstring. The generated classes in `wire/messages` are left out.
"""

from __future__ import annotations

import ast
import io
import json
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
LIMITS = Path(__file__).with_name("limits.json")
GENERATED = "wire/messages/"
SMALL_LINES = 80
LAYOUT = frozenset(
    (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """One file."""

    name: str
    package: str
    lines: int
    import_lines: int
    inner_imports: int
    forwarders: int
    imported_names: frozenset[str]

    @property
    def may_be_small(self) -> bool:
        """A handler is one API, and a package's `__init__` says what the package exports."""
        return self.name.endswith(".__init__") or ".handlers." in self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    modules: int
    lines: int
    median_lines: int
    import_percent: float
    inner_imports: int
    small_with_one_importer: int
    forwarders: int

    def find_above(self, limits: Figures) -> dict[str, tuple[float, float]]:
        """Figures above their limits: the figure and the limit."""
        pairs = {
            one.name: (getattr(self, one.name), getattr(limits, one.name))
            for one in fields(self)
            if one.name != "median_lines"  # more is better, and `modules` with `lines` bounds it
        }
        return {name: (found, limit) for name, (found, limit) in pairs.items() if found > limit}


def read_modules(source: Path = SOURCE) -> list[Module]:
    return [
        read_module(path.relative_to(source), path.read_text(encoding="utf-8"))
        for path in sorted(source.rglob("*.py"))
        if GENERATED not in path.as_posix()
    ]


def read_module(path: Path, text: str) -> Module:
    tree = ast.parse(text)
    imports = [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    functions = [one for one in ast.walk(tree) if isinstance(one, Function)]
    inner = {
        id(one)
        for function in functions
        for one in ast.walk(function)
        if isinstance(one, ast.Import | ast.ImportFrom)
    }
    return Module(
        name=".".join(path.with_suffix("").parts),
        package=path.parts[1] if len(path.parts) > 2 else ".",
        lines=count_lines(text, tree),
        import_lines=sum((one.end_lineno or one.lineno) - one.lineno + 1 for one in imports),
        inner_imports=len(inner),
        forwarders=sum(map(is_forwarder, functions)),
        imported_names=frozenset(find_imported_names(imports)),
    )


def count_lines(text: str, tree: ast.Module) -> int:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node):
            docstring = node.body[0]
            lines -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def find_imported_names(imports: Sequence[ast.Import | ast.ImportFrom]) -> Iterator[str]:
    for one in imports:
        if isinstance(one, ast.ImportFrom) and one.module:
            yield one.module
            yield from (f"{one.module}.{name.name}" for name in one.names)


def is_forwarder(function: Function) -> bool:
    """Whether a method only calls a method of the same name with the same arguments."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    call = body[0].value.value if isinstance(body[0].value, ast.Await) else body[0].value
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return False
    wanted = [one.arg for one in function.args.args[1:] + function.args.kwonlyargs]
    given = [one.id if isinstance(one, ast.Name) else None for one in call.args]
    return call.func.attr == function.name and wanted == [
        *given,
        *(one.arg for one in call.keywords),
    ]


def compute_figures(modules: Sequence[Module], everything: Sequence[Module] = ()) -> Figures:
    """The figures of `modules`; importers are looked for in `everything`."""
    importers = Counter(name for module in everything or modules for name in module.imported_names)
    sizes = [one.lines for one in modules if not one.may_be_small]
    lines = sum(one.lines for one in modules)
    imports = sum(one.import_lines for one in modules)
    return Figures(
        modules=len(modules),
        lines=lines,
        median_lines=int(statistics.median(sizes)) if sizes else 0,
        import_percent=round(100 * imports / max(lines, 1), 1),
        inner_imports=sum(one.inner_imports for one in modules),
        small_with_one_importer=sum(
            one.lines < SMALL_LINES
            and not one.name.endswith(".__init__")
            and importers[one.name] == 1
            for one in modules
        ),
        forwarders=sum(one.forwarders for one in modules),
    )


def read_limits(path: Path = LIMITS) -> Figures:
    return Figures(**json.loads(path.read_text(encoding="utf-8")))
