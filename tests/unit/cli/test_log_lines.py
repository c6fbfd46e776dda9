"""A broker's log: one readable line an event, quiet by default."""

import contextlib
import logging
import os
from pathlib import Path

import pytest

from moldau.cli.output import note, warn
from moldau.cli.reporting import LineFormatter, set_up_logging, standard_error

FULL_DISK = Path("/dev/full")


@pytest.fixture
def root_logger(monkeypatch):
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def record(message, level=logging.WARNING, exc_info=None):
    return logging.LogRecord("moldau.storage.log", level, "f.py", 1, message, (), exc_info)


def test_a_line_says_when_how_bad_where_and_what():
    line = LineFormatter().format(record("the disk is full"))

    time, level, where, rest = line.split(maxsplit=3)
    assert len(time) == len("03:24:09.120")
    assert (level, where, rest) == ("warning", "storage.log", "the disk is full")


def fill(descriptor):
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(descriptor, bytes(4096))


def test_lines_that_could_not_be_written_are_counted_and_the_next_one_says_so(
    monkeypatch, root_logger
):
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb", buffering=0) as reader:
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setattr(standard_error, "process_name", "")
        root_logger.handlers[:] = []
        set_up_logging("broker 2")
        fill(writing)
        logging.getLogger("moldau.storage.log").warning("lost")
        warn("lost as well")
        while reader.read(1 << 20):
            pass
        warn("written")
        logging.getLogger("moldau.storage.log").warning("written, too")
        missing, written, logged = reader.read(1 << 20).decode().splitlines()
    assert missing == (
        "moldau: broker 2: 2 lines of the log are missing here: standard error could not be "
        "written (Resource temporarily unavailable)"
    )
    assert written == "moldau: written"
    assert logged.endswith("broker 2  storage.log  written, too")


@pytest.mark.skipif(not FULL_DISK.exists(), reason="this system has no /dev/full")
def test_a_remark_on_a_full_disk_ends_nothing(monkeypatch):
    monkeypatch.setattr(standard_error, "_dropped_lines", 0)
    with FULL_DISK.open("w") as full:
        monkeypatch.setattr("sys.stderr", full)
        note("the console needs an extra")
        warn("the console has ended")
    assert standard_error._dropped_lines == 2


def test_a_traceback_follows_indented():
    try:
        raise ValueError("odd")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)

    lines = LineFormatter().format(record("failed", exc_info=info)).splitlines()

    assert lines[0].endswith("failed")
    assert all(line.startswith("    ") for line in lines[1:])
    assert lines[-1].strip() == "ValueError: odd"


@pytest.mark.parametrize(
    ("asked", "level"), [(None, "WARNING"), ("info", "INFO"), ("DEBUG", "DEBUG"), ("x", "WARNING")]
)
def test_the_environment_sets_the_level(asked, level, monkeypatch, root_logger):
    monkeypatch.delenv("MOLDAU_LOG", raising=False)
    if asked is not None:
        monkeypatch.setenv("MOLDAU_LOG", asked)

    set_up_logging()

    assert logging.getLevelName(root_logger.level) == level
