"""Applies a map to the repository: `python -m moves MAP`.

`--dry` says what is in the way, and changes nothing.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from moves import MoveError, MoveMap, find_source, path_of, read_map
from moves.code import Import, find_bound, is_type_checking
from moves.hoisting import hoist
from moves.merging import Problems, merge
from moves.references import find_undecided, rewrite_code, rewrite_text

ROOT = Path(__file__).parents[2]
PYTHON = (".py", ".pyi")
TEXTS = (".md", ".toml", ".cfg", ".ini", ".yml", ".yaml", ".sh", ".pyx", ".pxi", ".txt", ".json")
NAMES = ("Makefile", "Dockerfile", "run")
HISTORY = ("CHANGELOG.md", "tests/moves/", "tests/unit/test_moves.py", "src/moldau/wire/messages/")
"""What tells of the past, or of this script, stays as it is."""


def apply(moves: MoveMap, root: Path, *, dry: bool = False) -> list[str]:
    """Changes the tree; gives what people should look at."""
    problems = Problems()
    sources = _read_sources(moves, root, problems)
    if problems:
        raise MoveError("\n".join(problems))
    merged = {one.name: merge(one, sources, moves, problems) for one in moves.targets}
    moved = {old: new for old, new in moves.homes.items() if old != new}
    olds = {find_source(root, old) for old in moves.homes}
    before = find_cycles(root)
    changed: dict[Path, str] = {}
    for path in _find_files(root):
        if path not in olds:
            text = path.read_text(encoding="utf-8")
            new = _rewrite(path, text, moves, problems, root)
            if new != text:
                changed[path] = new
    for name, text in merged.items():
        path = root / path_of(name)
        changed[path] = _rewrite(path, text, moves, problems, root)
    if problems:
        raise MoveError("\n".join(problems))
    if dry:
        return problems.notes
    _move(moves, root)
    for path, text in changed.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        _complete_package(root, path.parent)
    _remove_empty(moves, root, problems.notes)
    _shape(root, changed)
    _hoist(moves, root, problems.notes)
    for one in moves.replacements:
        path = root / one.path
        text = path.read_text(encoding="utf-8")
        if one.old not in text:
            problems.append(f"{one.path} has no {one.old!r}")
        path.write_text(text.replace(one.old, one.new), encoding="utf-8")
    _shape(root, [root / one.path for one in moves.replacements])
    _check_syntax(moves, root, problems)
    problems += _find_missing(moves, root)
    problems += [f"a circle of imports: {one}" for one in find_cycles(root) if one not in before]
    for path in _find_files(root):
        name = path.relative_to(root).as_posix()
        problems.notes += find_undecided(path.read_text(encoding="utf-8"), moved, name)
    if problems:
        told = "\n".join((*problems, "", *problems.notes))
        raise MoveError(f"the tree is changed, and these are left:\n{told}")
    return problems.notes


def _read_sources(moves: MoveMap, root: Path, problems: Problems) -> dict[str, str]:
    texts = {}
    for target in moves.targets:
        path = root / path_of(target.name)
        if path.exists() and target.name not in target.sources:
            problems.append(f"{target.name} is there, and is not among what becomes of it")
        for old in target.sources:
            found = find_source(root, old)
            if found is None:
                problems.append(f"there is no {old}")
                continue
            if found.with_suffix(".pyi").exists() and old != target.name:
                problems.append(f"{old} has a stub: remove it, and write it again afterwards")
            texts[old] = found.read_text(encoding="utf-8")
        package = path.with_suffix("")
        left = [
            one.stem
            for one in package.glob("*.py")
            if one.stem != "__init__" and f"{target.name}.{one.stem}" not in moves.homes
        ]
        if left and path.name != "__init__.py":
            problems.append(f"the package {target.name} would hide the module: {sorted(left)}")
    return texts


def _rewrite(path: Path, text: str, moves: MoveMap, problems: Problems, root: Path) -> str:
    name = path.relative_to(root).as_posix()
    if path.suffix not in PYTHON:
        return rewrite_text(text, moves, problems, name)
    return rewrite_code(text, moves, problems, name)


def _find_files(root: Path) -> Iterator[Path]:
    """What is in the repository, or will be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in sorted(set(listed.stdout.splitlines())):
        path = root / name
        is_text = path.suffix in (*PYTHON, *TEXTS) or path.name in NAMES
        if is_text and not name.startswith(HISTORY) and path.is_file():
            yield path


def _git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)


def _move(moves: MoveMap, root: Path) -> None:
    """The first old module becomes the new one, so that its history goes on."""
    # By way of other names: a new module may have the name of one that goes elsewhere.
    waiting = []
    for target in moves.targets:
        olds = [find_source(root, one) for one in target.sources]
        new = root / path_of(target.name)
        first = new if new in olds else olds[0]
        assert first is not None
        for old in olds:
            if old is not None and old not in (first, new):
                _git(root, "rm", "--quiet", "--force", str(old))
        if first != new:
            between = new.with_name(new.name + ".moving")
            between.parent.mkdir(parents=True, exist_ok=True)
            _git(root, "mv", str(first), str(between))
            waiting.append((between, new))
    for between, new in waiting:
        _git(root, "mv", str(between), str(new))


def _complete_package(root: Path, folder: Path) -> None:
    """A new folder within a package is a package, too."""
    if folder != root and not (folder / "__init__.py").exists():
        _complete_package(root, folder.parent)
        if (folder.parent / "__init__.py").exists():
            (folder / "__init__.py").touch()


def _hoist(moves: MoveMap, root: Path, notes: list[str]) -> None:
    changed = []
    for rule in moves.hoists:
        for path in _find_files(root):
            name = ".".join(path.relative_to(root).with_suffix("").parts).removeprefix("src.")
            if path.suffix == ".py" and any(fnmatchcase(name, one) for one in rule.modules):
                text = path.read_text(encoding="utf-8")
                path.write_text(hoist(name, text, rule, notes), encoding="utf-8")
                changed.append(path)
    _shape(root, changed)


def _remove_empty(moves: MoveMap, root: Path, notes: list[str]) -> None:
    """Packages that have nothing but a docstring left."""
    folders = {(root / path_of(old)).parent for one in moves.targets for old in one.sources}
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        left = [one for one in folder.rglob("*") if one.is_file() and one.suffix != ".pyc"]
        if not folder.is_dir() or [one.name for one in left] not in ([], ["__init__.py"]):
            continue
        if left:
            tree = ast.parse(left[0].read_text(encoding="utf-8"))
            if len(tree.body) > bool(ast.get_docstring(tree)):
                notes.append(f"{left[0].relative_to(root)} has code, and stays")
                continue
            _git(root, "rm", "--quiet", "--force", str(left[0]))
        shutil.rmtree(folder, ignore_errors=True)


def _shape(root: Path, paths: Iterable[Path]) -> None:
    names = sorted(str(one) for one in paths if one.suffix in PYTHON)
    if not names:
        return
    for words in (
        ("check", "--quiet", "--fix", "--select", "I,F401"),
        ("format", "--quiet"),
    ):
        subprocess.run([sys.executable, "-m", "ruff", *words, *names], cwd=root, check=False)


def _check_syntax(moves: MoveMap, root: Path, problems: Problems) -> None:
    for target in moves.targets:
        path = root / path_of(target.name)
        try:
            ast.parse(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            problems.append(f"{target.name} is no Python any more: {error}")


def _find_missing(moves: MoveMap, root: Path) -> Iterator[str]:
    """What is imported of the new modules, and is not there."""
    names = {}
    for target in moves.targets:
        if not target.name.endswith(".py"):
            tree = ast.parse((root / path_of(target.name)).read_text(encoding="utf-8"))
            names[target.name] = {*find_bound(tree.body), "__doc__", "*"}
    for path in _find_files(root):
        if path.suffix not in PYTHON:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module in names:
                for alias in node.names:
                    submodule = find_source(root, f"{node.module}.{alias.name}")
                    if alias.name not in names[node.module] and submodule is None:
                        where = f"{path.relative_to(root)}:{node.lineno}"
                        yield f"{where} imports {alias.name}, which {node.module} does not have"


def find_cycles(root: Path) -> list[str]:
    """Modules that import each other at their top."""
    modules = {
        ".".join(path.relative_to(root / "src").with_suffix("").parts).removesuffix(".__init__")
        for path in (root / "src").rglob("*.py")
    }
    graph = {
        one: set(_find_imported(root, one, modules)) - {one}
        for one in modules
        if not one.startswith("moldau.wire.messages")
    }
    found = []
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = error.args[1]
            found.append(" - ".join(sorted(set(circle))))
            graph[circle[1]].discard(circle[0])
        else:
            return sorted(set(found))


def _find_imported(root: Path, module: str, modules: set[str]) -> Iterator[str]:
    path = find_source(root, module)
    if path is None:
        return
    for node in _at_top(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield from (
                    one
                    for one in (whole, node.module)[: 1 if whole in modules else 2]
                    if one in modules
                )


def _at_top(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, Import):
            yield node
        elif isinstance(node, ast.If | ast.Try) and not is_type_checking(node):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                yield from _at_top(node.orelse)
            else:
                yield from _at_top(
                    one for one in ast.iter_child_nodes(node) if isinstance(one, ast.stmt)
                )


def main(arguments: list[str]) -> None:
    names = [one for one in arguments if one != "--dry"]
    if len(names) != 1:
        sys.exit(__doc__)
    try:
        notes = apply(
            read_map(Path(names[0]).read_text(encoding="utf-8")), ROOT, dry="--dry" in arguments
        )
    except MoveError as error:
        sys.exit(str(error))
    for one in notes:
        sys.stdout.write(f"look at: {one}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
