"""What a store that serves sessions and its clients say to each other. Values.

A session is one conversation (`Hello`, then requests by number) that may go on over another
connection. Three use it: `store_session` is the client; `store_server` serves the embedded store of
one machine; `moldau.simulation.coordination_service` is the service of a simulated cluster. How
messages travel is a matter of each: `store_codec` has their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from moldau.coordination.port import CoordinationError, Node
from moldau.coordination.tree import TreeOperation, TreeOutcome
from moldau.coordination.watches import WatchKind


class WatchPlace(NamedTuple):
    kind: WatchKind
    path: str


# From a client


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Asks for a new session (`session_id` 0), or comes back to one."""

    session_id: int
    timeout_seconds: float
    watches: Sequence[WatchPlace]
    seen: int  # the last change that the client knows of
    process_id: int = 0  # of the client, where the service can see it end; 0 elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadNodes:
    number: int
    paths: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChildren:
    number: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    number: int
    operations: Sequence[TreeOperation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bye:
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddWatch:
    place: WatchPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveWatch:
    place: WatchPlace


ToService = Hello | Ping | ReadNodes | ReadChildren | Write | Bye | AddWatch | RemoveWatch


# From the service


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    session_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The session that the client speaks of is over."""


Result = (
    Sequence[Node | None]
    | Sequence[str]
    | Sequence[TreeOutcome]
    | CoordinationError
    | ValueError
    | None
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAnswer:
    number: int
    result: Result
    seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Something changed at a place that is watched."""

    place: WatchPlace
    seen: int


ToClient = Welcome | Expired | StoreAnswer | Told
