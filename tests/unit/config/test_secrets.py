"""Secrets that stand elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.config.properties import expand_secrets, load_properties
from moldau.errors import ConfigurationError


def expand(text: str) -> dict[str, str]:
    return dict(expand_secrets(load_properties(text, "x.properties")))


def test_variables_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "one")
    (tmp_path / "word").write_text("two\n")
    (tmp_path / "words").write_text("a=three\n")
    text = f"p=<${{env:WORD}}|${{file:{tmp_path}/word}}|${{file:{tmp_path}/words:a}}>\nq=$x"
    assert expand(text) == {"p": "<one|two|three>", "q": "$x"}


@pytest.mark.parametrize("reference", ["${env:NOT_THERE_AT_ALL}", "${file:/not/there}"])
def test_what_is_not_there_is_told_with_its_place(reference: str) -> None:
    with pytest.raises(ConfigurationError, match=r"x\.properties line 1: p: "):
        expand(f"p={reference}")
