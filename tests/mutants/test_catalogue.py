"""The catalogue fits the code: every edit finds its place, and every name its thing."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.simulation.fault_plan import FaultKind
from mutants import stories
from mutants.catalogue import MUTANTS
from mutants.mutant import Mutant, Seeds
from mutants.places import edited_tree
from mutants.trial import TESTS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_edit_finds_its_place(mutant: Mutant) -> None:
    for module in {edit.module for edit in mutant.edits}:
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin).read_text(encoding="utf-8")
        edited = edited_tree(source, [edit for edit in mutant.edits if edit.module == module])
        assert ast.dump(edited) != ast.dump(ast.parse(source))
        compile(edited, spec.origin, "exec")


def test_what_the_study_of_counting_takes_out_is_there() -> None:
    """Edits of the same kind (`bench/uncounted_broker.py`), which have to follow the code, too."""
    path = TESTS.parent / "bench" / "uncounted_broker.py"
    spec = importlib.util.spec_from_file_location("uncounted_broker", path)
    assert spec is not None
    assert spec.loader is not None
    study = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(study)
    for module in study.EDITS:
        found = importlib.util.find_spec(module)
        assert found is not None
        assert found.origin is not None
        source = Path(found.origin).read_text(encoding="utf-8")
        compile(study.edit_source(module, source), found.origin, "exec")


def test_names_are_different() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)


def seeds_of_all() -> Iterator[Seeds]:
    return (mutant.seeds for mutant in MUTANTS if mutant.seeds is not None)


def test_kinds_stories_tests_and_partners_are_there() -> None:
    assert {kind for seeds in seeds_of_all() for kind in seeds.kinds} <= set(FaultKind.__members__)
    assert all(hasattr(stories, seeds.story) for seeds in seeds_of_all() if seeds.story)
    for mutant in MUTANTS:
        assert all((TESTS / node.partition("::")[0]).exists() for node in mutant.tests), mutant.name
        assert mutant.caught_with in {"", *(other.name for other in MUTANTS)}


def test_every_mutant_has_one_verdict() -> None:
    for mutant in MUTANTS:
        is_caught = bool(mutant.tests) or (mutant.seeds is not None and not mutant.redundant)
        assert is_caught != bool(mutant.redundant), mutant.name
