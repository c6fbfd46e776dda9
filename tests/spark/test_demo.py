"""`make demo`: ends at its first failure, with a message and a status that make understands."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from moldau.spark.pipeline.run import PipelineFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEMO = Path(__file__).parents[2] / "examples/demo.py"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location("moldau_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "moldau_demo", module)
    spec.loader.exec_module(module)
    return module


def test_a_demo_without_java_says_so_and_fails() -> None:
    ended = subprocess.run(
        [sys.executable, str(DEMO)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAVA_HOME": "/nowhere"},
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        "make demo: no Java was found in JAVA_HOME, /nowhere. Spark needs Java 17 or newer"
    )
    assert "Traceback" not in ended.stderr


def test_a_demo_ends_when_one_of_its_pipelines_fails(
    demo: ModuleType,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The other one would go on for minutes: it is told to stop."""

    def run(pipeline: object, options: object, **given: object) -> None:
        if getattr(pipeline, "name", "") == "clicks-per-minute":
            raise PipelineFailedError("feed failed: the river is dry")
        given["stop"].wait()  # type: ignore[attr-defined]

    monkeypatch.setattr(demo, "run_pipeline", run)
    monkeypatch.setattr(demo, "open_session", lambda *_: spark)
    monkeypatch.setattr(demo, "stop_quietly", lambda _: None)
    with pytest.raises(SystemExit) as ended:
        demo.main()
    assert ended.value.code == 1
    said = capsys.readouterr()
    assert said.err == "make demo: clicks-per-minute: feed failed: the river is dry\n"
    assert "everything has arrived" not in said.out
