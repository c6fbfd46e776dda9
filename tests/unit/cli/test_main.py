"""The command as a whole: its help, its exit codes, and what it does not import."""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from moldau import __version__
from moldau.cli import main
from moldau.cli.main import Command, LazyCommands, LazyGroup
from moldau.errors import (
    BrokerUnreachableError,
    ClusterUnreachableError,
    InvariantViolation,
    MoldauError,
    SaslAuthenticationError,
    TlsHandshakeError,
    UnknownTopicError,
)
from moldau.quotas import QUOTA_NAMES
from support.command_line import run_process

NOBODY = "127.0.0.1:1"


def all_commands(commands: dict[str, Command | LazyGroup]) -> list[list[str]]:
    found = []
    for name, one in commands.items():
        if isinstance(one, LazyGroup):
            found += [[name, *rest] for rest in all_commands(dict(one.commands))]
        else:
            found.append([name])
    return found


@pytest.mark.parametrize("command", all_commands(main.COMMANDS), ids=" ".join)
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: moldau {' '.join(command)} ")
    assert len(shown.splitlines()[2].strip()) > 10
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search(r"<[a-z]|\{[a-z]+\}", shown), "values are in capitals, FILE, or a|b"
    for name in (
        *QUOTA_NAMES,
        "read_committed",
        "read_uncommitted",
    ):  # Kafka's own names of settings, which people type
        shown = shown.replace(name, "")
    assert not re.search(r"[a-z]_[a-z]", shown), "a name of the code in a text for people"


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (["topics", "describe"], "[NAME...]"),
        (["topics", "delete"], "{NAME...}"),
        (["groups", "describe"], "[GROUP...]"),
        (["log", "dump"], "{FILE...}"),
    ],
)
def test_help_shows_what_can_be_several(
    command: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*command, "--help"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(usage)


def test_help_lists_every_command_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2].splitlines()
    firsts = [line for line in listed if line.strip() and not line.startswith("   ")]
    assert [line.split()[0] for line in firsts] == list(main.COMMANDS)
    assert all(len(line.split()) > 3 for line in firsts)


@pytest.mark.parametrize("group", [[], ["topics"], ["explain"]], ids=" ".join)
def test_lists_of_commands_show_whole_sentences(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*group, "--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:")[2]
    assert "..." not in listed
    summaries = re.split(r"^  (?=\S)", listed, flags=re.MULTILINE)[1:]
    assert all(one.rstrip().endswith(".") for one in summaries)


def test_a_word_that_is_not_utf_8_is_told() -> None:
    from moldau.cli.failures import explain_error

    with pytest.raises(UnicodeEncodeError) as refused:
        "caf\udce9 für".encode()
    assert explain_error(refused.value) == r"'caf\xe9 für' is not text in UTF-8"


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"moldau {__version__}")


def test_a_misspelled_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topcs"]) == 2
    assert "topics" in capsys.readouterr().err


def test_a_word_that_no_command_is_like_is_answered_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run(["tokens", "list"]) == 2
    assert "There are create, describe, renew, expire." in capsys.readouterr().err
    assert main.run(["tokens", "descrbe"]) == 2
    told = capsys.readouterr().err
    assert "Did you mean 'describe'?" in told
    assert "There are" not in told


def test_a_missing_argument_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topics", "create"]) == 2
    assert "NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "list"],
        ["topics", "create", "clicks"],
        ["topics", "describe"],
        ["topics", "alter", "clicks", "--partitions", "3"],
        ["topics", "delete", "clicks"],
        ["configs", "describe", "--topic", "clicks"],
        ["configs", "alter", "--broker", "1", "--set", "a=b"],
        ["groups", "list"],
        ["groups", "describe", "readers", "--members"],
        ["groups", "reset-offsets", "readers", "--all-topics", "--to-latest"],
        ["groups", "delete", "readers"],
        ["produce", "clicks"],
        ["consume", "clicks"],
        ["consume", "clicks", "--group", "readers"],
    ],
    ids=" ".join,
)
def test_no_broker_is_one_message_that_says_what_to_do(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*command, "--bootstrap", NOBODY]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"moldau: no broker answers at {NOBODY} (Connection refused); "
        "start one with `moldau start`, or name another with --bootstrap\n"
    )


def test_bootstrap_may_come_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", "127.0.0.1:2")
    assert main.run(["topics", "list"]) == 1
    assert "127.0.0.1:2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["topics", "create", "x", "--config", "nonsense"], "key=value"),
        (["topics", "create", "x", "--partitions", "0"], "--partitions"),
        (["configs", "describe"], "one of --topic, --broker, --group"),
        (
            ["configs", "describe", "--topic", "x", "--broker", "1"],
            "one of --topic, --broker, --group",
        ),
        (["configs", "describe", "--broker", "one"], "'one' is not a number"),
        (["configs", "alter", "--topic", "x"], "--set or --unset"),
        (["groups", "list", "--state", "asleep"], "'asleep' is none of Empty"),
        (["groups", "reset-offsets", "g", "--to-latest"], "--all-topics"),
        (["groups", "reset-offsets", "g", "--topic", "x"], "choose one of --to-earliest"),
        (["groups", "reset-offsets", "g", "--topic", "x", "--to-offset", "-1"], "--to-offset"),
        (["produce", "x", "--acks", "2"], "--acks"),
        (["produce", "x", "--file", "/does/not/exist"], "--file"),
        (["produce", "x", "--format", "json", "--key-separator", ":"], "for lines of text"),
        (["consume", "x", "--group", "g", "--offset", "5"], "moldau groups reset-offsets"),
        (["consume", "x", "--group", "g", "--partition", "1"], "moldau groups reset-offsets"),
        (["log", "dump", "/does/not/exist.log"], "FILE"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_done(
    command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(command) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            ["groups", "reset-offsets", "g", "--topic", "x", "--by-duration", "soon"],
            "'soon' is no duration",
        ),
        (["groups", "reset-offsets", "g", "--topic", "x:y", "--to-latest"], "'x:y' is no topic"),
        (["consume", "x", "--offset", "soon"], "'soon' is no offset"),
        (["consume", "x", "--timestamp", "soon"], "'soon' is no time"),
        (["consume", "x", "--format", "xml"], "no format 'xml'"),
        (["consume", "x", "--from-beginning", "--offset", "1"], "choose one of"),
    ],
)
def test_wrong_values_are_told_in_a_message(
    command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(command) == 2
    err = capsys.readouterr().err
    assert err.startswith("moldau: ")
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["topics", "list", "--bootstrap", "host:port"], "'host:port' is not an address"),
        (["topics", "list", "--bootstrap", "host 9092"], "'host 9092' is not an address"),
        (["consume", "x", "--bootstrap", "host:99999"], "'host:99999' is not an address"),
        (["console", "--bootstrap", "host:port"], "'host:port' is not an address"),
        (["console", "--listen", "host:port"], "'host:port' is not of the form HOST:PORT"),
        (["start", "--listen", "host:port"], "--listen host:port is not of the form HOST:PORT"),
        (["schemas", "list", "--schema-registry", "host"], "'host' is no address of a registry"),
    ],
)
def test_an_address_that_is_none_is_wrong_usage(
    command: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(command) == 2
    assert words in capsys.readouterr().err


def test_an_address_of_zookeeper_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    done = run_process("start", "--zookeeper", "host:port", cwd=tmp_path)
    assert done.returncode == 2
    assert "'host:port' names no ZooKeeper servers" in done.stderr


def fail_with(error: BaseException) -> None:
    def command() -> None:
        raise error

    main.guarded(command)()


def test_a_failure_becomes_a_message_and_exit_code_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as end:
        fail_with(UnknownTopicError("there is no topic 'x'"))
    assert end.value.exit_code == 1
    assert capsys.readouterr().err.startswith("moldau: there is no topic 'x'; `moldau topics list`")


def test_files_that_cannot_be_read_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end:
        fail_with(PermissionError(13, "Permission denied", "/secret"))
    assert end.value.exit_code == 1
    assert capsys.readouterr().err == "moldau: /secret: Permission denied\n"


def test_ctrl_c_ends_quietly(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end:
        fail_with(KeyboardInterrupt())
    assert end.value.exit_code == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("bug", [KeyError("x"), InvariantViolation("1 is not 2")])
def test_a_bug_keeps_its_traceback(bug: Exception) -> None:
    with pytest.raises(type(bug)):
        fail_with(bug)


def test_a_command_may_choose_its_exit_code() -> None:
    with pytest.raises(typer.Exit) as end:
        fail_with(typer.Exit(7))
    assert end.value.exit_code == 7


def test_a_command_is_imported_when_it_is_looked_up() -> None:
    loaded = LazyCommands({"log": main.COMMANDS["log"]}, main.guarded)
    assert list(loaded) == ["log"]
    assert len(loaded) == 1
    assert loaded["log"].name == "log"
    assert loaded["log"] is loaded["log"]


@pytest.mark.parametrize(
    "commands",
    [
        main.COMMANDS,
        *(one.commands for one in main.COMMANDS.values() if isinstance(one, main.LazyGroup)),
    ],
)
def test_a_list_of_commands_shows_the_help_of_each(
    commands: dict[str, main.Command | main.LazyGroup],
) -> None:
    for name, declared in commands.items():
        listed = LazyCommands(commands, main.guarded).find_listed(name)
        assert listed is not None
        assert listed.short_help == declared.load(name, main.guarded).short_help


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"MOLDAU_BOOTSTRAP": NOBODY, "PYTHONUNBUFFERED": ""},
        check=False,
        timeout=60,
    )


HEAVY = ("rich", "asyncio", "kio", "moldau.client", "moldau.broker", "moldau.records")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    done = python(
        "import sys; from moldau.cli.main import run; "
        f"code = run({arguments!r}); "
        f"print([name for name in sys.modules if name.startswith({HEAVY!r})]); sys.exit(code)"
    )
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "[]"


def test_start_imports_neither_rich_nor_the_client() -> None:
    done = python(
        "import sys; from moldau.cli.main import run; "
        "code = run(['start', '--listen', 'nonsense']); "
        "print([n for n in sys.modules if n.startswith(('rich', 'moldau.client'))])"
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "nonsense" in done.stderr


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    done = python(
        "import os, sys, typer; from moldau.cli.main import guarded\n"
        "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)\n"
        "def command():\n"
        "    sys.stdout.write('x' * 100)\n"
        "try:\n"
        "    guarded(command)()\n"
        "except typer.Exit as end:\n"
        "    sys.exit(end.exit_code)\n"
    )
    assert done.returncode == 141
    assert done.stderr == ""


def test_the_module_runs_as_the_command() -> None:
    done = run_process("topics", "list", "--bootstrap", NOBODY)
    assert done.returncode == 1
    assert done.stderr.startswith("moldau: no broker answers")


def test_the_message_about_an_unreachable_cluster_names_the_remedy() -> None:
    from moldau.cli.failures import explain_error

    message = explain_error(ClusterUnreachableError("no broker answers at x:1"))
    assert message is not None
    assert message.startswith("no broker answers at x:1; start one")
    assert explain_error(ValueError("a bug")) is None


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (SaslAuthenticationError("no"), "the password"),
        (TlsHandshakeError("no"), "ssl.truststore.location"),
    ],
)
def test_who_is_not_let_in_hears_where_to_look(error: MoldauError, named: str) -> None:
    from moldau.cli.failures import explain_error

    assert named in (explain_error(error) or "")


def test_a_broker_that_is_not_in_the_cluster_is_not_mended_by_another_address() -> None:
    from moldau.cli.failures import explain_error

    message = "broker 7 is not in the cluster's metadata"
    assert explain_error(BrokerUnreachableError(message)) == message


def ask() -> None:
    """Ask something."""
    typer.confirm("Well?", abort=True, err=True)


@pytest.mark.parametrize(("answer", "code"), [(KeyboardInterrupt, 130), (EOFError, 1)])
def test_ctrl_c_at_a_question_is_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, answer: type[BaseException], code: int
) -> None:
    def press(prompt: str) -> str:
        raise answer

    monkeypatch.setitem(main.COMMANDS, "ask", Command(f"{__name__}:ask"))
    monkeypatch.setattr("typer._click.termui.visible_prompt_func", press)
    assert main.run(["ask"]) == code


_INTERRUPTED_WHILE_LOADING = """
import signal, sys
class Pressing:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Pressing())
signal.signal(signal.SIGINT, signal.default_int_handler)
from moldau.cli.entry import main
main()
"""


def test_ctrl_c_while_the_command_is_loaded_shows_no_traceback() -> None:
    command = (sys.executable, "-c", _INTERRUPTED_WHILE_LOADING)
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_the_package_itself_loads_no_other_module_of_moldau() -> None:
    """Ctrl-C is handled quietly only after it is imported."""
    done = python(
        "import sys, moldau; print({one for one in sys.modules if one.startswith('moldau')})"
    )
    assert ast.literal_eval(done.stdout) == {"moldau"}


def test_errors_are_there_without_an_import_of_their_own() -> None:
    assert (
        python("import moldau; print(moldau.errors.KafkaError.__name__)").stdout == "KafkaError\n"
    )


_TERMINATED = """
import signal, sys
from moldau.cli import main
def command():
    try:
        signal.raise_signal(signal.SIGTERM)
    finally:
        print("put in order")
main.COMMANDS["start"] = main.Command("__main__:command")
sys.exit(main.run(["start"]))
"""


@pytest.mark.parametrize("handler", ["default_int_handler", "SIG_IGN"])
def test_sigterm_ends_a_command_in_good_order(handler: str) -> None:
    """Also one that was started in the background, to which Ctrl-C means nothing."""
    code = f"import signal; signal.signal(signal.SIGINT, signal.{handler})" + _TERMINATED
    command = (sys.executable, "-c", code)
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (143, b"put in order\n", b"")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["start", "--port", "9093"], "--listen HOST:PORT"),
        (["start", "--host", "0.0.0.0"], "--listen HOST:PORT"),
        (["consume", "--topic", "clicks"], "TOPIC... stands alone, without an option"),
        (["topics", "create", "--topic", "clicks"], "NAME... stands alone, without an option"),
        (["topics", "list", "--bootstrap-server", NOBODY], "--bootstrap"),
    ],
)
def test_options_of_other_tools_lead_to_ours(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(words) == 2
    said = capsys.readouterr().err
    assert "No such option: " in said
    assert hint in said


def test_a_console_that_is_not_installed_is_no_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("moldau.cli.console.is_installed", lambda: False)
    assert main.run(["console"]) == 1
    said = "moldau: the web console is an extra: pip install 'moldau[console]'\n"
    assert capsys.readouterr().err == said
