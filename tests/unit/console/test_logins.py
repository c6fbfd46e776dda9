"""Who logs in, as whom, and where a browser goes then."""

from __future__ import annotations

import pytest

from moldau.console.sessions import (
    IDLE_SECONDS,
    LONGEST_SECONDS,
    asks_for_password,
    is_expired,
    local_path,
    options_of_user,
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"security.protocol": "PLAINTEXT"}, False),
        ({"security.protocol": "SSL"}, False),
        ({"security.protocol": "SASL_SSL"}, True),
        ({"security_protocol": "sasl_plaintext", "sasl_mechanism": "PLAIN"}, True),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, False),
    ],
)
def test_people_log_in_where_users_have_passwords(
    options: dict[str, object], expected: bool
) -> None:
    assert asks_for_password(options) is expected


def test_a_session_never_uses_the_credentials_of_the_file() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "ca.pem",
        "sasl.jaas.config": "secret",
        "sasl_username": "admin",
        "sasl.password": "secret",
    }
    assert options_of_user(given, "alice", "hers") == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": "ca.pem",
        "sasl.username": "alice",
        "sasl.password": "hers",
    }


@pytest.mark.parametrize("path", ["/", "/topics/a%2Fb?partition=1&offset=2", "/group?id=x"])
def test_a_path_of_the_console_is_gone_to(path: str) -> None:
    assert local_path(path) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://evil.example/",
        "//evil.example/",
        "//[",
        "/\\evil.example",
        "\\/evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "topics",
        "/login?next=/",
        "/logout",
        "/a\r\nSet-Cookie: x=y",
    ],
)
def test_nobody_is_led_elsewhere(text: str) -> None:
    assert local_path(text) == "/"


def test_a_session_ends_when_it_is_not_used_and_after_half_a_day() -> None:
    assert not is_expired(started=0, seen=0, now=IDLE_SECONDS)
    assert is_expired(started=0, seen=0, now=IDLE_SECONDS + 1)
    assert is_expired(started=0, seen=LONGEST_SECONDS, now=LONGEST_SECONDS + 1)
