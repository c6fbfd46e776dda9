"""What is committed for a group, and as whom. Values; apart from those of administration
(`group_values`), since every consumer and producer loads them."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.model.protocol_numbers import NO_LEADER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """How far a group has read one partition: the offset that it wants next."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadata:
    """As whom a consumer commits, and for which group; without a generation, as nobody's member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None
