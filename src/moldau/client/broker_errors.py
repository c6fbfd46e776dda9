"""Turns the error codes of answers into exceptions of the one tree in `moldau.errors`."""

from __future__ import annotations

from functools import cache
from typing import Final

from moldau import errors
from moldau.client.rules.denials import explain_denial
from moldau.errors import ErrorCode, KafkaError

_DENIALS: Final = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    }
)


@cache
def error_class(code: ErrorCode) -> type[KafkaError]:
    """The class for a code; codes that no room of Moldau raises get theirs here."""
    for found in vars(errors).values():
        if isinstance(found, type) and issubclass(found, KafkaError) and _is_for(found, code):
            return found
    name = "".join(word.capitalize() for word in code.name.split("_"))
    return type(f"{name.removesuffix('Exception')}Error", (KafkaError,), {"code": code})


def _is_for(found: type[KafkaError], code: ErrorCode) -> bool:
    # Only direct children of the root: their own children narrow the meaning and share the code.
    return found.__base__ is KafkaError and found.code is code


def error_for(code: ErrorCode, message: str | None, subject: str = "") -> KafkaError:
    """An exception for an answer's code, its message saying what it is about."""
    words = message or _words_for(code)
    if subject and subject not in words:
        words = f"{subject}: {words}"
    return error_class(code)(explain_denial(words) if code in _DENIALS else words)


def find_error(code: ErrorCode, message: str | None, subject: str) -> KafkaError | None:
    """The error of one row of an answer, or None."""
    return None if code is ErrorCode.none else error_for(code, message, subject)


def read_code(number: int) -> ErrorCode:
    """A code as it came; newer brokers may have some that are not known here."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.unknown_server_error


def is_retriable(error: KafkaError) -> bool:
    """Whether Kafka says of the code that the same request may succeed later."""
    return error.code.retriable


def _words_for(code: ErrorCode) -> str:
    known = error_class(code).__doc__
    if known and error_class(code).__module__ == errors.__name__:
        first = known.splitlines()[0].rstrip(".")
        return first[0].lower() + first[1:]
    return code.name.replace("_", " ")
