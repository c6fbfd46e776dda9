"""What Spark's processes load: the client only where they use it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

_PROGRAM = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({name.rpartition(".")[0] or name for name in sys.modules}))
"""


@pytest.mark.parametrize(
    ("modules", "left_out"),
    [
        (["pyspark_moldau"], ["moldau.config", "moldau.client", "pyarrow"]),
        (["moldau.spark.readers"], ["moldau.client", "moldau.storage"]),
        (["moldau.spark.writer"], ["moldau.client", "moldau.storage", "pyarrow"]),
        (["moldau.spark.fetching", "moldau.spark.exactly_once"], ["moldau.broker", "typer"]),
    ],
)
def test_a_worker_loads_what_it_needs(modules: list[str], left_out: list[str]) -> None:
    command = [sys.executable, "-c", _PROGRAM, *modules]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not set(left_out) & set(ran.stdout.split())
