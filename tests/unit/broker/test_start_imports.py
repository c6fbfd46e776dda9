"""A broker starts without the clients, the console, Spark, the extras, and handlers that few need.

Modules of the broker import what they use at the top. What is left out here is whole programs and
packages of extras: they cost an idle broker tens of megabytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from moldau.broker.handlers import LOADED_AT_START
from moldau.records import codec

START = """
import json, os, signal, sys

class Output:
    def isatty(self):
        return False
    def flush(self):
        pass
    def write(self, text):
        if text.startswith("listening on"):
            sys.__stdout__.write(json.dumps(sorted(sys.modules)))
            os.kill(os.getpid(), signal.SIGTERM)

sys.stdout = Output()
from moldau.cli.entry import main
main()
"""
"""`moldau start`, which tells what it has loaded as soon as it listens."""

OTHER_PROGRAMS = ("client", "console", "ops", "spark", "arrow", "testing", "simulation")


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """What is imported when a broker with default settings answers."""
    folder: Path = tmp_path_factory.mktemp("start")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            START,
            "start",
            "--data-dir",
            str(folder),
            "--listen",
            "127.0.0.1:0",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return frozenset(json.loads(done.stdout))


@pytest.mark.parametrize("program", OTHER_PROGRAMS)
def test_a_start_loads_no_other_program(program: str, modules: frozenset[str]) -> None:
    package = f"moldau.{program}"
    assert not [one for one in modules if one == package or one.startswith(f"{package}.")]


def test_a_start_leaves_out_most_handlers(modules: frozenset[str]) -> None:
    handlers = {one for one in modules if one.startswith("moldau.broker.handlers.")}
    assert handlers >= {f"moldau.broker.handlers.{api.snake_name}" for api in LOADED_AT_START}
    assert len(handlers) < 10


def test_a_start_loads_no_package_of_an_extra(modules: frozenset[str]) -> None:
    assert not modules & {"kazoo", "pyarrow", "pyspark", "rich", "cryptography", "http.server"}


def test_a_start_loads_no_readers_of_messages(modules: frozenset[str]) -> None:
    """The messages that every client sends are read by hand."""
    assert not {one for one in modules if one.startswith(("kio.serial", "kio.index"))}


@pytest.mark.skipif(codec.IMPLEMENTATION == "pure", reason="there is only the twin")
def test_the_codec_in_python_is_not_loaded_beside_the_native_one(modules: frozenset[str]) -> None:
    assert "moldau.records._codec_pure" not in modules
