"""What `moldau cluster status` shows of replicas that may lead without being in sync."""

from __future__ import annotations

import pytest

from moldau.cli.cluster import BrokerView, LocalClusterView, _print_status
from moldau.client.admin.values import EligibleLeaders
from moldau.client.rules.cluster_metadata import PartitionMetadata, TopicMetadata
from moldau.model import TopicPartition

PARTITIONS = tuple(
    PartitionMetadata(
        index=index, leader_id=1, leader_epoch=0, replicas=(1, 2, 3), in_sync_replicas=(1,)
    )
    for index in range(2)
)
TOPICS = (TopicMetadata(name="clicks", partitions=PARTITIONS),)


def view(**leaders: EligibleLeaders) -> LocalClusterView:
    found = {TopicPartition(topic, 1): each for topic, each in leaders.items()}
    return LocalClusterView(nodes=(), brokers=(), topics=TOPICS, leaders=found)


def test_who_is_eligible_has_a_column_where_there_is_somebody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _print_status(view(), TOPICS)
    assert "eligible" not in capsys.readouterr().out

    _print_status(view(clicks=EligibleLeaders(eligible=(2,), last_known=(3,))), TOPICS)
    lines = capsys.readouterr().out.splitlines()
    header, first, second = (line.split() for line in lines if "1,2,3" in line or "elig" in line)
    assert header[-3:] == ["eligible", "last", "known"]
    assert first[-2:] == ["-", "-"]
    assert second[-2:] == ["2", "3"]


def test_the_document_always_has_them() -> None:
    shown = view(clicks=EligibleLeaders(eligible=(2,), last_known=(3,)))
    (topic,) = shown.to_document(internal=False)["topics"]
    rows = [
        (row["eligible_leader_replicas"], row["last_known_eligible_replicas"])
        for row in topic["partitions"]
    ]
    assert rows == [([], []), ([2], [3])]


def test_nothing_is_said_of_partitions_where_no_broker_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped = BrokerView(
        id=1, address="127.0.0.1:9092", pid=None, is_registered=False, is_controller=False
    )
    _print_status(LocalClusterView(nodes=(), brokers=[stopped], topics=()), ())
    said = capsys.readouterr().out
    assert "nothing is known of topics" in said
    assert "under-replicated" not in said
