"""Who leads now, as Produce and Fetch tell a client that asked the wrong broker (KIP-951).

Both messages carry the same two tagged fields: the leader of a partition, and where the leaders
are reached. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from moldau.wire.primitives import encode_compact_count, encode_compact_string, encode_varint

_INT32: Final = struct.Struct(">i")
_LEADER: Final = struct.Struct(">Biib")
_LEADER_BYTES: Final = 9


class NodeEndpoint(NamedTuple):
    """Where a broker is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def encode_leader(leader_id: int, leader_epoch: int) -> bytes:
    """Size and value of a leader's tagged field, to follow its tag."""
    return _LEADER.pack(_LEADER_BYTES, leader_id, leader_epoch, 0)


def encode_endpoints_tag(node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields of a response that has endpoints: one field, with tag 0."""
    parts = [encode_compact_count(len(node_endpoints))]
    for node_id, host, port, rack in node_endpoints:
        parts += (_INT32.pack(node_id), encode_compact_string(host))
        parts += (_INT32.pack(port), encode_compact_string(rack), b"\0")
    value = b"".join(parts)
    return b"".join((b"\x01\x00", encode_varint(len(value)), value))
