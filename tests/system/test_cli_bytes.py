"""Several topics at once, and bytes that come out as they went in."""

from __future__ import annotations

import os
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


@pytest.fixture
def two(cli: Cli, tmp_path: Path) -> str:
    """The beginning of two topics' names, each with one record."""
    prefix = fresh_name("orders")
    for name in ("a", "b"):
        cli("produce", f"{prefix}.{name}", "--file", write_lines(tmp_path, f"in {name}"))
    return prefix


ALL = ("--from-beginning", "--until-end")


def test_several_topics_are_read(cli: Cli, two: str) -> None:
    shown = cli("consume", f"{two}.a", f"{two}.b", *ALL, "--format", "%t %v")
    assert sorted(shown.splitlines()) == [f"{two}.a in a", f"{two}.b in b"]
    assert sorted(cli("consume", f"{two}.a", f"{two}.b", *ALL).split("\n")) == ["", "in a", "in b"]


@pytest.mark.parametrize("group", [(), ("--group", "of a pattern")])
def test_topics_are_read_by_a_pattern(cli: Cli, two: str, group: tuple[str, ...]) -> None:
    if group:
        group = ("--group", two)
    shown = cli("consume", rf"{two}\.[ab]", "--regex", *ALL, *group)
    assert sorted(shown.splitlines()) == ["in a", "in b"]


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("never.*", "--regex", *ALL), "matches 'never.*'", 1),
        (("(", "--regex"), "'('", 2),
        (("a", "b", "--partition", "0"), "one topic", 2),
        (("a", "b", "--queue", "g"), "leave it out", 2),
        (("a", "--delimiter", "x", "--json"), "--format value", 2),
    ],
)
def test_what_does_not_go_together_is_told(
    cli: Cli, words: tuple[str, ...], said: str, code: int
) -> None:
    cli("consume", *words, code=code)
    assert said in cli.err


def consumed(cli: Cli, capture: pytest.CaptureFixture[bytes], *words: str) -> bytes:
    from moldau.cli.main import run

    assert run(["consume", *words, *ALL, "--bootstrap", cli._bootstrap]) == 0
    return capture.readouterr().out


def test_whole_files_are_records_byte_by_byte(
    cli: Cli, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    topic, data = fresh_name(), bytes(range(256)) + b"\r\n\r\n" + os.urandom(300_000)
    (tmp_path / "one").write_bytes(data)
    (tmp_path / "two").write_bytes(b"")
    files = ("--record-file", str(tmp_path / "one"), "--record-file", str(tmp_path / "two"))
    cli("produce", topic, *files, "--key", "k")
    assert consumed(cli, capsysbinary, topic, "--format", "raw") == data
    rows = cli.json_lines("consume", topic, *ALL)
    assert [row["key"] for row in rows] == ["k", "k"]
    assert rows[1]["value"] == ""


@pytest.mark.parametrize("delimiter", ["\\0", "--\\r\\n", "ä"])
def test_records_are_divided_as_they_were_joined(
    cli: Cli, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], delimiter: str
) -> None:
    end = {"\\0": b"\0", "--\\r\\n": b"--\r\n"}.get(delimiter, delimiter.encode())
    topic, data = fresh_name(), b"".join(x + end for x in (b"a\r", b"b\nc", b"", b"d" * 500_000))
    (tmp_path / "input").write_bytes(data)
    given = f"--delimiter={delimiter}"
    cli("produce", topic, "--file", str(tmp_path / "input"), given)
    assert consumed(cli, capsysbinary, topic, given) == data
    assert len(cli.json_lines("consume", topic, *ALL)) == 4


def test_what_is_one_record_is_not_split(cli: Cli, tmp_path: Path) -> None:
    file = write_lines(tmp_path, "x")
    for words in (("--file", file), ("--delimiter", "x"), ("--format", "json")):
        cli("produce", "t", "--record-file", file, *words, code=2)
        assert "--record-file" in cli.err
    cli("produce", "t", "--key", "k", "--key-separator", ":", code=2)
    cli("produce", "t", "--delimiter", "\\q", code=2)
    assert "means nothing" in cli.err
