"""What a handler says about itself: the API, the versions, and how it wants its request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Api:
    """One API as this broker serves it. There is one object for each, compared by identity: the
    tuple of them is a cache's key on every ApiVersions request."""

    name: str
    key: int
    first: int
    last: int
    advertised_first: int
    """ApiVersions names this one; it differs from `first` only where a client insists."""
    droppable: frozenset[str]
    """Fields of the newest answer that an older version may lose."""
    by_hand: bool
    """The handler reads and writes its frames itself (Produce and Fetch)."""


_KEYS = {
    "produce": 0,
    "fetch": 1,
    "list_offsets": 2,
    "metadata": 3,
    "offset_commit": 8,
    "offset_fetch": 9,
    "find_coordinator": 10,
    "join_group": 11,
    "heartbeat": 12,
    "leave_group": 13,
    "sync_group": 14,
    "describe_groups": 15,
    "list_groups": 16,
    "api_versions": 18,
    "create_topics": 19,
    "delete_topics": 20,
    "delete_records": 21,
    "init_producer_id": 22,
    "offset_for_leader_epoch": 23,
    "describe_configs": 32,
    "alter_configs": 33,
    "describe_log_dirs": 35,
    "create_partitions": 37,
    "delete_groups": 42,
    "elect_leaders": 43,
    "incremental_alter_configs": 44,
    "alter_partition_reassignments": 45,
    "list_partition_reassignments": 46,
    "offset_delete": 47,
    "describe_cluster": 60,
    "describe_producers": 61,
    "describe_topic_partitions": 75,
}


def serves(
    name: str,
    *,
    first: int,
    last: int,
    advertised_first: int | None = None,
    droppable: Iterable[str] = (),
    by_hand: bool = False,
) -> Api:
    """Declare an API; the name is kio's, and so is the handler's module name."""
    return Api(
        name=name,
        key=_KEYS[name],
        first=first,
        last=last,
        advertised_first=first if advertised_first is None else advertised_first,
        droppable=frozenset(droppable),
        by_hand=by_hand,
    )
