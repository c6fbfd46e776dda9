"""What a worker of Spark has imported costs the garbage collector nothing after the first task."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from moldau.spark import worker


@pytest.fixture(autouse=True)
def nothing_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker, "_is_frozen", False)
    former = gc.get_threshold()
    yield
    gc.set_threshold(*former)
    gc.unfreeze()


def test_a_worker_that_is_used_again_leaves_its_modules_to_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    worker.freeze_once()
    frozen = gc.get_freeze_count()
    assert frozen > len(gc.get_objects())
    worker.freeze_once()  # not what later tasks have made
    assert gc.get_freeze_count() <= frozen


def test_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    worker.freeze_once()
    assert gc.get_freeze_count() == 0
