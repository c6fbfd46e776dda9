"""The page of invariants and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "moldau"
PAGE = (ROOT / "docs" / "invariants.md").read_text()
ENTRY = re.compile(r"^- \*\*([A-Z]+-\d+)\*\* .* \*\((.+)\)\*$", re.MULTILINE)
WATCHERS = dict(ENTRY.findall(PAGE))
FAMILIES = {number.partition("-")[0] for number in WATCHERS}
NUMBER = re.compile(rf"\b(?:{'|'.join(sorted(FAMILIES))})-\d+\b")


def texts(*, simulation: bool) -> dict[Path, str]:
    """Of the product, or of the simulation, which is a part of the package."""
    paths = [path for pattern in ("*.py", "*.pyx") for path in SOURCE.rglob(pattern)]
    return {
        path: path.read_text()
        for path in paths
        if (path.relative_to(SOURCE).parts[0] in ("simulation", "testing")) == simulation
    }


PRODUCT = texts(simulation=False)
SIMULATION = texts(simulation=True)


def test_every_number_says_who_watches_over_it() -> None:
    assert re.findall(r"^- \*\*([A-Z]+-\d+)\*\*", PAGE, re.MULTILINE) == list(WATCHERS)
    assert len(WATCHERS) > 40


@pytest.mark.parametrize("number", WATCHERS)
def test_the_code_that_changes_the_state_cites_the_number(number: str) -> None:
    cited = re.compile(rf"\b{number}\b")
    assert any(cited.search(text) for text in PRODUCT.values())


@pytest.mark.parametrize("number", WATCHERS)
def test_who_is_said_to_watch_does(number: str) -> None:
    for watcher in WATCHERS[number].split(", "):
        if watcher == "raised":
            raising = re.compile(rf'["\']{number}\b')
            assert any(
                raising.search(text) and "InvariantViolation" in text for text in PRODUCT.values()
            )
        elif watcher == "simulated":
            assert any(f'"{number}"' in text for text in SIMULATION.values())
        else:
            path = watcher.strip("`")
            assert (ROOT / path).exists() or (ROOT / "tests" / "unit" / path).exists(), path


def test_every_number_that_is_cited_is_on_the_page() -> None:
    tests = {path: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    cited = {
        (number, str(path.relative_to(ROOT)))
        for path, text in {**PRODUCT, **SIMULATION, **tests}.items()
        for number in NUMBER.findall(text)
    }
    assert {(number, path) for number, path in cited if number not in WATCHERS} == set()
