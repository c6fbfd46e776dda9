"""Reads `host:port,host:port` lists. A rule."""

from __future__ import annotations

from typing import NamedTuple

from moldau.errors import UsageError

DEFAULT_PORT = 9092


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """At least one address; a missing port is 9092; IPv6 hosts stand in brackets."""
    if not isinstance(text, str):  # other clients take lists, and callers are not all typed
        raise UsageError(
            f"bootstrap is one text, like '127.0.0.1:9092,127.0.0.1:9093', and not {text!r}"
        )
    addresses = tuple(parse_address(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise UsageError("the bootstrap list is empty; it looks like 127.0.0.1:9092")
    return addresses


def parse_address(text: str) -> Address:
    """One `host`, `host:port` or `[host]:port`."""
    if any(map(str.isspace, text)):
        raise _bad_address(text)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _bad_address(text)
        return Address(host, _parse_port(rest[1:], text))
    host, _, port = text.partition(":")
    if not host or ":" in port:
        raise _bad_address(text)
    return Address(host, _parse_port(port, text))


def _parse_port(port: str, text: str) -> int:
    if not port:
        return DEFAULT_PORT
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise _bad_address(text)
    return int(port)


def _bad_address(text: str) -> UsageError:
    return UsageError(f"{text!r} is not an address; one looks like 127.0.0.1:9092")
