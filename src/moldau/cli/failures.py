"""Says what to do about a failure. What has no message here is a bug and keeps its traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from moldau.cli.completion import ask_for_groups, ask_for_topics
from moldau.cli.options import has_parameter, profile_with_address, words_of_command
from moldau.cli.reporting import say_failure
from moldau.config.option import find_close
from moldau.errors import (
    ClusterUnreachableError,
    GroupNotEmptyError,
    GroupNotFoundError,
    InvariantViolation,
    KafkaError,
    MoldauError,
    NoAnswerError,
    RegistryUnreachableError,
    SaslAuthenticationError,
    SecurityDisabledError,
    TlsHandshakeError,
    TopicExistsError,
    TransactionalIdNotFoundError,
    UnknownTopicError,
)

_REMEDIES: tuple[tuple[type[MoldauError], str], ...] = (
    (
        ClusterUnreachableError,
        "start one with `moldau start`, or name another with --bootstrap",
    ),
    (
        SaslAuthenticationError,
        "security.protocol, the user and the password are in the file of --command-config, or in "
        "the profile",
    ),
    (
        TlsHandshakeError,
        "ssl.truststore.location names the authorities that are trusted; `moldau secure init` "
        "makes a ca.pem for it",
    ),
    (NoAnswerError, "see whether the broker is alive, then try again"),
    (UnknownTopicError, "`moldau topics list` shows what is there"),
    (GroupNotFoundError, "`moldau groups list` shows what is there"),
    (TransactionalIdNotFoundError, "`moldau transactions list` shows what is there"),
    (SecurityDisabledError, "then only the listed may do what their entries say"),
    (GroupNotEmptyError, "stop its members, then try again"),
    (RegistryUnreachableError, "name another with --schema-registry"),
)


def explain_error(error: Exception) -> str | None:
    """One message for a person, or None for a bug."""
    found = _describe(error)
    if found is None:
        return None
    message, remedy = found
    return message if remedy is None else f"{message}; {remedy}"


def report_error(error: Exception) -> bool:
    """Tell of a failure in the form that was asked for; False for a bug, of which nothing is said.

    As JSON: the class of the error, Kafka's name of its code if it has one, the message, and what
    to do about it.
    """
    found = _describe(error)
    if found is None:
        return False
    message, remedy = found
    code = error.code.name.upper() if isinstance(error, KafkaError) else None
    say_failure(message, kind=type(error).__name__, code=code, remedy=remedy)
    return True


def _describe(error: Exception) -> tuple[str, str | None] | None:
    """The message and the remedy, if one is known."""
    if isinstance(error, InvariantViolation):
        return None
    if isinstance(error, MoldauError):
        return str(error), _find_remedy(error)
    if isinstance(error, OSError) and error.strerror:
        return (f"{error.filename}: " if error.filename else "") + error.strerror, None
    if isinstance(error, UnicodeEncodeError) and error.encoding == "utf-8":
        # Python has a byte that is no text as U+DC80 and more: `caf\xe9` was typed.
        shown = error.object.encode(errors="backslashreplace").decode().replace(r"\udc", r"\x")
        return f"'{shown}' is not text in UTF-8", None
    return None


def _find_remedy(error: MoldauError) -> str | None:
    if isinstance(error, ClusterUnreachableError) and (profile := profile_with_address()):
        return f"that address is of profile {profile}; choose another with --profile or --bootstrap"
    if isinstance(error, TopicExistsError):
        return "--if-not-exists takes it as it is" if has_parameter("if_not_exists") else None
    known = (remedy for kind, remedy in _REMEDIES if isinstance(error, kind))
    return " ".join(filter(None, (_correct_spelling(error), next(known, None)))) or None


_SPELLINGS: tuple[
    tuple[type[MoldauError], Callable[[str], Iterable[str]], tuple[str, ...]], ...
] = (
    (UnknownTopicError, ask_for_topics, ("topic", "topics", "name", "names", "source")),
    (GroupNotFoundError, ask_for_groups, ("group", "name", "names")),
)
"""Of what a name was wrong, who knows the right ones, and which parameters of commands have one."""


def _correct_spelling(error: MoldauError) -> str | None:
    """`did you mean clicks?`, where a name that the cluster has is close to one that was given."""

    for kind, ask, parameters in _SPELLINGS:
        bootstraps = words_of_command("bootstrap")
        if not isinstance(error, kind) or not bootstraps:
            continue
        with contextlib.suppress(MoldauError, OSError):  # the first failure is the one to tell
            there = set(ask(bootstraps[0]))
            for word in words_of_command(*parameters):
                is_told_of = repr(word) in str(error)
                close = find_close(word, there) if is_told_of and word not in there else None
                if close is not None:
                    return f"did you mean {close}?"
    return None
