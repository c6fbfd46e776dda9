"""`moldau topics` for several at once, settings of topics, and trimming them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.testing.running_broker import RunningBroker, broker
from support.command_line import Cli, write_lines
from support.topics import fresh_name


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with broker({"num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def cli(shared: RunningBroker, capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(shared.bootstrap, capsysbinary)


def test_several_topics_are_created_alike_and_altered_together(cli: Cli) -> None:
    shown = cli("topics", "create", "a1", "b1", "--partitions", "2", "--config", "segment.ms=7000")
    assert shown.splitlines() == [
        f"created topic {name} with 2 partitions, replication factor 1" for name in ("a1", "b1")
    ]
    cli(
        *("topics", "alter", "a1", "b1", "--partitions", "4"),
        *("--config", "retention.ms=5000", "--delete-config", "segment.ms"),
    )
    for described in cli.json("topics", "describe", "a1", "b1"):
        assert len(described["partitions"]) == 4
        assert described["configs"] == {"retention.ms": "5000"}


def test_what_is_refused_of_several_topics_keeps_none_of_the_others_back(cli: Cli) -> None:
    cli("topics", "create", "there")
    shown = cli("topics", "create", "there", "c1", "bad name", code=1)
    assert shown.startswith("created topic c1 ")
    assert "'there'" in cli.err
    assert "bad name" in cli.err
    rows = cli.json("topics", "create", "there", "d1", "--if-not-exists")
    assert [(row["topic"], row["created"]) for row in rows] == [("there", False), ("d1", True)]


def test_settings_that_are_refused_add_no_partitions(cli: Cli) -> None:
    cli("topics", "create", "e1")
    cli("topics", "alter", "e1", "--partitions", "3", "--config", "retention.ms=soon", code=1)
    assert "retention.ms" in cli.err
    assert len(cli.json("topics", "describe", "e1")[0]["partitions"]) == 1
    cli("topics", "alter", "e1", code=2)
    assert "--config" in cli.err


@pytest.fixture
def ten(cli: Cli, tmp_path: Path) -> str:
    name = fresh_name()
    cli("produce", name, "--file", write_lines(tmp_path, *map(str, range(10))))
    return name


def left_of(cli: Cli, topic: str) -> list[str]:
    return cli("consume", topic, "--from-beginning", "--until-end").split()


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("--before-offset", "4"), "4 5 6 7 8 9"),
        (("--before-offset", "400"), ""),
        (("--keep-last", "2"), "8 9"),
        (("--older-than", "1h"), "0 1 2 3 4 5 6 7 8 9"),
        (("--before-time", "2200-01-01T00:00:00"), ""),
        (("--all",), ""),
    ],
    ids=" ".join,
)
def test_the_oldest_records_go(cli: Cli, ten: str, words: tuple[str, ...], left: str) -> None:
    previewed = cli("topics", "trim", ten, *words, "--dry-run")
    assert len(left_of(cli, ten)) == 10
    assert cli("topics", "trim", ten, *words, "--yes").startswith(previewed)
    assert left_of(cli, ten) == left.split()


def test_trimming_for_machines_says_where_logs_begin_now(cli: Cli, ten: str) -> None:
    found = json.loads(cli("topics", "trim", f"{ten}:0", "--keep-last", "3", "--yes", "--json"))
    assert found["partitions"] == [{"topic": ten, "partition": 0, "before": 0, "after": 7}]


def test_nothing_goes_where_nobody_can_be_asked(cli: Cli, ten: str) -> None:
    cli("topics", "trim", ten, "--all", code=2)
    assert "--yes" in cli.err
    cli("topics", "trim", ten, "--all", "--keep-last", "3", code=2)
    cli("topics", "trim", ten, code=2)
    assert len(left_of(cli, ten)) == 10


def test_what_cannot_be_trimmed_is_told(cli: Cli) -> None:
    cli("topics", "trim", "nowhere", "--all", "--yes", code=1)
    assert "moldau topics list" in cli.err
    cli("topics", "create", "small")
    cli("topics", "trim", "small:7", "--all", "--yes", code=1)
    assert "has no partition 7" in cli.err
