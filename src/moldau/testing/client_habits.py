"""How the clients and brokers of one seed go about it: what differs from seed to seed. Values.

Most seeds have one or two habits that make rare paths common: batches that a worker has to unpack,
fetches that reach their size limits on every turn, consumers that read from the nearest replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Final

from moldau.records.compression import Codec

_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_PLENTY_BYTES: Final = 1 << 20
RACKS: Final = ("north", "south")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHabits:
    """Of one run."""

    codecs: tuple[Codec, ...] = (Codec.NONE,)
    """Producers choose one of these for each batch."""
    topic_codec: str = "producer"
    """`compression.type` of the topic; if it is not the producer's, a worker packs every batch."""
    most_in_flight: int = 1
    """Batches of an idempotent producer that are under way at the same time."""
    delivery_timeout_ms: int | None = None
    """After which producers give up a record; None for never."""
    reads_nearest: bool = False
    """Consumers read from a replica in their rack (KIP-392)."""
    group_members: int = 0
    """Of a group that shares the partitions."""
    fetch_max_bytes: int = _PLENTY_BYTES
    broker_options: Mapping[str, str] = field(default_factory=dict)

    def rack_of(self, broker_id: int) -> str:
        return RACKS[broker_id % len(RACKS)]


def draw_habits(random: Random) -> ClientHabits:
    """Each habit on its own, so that they meet now and then."""
    options: dict[str, str] = {}
    codecs: tuple[Codec, ...] = (Codec.NONE,)
    topic_codec = "producer"
    if random.random() < 0.4:
        codecs = tuple(Codec)
        topic_codec = random.choice(("producer", "producer", "gzip", "lz4", "uncompressed"))
    most_in_flight = random.choice((1, 1, 2, 5))
    delivery_timeout_ms = random.choice((None, None, None, 2_500))
    reads_nearest = random.random() < 0.3
    if reads_nearest:
        options["replica.selector.class"] = _RACK_AWARE
    group_members = random.choice((0, 2, 3))
    fetch_max_bytes = random.choice((_PLENTY_BYTES, _PLENTY_BYTES, 1, 200))
    if random.random() < 0.3:
        # A few batches at a time: with less, a follower at the end of a long link falls behind.
        limit = random.choice(("1500", "3000"))
        options["replica.fetch.max.bytes"] = limit
        options["replica.fetch.response.max.bytes"] = random.choice((limit, "4000", "10485760"))
    if group_members and random.random() < 0.3:
        options["group.consumer.assignment.interval.ms"] = "1000"
        options["group.share.assignment.interval.ms"] = "1000"
    return ClientHabits(
        codecs=codecs,
        topic_codec=topic_codec,
        most_in_flight=most_in_flight,
        delivery_timeout_ms=delivery_timeout_ms,
        reads_nearest=reads_nearest,
        group_members=group_members,
        fetch_max_bytes=fetch_max_bytes,
        broker_options=options,
    )
