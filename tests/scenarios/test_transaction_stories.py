"""Every story in `tests/scenarios/transactions` comes out as it is written (see `stories`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from stories import check_story, find_stories
from transaction_stage import TransactionStage

STORIES = find_stories("transactions")


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_comes_out_as_it_is_written(path: Path) -> None:
    check_story(path, TransactionStage())


def test_there_are_stories() -> None:
    assert len(STORIES) >= 4
