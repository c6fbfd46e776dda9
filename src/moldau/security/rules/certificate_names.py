"""From the subject of a certificate to a user's name, as Kafka does it. Rule.

The distinguished name is written as Java writes it (RFC 2253: the most specific part first), so
that rules and access lists of an existing cluster match. `ssl.principal.mapping.rules` may take
a part of it: `RULE:^CN=([^,]*),.*$/$1/L,DEFAULT`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

Subject = Sequence[Sequence[tuple[str, str]]]
"""As `ssl` gives it: relative names, each of one or several attributes."""

_SHORT: Final[Mapping[str, str]] = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_BY_NUMBER: Final[Mapping[str, tuple[str, int]]] = {
    "emailAddress": ("1.2.840.113549.1.9.1", 0x16),
    "serialNumber": ("2.5.4.5", 0x13),
    "title": ("2.5.4.12", 0x0C),
    "givenName": ("2.5.4.42", 0x0C),
    "surname": ("2.5.4.4", 0x0C),
}
"""Java knows no names for these: it writes the number, and the value as it is encoded."""

_RULES = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?))\s*(?:,|\n|\Z)"
)


class MappingRule(NamedTuple):
    pattern: re.Pattern[str] | None  # None takes the whole name
    replacement: str
    case: str


def distinguished_name(subject: Subject) -> str:
    """`CN=alice,OU=data,O=Example`."""
    return ",".join("+".join(_attribute(*pair) for pair in one) for one in reversed(subject))


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """ValueError is the end of a message about the option."""
    rules: list[MappingRule] = []
    position, stripped = 0, text.strip()
    while position < len(stripped):
        match = _RULES.match(stripped, position)
        if match is None:
            raise ValueError(f"is not of the form RULE:pattern/replacement/[LU] from {position} on")
        if match["default"]:
            rules.append(MappingRule(None, "", ""))
        else:
            try:
                pattern = re.compile(match["pattern"].replace("\\/", "/"))
            except re.error as fault:
                raise ValueError(f"has a pattern that cannot be read: {fault}") from None
            named = [int(number) for number in re.findall(r"\$([0-9])", match["replacement"])]
            if max(named, default=0) > pattern.groups:
                raise ValueError(f"names ${max(named)}, and its pattern has no such group")
            rules.append(MappingRule(pattern, match["replacement"], match["case"]))
        position = match.end()
    return tuple(rules)


def map_name(name: str, rules: Sequence[MappingRule]) -> str | None:
    """The first rule that matches the whole name; None when there is none."""
    for rule in rules:
        if rule.pattern is None:
            return name
        match = rule.pattern.fullmatch(name)
        if match is not None:
            mapped = _fill(rule.replacement, match)
            return {"L": mapped.lower(), "U": mapped.upper()}.get(rule.case, mapped)
    return None


def _fill(replacement: str, match: re.Match[str]) -> str:
    return re.sub(r"\$([0-9])", lambda number: match[int(number[1])] or "", replacement)


def _attribute(name: str, value: str) -> str:
    if name in _BY_NUMBER:
        number, tag = _BY_NUMBER[name]
        data = value.encode()
        return f"{number}=#{tag:02x}{_der_length(len(data)).hex()}{data.hex()}"
    return f"{_SHORT.get(name, name)}={_escape(value)}"


def _der_length(size: int) -> bytes:
    if size < 0x80:
        return bytes((size,))
    data = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((0x80 | len(data),)) + data


def _escape(value: str) -> str:
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped
