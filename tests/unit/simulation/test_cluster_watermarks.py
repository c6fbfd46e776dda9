"""Offsets in memory that are out of order are reported."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

from moldau.model import TopicPartition
from moldau.simulation.history import ClusterHistory, ClusterWatermarks


def replica(high_watermark: int, *, start: int = 0, end: int = 10, **values: object):
    return SimpleNamespace(
        **{
            "log": SimpleNamespace(log_start_offset=start, log_end_offset=end),
            "topic_partition": TopicPartition("t", 0),
            "topic_id": UUID(int=1),
            "leader_epoch": 1,
            "is_leader": True,
            "high_watermark": high_watermark,
            "last_stable_offset": high_watermark,
            **values,
        }
    )


def rules_broken_by(*replicas: SimpleNamespace) -> list[str]:
    history = ClusterHistory()
    watch = ClusterWatermarks(history)
    for one in replicas:
        watch.see("broker-1", [one])
    return [violation.rule for violation in history.violations]


def test_what_is_in_order_is_not_reported() -> None:
    assert rules_broken_by(replica(3), replica(3), replica(10), replica(2, leader_epoch=2)) == []


def test_a_high_watermark_outside_of_the_log() -> None:
    assert rules_broken_by(replica(11)) == ["HW-1"]
    assert rules_broken_by(replica(3, start=4)) == ["HW-1"]


def test_a_last_stable_offset_past_the_high_watermark() -> None:
    assert rules_broken_by(replica(3, last_stable_offset=4)) == ["HW-4"]


def test_a_leaders_high_watermark_that_goes_back() -> None:
    assert rules_broken_by(replica(5), replica(4)) == ["HW-2"]


def test_followers_and_topics_made_anew_may_know_less() -> None:
    assert rules_broken_by(replica(5, is_leader=False), replica(4, is_leader=False)) == []
    assert rules_broken_by(replica(5), replica(0, topic_id=UUID(int=2))) == []
