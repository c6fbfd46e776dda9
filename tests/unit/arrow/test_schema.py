from __future__ import annotations

from typing import Any

import pytest

from moldau.arrow.columns import choose_schema, whole_schema
from moldau.errors import ConfigurationError


def test_all_columns_are_chosen_without_names() -> None:
    assert choose_schema() == whole_schema()
    assert choose_schema(None, "us") == whole_schema("us") != whole_schema()


def test_columns_are_chosen_in_the_order_given() -> None:
    assert choose_schema(["value", "key"]).names == ["value", "key"]
    assert choose_schema([]).names == []


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["values"], "a topic has no column 'values'; there are key, value, topic"),
        (["key", "key"], "columns names one of key, key twice"),
        ("key", r"columns is a list of names: \['key'\], not 'key'"),
    ],
)
def test_wrong_columns_are_refused_in_words(columns: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        choose_schema(columns)
