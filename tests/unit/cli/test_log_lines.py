"""A broker's log: one readable line an event, quiet by default."""

import logging

import pytest

from moldau.cli.log_lines import LineFormatter, set_up_logging


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
