"""What somebody who connects says in each mechanism of SASL. Rule, but for `ScramLogin.respond`,
which takes milliseconds on purpose and is for a worker thread.
"""

from __future__ import annotations

from typing import Protocol

from moldau.security.rules.bearer import format_bearer
from moldau.security.rules.plain import format_plain
from moldau.security.rules.scram import ScramClient


class Login(Protocol):
    """One exchange: what to say first, and then to each answer; None when all is said."""

    mechanism: str

    def first(self) -> bytes: ...

    def respond(self, challenge: bytes) -> bytes | None:
        """Raises ValueError or ScramError when the broker is not what it should be."""
        ...


class PlainLogin:
    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._message = format_plain(user, password)

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        return None


class BearerLogin:
    mechanism = "OAUTHBEARER"

    def __init__(self, token: str) -> None:
        self._message = format_bearer(token)

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        """An answer with content is a refusal, to which one byte has to be said."""
        return b"\x01" if challenge else None


class ScramLogin:
    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self.mechanism = mechanism
        self._client = ScramClient(mechanism, user, password, nonce, is_token=is_token)
        self._is_proven = False

    def first(self) -> bytes:
        return self._client.first()

    def respond(self, challenge: bytes) -> bytes | None:
        if self._is_proven:
            self._client.check(challenge)
            return None
        self._is_proven = True
        return self._client.final(challenge)
