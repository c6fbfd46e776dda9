"""Giving up work that talks to Java: what Py4J has to say of it helps nobody."""

from __future__ import annotations

import subprocess
import sys

from support.waiting import PATIENCE_SECONDS

_PROGRAM = """
import logging, threading
from moldau.cli.pipeline import run_beside
from moldau.spark import session_factory

stop, ended = threading.Event(), threading.Event()
stop.set()
session_factory.is_java_starting = lambda: True
session_factory.end_java = lambda seconds: ended.set()

def work():
    ended.wait()
    logging.error("Exception while sending command.")  # as Py4J does, by no logger of its own
    logging.getLogger("py4j.clientserver").error("Error while receiving")
    logging.getLogger("moldau.pipeline").error("others are heard")

assert run_beside(work, stop) is None
"""


def test_what_is_logged_of_a_java_that_was_ended_is_not_shown() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert done.stderr.splitlines()[-1].endswith("others are heard")
    assert "while" not in done.stderr
