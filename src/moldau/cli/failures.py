"""Says what to do about a failure. What has no message here is a bug and keeps its traceback."""

from __future__ import annotations

from moldau.errors import (
    ClusterUnreachableError,
    GroupNotEmptyError,
    GroupNotFoundError,
    InvariantViolation,
    MoldauError,
    NoAnswerError,
    SecurityDisabledError,
    TopicExistsError,
    UnknownTopicError,
)

_REMEDIES: tuple[tuple[type[MoldauError], str], ...] = (
    (
        ClusterUnreachableError,
        "start one with `moldau start`, or name another with --bootstrap",
    ),
    (NoAnswerError, "see whether the broker is alive, then try again"),
    (UnknownTopicError, "`moldau topics list` shows what is there"),
    (TopicExistsError, "--if-not-exists takes it as it is"),
    (GroupNotFoundError, "`moldau groups list` shows what is there"),
    (SecurityDisabledError, "then only the listed may do what their entries say"),
    (GroupNotEmptyError, "stop its members, then try again"),
)


def explain(error: Exception) -> str | None:
    """One message for a person, or None for a bug."""
    if isinstance(error, InvariantViolation):
        return None
    if isinstance(error, MoldauError):
        return _with_remedy(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return None


def _with_remedy(error: MoldauError) -> str:
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            return f"{error}; {remedy}"
    return str(error)
