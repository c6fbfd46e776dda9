"""What a replica of a branched topic begins with, and in which order topics are opened. A rule.

The leader's log is the branch, whatever it takes of the origin. A follower has to have the same
records. It may take its own of the origin while the branch is made; later the origin has gone its
own way: retention and compaction have removed records there that the branch still has, and nobody
would fetch them again. Compaction even does so at once, for the sake of records that are behind the
end of the branch. Such a follower copies the leader's log, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.cluster.rules.metadata_image import BranchOrigin, MetadataImage, TopicState


def find_origin(topic: TopicState, number: int) -> BranchOrigin | None:
    """Where the records of a partition come from; those that were added to a branch have none."""
    origin = topic.origin
    return None if origin is None or number >= origin.partitions else origin


def may_take_origin(*, is_leader: bool, was_seen_made: bool, is_compacted: bool) -> bool:
    """Whether a replica begins with what its origin holds here (BRA-4).

    `was_seen_made` says that the branch is new to this broker, which has run all the time;
    `is_compacted`, that the origin's log is compacted, or was.
    """
    return is_leader or (was_seen_made and not is_compacted)


def origins_first(image: MetadataImage, names: Iterable[str]) -> list[str]:
    """By name, but every branch behind its origin, which it takes its records from."""
    return sorted(names, key=lambda name: (_count_origins(image, name), name))


def _count_origins(image: MetadataImage, name: str) -> int:
    """How many branches are between a topic and one that is none."""
    seen: set[str] = set()
    topic = image.topics.get(name)
    while topic is not None and topic.origin is not None and topic.name not in seen:
        seen.add(topic.name)  # a name may have been given again
        topic = image.topics.get(topic.origin.topic)
    return len(seen)
