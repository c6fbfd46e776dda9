"""When a certificate ends, and when somebody has to hear of it. Rule.

Python's `ssl` tells that of a peer's certificate only, so the few bytes that matter are read here:
in DER, a certificate is a sequence whose first part has a sequence of two times (RFC 5280, 4.1).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

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
