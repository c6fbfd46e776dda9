"""What a shell completes: commands, and names that the cluster has."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from moldau.testing.running_broker import RunningBroker, broker
from support.command_line import COMMAND


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with broker() as running:
        for topic in ("clicks", "clocks", "orders"):
            running.create_topic(topic)
        yield running


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def complete(bootstrap: str, text: str) -> tuple[list[str], str]:
    """What bash is offered at the end of a line, and what is said beside it."""
    done = run(
        {
            "_MOLDAU_COMPLETE": "complete_bash",
            "COMP_WORDS": text,
            "COMP_CWORD": str(len(text.split(" ")) - 1),
            "MOLDAU_BOOTSTRAP": bootstrap,
        }
    )
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("moldau top", ["topics"]),
        ("moldau topics tr", ["trim"]),
        ("moldau topics describe cl", ["clicks", "clocks"]),
        ("moldau topics create cl", []),
        ("moldau consume o", ["orders"]),
        ("moldau configs describe --topic cli", ["clicks"]),
        ("moldau groups describe ", []),
    ],
)
def test_commands_and_names_are_completed(
    shared: RunningBroker, text: str, offered: list[str]
) -> None:
    assert complete(shared.bootstrap, text) == (offered, "")


def test_a_cluster_that_does_not_answer_offers_nothing_and_says_nothing() -> None:
    assert complete("127.0.0.1:1", "moldau topics describe ") == ([], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str) -> None:
    instruction = {"_MOLDAU_COMPLETE": f"source_{shell}"}
    done = run(instruction)
    assert done.returncode == 0
    assert "_MOLDAU_COMPLETE=complete_" + shell in done.stdout
