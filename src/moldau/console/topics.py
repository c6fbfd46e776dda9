"""Topics: their partitions and settings as rows, making, changing and deleting them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.admin.values import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from moldau.client.rules.cluster_metadata import PartitionMetadata, TopicMetadata
from moldau.console.cluster import Cluster
from moldau.console.paging import Page, PageRequest, cut_page, matches, natural_key, sort_rows
from moldau.errors import ConfigurationError, KafkaError
from moldau.model import TopicPartition, records_behind
from moldau.ops.cluster_view import is_offline, is_under_replicated, read_offsets


@dataclass(frozen=True, slots=True)
class TopicPage:
    """A topic, and the rows of one page of its partitions."""

    topic: TopicMetadata
    page: Page[PartitionRow]


async def require_topic(cluster: Cluster, name: str) -> TopicMetadata:
    found = (await cluster.admin.describe_topics((name,)))[name]
    if isinstance(found, KafkaError):
        raise found
    return found


async def read_partitions(
    cluster: Cluster,
    name: str,
    request: PageRequest,
    sizes: Mapping[TopicPartition, int],
    *,
    only_troubled: bool,
) -> TopicPage:
    topic = await require_topic(cluster, name)
    chosen = [
        one
        for one in topic.partitions
        if not only_troubled or is_offline(one) or is_under_replicated(one)
    ]
    page = cut_page(chosen[::-1] if request.descending else chosen, request)
    led = [TopicPartition(name, one.index) for one in page.rows if not is_offline(one)]
    starts = await read_offsets(cluster.admin, led, OffsetSpec.EARLIEST)
    ends = await read_offsets(cluster.admin, led, OffsetSpec.LATEST)
    rows = []
    for one in page.rows:
        partition = TopicPartition(name, one.index)
        rows.append(
            partition_row(one, starts.get(partition), ends.get(partition), sizes.get(partition))
        )
    return TopicPage(topic, Page(rows, page.total, page.number))


async def read_configs(cluster: Cluster, resource: ConfigResource) -> list[ConfigRow]:
    found = await cluster.admin.describe_configs((resource,), with_documentation=True)
    return config_rows(_require(found[resource]), resource.type)


async def read_settings(cluster: Cluster, resource: ConfigResource) -> Mapping[str, str | None]:
    found = await cluster.admin.describe_configs((resource,))
    return {entry.name: entry.value for entry in _require(found[resource])}


def _require(found: tuple[ConfigEntry, ...] | KafkaError) -> tuple[ConfigEntry, ...]:
    if isinstance(found, KafkaError):
        raise found
    return found


async def change_config(cluster: Cluster, resource: ConfigResource, edit: ConfigEdit) -> None:
    cluster.require_writable()
    answers = await cluster.admin.alter_configs({resource: (edit.change,)})
    error = answers[resource]
    if error is not None:
        raise error


async def create_topic(cluster: Cluster, topic: NewTopic) -> None:
    cluster.require_writable()
    answer = (await cluster.admin.create_topics((topic,)))[topic.name]
    if isinstance(answer, KafkaError):
        raise answer


async def delete_topic(cluster: Cluster, name: str) -> None:
    cluster.require_writable()
    error = (await cluster.admin.delete_topics((name,)))[name]
    if error is not None:
        raise error


HEALTHY, UNDER_REPLICATED, OFFLINE = "in sync", "under-replicated", "offline"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic in the list. What is not known yet is None."""

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    size_bytes: int | None
    rate: float | None

    @property
    def state(self) -> str:
        if self.offline:
            return f"{self.offline:,} {OFFLINE}"
        if self.under_replicated:
            return f"{self.under_replicated:,} {UNDER_REPLICATED}"
        return HEALTHY

    @property
    def severity(self) -> int:
        """0 healthy, 1 under-replicated, 2 offline."""
        return 2 if self.offline else 1 if self.under_replicated else 0


_SORT_KEYS = {
    "name": lambda row: natural_key(row.name),
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replication_factor,
    "state": lambda row: (row.severity, row.offline, row.under_replicated),
    "size": lambda row: row.size_bytes,
    "rate": lambda row: row.rate,
}


def partition_state(partition: PartitionMetadata) -> str:
    if is_offline(partition):
        return OFFLINE
    return UNDER_REPLICATED if is_under_replicated(partition) else HEALTHY


def topic_row(
    topic: TopicMetadata, sizes: Mapping[str, int] | None, rates: Mapping[str, float]
) -> TopicRow:
    return TopicRow(
        name=topic.name,
        is_internal=topic.is_internal,
        partitions=len(topic.partitions),
        replication_factor=max((len(one.replicas) for one in topic.partitions), default=0),
        under_replicated=sum(map(is_under_replicated, topic.partitions)),
        offline=sum(map(is_offline, topic.partitions)),
        size_bytes=None if sizes is None else sizes.get(topic.name, 0),
        rate=rates.get(topic.name),
    )


def choose_topics(
    rows: Sequence[TopicRow], request: PageRequest, *, with_internal: bool
) -> Sequence[TopicRow]:
    """Those that match the search, in the order asked for; by name otherwise."""
    found = [
        row
        for row in rows
        if (with_internal or not row.is_internal) and matches(row.name, request.search)
    ]
    found.sort(key=lambda row: natural_key(row.name))
    return sort_rows(found, _SORT_KEYS, request)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """A partition; its offsets and size are None until they are known."""

    index: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    missing: tuple[int, ...]
    state: str
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None

    @property
    def records(self) -> int | None:
        """Offsets between start and end: transactions and compaction leave some without a record"""
        return records_behind(self.start_offset, self.end_offset)


def partition_row(
    partition: PartitionMetadata, start: int | None, end: int | None, size_bytes: int | None
) -> PartitionRow:
    return PartitionRow(
        index=partition.index,
        leader=None if is_offline(partition) else partition.leader_id,
        replicas=partition.replicas,
        in_sync=partition.in_sync_replicas,
        missing=tuple(one for one in partition.replicas if one not in partition.in_sync_replicas),
        state=partition_state(partition),
        start_offset=start,
        end_offset=end,
        size_bytes=size_bytes,
    )


def leader_sizes(
    replica_sizes: Mapping[tuple[int, TopicPartition], int], topics: Collection[TopicMetadata]
) -> Mapping[TopicPartition, int]:
    """Of the replicas of each partition, the leader's counts; of an offline one the largest."""
    largest: defaultdict[TopicPartition, int] = defaultdict(int)
    for (_, partition), size in replica_sizes.items():
        largest[partition] = max(largest[partition], size)
    found: dict[TopicPartition, int] = {}
    for topic in topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.index)
            size_of_leader = replica_sizes.get((one.leader_id, partition))
            if size_of_leader is not None:
                found[partition] = size_of_leader
            elif partition in largest:
                found[partition] = largest[partition]
    return found


HIDDEN = "(hidden)"

_OWN_SOURCES = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER,
    ResourceType.GROUP: ConfigSource.DYNAMIC_GROUP,
}
"""What was set for the resource itself, and can be removed from it: the rest is inherited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """A setting; `fallback` is what would apply if it were removed, None where nobody says."""

    name: str
    value: str
    source: str
    fallback: str | None
    is_set: bool
    is_editable: bool
    documentation: str


def config_rows(entries: Iterable[ConfigEntry], kind: ResourceType) -> list[ConfigRow]:
    """What was set for it comes first, each part by name."""
    own = _OWN_SOURCES.get(kind)
    rows = [_config_row(entry, is_set=entry.source is own) for entry in entries]
    return sorted(rows, key=lambda row: (not row.is_set, row.name))


def choose_configs(
    rows: Sequence[ConfigRow], search: str, *, only_set: bool
) -> Sequence[ConfigRow]:
    return [row for row in rows if matches(row.name, search) and (row.is_set or not only_set)]


def _config_row(entry: ConfigEntry, *, is_set: bool) -> ConfigRow:
    return ConfigRow(
        name=entry.name,
        value=HIDDEN if entry.is_sensitive else _text(entry.value),
        source=entry.source.label,
        fallback=_fallback(entry, is_set=is_set),
        is_set=is_set,
        is_editable=not entry.is_read_only and not entry.is_sensitive,
        documentation=entry.documentation or "",
    )


def _fallback(entry: ConfigEntry, *, is_set: bool) -> str | None:
    """Synonyms are in the order in which they apply; the one that does is the first of them."""
    if not is_set:
        return _text(entry.value)
    others = [one for one in entry.synonyms if one.source is not entry.source]
    return _text(others[0].value) if others else None


def _text(value: str | None) -> str:
    return "" if value is None else value


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """A change that was asked for, in words and as the protocol has it; None: nothing changes."""

    change: ConfigChange
    message: str


def plan_edit(row: ConfigRow, wanted: str) -> ConfigEdit | None:
    """Set another value. An empty text is a value, too: lists may be empty."""
    wanted = wanted.strip()
    if wanted == row.value:
        return None
    change = ConfigChange(name=row.name, operation=ConfigOperation.SET, value=wanted)
    return ConfigEdit(change, f"{row.name}: {row.value or '(empty)'} → {wanted or '(empty)'}")


def plan_removal(row: ConfigRow) -> ConfigEdit | None:
    """Go back to what applies otherwise."""
    if not row.is_set:
        return None
    change = ConfigChange(name=row.name, operation=ConfigOperation.DELETE, value=None)
    then = "what applies without it" if row.fallback is None else row.fallback or "(empty)"
    return ConfigEdit(change, f"{row.name}: {row.value or '(empty)'} → {then}, as for others")


def parse_configs(text: str) -> dict[str, str]:
    """`name=value`, one on a line; empty lines do not count."""
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise ConfigurationError(f"{line!r} is not of the form name=value")
        found[name.strip()] = value.strip()
    return found


def parse_headers(text: str) -> list[tuple[str, str]]:
    """`name: value`, one on a line; a name may come several times."""
    found: list[tuple[str, str]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ConfigurationError(f"{line!r} is not of the form name: value")
        found.append((name.strip(), value.strip()))
    return found
