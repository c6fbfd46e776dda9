"""Reads one page of a broker's metrics port. A shell; standard library alone."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from typing import Final

TIMEOUT_SECONDS: Final = 5.0
_MOST_BYTES: Final = 32 << 20


async def http_get(url: str) -> str:
    """The body. Raises OSError when it cannot be had."""
    if not url.startswith(("http://", "https://")):
        raise OSError(f"{url!r} is not the address of a web page")
    return await asyncio.to_thread(_get, url)


def _get(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 checked
            data: bytes = answer.read(_MOST_BYTES)
    except urllib.error.HTTPError as error:
        raise OSError(f"{url} answers {error.code}") from error
    return data.decode(errors="replace")
