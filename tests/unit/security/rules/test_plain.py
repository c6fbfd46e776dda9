"""PLAIN: three parts in one message."""

from __future__ import annotations

import pytest

from moldau.security.rules.sasl import format_plain, parse_plain


def test_what_a_client_says_is_understood() -> None:
    assert format_plain("alice", "p w") == b"\0alice\0p w"
    assert parse_plain(format_plain("alice", "p w")) == ("alice", "p w")


def test_a_user_may_name_himself_as_the_one_he_acts_for() -> None:
    assert parse_plain(b"alice\0alice\0secret").user == "alice"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"bob\0alice\0secret", "act for another"),
        (b"alice\0secret", "three parts"),
        (b"\0alice\0secret\0", "three parts"),
        (b"\0\0secret", "is empty"),
        (b"\0alice\0", "is empty"),
        (b"\0alice\0\xff", "not UTF-8"),
    ],
)
def test_other_messages_are_refused_without_repeating_them(message: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse_plain(message)
    assert "secret" not in str(refused.value)


def test_the_representation_has_no_password() -> None:
    assert repr(parse_plain(b"\0alice\0secret")) == "PlainMessage(user='alice')"
