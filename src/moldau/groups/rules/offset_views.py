"""OffsetFetch: what is committed for a group, and who may ask. A rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import ErrorCode, GroupNotFoundError
from moldau.groups.rules.commits import check_epoch
from moldau.groups.rules.consumer_group import ConsumerGroup
from moldau.groups.rules.deleted_topics import is_current
from moldau.groups.rules.offset_group import OffsetGroup
from moldau.groups.rules.records import CommittedOffset
from moldau.groups.rules.share_group import ShareGroup
from moldau.groups.rules.streams_commits import check_streams_member
from moldau.groups.rules.streams_group import StreamsGroup

FoundOffsets = dict[str, dict[int, CommittedOffset | ErrorCode | None]]
"""By topic and partition; None where nothing is committed, a code where it cannot be told."""


def find_offsets(
    group: OffsetGroup | ShareGroup | None,
    wanted: Mapping[str, Sequence[int]] | None,
    member: tuple[str, int] | None,
    *,
    require_stable: bool,
    image: MetadataImage,
) -> FoundOffsets:
    """See `GroupCoordinator.fetch_offsets`. Raises `KafkaError` for who may not ask."""
    if isinstance(group, ShareGroup):
        raise GroupNotFoundError(f"group {group.group_id!r} is a share group")
    if member is not None and isinstance(group, ConsumerGroup):
        check_epoch(group, *member)
    if member is not None and isinstance(group, StreamsGroup):
        check_streams_member(group, *member)
    return _find_in(group, wanted, require_stable, image)


def _find_in(
    group: OffsetGroup | None,
    wanted: Mapping[str, Sequence[int]] | None,
    require_stable: bool,
    image: MetadataImage,
) -> FoundOffsets:
    if group is None:
        return {topic: dict.fromkeys(numbers) for topic, numbers in (wanted or {}).items()}
    offsets, pending = group.offsets, group.pending_offsets
    found: FoundOffsets
    if wanted is not None:
        found = {
            topic: {
                number: _current(topic, offsets.find(topic, number), image) for number in numbers
            }
            for topic, numbers in wanted.items()
        }
    else:
        found = {}
        for topic, number, committed in offsets:
            if is_current(topic, committed, image):
                found.setdefault(topic, {})[number] = committed
    if require_stable and pending:
        for topic, of_topic in found.items():
            for partition in of_topic:
                if pending.holds(topic, partition):
                    of_topic[partition] = ErrorCode.unstable_offset_commit
    return found


def _current(
    topic: str, committed: CommittedOffset | None, image: MetadataImage
) -> CommittedOffset | None:
    """An offset that belongs to a deleted topic is not shown (GRP-10)."""
    return committed if committed is not None and is_current(topic, committed, image) else None
