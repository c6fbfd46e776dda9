"""Who may commit and look up the offsets of a streams group (KIP-1071). A rule.

A member commits in its own epoch. It may not have heard yet that it has come to another one; then
what it commits counts in those partitions whose tasks it has since (STG-4): somebody else may have
run the others in between.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.errors import ErrorCode, StaleMemberEpochError, UnknownMemberError
from moldau.groups.rules.streams_group import StreamsGroup


def find_streams_commit_fault(
    group: StreamsGroup, member_id: str, epoch: int, partitions: Iterable[tuple[str, int]]
) -> ErrorCode | None:
    """Of all partitions together, as in Kafka."""
    if epoch < 0 and not group.members:
        return None  # an administrator, while nobody is in it
    if member_id not in group.members:
        return ErrorCode.unknown_member_id
    current = group.assignment_of(member_id)
    if epoch == current.epoch:
        return None
    if epoch > current.epoch:
        return ErrorCode.stale_member_epoch
    for topic, partition in partitions:
        subtopology_id = group.reader_of(topic)
        since = None if subtopology_id is None else current.since.get((subtopology_id, partition))
        if since is None or epoch < since:
            return ErrorCode.stale_member_epoch
    return None


def check_streams_member(group: StreamsGroup, member_id: str, epoch: int) -> None:
    """Raise why a member may not look up offsets."""
    if member_id not in group.members:
        raise UnknownMemberError(f"{member_id!r} is no member of {group.group_id!r}")
    if epoch != group.assignment_of(member_id).epoch:
        raise StaleMemberEpochError(f"{member_id} is not in epoch {epoch} of the group")
