"""Which committed offsets are too old to keep (KIP-211). A rule.

- A group that has lost its members keeps its offsets for `offsets.retention.minutes` from then
  on, however old they are.
- A group of consumers at work keeps those of the topics that it reads; others it once committed
  age from their commit.
- Positions of somebody who never joined (a lone consumer, an administrator) age from their commit.
- A commit by an old client may name its own time.
- Those of a consumer group (KIP-848) or a streams group (KIP-1071) age from their commit, except
  in topics that it reads.
- Anybody else's, and those of a group that is rebalancing, stay.
- So does an offset that a transaction which is still open may replace.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.groups.rules.consumer_group import ConsumerGroup
from moldau.groups.rules.group import ClassicGroupState
from moldau.groups.rules.offset_group import OffsetGroup
from moldau.groups.rules.records import CommittedOffset
from moldau.groups.rules.streams_group import StreamsGroup
from moldau.groups.rules.subscription import CONSUMER_PROTOCOL_TYPE
from moldau.model import NO_TIMESTAMP

AgeFrom = Callable[[CommittedOffset], int]


def find_expired(group: OffsetGroup, retention_ms: int, now_ms: int) -> list[tuple[str, int]]:
    """Topic and partition of each committed offset that has expired."""
    age_from = _age_rule(group)
    if age_from is None:
        return []
    return [
        (topic, partition)
        for topic, partition, committed in group.offsets
        if not group.is_subscribed_to(topic)
        and not group.pending_offsets.holds(topic, partition)
        and _has_expired(committed, age_from, retention_ms, now_ms)
    ]


def _age_rule(group: OffsetGroup) -> AgeFrom | None:
    """From when on offsets age; None where they do not."""
    if isinstance(group, ConsumerGroup | StreamsGroup):
        return _since_commit
    if not group.protocol_type:
        return _since_commit
    if group.state is ClassicGroupState.EMPTY:
        since_ms = NO_TIMESTAMP if group.stored is None else group.stored.state_timestamp_ms
        return _since_commit if since_ms == NO_TIMESTAMP else lambda _: since_ms
    if group.state is ClassicGroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return _since_commit
    return None


def _since_commit(committed: CommittedOffset) -> int:
    return committed.commit_timestamp_ms


def _has_expired(
    committed: CommittedOffset, age_from: AgeFrom, retention_ms: int, now_ms: int
) -> bool:
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - age_from(committed) >= retention_ms
