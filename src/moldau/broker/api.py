"""What a handler says about itself: the API, and how it wants its request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from moldau.wire.apis import Api


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedApi:
    """One API as this broker serves it. There is one object for each, compared by identity: the
    tuple of them is a cache's key on every ApiVersions request."""

    name: str
    """kio's, and so is the handler's module name: `list_offsets`."""
    key: int
    first: int
    last: int
    advertised_first: int
    """ApiVersions names this one; it differs from `first` only where a client insists."""
    droppable: frozenset[str]
    """Fields of the newest answer that an older version may lose."""
    by_hand: bool
    """The handler reads and writes its frames itself (Produce and Fetch)."""


def serves(
    api: Api,
    *,
    advertised_first: int | None = None,
    droppable: Iterable[str] = (),
    by_hand: bool = False,
) -> ServedApi:
    """Declare an API, in the versions that the table names."""
    first, last = api.served
    return ServedApi(
        name=re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower(),
        key=api.key,
        first=first,
        last=last,
        advertised_first=first if advertised_first is None else advertised_first,
        droppable=frozenset(droppable),
        by_hand=by_hand,
    )
