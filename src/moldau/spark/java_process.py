"""The Java of a Spark that starts, so that whoever does not want it any more can end it. A shell.

PySpark hands its process out when it answers, which takes many seconds on a busy machine.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

_started: list[subprocess.Popen[bytes]] = []
_starting: list[None] = []  # one entry for each session that is being made


@contextlib.contextmanager
def java_starting(environment: Mapping[str, str]) -> Iterator[None]:
    """While a session is made: remembers the Java that is started for it.

    The Java process gets these environment variables in addition to those of this process.
    """
    java_gateway: Any = importlib.import_module("pyspark.java_gateway")
    start = java_gateway.Popen

    def start_and_remember(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
        options["env"] = {**(options.get("env") or os.environ), **environment}
        process: subprocess.Popen[bytes] = start(*arguments, **options)
        _started.append(process)
        return process

    java_gateway.Popen = start_and_remember
    _starting.append(None)
    try:
        yield
    finally:
        _starting.pop()
        java_gateway.Popen = start


def is_java_starting() -> bool:
    """Whether a session is being made, in any thread."""
    return bool(_starting)


def end_java(seconds: float) -> None:
    """End what was started: it has so long to clear up after itself, then it is killed."""
    for process in _started:
        process.terminate() if seconds else process.kill()
    for process in _started:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
