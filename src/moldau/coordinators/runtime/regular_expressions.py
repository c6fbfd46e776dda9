"""Regular expressions that come from clients. A rule.

They run on the event loop, so they are matched by RE2, in a time that grows with the length of the
text and nothing else, as Kafka's brokers do; Python's own could be made to run for ever.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from moldau.errors import InvalidRegularExpressionError, RegularExpressionsNotSupportedError

_log = logging.getLogger("moldau.coordinators")

_REMEMBERED = 64
_MAX_CHARACTERS = 1_000
_MAX_PROGRAM_BYTES = 32 << 10
"""Some thousand instructions of RE2. Each character of a text costs as many at worst: what is a
matter of microseconds for honest expressions was a minute on the event loop for a thousand topics
and an expression made for it."""
_MATCHING_BYTES = 8 << 20
"""Enough for RE2 not to fall back to its slow way with programs of that size."""

NOT_INSTALLED = (
    "this broker matches no regular expressions, because the package google-re2 is not installed; "
    "the expression was not checked. Run `pip install 'moldau[regex]'` for every broker and "
    "restart it, or use names"
)


@lru_cache(_REMEMBERED)
def compile_regular_expression(regex: str) -> Any:
    """Something with `fullmatch`. Raises `InvalidRegularExpressionError`."""
    if len(regex) > _MAX_CHARACTERS:
        raise InvalidRegularExpressionError(
            f"a regular expression of {len(regex)} characters: more than {_MAX_CHARACTERS} are not "
            "taken"
        )
    try:
        import re2  # an extra, and needed by few
    except ImportError:
        _warn_of_missing_package()
        raise RegularExpressionsNotSupportedError(NOT_INSTALLED) from None
    options = re2.Options()
    options.log_errors = False
    try:
        options.max_mem = _MAX_PROGRAM_BYTES
        re2.compile(regex, options)
        options.max_mem = _MATCHING_BYTES
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        message = f"{regex!r} is no regular expression that RE2 takes: {text}"
        raise InvalidRegularExpressionError(message) from None


@lru_cache(1)
def _warn_of_missing_package() -> None:
    """Once: any client can ask at any rate."""
    _log.warning("a client asked with a regular expression: %s", NOT_INSTALLED)
