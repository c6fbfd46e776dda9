"""Whatever tests, benchmarks, examples and pages import of Moldau is there.

A name that moved while a test elsewhere was written is noticed here at once, not when that test is
run, if it is: some need Java, Spark or a browser.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.pages import blocks_of
from support.source_names import ROOT, find_missing, find_missing_in_text

FOLDERS = ("tests", "bench", "examples")  # mypy looks at the source
PAGES = sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))

MEANT = {
    ("tests/unit/client/test_producer_blocking.py", "moldau.nonsense"),
}
"""Asked for because it is not there."""

SAMPLES = {
    Path(__file__),
    *map(ROOT.joinpath, ("tests/unit/test_census.py", "tests/unit/test_moves.py")),
}
"""Tests with small trees in them, whose modules have names of their own."""


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_name_that_is_imported_or_asked_of_a_module_is_there(folder: str) -> None:
    missing = [
        f"{name}:{one.line}: {one.name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path not in SAMPLES
        for name in [path.relative_to(ROOT).as_posix()]
        for one in find_missing(path.read_text(encoding="utf-8"))
        if (name, one.name) not in MEANT
    ]
    assert not missing


def test_every_name_that_a_page_imports_is_there() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {one.name}"
        for page in PAGES
        for block in blocks_of(page.read_text(encoding="utf-8"))
        if block.language == "python"
        for one in missing_in_block(block.text)
    ]
    assert not missing


def missing_in_block(text: str) -> list[tuple[int, str]]:
    try:
        return [*find_missing(text)]
    except SyntaxError:  # with an ellipsis where the reader knows what comes
        return [*find_missing_in_text(text)]


PROGRAMS = {
    "import moldau.no_such_room": "moldau.no_such_room",
    "from moldau.no_such_room import Thing": "moldau.no_such_room.Thing",
    "from moldau.testing import brokers": "moldau.testing.brokers",
    "import moldau\nmoldau.Produser": "moldau.Produser",
    "import moldau\nmoldau.testing.brokers()": "moldau.testing.brokers",
    "from moldau.storage import log\nlog.NoSuchLog(1)": "moldau.storage.log.NoSuchLog",
    "from moldau.storage import log as it\nx.setattr(it, 'NO', 1)": "moldau.storage.log.NO",
    "PROGRAM = 'from moldau.model import TopicPartition, Nothing'": "moldau.model.Nothing",
    "def f():\n    from support.waiting import forever": "support.waiting.forever",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_not_there_is_found(program: str) -> None:
    assert [one.name for one in find_missing(program)] == [PROGRAMS[program]]


@pytest.mark.parametrize(
    "program",
    [
        "import moldau\nmoldau.Producer, moldau.testing.broker, moldau.errors.KafkaError",
        "import moldau\ndef f(moldau):\n    moldau.anything",
        "from moldau.model import TopicPartition\nTopicPartition.anything",
        "from moldau.records import _codec_native",
        "from elsewhere import anything\nanything.at.all",
    ],
)
def test_what_is_there_is_not_found(program: str) -> None:
    assert find_missing(program.replace("", "")) == []
