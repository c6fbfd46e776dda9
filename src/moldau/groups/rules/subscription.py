"""The topics that consumers have subscribed to, read from what they say to each other.

The metadata of the `consumer` protocol is the clients' own affair, but its beginning has been the
same in all versions: a version, then the names of the topics. Kafka reads that much, to keep the
offsets of subscribed topics from expiring and from being deleted. A rule.

    version int16, topics [string int16], ...
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def find_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of one member; None where the bytes are not what the protocol says."""
    topics = set()
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            name = metadata[position : position + length]
            if length < 0 or len(name) < length:
                return None
            topics.add(str(name, "utf-8"))
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)


def find_subscribed_topics(
    protocol_type: str, subscriptions: Iterable[bytes]
) -> frozenset[str] | None:
    """The topics of all members together; None when that is not known."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for subscription in subscriptions:
        found = find_topics(subscription)
        if found is None:
            return None
        topics |= found
    return frozenset(topics)
