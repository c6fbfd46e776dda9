"""kazoo's exceptions in the port's words."""

from __future__ import annotations

from collections.abc import Sequence

from kazoo import exceptions as kazoo

from moldau.coordination.port import (
    BadVersionError,
    CoordinationError,
    EphemeralParentError,
    NoAccessError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    StoreLostError,
)


class UnknownRequestError(CoordinationError):
    """The server is too old for the request; nothing was done."""


_ERRORS: tuple[tuple[type[Exception], type[CoordinationError], str], ...] = (
    (kazoo.NoNodeError, NoNodeError, "the node does not exist"),
    (kazoo.NodeExistsError, NodeExistsError, "the node exists already"),
    (kazoo.BadVersionError, BadVersionError, "the node has another version"),
    (kazoo.NotEmptyError, NotEmptyError, "the node has children"),
    (
        kazoo.NoChildrenForEphemeralsError,
        EphemeralParentError,
        "an ephemeral node cannot have children",
    ),
    (
        kazoo.NoAuthError,
        NoAccessError,
        "ZooKeeper refuses access; is zookeeper.auth.credential the one that made the nodes?",
    ),
    (kazoo.UnimplementedError, UnknownRequestError, "the server does not know the request"),
    (kazoo.BadArgumentsError, UnknownRequestError, "the server does not take the request"),
    (kazoo.SessionExpiredError, SessionExpiredError, "the session is over"),
    (kazoo.AuthFailedError, SessionExpiredError, "ZooKeeper refused the credential"),
)


def translate(error: BaseException) -> CoordinationError:
    """What the table does not name leaves it open whether the request was carried out."""
    for theirs, ours, message in _ERRORS:
        if isinstance(error, theirs):
            return ours(message)
    return StoreLostError(f"ZooKeeper did not answer: {error!r}")


def first_failure(results: Sequence[object]) -> tuple[int, CoordinationError] | None:
    """The operation at which a transaction failed; those around it were only taken along."""
    bystanders = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
    for number, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, bystanders):
            return number, translate(result)
    return None
