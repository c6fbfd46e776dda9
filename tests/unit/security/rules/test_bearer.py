"""OAUTHBEARER: a token in one message."""

from __future__ import annotations

import pytest

from moldau.security.rules.sasl import format_bearer, parse_bearer


def test_what_a_client_says_is_understood() -> None:
    assert format_bearer("abc.d-e_f") == b"n,,\x01auth=Bearer abc.d-e_f\x01\x01"
    assert parse_bearer(format_bearer("abc.d-e_f")) == ("abc.d-e_f", "")


def test_a_client_may_say_whom_it_acts_for_and_more() -> None:
    message = b"n,a=bob,\x01host=h\x01auth=bearer abc==\x01port=1\x01\x01"
    assert parse_bearer(message) == ("abc==", "bob")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "malformed"),
        (b"y,,\x01auth=Bearer abc\x01\x01", "malformed"),
        (b"n,,\x01auth=Bearer abc\x01", "malformed"),
        (b"n,,\x01\x01", "no token"),
        (b"n,,\x01auth=Basic abc\x01\x01", "no token"),
        (b"n,,\x01auth=Bearer \x01\x01", "no token"),
    ],
)
def test_other_messages_are_refused(message: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_bearer(message)
