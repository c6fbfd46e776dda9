"""Stories as text: how they are read, played and compared.

A story is a title, then scenes of commands, a line of dashes, and what comes of them. A stage plays
one command at a time. Set MOLDAU_REWRITE_STORIES=1 to write down what comes out now; read the
difference before you keep it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

RULE = "----"


class Player(Protocol):
    """A stage on which one story is played."""

    def play(self, line: str) -> list[str]:
        """Run one command; return the lines that it leads to."""
        ...


def find_stories(folder: str) -> list[Path]:
    return sorted((Path(__file__).parent / folder).glob("*.txt"))


def scenes(text: str) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Comments, commands and outcome of each scene."""
    for block in text.strip().split("\n\n"):
        lines = block.splitlines()
        comments = [line for line in lines if line.startswith("#")]
        rest = [line for line in lines if not line.startswith("#")]
        middle = rest.index(RULE) if RULE in rest else len(rest)
        yield comments, rest[:middle], rest[middle + 1 :]


def play(text: str, stage: Player) -> str:
    blocks = []
    for comments, commands, _ in scenes(text):
        said = [line for command in commands for line in stage.play(command)]
        blocks.append("\n".join([*comments, *commands, *([RULE, *said] if commands else [])]))
    return "\n\n".join(blocks) + "\n"


def check_story(path: Path, stage: Player) -> None:
    text = path.read_text()
    played = play(text, stage)
    if os.environ.get("MOLDAU_REWRITE_STORIES"):
        path.write_text(played)
    assert played == text
