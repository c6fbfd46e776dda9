"""The stories pass while the rules are kept."""

from __future__ import annotations

import inspect

import pytest

from moldau.simulation.cluster import SimulatedCluster, Story
from mutants import stories

STORIES = [
    story
    for story in vars(stories).values()
    if inspect.iscoroutinefunction(story)
    and list(inspect.signature(story).parameters) == ["cluster"]
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_story_passes_while_the_rules_are_kept(story: Story) -> None:
    for seed in range(1, 4):
        SimulatedCluster(seed=seed, brokers=3).run(story).require_success()
