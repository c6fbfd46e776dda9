"""The operations that make, grow and delete a topic in the coordination store.

Values in, operations out: each list is one transaction, so that a topic appears and vanishes as a
whole (META-2). Others are told of growth and deletion by
a notification; a new topic they see by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from moldau.cluster import znodes
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import NO_NODE, PartitionState, TopicState
from moldau.coordination.port import Create, Delete, Node, Operation, SetData
from moldau.model import NO_BROKER, TopicId


def create_topic(topic: TopicState, config: Node | None, end: int | None = None) -> list[Operation]:
    """`config` is what a former topic of this name left behind.

    With `end` the partitions from this one on are left out: their states are written later.
    """
    path = znodes.topic_config_path(topic.name)
    data = znodes.encode_config(topic.configs)
    return [
        Create(path=znodes.topic_path(topic.name), data=znodes.encode_topic(assignment_of(topic))),
        Create(path=znodes.partitions_path(topic.name)),
        *_partition_creation(topic, 0, end),
        Create(path=path, data=data)
        if config is None
        else SetData(path=path, data=data, version=config.version),
    ]


def add_partitions(
    topic: TopicState, first_new: int, version: int, end: int | None = None
) -> list[Operation]:
    """`topic` as it shall be; `version` of its node as it was read; `end` as in `create_topic`."""
    return [
        write_assignment(topic, version),
        *_partition_creation(topic, first_new, end),
        notify_topics([topic.name]),
    ]


def write_assignment(topic: TopicState, version: int) -> Operation:
    data = znodes.encode_topic(assignment_of(topic))
    return SetData(path=znodes.topic_path(topic.name), data=data, version=version)


def list_topic_paths(name: str, partitions: Iterable[str]) -> list[str]:
    """Every node that a topic may have, children before their parents."""
    folder = znodes.partitions_path(name)
    paths = []
    for partition in partitions:
        paths += [f"{folder}/{partition}/state", f"{folder}/{partition}"]
    return [
        *paths,
        folder,
        znodes.topic_path(name),
        znodes.topic_config_path(name),
        znodes.delete_topic_path(name),
    ]


def delete_topic(name: str, paths: Iterable[str]) -> list[Operation]:
    return [*(Delete(path=path) for path in paths), notify_topics([name])]


def record_deletion(topic: str, topic_id: TopicId) -> Operation:
    """What says for ever after that this topic was deleted, and did not merely vanish (DEL-1)."""
    return Create(path=znodes.deleted_topic_path(topic_id), data=topic.encode())


def write_state(planned: PlannedState) -> Operation:
    """Write an elected state over the one that the election was based on, if there was one."""
    path = znodes.partition_state_path(planned.topic.name, planned.partition)
    data = znodes.encode_partition_state(planned.state)
    if planned.former.version == NO_NODE:
        return Create(path=path, data=data)
    return SetData(path=path, data=data, version=planned.former.version)


def require_undeleted(plan: Iterable[PlannedState]) -> list[Operation]:
    """Fail with `NodeExistsError` if one of the topics was deleted: the states of a topic that was
    made again under its name may have the same versions."""
    records = {znodes.deleted_topic_path(planned.topic.topic_id): None for planned in plan}
    return [one for path in records for one in (Create(path=path), Delete(path=path))]


def list_state_folders(plan: Iterable[PlannedState]) -> list[str]:
    """Parents of states to be made, each before its children: old tools make the topic alone."""
    paths: dict[str, None] = {}
    for planned in plan:
        if planned.former.version == NO_NODE:
            paths[znodes.partitions_path(planned.topic.name)] = None
            paths[znodes.partition_path(planned.topic.name, planned.partition)] = None
    return list(paths)


def notify_topics(topics: Sequence[str]) -> Operation:
    """Tell all brokers to read these topics again."""
    return _notification([(topic, znodes.WHOLE_TOPIC) for topic in topics])


def notify_states(plan: Iterable[PlannedState]) -> Operation:
    """Tell all brokers to read these states again, or the whole topic if it is many of them."""
    numbers: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for planned in plan:
        numbers.setdefault(planned.topic.name, []).append(planned.partition)
        sizes[planned.topic.name] = len(planned.topic.partitions)
    changed: list[tuple[str, int]] = []
    for name in sorted(numbers):
        is_most = 2 * len(numbers[name]) > sizes[name]
        changed += [(name, n) for n in ([znodes.WHOLE_TOPIC] if is_most else numbers[name])]
    return _notification(changed)


def _notification(changed: Sequence[tuple[str, int]]) -> Operation:
    data = znodes.encode_isr_change(changed)
    return Create(path=znodes.ISR_CHANGE_PREFIX, data=data, sequential=True)


def with_first_versions(topic: TopicState, first_new: int, end: int | None = None) -> TopicState:
    """The topic after its new partitions were written: a new node has version 0.

    Nobody leads those from `end` on, whose states are not written yet.
    """
    new = topic.partitions[first_new:end]
    first_of = {state: replace(state, version=0) for state in set(new)}
    written = (first_of[state] for state in new)
    rest = () if end is None else topic.partitions[end:]
    unwritten = (replace(state, leader=NO_BROKER, isr=()) for state in rest)
    return replace(topic, partitions=(*topic.partitions[:first_new], *written, *unwritten))


def _partition_creation(topic: TopicState, first_new: int, end: int | None) -> list[Operation]:
    operations: list[Operation] = []
    encoded: dict[PartitionState, bytes] = {}  # most of a topic's first states are the same
    for partition in range(first_new, len(topic.partitions) if end is None else end):
        state = topic.partitions[partition]
        data = encoded.get(state)
        if data is None:
            data = encoded[state] = znodes.encode_partition_state(state)
        operations += [
            Create(path=znodes.partition_path(topic.name, partition)),
            Create(path=znodes.partition_state_path(topic.name, partition), data=data),
        ]
    return operations


def assignment_of(topic: TopicState) -> znodes.TopicAssignment:
    partitions = tuple(enumerate(topic.partitions))
    return znodes.TopicAssignment(
        topic_id=topic.topic_id,
        replicas=tuple(state.replicas for state in topic.partitions),
        adding={number: p.adding_replicas for number, p in partitions if p.adding_replicas},
        removing={number: p.removing_replicas for number, p in partitions if p.removing_replicas},
        origin=topic.origin,
    )
