"""Texts of shared options."""

from __future__ import annotations

import pytest
import typer

from moldau.cli.options import parse_settings


def test_settings_are_split_at_the_first_equals_sign() -> None:
    texts = ["a=1", "b=x=y", "c=", " d =  2"]
    assert parse_settings(texts, "--set") == {"a": "1", "b": "x=y", "c": "", "d": "  2"}


def test_of_a_name_given_twice_the_last_counts() -> None:
    assert parse_settings(["a=1", "a=2"], "--set") == {"a": "2"}


@pytest.mark.parametrize("text", ["a", "=1", " =1", ""])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="key=value"):
        parse_settings([text], "--set")
