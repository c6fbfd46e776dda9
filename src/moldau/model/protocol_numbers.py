"""Numbers that stand for something in Kafka's protocol and files: "unknown", "none", "the end"."""

from __future__ import annotations

from typing import Final

from moldau.model.identifiers import BrokerId, LeaderEpoch

LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL_TIMESTAMP: Final = -4
LATEST_TIERED_TIMESTAMP: Final = -5
"""What ListOffsets takes in the place of a timestamp: the end, the beginning, the newest record."""

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)

NO_BROKER: Final = BrokerId(-1)
"""In the place of a leader or a controller: there is none at the moment."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
"""Of a batch whose producer is not idempotent."""

NO_GENERATION: Final = -1
"""The generation of somebody who commits without being a member."""

CONSUMER: Final = -1
"""In the place of a replica's broker id: the request comes from a client."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""Isolation levels."""
