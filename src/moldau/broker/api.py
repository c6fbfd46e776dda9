"""What a handler says about itself: the API, how it wants its request, and what that may do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.wire.apis import Api


class ServedApi(NamedTuple):
    """One API as this broker serves it."""

    name: str
    """kio's, and so is the handler's module name: `list_offsets`."""
    key: int
    first: int
    last: int
    droppable: frozenset[str]
    """Fields of the newest answer that an older version may lose."""
    by_hand: bool
    """The handler reads and writes its frames itself (Produce and Fetch)."""
    changes_cluster: bool
    """A request is finished, and audited, when the client has gone. It may have gone on purpose:
    what was sent to the store is done there, whoever waits for it."""


def serves(
    api: Api,
    *,
    droppable: Iterable[str] = (),
    by_hand: bool = False,
    changes_cluster: bool = False,
) -> ServedApi:
    """Declare an API, in the versions that the table names."""
    first, last = api.served
    return ServedApi(
        name=api.snake_name,
        key=api.key,
        first=first,
        last=last,
        droppable=frozenset(droppable),
        by_hand=by_hand,
        changes_cluster=changes_cluster,
    )
