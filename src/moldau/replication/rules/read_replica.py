"""Which replica a consumer with a rack should read from (KIP-392). A rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.model import BrokerId

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableReplica:
    """A living follower, as far as its leader knows it."""

    rack: str | None
    log_start_offset: int
    log_end_offset: int
    caught_up_at: float


def choose_read_replica(
    followers: Mapping[BrokerId, ReadableReplica],
    *,
    client_rack: str,
    leader_rack: str | None,
    fetch_offset: int,
) -> BrokerId | None:
    """The follower in the client's rack that has the most, or None to read from the leader."""
    if not client_rack or leader_rack == client_rack:
        return None
    near = [
        (replica.log_end_offset, replica.caught_up_at, -broker)
        for broker, replica in followers.items()
        if replica.rack == client_rack
        and 0 <= replica.log_start_offset <= fetch_offset <= replica.log_end_offset
    ]
    return BrokerId(-max(near)[2]) if near else None
