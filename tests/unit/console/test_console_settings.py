"""Where a console listens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from moldau.console.settings import ConsoleSettings, find_exposure, is_loopback, parse_listen
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


@pytest.mark.parametrize("text", ["host:", "host:port", "host:70000", "8092"])
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


def test_on_its_own_machine_a_console_needs_nothing() -> None:
    assert find_exposure(ConsoleSettings(bootstrap="b"), is_allowed=False) == ()


def test_elsewhere_it_needs_a_login_and_https_or_somebody_who_takes_it_on_himself() -> None:
    bare = ConsoleSettings(bootstrap="b", host="0.0.0.0")
    with pytest.raises(ConfigurationError, match="--insecure"):
        find_exposure(bare, is_allowed=False)
    assert ["without a login" in text for text in find_exposure(bare, is_allowed=True)] == [
        True,
        False,
    ]
    with pytest.raises(ConfigurationError, match="passwords and records"):
        find_exposure(replace(bare, with_login=True), is_allowed=False)
    for safe in (
        replace(bare, with_login=True, certificate=Path("x.pem")),
        replace(bare, with_login=True, public_url="https://console.example"),
    ):
        assert find_exposure(safe, is_allowed=False) == []


def test_passwords_do_not_stand_in_what_is_printed() -> None:
    settings = ConsoleSettings(bootstrap="b", client_options={"sasl.password": "secret"})
    assert "secret" not in repr(settings)
