"""What went wrong, for people. Values in, texts out."""

from __future__ import annotations

from moldau.errors import MoldauError

EXPECTED = (MoldauError, TimeoutError, OSError)
"""What a cluster, a network or an answer may do to a request. Anything else is a bug."""


def failure_text(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "the cluster did not answer in time"
    return str(error) or type(error).__name__
