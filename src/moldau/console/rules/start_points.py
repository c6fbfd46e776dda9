"""Times as people say them: a moment, or how long ago. Rules: texts in, values out."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from moldau.errors import ConfigurationError

_AGO = re.compile(r"(\d+)\s*(s|m|min|h|d)(?:\s+ago)?", re.IGNORECASE)
_MOST_DIGITS = 18  # what the protocol has room for
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970, an ISO 8601 time (in UTC unless it says otherwise), or `10m` ago."""
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None and len(ago[1]) <= _MOST_DIGITS:
        return max(0, now_ms - int(ago[1]) * _SECONDS[ago[2].lower()] * 1000)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{text!r:.60} is no time; one looks like 10m, 2h, 2030-01-31T12:00 or 1700000000000"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))
