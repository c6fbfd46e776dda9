"""Principals are written as Kafka writes them."""

from __future__ import annotations

import pytest

from moldau.model import ANONYMOUS, Principal


def test_text_of_a_principal_is_kind_and_name():
    assert str(Principal("User", "alice")) == "User:alice"
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_a_name_may_contain_colons():
    assert Principal.parse("User:CN=a:b") == Principal("User", "CN=a:b")


@pytest.mark.parametrize("text", ["alice", ":alice", ""])
def test_a_text_without_a_kind_is_refused(text):
    with pytest.raises(ValueError, match="is not of the form User:name"):
        Principal.parse(text)
