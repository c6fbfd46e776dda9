"""Every story in `tests/scenarios/share_groups` comes out as it is written (see `stories`)."""

from __future__ import annotations

from pathlib import Path

import pytest
from share_stage import ShareStage
from stories import check_story, find_stories

STORIES = find_stories("share_groups")


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_comes_out_as_it_is_written(path: Path) -> None:
    check_story(path, ShareStage())


def test_there_are_stories() -> None:
    assert len(STORIES) >= 4
