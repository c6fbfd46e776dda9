"""Who logs in to what, and where a browser goes after it. Rules.

A user of the console is a user of the cluster: name and password of the login page are those of
SASL. What else a client needs (how to connect, whom to trust) comes from the options that the
console was given; credentials among these are not used for people who log in.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_WITH_PASSWORD = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
_CREDENTIALS = frozenset({"sasl.jaas.config", "sasl.username", "sasl.password"})
_DEFAULT_MECHANISM = "SCRAM-SHA-512"
IDLE_SECONDS = 30 * 60.0
LONGEST_SECONDS = 12 * 3600.0


def asks_for_password(options: Mapping[str, object]) -> bool:
    """Whether clients of this cluster are users with a password."""
    named = _by_name(options)
    protocol = str(named.get("security.protocol", "")).upper()
    mechanism = str(named.get("sasl.mechanism", _DEFAULT_MECHANISM)).upper()
    return protocol.startswith("SASL_") and mechanism in _WITH_PASSWORD


def without_credentials(options: Mapping[str, object]) -> dict[str, object]:
    return {name: one for name, one in _by_name(options).items() if name not in _CREDENTIALS}


def options_of_user(options: Mapping[str, object], user: str, password: str) -> dict[str, object]:
    """For the clients of one session."""
    return {**without_credentials(options), "sasl.username": user, "sasl.password": password}


def _by_name(options: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): one for name, one in options.items()}


def local_path(text: str) -> str:
    """Where to go after a login: a path of this console, whatever a link says."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    is_clean = text.isprintable() and "\\" not in text
    if not (is_path and is_clean):
        return "/"
    return "/" if urlsplit(text).path in ("/login", "/logout") else text


def is_expired(*, started: float, seen: float, now: float) -> bool:
    return now - seen > IDLE_SECONDS or now - started > LONGEST_SECONDS
