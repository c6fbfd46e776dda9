"""Makes mutants of the rules by machine, and counts those that no unit test notices.

python -m mutants generated [PACKAGE ...] [--every N | --sample N [--seed S]] [--jobs J]

For each package one process collects the unit tests of the package and those that import its
rules. They run once with functions that report their statements, so that it is known which test
runs what, and once more in another order. Then the process forks for each mutant: the child
replaces the code of one function, runs the tests that run the changed statement, the quickest
first, and stops at the first that fails.

A mutant that no test notices has survived. `survivors.toml` lists those that are known, each with
the reason. A package may have five survivors in a hundred mutants, known or not.
"""

from __future__ import annotations

import argparse
import ast
import gc
import itertools
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import Phase, settings

from mutants.operators import Change, find_changes

TESTS = Path(__file__).resolve().parent.parent
SOURCES = TESTS.parent / "src" / "moldau"
SURVIVORS = Path(__file__).with_name("survivors.toml")

PACKAGES = (
    "replication",
    "cluster",
    "storage",
    "coordinators.groups",
    "coordinators.transactions",
    "coordinators.shares",
    "security",
)
CHECKS = ("invariants.py",)
"""Modules that find what cannot be while the rules are right."""
MOST_SURVIVORS = 0.05
"""Of the mutants of a package."""
MOST_EXAMPLES = 25
"""That hypothesis makes for a test; always the same ones."""
MOST_SECONDS = 10.0
"""Of tests for one mutant. The quickest run first; the others count as if they did not notice."""
HANG_SECONDS = 30.0
"""That a mutant may wait; and 20 times what its tests compute without it, for a busy machine."""
MOST_MEMORY = 2 << 30
"""That a mutant may take in addition."""


class End(IntEnum):
    """How a child ends that tried a mutant; all others ends are those of one that was caught."""

    SURVIVED = 0
    CAUGHT = 1
    UNFIT = 3
    """The function cannot be replaced, for it has other variables of an outer function now."""


class Key(NamedTuple):
    """What a mutant is, without the place in the file."""

    module: str
    function: str
    replace: str
    by: str

    def describe(self) -> str:
        return f"{self.module} {self.function}\n    - {_indented(self.replace)}\n" + (
            f"    + {_indented(self.by)}" if self.by else "    (deleted)"
        )


def _indented(text: str) -> str:
    return text.replace("\n", "\n      ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A mutant: a change and the module it is in."""

    module: str
    path: Path
    tree: ast.Module
    change: Change

    @property
    def key(self) -> Key:
        change = self.change
        return Key(self.module, change.function, change.replace, change.by)


@dataclass(slots=True, kw_only=True)
class Count:
    """What became of the mutants of a package."""

    package: str
    mutants: int = 0
    caught: int = 0
    survivors: list[Key] = field(default_factory=list)
    unreached: list[Key] = field(default_factory=list)
    """Survivors that no test runs at all."""
    unfit: int = 0
    """That could not be tried, and count as no mutants."""
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def survived(self) -> int:
        return len(self.survivors) + len(self.unreached)

    def is_good(self) -> bool:
        return not self.faults and self.survived <= MOST_SURVIVORS * self.mutants

    def describe(self, known: Mapping[Key, str]) -> str:
        explained = sum(key in known for key in [*self.survivors, *self.unreached])
        percent = 100 * self.survived / max(1, self.mutants)
        return (
            f"{self.package:12s}  {self.mutants:5d} mutants  {self.survived:4d} survive "
            f"({percent:4.1f} %)  {explained:4d} with a reason  "
            f"{len(self.unreached):3d} in lines that no test runs  "
            f"{self.unfit:3d} unfit  {self.seconds:4.0f} s"
        )


def read_survivors(path: Path = SURVIVORS) -> dict[Key, str]:
    """Known survivors, and why nobody notices them."""
    known = {}
    for row in tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", ()):
        key = Key(row["module"], row["function"], row["replace"], row.get("by", ""))
        known[key] = row["reason"]
    return known


def find_variants(package: str) -> list[Variant]:
    """All mutants of the rules of a package."""
    found = sorted(SOURCES.joinpath(*package.split("."), "rules").rglob("*.py"))
    return read_variants([path for path in found if path.name not in CHECKS], SOURCES.parent)


def read_variants(paths: Iterable[Path], root: Path) -> list[Variant]:
    found = []
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        for change in find_changes(tree):
            found.append(Variant(module=module, path=path, tree=tree, change=change))
    return found


def find_test_folder(package: str) -> Path:
    return TESTS.joinpath("unit", *package.split("."))


def find_test_files(package: str) -> list[Path]:
    """The unit tests of a package, those elsewhere that import its rules, and the stories that a
    stage plays which imports them."""
    own, rules = find_test_folder(package), f"moldau.{package}.rules"
    found = [
        path
        for path in sorted((TESTS / "unit").rglob("test_*.py"))
        if path.is_relative_to(own) or _imports(path, rules)
    ]
    for stage in sorted((TESTS / "scenarios").glob("*_stage.py")):
        if _imports(stage, rules):
            found.append(stage.with_name(f"test_{stage.stem.removesuffix('_stage')}_stories.py"))
    return found


def _imports(path: Path, wanted: str) -> bool:
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if wanted in text else ():
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        if any(name == wanted or name.startswith(f"{wanted}.") for name in names):
            return True
    return False


# Tests that run, and what they run


class Run(NamedTuple):
    """A test that passes: its place, how long it takes, and the lines it runs in each file."""

    number: int
    seconds: float
    lines: Mapping[str, frozenset[int]]


_Work = TypeVar("_Work")
_Place = tuple[str, str, int]
"""File, qualified name and first line of a function."""


_RAN = "__ran__"
"""The global name of what instrumented functions report to."""


class _Trace:
    """The statements of some files that run. Only functions of these files get slower."""

    def __init__(self, functions: Mapping[_Place, Sequence[FunctionType]]) -> None:
        self.lines: dict[str, set[int]] = {path: set() for path, _, _ in functions}
        for path, ran in self.lines.items():
            codes = {(code.co_qualname, code.co_firstlineno): code for code in _reporting(path)}
            for (of, name, line), found in functions.items():
                if of == path and (name, line) in codes:
                    for function in found:
                        function.__globals__[_RAN] = ran
                        function.__code__ = codes[name, line]

    def begin(self) -> None:
        for lines in self.lines.values():
            lines.clear()

    def end(self) -> dict[str, frozenset[int]]:
        return {path: frozenset(lines) for path, lines in self.lines.items() if lines}


def _reporting(path: str) -> Iterator[CodeType]:
    """All functions of a file, of which each statement first reports its line."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, _FUNCTION))
    blocks = {id(block): block for function in functions for block in _blocks_in(function)}
    for block in blocks.values():
        block[:] = itertools.chain.from_iterable((_note_of(node), node) for node in block)
    return _all_codes(compile(tree, path, "exec", dont_inherit=True))


_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def _blocks_in(function: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value


def _note_of(node: ast.stmt) -> ast.stmt:
    (report,) = ast.parse(f"{_RAN}.add({node.lineno})").body
    for each in ast.walk(report):
        ast.copy_location(each, node)
    return report


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _all_codes(each)


class Hunt:
    """A plugin of pytest: instead of the tests it runs the mutants."""

    def __init__(
        self,
        variants: Sequence[Variant],
        jobs: int,
        folder: Path,
        tell: Callable[[str, Key], None],
    ) -> None:
        self._variants = variants
        self._tell = tell
        self._jobs = jobs
        self._folder = folder
        self._has_failed = False
        self._items: Sequence[pytest.Item] = ()
        self._runs: list[Run] = []
        self._functions: dict[_Place, list[FunctionType]] = {}
        self.count = Count(package="")

    def pytest_configure(self) -> None:
        settings.register_profile(
            "mutants",
            settings.get_profile("moldau"),
            max_examples=MOST_EXAMPLES,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
        )
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed = self._has_failed or report.failed

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.count.faults.append(f"cannot be collected: {report.nodeid}")

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            test = getattr(item, "obj", None)
            _bound_examples(getattr(test, "__func__", test), "_hypothesis_internal_use_settings")
            _bound_examples(getattr(item, "cls", None), "settings")  # of a state machine

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        began = time.monotonic()
        self._items = session.items
        self._functions = _find_functions({str(variant.path) for variant in self._variants})
        traced = self._run_unbroken(_split_by_file(self._items, self._jobs), self._trace)
        chunks = [traced[number :: self._jobs] for number in range(self._jobs)]
        repeated = self._run_unbroken(chunks, self._repeat)
        self._runs = sorted(repeated, key=lambda run: run.seconds)
        self._try_all()
        self.count.seconds = time.monotonic() - began
        return True

    def _run_unbroken(
        self, chunks: Sequence[Sequence[_Work]], work: Callable[[Sequence[_Work]], Iterator[Run]]
    ) -> list[Run]:
        """In children: this process has run no test when it forks. The quickest first."""
        outputs = [self._folder / f"{work.__name__}-{number}" for number in range(len(chunks))]
        children = []
        for chunk, output in zip(chunks, outputs, strict=True):
            pid = os.fork()
            if pid == 0:
                with _in_child(self._folder / f"{output.name}-files"):
                    output.write_bytes(pickle.dumps(list(work(chunk))))
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
        missing = [output for output in outputs if not output.exists()]
        self.count.faults += [f"a process with unbroken tests ended: {one}" for one in missing]
        runs: list[Run] = []
        for output in outputs:
            if output not in missing:
                runs += pickle.loads(output.read_bytes())
        return sorted(runs, key=lambda run: run.seconds)

    def _trace(self, chunk: Sequence[int]) -> Iterator[Run]:
        """The tests that pass, with what they run."""
        trace = _Trace(self._functions)
        for index, following in _with_next(chunk):
            trace.begin()
            seconds = self._run(index, following)
            lines = trace.end()
            if lines and not self._has_failed:
                yield Run(index, seconds, lines)

    def _repeat(self, chunk: Sequence[Run]) -> Iterator[Run]:
        """Those that pass in another order, too, as that of the mutants is another one."""
        for run, following in _with_next(chunk):
            seconds = self._run(run.number, following and following.number)
            if not self._has_failed:
                yield run._replace(seconds=seconds)

    def _run(self, index: int, following: int | None) -> float:
        """How long it computed; `_has_failed` says how it ended."""
        self._has_failed = False
        item = self._items[index]
        following_item = None if following is None else self._items[following]
        began = time.thread_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following_item)
        return time.thread_time() - began

    def _try_all(self) -> None:
        waiting = iter(self._variants)
        trying: dict[int, tuple[Variant, Path]] = {}
        for number in itertools.count():
            variant = next(waiting, None)
            if variant is not None:
                self.count.mutants += 1
                runs = self._find_runs(variant)
                if not runs:
                    self.count.unreached.append(variant.key)
                    self._tell("no test runs", variant.key)
                    continue
                folder = self._folder / f"mutant-{number}"
                trying[self._fork(variant, runs, folder)] = variant, folder
            if trying and (variant is None or len(trying) >= self._jobs):
                pid, status = os.wait()
                tried, folder = trying.pop(pid)
                shutil.rmtree(folder, ignore_errors=True)
                self._note(tried, status)
            if variant is None and not trying:
                return

    def _note(self, variant: Variant, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        if code == End.SURVIVED:
            self.count.survivors.append(variant.key)
            self._tell("survives", variant.key)
        elif code == End.UNFIT:
            self.count.mutants -= 1
            self.count.unfit += 1
        else:
            self.count.caught += 1

    def _find_runs(self, variant: Variant) -> list[Run]:
        first, last = variant.change.lines
        wanted = range(first, last + 1)
        path = str(variant.path)
        found = [run for run in self._runs if not run.lines.get(path, _NONE).isdisjoint(wanted)]
        before = itertools.accumulate((run.seconds for run in found), initial=0.0)
        return [run for run, begins in zip(found, before, strict=False) if begins < MOST_SECONDS]

    def _fork(self, variant: Variant, runs: Sequence[Run], folder: Path) -> int:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            end = End.CAUGHT
            with _in_child(folder):
                _limit(sum(run.seconds for run in runs))
                end = self._try(variant, runs)
            os._exit(end)
        return pid

    def _try(self, variant: Variant, runs: Sequence[Run]) -> End:
        variant.change.make()
        if not self._put_code(variant):
            return End.UNFIT
        for run, following in _with_next(runs):
            self._run(run.number, following and following.number)
            if self._has_failed:
                return End.CAUGHT
        return End.SURVIVED

    def _put_code(self, variant: Variant) -> bool:
        ast.fix_missing_locations(variant.tree)
        module = compile(variant.tree, str(variant.path), "exec", dont_inherit=True)
        outermost = variant.change.outermost
        line = min([outermost.lineno, *(each.lineno for each in outermost.decorator_list)])
        place = str(variant.path), variant.change.function_to_replace, line
        functions = self._functions.get(place, ())
        codes = [
            code
            for code in _all_codes(module)
            if (code.co_qualname, code.co_firstlineno) == place[1:]
        ]
        if not functions or len(codes) != 1:
            return False
        for function in functions:
            if len(function.__code__.co_freevars) != len(codes[0].co_freevars):
                return False
            function.__code__ = codes[0]
        return True


_NONE: frozenset[int] = frozenset()


def _find_functions(paths: Iterable[str]) -> dict[_Place, list[FunctionType]]:
    """All functions of some files that there are, wherever they are referred to."""
    wanted = set(paths)
    gc.unfreeze()  # conftest.py has hidden them
    found: dict[_Place, list[FunctionType]] = {}
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename in wanted:
            code = each.__code__
            key = code.co_filename, code.co_qualname, code.co_firstlineno
            found.setdefault(key, []).append(each)
    gc.freeze()
    return found


def _bound_examples(owner: object, name: str) -> None:
    present = getattr(owner, name, None)
    if isinstance(present, settings) and present.max_examples > MOST_EXAMPLES:
        setattr(owner, name, settings(present, max_examples=MOST_EXAMPLES))


def _with_next(chunk: Sequence[_Work]) -> Iterator[tuple[_Work, _Work | None]]:
    return zip(chunk, [*chunk[1:], None], strict=True)


def _split_by_file(items: Sequence[pytest.Item], count: int) -> list[list[int]]:
    """Indexes of the tests in so many parts of about the same number."""
    parts: list[list[int]] = [[] for _ in range(count)]
    indexes = range(len(items))
    for _, group in itertools.groupby(indexes, key=lambda index: items[index].path):
        min(parts, key=len).extend(group)
    return [part for part in parts if part]


@contextmanager
def _in_child(folder: Path) -> Iterator[None]:
    """Output goes nowhere, files go to a folder, and no exception leaves."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    folder.mkdir(exist_ok=True)
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
    tempfile.tempdir = str(folder)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nothing, number)
    with suppress(BaseException):
        yield


def _limit(seconds: float) -> None:
    """A mutant that waits or computes for ever, or wants all memory, is ended."""
    watch = threading.Timer(HANG_SECONDS + 20 * seconds, os._exit, (End.CAUGHT,))
    watch.daemon = True
    watch.start()
    most = int(4 + 5 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
    page = resource.getpagesize()
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * page
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_MEMORY, used + MOST_MEMORY))


# The command


def hunt(
    package: str,
    variants: Sequence[Variant],
    test_files: Sequence[Path],
    jobs: int,
    known: Mapping[Key, str] = MappingProxyType({}),
) -> Count:
    """In a process of its own, so that each package begins with a clean one.

    Survivors that are not known are printed at once.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output = folder / "count"
        pid = os.fork()
        if pid == 0:
            try:
                count = _hunt_here(package, variants, test_files, jobs, folder, known)
                output.write_bytes(pickle.dumps(count))
            finally:
                if sys.exception() is not None:
                    traceback.print_exc()
                os._exit(0)
        os.waitpid(pid, 0)
        if not output.exists():
            return Count(package=package, faults=["its process ended"])
        found: Count = pickle.loads(output.read_bytes())
        return found


def _hunt_here(
    package: str,
    variants: Sequence[Variant],
    test_files: Sequence[Path],
    jobs: int,
    folder: Path,
    known: Mapping[Key, str],
) -> Count:
    os.environ["CI"] = "true"
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    report = folder / "pytest"
    out = os.dup(1)

    def tell(heading: str, key: Key) -> None:
        if key not in known:
            os.write(out, f"{heading}: {key.describe()}\n".encode())

    plugin = Hunt(variants, jobs, folder, tell)
    plugin.count.package = package
    with report.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
        code = pytest.main(
            [
                *("-q", "-s", "-p", "no:cacheprovider", "-n", "0", "--no-header"),
                *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
                *("--rootdir", str(TESTS.parent)),
                *map(str, test_files),
            ],
            plugins=[plugin],
        )
    os.dup2(out, 1)
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        text = report.read_text(encoding="utf-8", errors="replace")
        plugin.count.faults.append(f"pytest ends with {code!r}: {text[-2000:]}")
    return plugin.count


def choose(variants: Sequence[Variant], every: int, sample: int, seed: int) -> list[Variant]:
    if sample and sample < len(variants):
        chosen = sorted(random.Random(seed).sample(range(len(variants)), sample))
        return [variants[index] for index in chosen]
    return list(variants[::every])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mutants generated", description=__doc__)
    parser.add_argument("packages", nargs="*", help=f"of {', '.join(PACKAGES)}; all without")
    parser.add_argument("--every", type=int, default=1, help="try one of so many mutants")
    parser.add_argument("--sample", type=int, default=0, help="try so many of each package")
    parser.add_argument("--seed", type=int, default=1, help="which ones the sample has")
    parser.add_argument("--jobs", type=int, default=0, help="processes; 0: one for each core")
    parser.add_argument(
        "--module", default="", help="only mutants of modules with this in the name"
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    return parser


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    jobs = options.jobs or len(os.sched_getaffinity(0))
    known = read_survivors()
    counts = []
    for package in options.packages or PACKAGES:
        found = [each for each in find_variants(package) if options.module in each.module]
        chosen = choose(found, options.every, options.sample, options.seed)
        if options.list:
            _say("\n".join(variant.key.describe() for variant in chosen))
            continue
        count = hunt(package, chosen, find_test_files(package), jobs, known)
        counts.append(count)
        _report(count, known)
    bad = [count.package for count in counts if not count.is_good()]
    if bad:
        _say(f"more than {100 * MOST_SURVIVORS:.0f} % survive, or it failed: {', '.join(bad)}")
    return 1 if bad else 0


def _report(count: Count, known: Mapping[Key, str]) -> None:
    for fault in count.faults:
        _say(f"fault: {fault}")
    _say(count.describe(known))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
