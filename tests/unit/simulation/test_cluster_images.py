"""What brokers believe of a partition is compared with what the store has held."""

from __future__ import annotations

import json
from uuid import UUID

from moldau.cluster.rules.metadata_image import PartitionState, TopicState
from moldau.coordination.port import Node
from moldau.coordination.tree import Change, Entry
from moldau.model import BrokerId, LeaderEpoch, TopicId, format_uuid
from moldau.simulation.history import ClusterHistory
from moldau.simulation.observer import ClusterImages

ID = TopicId(UUID(int=7))


def written(path: str, fields: dict[str, object], version: int) -> Change:
    data = json.dumps(fields).encode()
    node = Node(data=data, version=version, created_id=1, modified_ms=0, ephemeral_owner=0)
    return Change(path, None, Entry(node))


def topic(replicas: list[int], version: int, topic_id: UUID = ID) -> Change:
    fields: dict[str, object] = {"partitions": {"0": replicas}, "topic_id": format_uuid(topic_id)}
    return written("/brokers/topics/t", fields, version)


def state(epoch: int, version: int) -> Change:
    return written("/brokers/topics/t/partitions/0/state", {"leader_epoch": epoch}, version)


def shown(version: int, *replicas: int, topic_id: TopicId = ID) -> TopicState:
    brokers = tuple(BrokerId(broker) for broker in replicas)
    partition = PartitionState(
        leader=brokers[0],
        leader_epoch=LeaderEpoch(0),
        isr=brokers,
        replicas=brokers,
        version=version,
    )
    return TopicState(name="t", topic_id=topic_id, partitions=(partition,))


def play(*transactions: list[Change]) -> tuple[ClusterImages, ClusterHistory]:
    history = ClusterHistory()
    images = ClusterImages(history)
    for changes in transactions:
        images(changes)
    return images, history


def rules(history: ClusterHistory) -> list[str]:
    return [violation.rule for violation in history.violations]


def test_a_pair_that_was_in_force_is_good_however_old_it_is() -> None:
    images, history = play([topic([1, 2], 0), state(0, 0)], [topic([1], 1), state(1, 1)])
    images.check_topic("broker-1", shown(0, 1, 2))
    images.check_topic("broker-1", shown(1, 1))
    images.check_topic("broker-1", shown(2, 1))  # the store is asked before it has told us
    assert rules(history) == []


def test_a_newer_state_with_older_replicas_is_told() -> None:
    images, history = play([topic([1, 2], 0), state(0, 0)], [topic([1], 1), state(1, 1)])
    images.check_topic("broker-1", shown(1, 1, 2))
    assert rules(history) == ["META-4"]


def test_replicas_that_change_without_a_new_epoch_are_told() -> None:
    _, history = play([topic([1, 2], 0), state(3, 0)], [state(3, 1), topic([1], 1)])
    assert rules(history) == ["CTL-3"]
    _, history = play([topic([1, 2], 0), state(3, 0)], [topic([1], 1)])
    assert rules(history) == ["CTL-3"]


def test_another_order_needs_no_new_epoch() -> None:
    _, history = play([topic([1, 2], 0), state(3, 0)], [topic([2, 1], 1), state(3, 1)])
    assert rules(history) == []


def test_a_topic_that_is_made_again_is_another_one() -> None:
    other = TopicId(UUID(int=8))
    images, history = play(
        [topic([1, 2], 0), state(3, 0)],
        [Change("/brokers/topics/t", None, None)],
        [topic([3], 0, other), state(0, 0)],
    )
    images.check_topic("broker-1", shown(0, 1, 2))
    images.check_topic("broker-1", shown(0, 3, topic_id=other))
    assert rules(history) == []
