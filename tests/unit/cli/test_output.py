"""Tables and JSON."""

from __future__ import annotations

import json

import pytest

from moldau.cli.output import print_document, print_line, print_table


def test_numbers_stand_to_the_right_and_words_to_the_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("name", ">count"), [("a", "1"), ("longer", "1000")], indent=2)
    assert capsys.readouterr().out.splitlines() == [
        "  name    count",
        "  a           1",
        "  longer   1000",
    ]


def test_nothing_is_cut_or_wrapped_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "value"), [("n" * 200, "v" * 300)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "n" * 200 in lines[1]
    assert lines[1].endswith("v" * 300)


def test_words_in_brackets_are_not_taken_for_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("value",), [("[bold]x[/bold] :smile:",)])
    assert capsys.readouterr().out.splitlines()[1] == "[bold]x[/bold] :smile:"


def test_a_document_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_document({"a": [1, None]})
    assert json.loads(capsys.readouterr().out) == {"a": [1, None]}


def test_a_line_is_json_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_line({"a": "x\ny"})
    assert capsys.readouterr().out == '{"a":"x\\ny"}\n'
