"""Asks about one topic, and changes it: partitions of a page, settings, making, deleting. A shell.

What a page does not show is not asked for: of two thousand partitions the offsets of twenty-five.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from moldau.client.admin_values import (
    ConfigEntry,
    ConfigResource,
    ListedOffset,
    NewTopic,
    OffsetSpec,
)
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.console.data.cluster import Cluster
from moldau.console.rules.paging import Page, PageRequest, cut_page
from moldau.console.rules.topic_rows import (
    ConfigEdit,
    ConfigRow,
    PartitionRow,
    config_rows,
    is_offline,
    is_under_replicated,
    partition_row,
)
from moldau.errors import KafkaError
from moldau.model import TopicPartition


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
    starts = await find_offsets(cluster, led, OffsetSpec.EARLIEST)
    ends = await find_offsets(cluster, led, OffsetSpec.LATEST)
    rows = []
    for one in page.rows:
        partition = TopicPartition(name, one.index)
        rows.append(
            partition_row(one, starts.get(partition), ends.get(partition), sizes.get(partition))
        )
    return TopicPage(topic, Page(rows, page.total, page.number))


async def find_offsets(
    cluster: Cluster, partitions: Collection[TopicPartition], question: int
) -> Mapping[TopicPartition, int]:
    """Offsets by partition; those that nobody answers for are missing."""
    if not partitions:
        return {}
    found = await cluster.admin.list_offsets(dict.fromkeys(partitions, int(question)))
    return {one: row.offset for one, row in found.items() if isinstance(row, ListedOffset)}


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
