"""Regular expressions that come from clients. A rule.

They run on the event loop, so they are matched by RE2, in a time that grows with the length of the
text and nothing else, as Kafka's brokers do; Python's own could be made to run for ever.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from moldau.errors import InvalidRegularExpressionError

_REMEMBERED = 256
_MAX_MEMORY_BYTES = 1 << 20

NOT_INSTALLED = (
    "this broker cannot match regular expressions: install moldau[regex], or ask with names"
)


@lru_cache(_REMEMBERED)
def compile_regular_expression(regex: str) -> Any:
    """Something with `fullmatch`. Raises `InvalidRegularExpressionError`."""
    try:
        import re2  # an extra, and needed by few
    except ImportError:
        raise InvalidRegularExpressionError(NOT_INSTALLED) from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY_BYTES
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        message = f"{regex!r} is no regular expression that RE2 takes: {text}"
        raise InvalidRegularExpressionError(message) from None
