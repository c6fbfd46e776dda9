"""Where a console listens."""

from __future__ import annotations

import pytest

from moldau.console.settings import ConsoleSettings, is_loopback, parse_listen
from moldau.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("127.0.0.1", None)),
        ("0.0.0.0:8080", ("0.0.0.0", 8080)),
        (":0", ("127.0.0.1", 0)),
        ("example.org", ("example.org", None)),
        ("[::1]:80", ("[::1]", 80)),
        ("[::1]", ("[::1]", None)),
    ],
)
def test_addresses(text: str, expected: tuple[str, int | None]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize("text", ["host:", "host:port", "host:70000"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("example.org", False),
    ],
)
def test_only_loopback_is_local(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
    assert ConsoleSettings(bootstrap="b", host=host).is_local is expected
