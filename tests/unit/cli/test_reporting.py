"""How commands speak beside their answers: -v, -q, JSON logs, errors as JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest

from moldau.cli import main
from moldau.cli.main import Command
from moldau.cli.output import note, warn
from moldau.cli.reporting import JsonFormatter, reporting, set_up_logging, warnings_shown
from moldau.errors import UnknownTopicError

NOBODY = "127.0.0.1:1"


def speak() -> None:
    with warnings_shown():
        for level in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger("moldau.client"), level)(level)
    note("a note")
    warn("a warning")


def fail() -> None:
    raise UnknownTopicError("there is no topic 'x'")


def start() -> None:
    set_up_logging("broker 2")
    logging.getLogger("moldau.storage").info("loaded")


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    for variable in ("MOLDAU_LOG", "MOLDAU_LOG_FORMAT"):
        monkeypatch.delenv(variable, raising=False)
    for command in (speak, fail, start):
        name = command.__name__
        monkeypatch.setitem(main.COMMANDS, name, Command(f"{__name__}:{name}"))

    def run(*words: str, code: int = 0) -> str:
        assert main.run(words) == code
        return capsys.readouterr().err

    root, handlers, level = logging.getLogger(), logging.getLogger().handlers[:], logging.root.level
    yield run
    root.handlers[:] = handlers
    root.setLevel(level)
    reporting.read_form_of_errors(())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["speak"], "moldau: warning|moldau: error|a note|moldau: a warning"),
        (["speak", "-v"], "moldau: info|moldau: warning|moldau: error|a note|moldau: a warning"),
        (["-q", "speak"], "moldau: error|moldau: a warning"),
        (["speak", "--log-level", "ERROR"], "moldau: error|moldau: a warning"),
        (["-vv", "speak", "-q"], "moldau: error|moldau: a warning"),
    ],
)
def test_options_before_or_behind_the_command_say_how_much(
    run: Callable[..., str], words: list[str], said: str
) -> None:
    assert run(*words).splitlines() == said.split("|")


def test_all_is_said_where_all_is_asked_for(run: Callable[..., str]) -> None:
    assert run("speak", "-vv").splitlines()[0] == "moldau: debug"


def test_the_environment_counts_where_the_command_line_is_silent(
    run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOLDAU_LOG", "error")
    assert run("speak").splitlines() == ["moldau: error", "moldau: a warning"]
    assert "moldau: info" in run("speak", "-v")


def test_a_log_in_json_has_dates_and_one_object_a_line(run: Callable[..., str]) -> None:
    lines = [json.loads(line) for line in run("speak", "--log-format", "json").splitlines()]
    assert [one["level"] for one in lines] == ["warning", "error", "info", "warning"]
    assert all(len(one["time"]) == len("2026-11-16T03:24:09.120Z") for one in lines)
    assert lines[0]["logger"] == "moldau.client"
    assert lines[-1]["message"] == "a warning"


def test_a_broker_logs_in_json_with_its_name(run: Callable[..., str]) -> None:
    (line,) = run("start", "-v", "--log-format", "json").splitlines()
    found = json.loads(line)
    assert (found["process"], found["message"], found["level"]) == ("broker 2", "loaded", "info")
    assert reporting.repeated() == ["--log-level", "info", "--log-format", "json"]


def test_a_traceback_is_part_of_its_object() -> None:
    try:
        raise ValueError("odd")
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("moldau.x", logging.ERROR, "f.py", 1, "failed", (), info)
    assert json.loads(JsonFormatter().format(record))["exception"].endswith("ValueError: odd")


def test_a_failure_is_a_line_of_the_log_in_json(run: Callable[..., str]) -> None:
    found = json.loads(run("fail", "--log-format", "json", code=1))
    assert found["level"] == "error"
    assert found["message"].startswith("there is no topic 'x'; ")


@pytest.mark.parametrize("option", ["--log-level", "--log-format"])
def test_a_word_that_means_nothing_is_refused(run: Callable[..., str], option: str) -> None:
    assert "'loud' is none of" in run("speak", option, "loud", code=2)


# Errors for machines


def error_of(text: str) -> dict[str, object]:
    (line,) = text.splitlines()
    document = json.loads(line)
    assert document.keys() == {"error"}
    assert document["error"].keys() == {"type", "code", "message", "remedy"}
    return dict(document["error"])


def test_a_failure_is_an_object_where_the_answer_would_be_one(run: Callable[..., str]) -> None:
    found = error_of(run("topics", "list", "--json", "--bootstrap", NOBODY, code=1))
    assert found["type"] == "ClusterUnreachableError"
    assert found["code"] is None
    assert str(found["remedy"]).startswith("start one")


@pytest.mark.parametrize(
    "words",
    [
        ("topics", "create", "--json"),
        ("topics", "list", "--json", "--nonsense"),
        ("topics", "create", "x", "--json", "--config", "nonsense"),
        ("topics", "lst", "--json"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_an_object_too(run: Callable[..., str], words: tuple[str, ...]) -> None:
    found = error_of(run(*words, code=2))
    assert found["type"] == "UsageError"
    assert "moldau topics" in str(found["remedy"])


def test_what_comes_behind_two_dashes_is_no_option(run: Callable[..., str]) -> None:
    assert run("topics", "create", "--bootstrap", NOBODY, "--", "--json", code=1).startswith(
        "moldau: "
    )


def test_kafka_s_name_of_an_error_is_in_it(
    run: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    from moldau.cli.failures import report_error

    reporting.read_form_of_errors(["--json"])
    assert report_error(UnknownTopicError("there is no topic 'x'"))
    assert error_of(capsys.readouterr().err)["code"] == "UNKNOWN_TOPIC_OR_PARTITION"
