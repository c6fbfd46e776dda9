"""Every story in `tests/scenarios/groups` and `tests/scenarios/transactions` comes out as it is
written.

A story is text: a title, then scenes of commands, a line of dashes, and what comes of them. Set
MOLDAU_REWRITE_STORIES=1 to write down what comes out now; read the difference before you keep it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from group_stage import Stage
from transaction_stage import TransactionStage

FOLDER = Path(__file__).parent
STORIES = sorted((*FOLDER.glob("groups/*.txt"), *FOLDER.glob("transactions/*.txt")))
RULE = "----"


def scenes(text: str) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Comments, commands and outcome of each scene."""
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        middle = rest.index(RULE) if RULE in rest else len(rest)
        yield comments, rest[:middle], rest[middle + 1 :]


def play(text: str, stage: Stage | TransactionStage) -> str:
    blocks = []
    for comments, commands, _ in scenes(text):
        said = [line for command in commands for line in stage.play(command)]
        blocks.append("\n".join([*comments, *commands, *([RULE, *said] if commands else [])]))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_comes_out_as_it_is_written(path: Path) -> None:
    text = path.read_text()
    played = play(text, Stage() if path.parent.name == "groups" else TransactionStage())
    if os.environ.get("MOLDAU_REWRITE_STORIES"):
        path.write_text(played)
    assert played == text


def test_there_are_stories() -> None:
    assert len(STORIES) > 10
