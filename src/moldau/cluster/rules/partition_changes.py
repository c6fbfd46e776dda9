"""What changed between two images: in-sync sets, leaders, brokers, the controller. A rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from moldau.cluster.rules.metadata_image import NO_NODE, MetadataImage, PartitionState
from moldau.model import NO_BROKER, TopicPartition


class PartitionChange(NamedTuple):
    """A partition before and after; not one that was made just now."""

    topic_partition: TopicPartition
    former: PartitionState
    state: PartitionState

    @property
    def left(self) -> tuple[int, ...]:
        """Who is not in sync any more."""
        return tuple(one for one in self.former.isr if one not in self.state.isr)

    @property
    def joined(self) -> tuple[int, ...]:
        return tuple(one for one in self.state.isr if one not in self.former.isr)

    @property
    def is_election(self) -> bool:
        """Whether somebody else leads; nobody is nobody."""
        return self.state.leader not in (NO_BROKER, self.former.leader)

    @property
    def is_unclean(self) -> bool:
        """Whether the new leader was neither in sync nor eligible: records may be lost."""
        former = self.former
        return self.is_election and self.state.leader not in (*former.isr, *former.elr)


def find_changes(
    former: MetadataImage, image: MetadataImage, changed_topics: Iterable[str]
) -> Iterator[PartitionChange]:
    """Of partitions whose leader or in-sync set is another one."""
    for name in sorted(changed_topics):
        before, after = former.topics.get(name), image.topics.get(name)
        if before is None or after is None or before.topic_id != after.topic_id:
            continue
        for number, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=False)):
            if old is new or old.version == NO_NODE:
                continue
            if old.leader != new.leader or set(old.isr) != set(new.isr):
                yield PartitionChange(TopicPartition(name, number), old, new)


def describe_isr(change: PartitionChange) -> str | None:
    """What became of the in-sync set; None where it is the same."""
    words = [f"{_brokers(change.left)} left" if change.left else ""]
    words.append(f"{_brokers(change.joined)} joined" if change.joined else "")
    said = " and ".join(filter(None, words))
    if not said:
        return None
    former, isr = list(change.former.isr), list(change.state.isr)
    return f"{said} the in-sync set, which is {isr} after {former}"


def describe_leader(change: PartitionChange) -> str | None:
    """Who leads and why, as far as the states tell; None where it is the same."""
    former, state = change.former, change.state
    if former.leader == state.leader:
        return None
    if state.leader == NO_BROKER:
        return f"nobody leads any more: broker {former.leader} did, and none in sync is alive"
    before = "nobody did" if former.leader == NO_BROKER else f"broker {former.leader} did"
    clean = ", though it was not in sync: committed records may be lost" * change.is_unclean
    preferred = " (the preferred one)" * (state.leader == state.replicas[0])
    return (
        f"broker {state.leader}{preferred} leads under epoch {state.leader_epoch}; before, "
        f"{before}{clean}"
    )


def _brokers(numbers: Iterable[int]) -> str:
    named = sorted(numbers)
    return f"broker{'s' if len(named) > 1 else ''} {', '.join(map(str, named))}"
