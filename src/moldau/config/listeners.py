"""Listener addresses: `NAME://host:port`, comma-separated, as in `listeners`.

The name says who the address is for; `listener.security.protocol.map` says how it is secured, and
a name that is itself a protocol needs no entry there. An empty host means all interfaces. IPv6
addresses stand in brackets. Which hosts may be advertised is checked here; binding is `net`'s.
Rule: values in, values out; faults are ValueErrors whose text ends a message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from types import MappingProxyType

from moldau.config.option import split_list

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

DEFAULT_PROTOCOL_MAP: Mapping[str, str] = MappingProxyType({n: n for n in SECURITY_PROTOCOLS})

ALL_INTERFACES = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to

_ADDRESS = re.compile(
    r"(?P<name>[^:/,\s]+)://(?:\[(?P<bracketed>[^\]]*)\]|(?P<plain>[^:\[\]/,]*)):(?P<port>[0-9]+)\Z"
)
_HOST = re.compile(r"[0-9a-zA-Z._%:-]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address. `port` is 0 when any free port will do; `host` has no brackets."""

    name: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    @property
    def is_on_all_interfaces(self) -> bool:
        return self.host in ALL_INTERFACES

    @property
    def is_on_loopback(self) -> bool:
        """Reached from this machine only."""
        return is_loopback(self.host)

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL_")

    def at(self, host: str, port: int) -> Listener:
        """The same listener at another address."""
        return replace(self, host=host, port=port)


def is_loopback(host: str) -> bool:
    """Whether what listens there can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def parse_listeners(
    text: str, protocol_map: Mapping[str, str] = DEFAULT_PROTOCOL_MAP
) -> tuple[Listener, ...]:
    """Read a list of addresses whose names are unique and have a security protocol."""
    listeners = tuple(_parse_listener(item, protocol_map) for item in split_list(text))
    names = [listener.name for listener in listeners]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise ValueError(f"names the listener {repeated} twice")
    return listeners


def _parse_listener(address: str, protocol_map: Mapping[str, str]) -> Listener:
    match = _ADDRESS.match(address)
    host = (match["bracketed"] or match["plain"] or "") if match else ""
    if match is None or not _HOST.match(host):
        raise ValueError(
            f"has the address {address!r}, which is not of the form NAME://host:port "
            "(an IPv6 address stands in brackets: PLAINTEXT://[::1]:9092)"
        )
    name = match["name"].upper()
    if name not in protocol_map:
        raise ValueError(
            f"names the listener {name}, which is not a security protocol; "
            f"add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    port = int(match["port"])
    if port > 65535:
        raise ValueError(f"has the port {port}, which is larger than 65535")
    return Listener(name=name, security_protocol=protocol_map[name], host=host, port=port)


def parse_protocol_map(text: str) -> Mapping[str, str]:
    """Read `NAME:PROTOCOL,…`; the protocols themselves are always in it."""
    entries = dict(DEFAULT_PROTOCOL_MAP)
    seen: set[str] = set()
    for item in split_list(text):
        name, colon, protocol = (part.strip().upper() for part in item.partition(":"))
        if not colon or not name:
            raise ValueError(f"has the entry {item!r}, which is not of the form NAME:PROTOCOL")
        if protocol not in SECURITY_PROTOCOLS:
            raise ValueError(f"names {protocol}, which is not one of {_PROTOCOL_WORDS}")
        if name in seen:
            raise ValueError(f"names {name} twice")
        seen.add(name)
        entries[name] = protocol
    return MappingProxyType(entries)


_PROTOCOL_WORDS = ", ".join(SECURITY_PROTOCOLS)


def find_address_fault(items: tuple[str, ...]) -> str | None:
    """What is wrong with a list of addresses, whatever their names mean."""
    for item in items:
        match = _ADDRESS.match(item)
        names = {match["name"].upper(): "PLAINTEXT"} if match else {}
        try:
            _parse_listener(item, names)
        except ValueError as fault:
            return str(fault)
    return None
