"""Regular expressions over topic names, as members of consumer groups subscribe with them. A rule.

They come from clients and run on the event loop, so they are matched by RE2, in a time that grows
with the length of a name and nothing else; Kafka's own coordinator does the same. Internal topics
match no expression: whoever wants them names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from moldau.errors import InvalidRegularExpressionError
from moldau.model.topic_names import INTERNAL_TOPICS

_REMEMBERED = 256
_MAX_MEMORY_BYTES = 1 << 20

NOT_INSTALLED = (
    "this broker cannot match regular expressions: install moldau[regex], or subscribe with names"
)


def find_matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The topics whose whole name matches. Raises `InvalidRegularExpressionError`."""
    pattern = _compile(regex)
    return frozenset(
        name for name in names if name not in INTERNAL_TOPICS and pattern.fullmatch(name)
    )


@lru_cache(_REMEMBERED)
def _compile(regex: str) -> Any:
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
