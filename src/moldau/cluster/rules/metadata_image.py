"""What the cluster looks like: brokers, topics, partitions and their configs, at one moment.

An image never changes. A change makes the next image, with a higher version, that shares with the
old one everything that did not change. Handlers take the current image once and read from it
without locks. A rule: values in, values out. Where images come from: `metadata_publisher`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from moldau.model import (
    NO_ACLS,
    NO_BROKER,
    NO_TIMESTAMP,
    AclEntry,
    Acls,
    BrokerId,
    LeaderEpoch,
    ResourcePattern,
    TopicId,
    TopicPartition,
)
from moldau.quotas import NO_QUOTAS, QuotaEntity, Quotas

K = TypeVar("K")
S = TypeVar("S")

NO_NODE = -1
"""The version of a partition state that was not written yet."""

NO_TOPIC_ID = TopicId(UUID(int=0))
"""A topic that an old tool wrote and the controller has not named yet."""


NOTHING_DELETED: Mapping[str, TopicId] = MappingProxyType({})
NOTHING_SET: Mapping[str, str] = MappingProxyType({})

DELETIONS_REMEMBERED = 5000
"""In an image: enough for every log that waits for the image to be applied."""


class DeletedTopic(NamedTuple):
    """The record of a deleted topic (`/admin/deleted_topics`). The topic's name is free again."""

    name: str
    deleted_ms: int  # the store's clock


NO_DELETIONS: Mapping[TopicId, DeletedTopic] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where clients reach a broker on one of its listeners."""

    listener_name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """A broker that is alive."""

    id: BrokerId
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    epoch: int = -1  # the creation id of its registration: a broker that came back has a higher one

    def find_endpoint(self, listener_name: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener_name == listener_name:
                return endpoint
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Who leads a partition, and who follows closely enough to be trusted with it."""

    leader: BrokerId  # NO_BROKER while nobody can lead
    leader_epoch: LeaderEpoch  # grows by one with each election
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]  # the first one is the preferred leader
    controller_epoch: int = 0  # of the controller that wrote it
    version: int = NO_NODE  # of the state node, for the next versioned write
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    elr: tuple[BrokerId, ...] = ()  # eligible leaders: not in sync, with every committed record
    last_known_elr: tuple[BrokerId, ...] = ()  # were in sync or eligible, and came back with a hole
    last_known_leader: BrokerId = NO_BROKER  # of interest only while nobody leads


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchOrigin:
    """What a topic was branched from: its replicas begin with what theirs hold (BRA-2)."""

    topic: str
    topic_id: TopicId  # another topic may have the name by now
    partitions: int  # so many of the first have an origin; both topics may have grown since
    newest_epoch: LeaderEpoch  # batches of the branch up to this epoch are the origin's


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic: its partitions in the order of their numbers, and the configs set on it."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str] = field(default_factory=dict)  # only what differs from the defaults
    version: int = NO_NODE  # of the topic's node, which holds the replicas
    origin: BranchOrigin | None = None  # of a branch
    created_ms: int = field(default=NO_TIMESTAMP, compare=False)  # the store's clock, if known

    def find_partition(self, partition: int) -> PartitionState | None:
        return self.partitions[partition] if 0 <= partition < len(self.partitions) else None


def newest_states(known: TopicState | None, read: TopicState) -> TopicState:
    """`read`, except that nothing in it goes back to what is older than what is known.

    A partition's replicas are in the topic's node and the rest of its state in one of its own; both
    are read as they were at one moment, and stay together (META-4): of two readings of a partition
    the one with the newer state is taken whole. Where a tool has changed the topic's node alone,
    the newer version of that node decides. Which partitions there are, it decides always.
    """
    if known is None or known.topic_id != read.topic_id or read.topic_id == NO_TOPIC_ID:
        return read
    older, newer = (known, read) if known.version <= read.version else (read, known)
    partitions = tuple(
        _newest_partition(older.find_partition(number), state)
        for number, state in enumerate(newer.partitions)
    )
    return replace(read, version=newer.version, partitions=partitions)


def _newest_partition(older: PartitionState | None, newer: PartitionState) -> PartitionState:
    """`newer` was read with the newer node of the topic."""
    return newer if older is None or _order_of(older) <= _order_of(newer) else older


def _order_of(state: PartitionState) -> tuple[LeaderEpoch, int]:
    """Leader epochs only grow. The version of the state's node does so within one: it begins anew
    where somebody has removed the node and put it back, which a broker may not have seen."""
    return state.leader_epoch, state.version


def find_later_epoch(
    epoch: LeaderEpoch, isr: Collection[BrokerId], state: PartitionState
) -> LeaderEpoch | None:
    """Whether a state contradicts a later one that is known, by its epoch and in-sync set (DEL-2).

    It does if it is of an earlier epoch, or trusts somebody who was not in sync under the same one.
    Then this is an epoch as late as the known one, and later than the state's; else None.
    """
    is_trusting = not set(state.isr) <= set(isr)
    if state.leader_epoch < epoch or (state.leader_epoch == epoch and is_trusting):
        return max(epoch, LeaderEpoch(state.leader_epoch + 1))
    return None


def find_regressed_epochs(
    known: TopicState | None, read: TopicState
) -> dict[TopicPartition, LeaderEpoch]:
    """The partitions whose states went back and contradict what is known, where that is no late
    news; each with an epoch later than all."""
    if known is None or known.topic_id != read.topic_id or read.topic_id == NO_TOPIC_ID:
        return {}
    found = {}
    for number, (ours, theirs) in enumerate(zip(known.partitions, read.partitions, strict=False)):
        epoch = find_later_epoch(ours.leader_epoch, ours.isr, theirs)
        if _order_of(theirs) < _order_of(ours) and epoch is not None:
            found[TopicPartition(read.name, number)] = epoch
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """The cluster at one moment. `topics` and `topics_by_id` hold the same topics, `deletion_times`
    says when the last topic of each name in `deleted` went.

    Where nothing changes by it, a `with_` gives the same image: a change may be read before its
    writer applies it. That of topics is the exception; who calls it knows what has changed.
    """

    cluster_id: str
    controller_id: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, BrokerState] = field(default_factory=dict)
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicState] = field(default_factory=dict)
    deleting: Mapping[str, TopicId] = field(default_factory=dict)  # no topic any more, not gone yet
    deleted: Mapping[TopicId, DeletedTopic] = field(default_factory=dict)  # gone, the last of them
    """A topic that is neither here nor in the others has vanished: that is no deletion (DEL-1)."""
    deletion_times: Mapping[str, int] = field(default_factory=dict)  # by name; the store's clock
    unreadable: frozenset[str] = frozenset()  # topics whose nodes made no sense from the start
    broker_configs: Mapping[BrokerId, Mapping[str, str]] = field(default_factory=dict)
    default_broker_config: Mapping[str, str] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By group id, of those that have set something; the groups need not exist."""
    acls: Acls = field(default_factory=lambda: NO_ACLS)
    """Of brokers with an authorizer. The same object as long as none of them changes."""
    quotas: Quotas = field(default_factory=lambda: NO_QUOTAS)  # of users, clients and addresses
    version: int = 0  # grows by one with each image

    def find_partition(self, topic: str, partition: int) -> PartitionState | None:
        state = self.topics.get(topic)
        return None if state is None else state.find_partition(partition)

    def broker_config(self, broker_id: BrokerId | None) -> Mapping[str, str]:
        """What was set for one broker, or for all of them (None)."""
        if broker_id is None:
            return self.default_broker_config
        return self.broker_configs.get(broker_id, {})

    def group_config(self, group_id: str) -> Mapping[str, str]:
        return self.group_configs.get(group_id, NOTHING_SET)

    def with_topics(
        self,
        changed: Iterable[TopicState],
        removed: Collection[str] = (),
        deleting: Mapping[str, TopicId] = NOTHING_DELETED,
        deleted: Mapping[TopicId, DeletedTopic] = NO_DELETIONS,
    ) -> MetadataImage:
        """Put topics in (or in the place of their former state), and take others out.

        Those of `deleting` are taken out too; their names are not free again yet. `deleted` are
        topics that somebody has deleted, and that did not merely vanish.
        """
        changed = tuple(changed)
        topics = dict(self.topics)
        by_id = dict(self.topics_by_id)
        known = _latest({**self.deleted, **deleted}) if deleted else self.deleted
        still = {**self.deleting}
        for name in (*removed, *deleting):
            still.pop(name, None)
            former = topics.pop(name, None)
            if former is not None:
                by_id.pop(former.topic_id, None)
        for topic in changed:
            former = topics.get(topic.name)
            if former is not None:
                by_id.pop(former.topic_id, None)
            topics[topic.name] = topic
            still.pop(topic.name, None)
            if topic.topic_id != NO_TOPIC_ID:
                by_id[topic.topic_id] = topic
        return replace(
            self,
            topics=topics,
            topics_by_id=by_id,
            deleting={**still, **deleting},
            unreadable=self.unreadable - {*removed, *deleting, *(topic.name for topic in changed)},
            deleted=known,
            deletion_times=dict(known.values()) if deleted else self.deletion_times,
            version=self.version + 1,
        )

    def was_deleted(self, name: str | None, topic_id: UUID | None, since_ms: float = inf) -> bool:
        """Whether somebody asked for this topic's deletion; a topic that is merely not in the image
        may come back (DEL-1).

        Without an id: any topic of the name that is marked; with `since_ms`, which is for what is
        known by its name only, also one that was deleted at this time or later. Without a name: the
        topic of the id.
        """
        if topic_id in self.deleted:
            return True
        if name is None:
            return topic_id is not None and topic_id in self.deleting.values()
        if name in self.deleting and topic_id in (None, self.deleting[name]):
            return True
        return topic_id is None and self.deletion_times.get(name, -inf) >= since_ms

    def find_deletion_ms(self, name: str, topic_id: TopicId | None) -> int | None:
        """When a topic was deleted; without an id, the last one of the name."""
        if topic_id is None:
            return self.deletion_times.get(name)
        found = self.deleted.get(topic_id)
        return None if found is None else found.deleted_ms

    def with_brokers(self, brokers: Iterable[BrokerState]) -> MetadataImage:
        """These brokers are alive, and no others."""
        return self._with(brokers={broker.id: broker for broker in brokers})

    def with_controller(self, controller_id: BrokerId) -> MetadataImage:
        return self._with(controller_id=controller_id)

    def with_broker_config(
        self, broker_id: BrokerId | None, config: Mapping[str, str]
    ) -> MetadataImage:
        """Replace what is set for one broker, or for all of them (None)."""
        if broker_id is None:
            return self._with(default_broker_config=dict(config))
        return self._with(broker_configs=_with_rows(self.broker_configs, {broker_id: dict(config)}))

    def with_group_configs(self, rows: Mapping[str, Mapping[str, str]]) -> MetadataImage:
        """Replace what is set for some groups."""
        return self._with(group_configs=_with_rows(self.group_configs, rows))

    def with_acls(self, rows: Mapping[ResourcePattern, frozenset[AclEntry]]) -> MetadataImage:
        """Replace the entries of some patterns; one without entries is gone."""
        return self._with(acls=_with_rows(self.acls, rows))

    def with_quotas(self, rows: Mapping[QuotaEntity, Mapping[str, float]]) -> MetadataImage:
        """Replace the quotas of some entities."""
        return self._with(quotas=_with_rows(self.quotas, rows))

    def _with(self, **values: Any) -> MetadataImage:
        if all(getattr(self, name) == value for name, value in values.items()):
            return self
        return replace(self, **values, version=self.version + 1)


def find_missing_ids(
    image: MetadataImage, names: Iterable[str], found: Iterable[TopicState]
) -> list[TopicId]:
    """The ids that the image has for these names, and that no topic found has any more."""
    ids = {topic.topic_id for topic in found} | {NO_TOPIC_ID}
    gone = []
    for name in sorted(names):
        known = image.topics.get(name)
        topic_id = image.deleting.get(name) if known is None else known.topic_id
        if topic_id is not None and topic_id not in ids:
            gone.append(topic_id)
    return gone


def split_changes(
    changed: Iterable[TopicPartition], image: MetadataImage
) -> tuple[set[str], dict[str, set[int]]]:
    """Topics to be read as a whole, and partitions of others whose states are enough."""
    whole: set[str] = set()
    some: dict[str, set[int]] = {}
    for name, number in changed:
        if image.find_partition(name, number) is None:
            whole.add(name)
        else:
            some.setdefault(name, set()).add(number)
    return whole, {name: numbers for name, numbers in some.items() if name not in whole}


def _with_rows(known: Mapping[K, S], rows: Mapping[K, S]) -> dict[K, S]:
    """An empty row takes out the one before it."""
    return {key: row for key, row in {**known, **rows}.items() if row}


def _latest(deleted: Mapping[TopicId, DeletedTopic]) -> Mapping[TopicId, DeletedTopic]:
    return dict(tuple(deleted.items())[-DELETIONS_REMEMBERED:])


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


def find_partition_changes(
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
