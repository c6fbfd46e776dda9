"""The words of `moldau start` are read with and without Typer, to the same end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli import main, start_run
from moldau.cli.exit_codes import WRONG_USAGE
from moldau.cli.plain_start import (
    BROKER_ID,
    CONFIG,
    DATA_DIR,
    FLAGS,
    SET,
    TEXTS,
    read_plain_start,
)

HERE = str(Path(__file__).parent)
THIS = str(Path(__file__))
ABSENT = str(Path(__file__).with_name("absent"))
LEFT_TO_TYPER = {"--brokers"}
OF_EVERY_COMMAND = {"--verbose", "--quiet", "--log-level", "--log-format", "--help"}


def read_with_typer(words: list[str]) -> dict[str, object] | None:
    """What `run_start` is given; None where Typer stops the command line."""
    given: list[dict[str, object]] = []
    former = start_run.run_start
    start_run.run_start = lambda **arguments: given.append(arguments)  # type: ignore[assignment]
    try:
        code = main.run(words)
    finally:
        start_run.run_start = former
    if not given:
        assert code == WRONG_USAGE
        return None
    (arguments,) = given
    return {name: value for name, value in arguments.items() if value not in (None, False)}


def test_the_table_has_the_options_that_are_declared() -> None:
    declared = {
        one.opts[0]: one
        for one in main.build().commands["start"].params
        if one.opts[0] not in OF_EVERY_COMMAND
    }
    flags = {name for name, one in declared.items() if getattr(one, "is_flag", False)}
    assert flags == FLAGS.keys()
    assert declared.keys() - flags == {*TEXTS, CONFIG, DATA_DIR, BROKER_ID, SET} | LEFT_TO_TYPER
    for name, parameter in {**FLAGS, **TEXTS}.items():
        assert declared[name].name == parameter
    assert {one for one, option in declared.items() if option.envvar} == set()


PLAIN = [
    ["start"],
    ["start", "--listen", "127.0.0.1:0", "--data-dir", ABSENT],
    ["start", "--data-dir=" + HERE, "--config", THIS, "--broker-id", "07"],
    ["start", "--set", "a=b", "--insecure", "--set", "c=", "--set=d=e=f"],
    ["start", "--no-console", "--adopt-topics", "--zookeeper", "a:1,b:2/c", "--metrics", "9"],
    ["start", "--console", "127.0.0.1:1"],
]


@pytest.mark.parametrize("words", PLAIN)
def test_plain_words_are_read_as_typer_reads_them(words: list[str]) -> None:
    found = read_plain_start(words)
    assert found is not None
    assert found == read_with_typer(words)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        ["topics", "list"],
        ["start", "--help"],
        ["start", "-v"],
        ["-q", "start"],
        ["start", "extra"],
        ["start", "--"],
        ["start", "--port", "1"],
        ["start", "--listen"],
        ["start", "--listen", "--insecure"],
        ["start", "--listen="],
        ["start", "--listen", "a:1", "--listen", "a:2"],
        ["start", "--insecure", "--insecure"],
        ["start", "--insecure=yes"],
        ["start", "--broker-id", "-1"],
        ["start", "--broker-id", "one"],
        ["start", "--broker-id", "1" * 30],
        ["start", "--config", ABSENT],
        ["start", "--config", HERE],
        ["start", "--data-dir", THIS],
        ["start", "--console", "a:1", "--no-console"],
        ["start", "--brokers", "2"],
        ["start", "--profile", "x"],
    ],
)
def test_what_is_not_plain_is_left_to_typer(words: list[str]) -> None:
    assert read_plain_start(words) is None


@pytest.mark.parametrize("option", [CONFIG, DATA_DIR])
@pytest.mark.parametrize("name", ["x" * 300, "y" * 5000])
def test_a_path_that_cannot_be_looked_at_is_left_to_typer(option: str, name: str) -> None:
    assert read_plain_start(["start", option, name]) is None


VALUES = st.sampled_from(
    ["", "-", "--", "-1", "1", "007", "0x1", "a=b", "a", ":1", THIS, HERE, ABSENT, "--insecure"]
)
OPTIONS = st.sampled_from([*FLAGS, *TEXTS, CONFIG, DATA_DIR, BROKER_ID, SET, "--brokers", "-v"])
WORDS = st.one_of(
    OPTIONS.map(lambda name: [name]),
    st.tuples(OPTIONS, VALUES).map(list),
    st.tuples(OPTIONS, VALUES).map(lambda both: [f"{both[0]}={both[1]}"]),
)


@given(st.lists(WORDS, max_size=4))
def test_whatever_is_read_without_typer_is_read_the_same_with_it(parts: list[list[str]]) -> None:
    words = ["start", *(word for part in parts for word in part)]
    found = read_plain_start(words)
    if found is not None:
        assert found == read_with_typer(words)


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moldau", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_failure_of_a_plain_start_reads_as_any_other() -> None:
    plain = run_command("start", "--listen", "nonsense")
    typers = run_command("-q", "start", "--listen", "nonsense")
    assert (plain.returncode, plain.stderr) == (typers.returncode, typers.stderr)
    assert plain.returncode == WRONG_USAGE
    assert plain.stderr.startswith("moldau: --listen nonsense is not of the form HOST:PORT")


def test_the_version_is_the_same_with_and_without_typer() -> None:
    plain, typers = run_command("--version"), run_command("-q", "--version")
    assert plain.stdout == typers.stdout != ""
    assert (plain.returncode, plain.stderr) == (typers.returncode, typers.stderr) == (0, "")


def test_the_version_loads_no_typer() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "moldau", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert not {"typer", "asyncio", "dataclasses"} & set(done.stderr.split())
