"""Who a connection belongs to, as access control and quotas know it."""

from __future__ import annotations

from typing import Final

from moldau.light_classes import NamedTuple

USER: Final = "User"
"""The kind of every principal that this broker makes."""


class Principal(NamedTuple):
    """Somebody, as Kafka writes it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Read `Kind:name`; the name may contain colons. ValueError ends a message."""
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(f"{text!r} is not of the form User:name")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""Whoever does not have to say who he is: a client of a listener without authentication."""
