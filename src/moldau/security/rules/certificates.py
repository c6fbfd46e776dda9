"""Certificates: the names that they are issued for, and when they expire. Rules."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

# From the subject of a certificate to a user's name, as Kafka does it. Rule.
#
# The distinguished name is written as Java writes it (RFC 2253: the most specific part first), so
# that rules and access lists of an existing cluster match. `ssl.principal.mapping.rules` may take
# a part of it: `RULE:^CN=([^,]*),.*$/$1/L,DEFAULT`.


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


# When a certificate ends, and when somebody has to hear of it. Rule.
#
# Python's `ssl` tells that of a peer's certificate only, so the few bytes that matter are read
# here: in DER, a certificate is a sequence whose first part has a sequence of two times (RFC 5280,
# 4.1).


_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERAL_TIME: Final = 0x18

DAY_MS: Final = 24 * 60 * 60 * 1000
WARNED_DAYS: Final = 30
"""So long before its end a certificate is worth a warning."""


def pem_certificates(pem: bytes) -> list[bytes]:
    """All certificates of a PEM text, as DER. Raises ValueError."""
    return [base64.b64decode(one) for one in _PEM.findall(pem)]


def first_end_ms(pem: bytes) -> int | None:
    """When the first certificate of a chain ends, in milliseconds since 1970; None without any."""
    try:
        return min((end_ms(one) for one in pem_certificates(pem)), default=None)
    except (ValueError, IndexError, OverflowError) as fault:
        raise ValueError(f"is no certificate: {fault}") from None


def end_ms(certificate: bytes) -> int:
    """Of one in DER. Raises ValueError or IndexError where it is none."""
    (_, whole), *_ = _parts(certificate)
    (kind, signed), *_ = _parts(whole)
    if kind != _SEQUENCE:
        raise ValueError("has another form")
    fields = [part for part in _parts(signed) if part[0] != _VERSION]
    validity = fields[3][1]  # after the serial number, the algorithm and the issuer
    _, (kind, text) = list(_parts(validity))
    return int(_time(kind, text.decode("ascii")).timestamp() * 1000)


def _time(kind: int, text: str) -> datetime:
    if kind == _GENERAL_TIME:
        return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    if kind != _UTC_TIME:
        raise ValueError("has no time where it ends")
    century = "20" if int(text[:2]) < 50 else "19"  # as RFC 5280 has it
    return datetime.strptime(century + text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _parts(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each value in a row."""
    position = 0
    while position < len(data):
        kind, size = data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(data[position : position + count])
            position += count
        if position + size > len(data):
            raise ValueError("is cut off")
        yield kind, data[position : position + size]
        position += size


def is_to_be_told(end_ms: int, now_ms: int, told_ms: int | None) -> bool:
    """Whether to say that a certificate ends: from a month before, once a day."""
    if end_ms - now_ms > WARNED_DAYS * DAY_MS:
        return False
    return told_ms is None or now_ms - told_ms >= DAY_MS


def remaining(end_ms: int, now_ms: int) -> str:
    """As the end of a message: `ends in 12 days`."""
    days = (end_ms - now_ms) // DAY_MS
    if end_ms <= now_ms:
        return "has ended: clients that check it do not connect any more"
    if days == 0:
        return "ends in less than a day"
    return f"ends in {days} day{'' if days == 1 else 's'}"
