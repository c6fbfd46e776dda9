"""Consume, transform, produce on three brokers, with each Python client, whoever is killed.

Two workers of each client copy a topic of their own, all at the same time. Workers and brokers are
killed without warning, and workers are frozen while another one takes their place. `make
exactly-once` does it for longer. Java's client and Kafka Streams: `tests/interop`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from support.cluster_processes import ClusterProcesses, cluster
from support.transform_story import TransformStory, befall, python_worker
from support.transform_worker import CLIENTS
from support.zookeeper import zookeeper_ensemble

__all__ = ("cluster", "zookeeper_ensemble")  # fixtures

ROUNDS = int(os.environ.get("MOLDAU_EXACTLY_ONCE_ROUNDS", "1"))


@pytest.mark.timeout(300 + 300 * ROUNDS)
def test_the_output_is_exactly_the_input_whoever_is_killed(
    cluster: ClusterProcesses, folder: Path
) -> None:
    with contextlib.ExitStack() as stack:
        stories = [
            stack.enter_context(TransformStory(cluster, name, python_worker(name), folder))
            for name in CLIENTS
        ]
        for story in stories:
            story.start()
        befall(cluster, stories, ROUNDS)
        for story in stories:
            story.end()
            story.require_exactly_once()
            assert story.aborted_count() > 0, f"{story.name} has aborted nothing"
