"""Kafka's own client and Kafka Streams, consume, transform, produce, on three brokers, whoever is
killed: as `tests/system/test_cluster_exactly_once.py` has it for Python's clients."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.cluster_processes import cluster_processes
from support.kafka_jars import JarsUnavailableError, require_class_path
from support.transform_story import Command, TransformStory, befall
from support.zookeeper import Zookeeper, zookeeper_ensemble

__all__ = ("zookeeper_ensemble",)  # fixtures

JAVA = Path(__file__).parent / "java"
PROGRAMS = {"Kafka's client": "TransformWorker", "Kafka Streams": "TransformStreams"}
ROUNDS = int(os.environ.get("MOLDAU_EXACTLY_ONCE_ROUNDS", "1"))


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka's jars and the programs, or a skip with the reason."""
    folder = tmp_path_factory.mktemp("java")
    try:
        jars = require_class_path()
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    sources = [str(JAVA / f"{name}.java") for name in PROGRAMS.values()]
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), *sources], check=True, timeout=300)
    return f"{folder}:{jars}"


def java_worker(class_path: str, program: str, folder: Path) -> Command:
    def command(
        bootstrap: str, source: str, target: str, group: str, number: int, life: int
    ) -> Sequence[str]:
        quick = ("-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        words = (bootstrap, source, target, group, str(number), str(life), str(folder / program))
        return ["java", *quick, "-cp", class_path, program, *words]

    return command


@pytest.mark.timeout(600 + 300 * ROUNDS)
def test_the_output_is_exactly_the_input_whoever_is_killed(
    class_path: str, tmp_path: Path, zookeeper_ensemble: Zookeeper
) -> None:
    connect = zookeeper_ensemble.fresh_connect()
    with cluster_processes(tmp_path, connect) as cluster, contextlib.ExitStack() as stack:
        stories = [
            stack.enter_context(
                TransformStory(cluster, name, java_worker(class_path, program, tmp_path), tmp_path)
            )
            for name, program in PROGRAMS.items()
        ]
        for story in stories:
            story.start()
        befall(cluster, stories, ROUNDS)
        for story in stories:
            story.end()
            story.require_exactly_once()
            has_changed_its_mind = PROGRAMS[story.name] == "TransformWorker"
            assert story.aborted_count() > 0 or not has_changed_its_mind
