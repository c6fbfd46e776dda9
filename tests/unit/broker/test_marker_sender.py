"""Markers of partitions whose topic is not in the metadata image (DEL-1)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from moldau.broker.marker_sender import CLOCKS_APART_MS, GONE_SECONDS, MarkerSender
from moldau.cluster.rules.metadata_image import (
    DeletedTopic,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch, TopicId, TopicPartition

CLICKS = TopicId(UUID(int=1))
PARTITION = TopicPartition("clicks", 0)
EMPTY = MetadataImage(cluster_id="c")
LEADERLESS = PartitionState(
    leader=NO_BROKER, leader_epoch=LeaderEpoch(0), isr=(), replicas=(BrokerId(1),)
)
THERE = EMPTY.with_topics((TopicState(name="clicks", topic_id=CLICKS, partitions=(LEADERLESS,)),))
STARTED_MS = 1_000_000
DELETED = EMPTY.with_topics((), deleted={CLICKS: DeletedTopic("clicks", STARTED_MS + 1)})


class Bench:
    """A sender whose timers are called by hand."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.now = 0.0
        self.timers: list[Any] = []
        self.written: set[TopicPartition] = set()
        clock = SimpleNamespace(
            monotonic=lambda: self.now,
            call_later=lambda seconds, callback: self.timers.append(callback),
        )
        unused = cast("Any", None)
        self.sender = MarkerSender(
            BrokerId(1),
            image=lambda: self.image,
            clock=clock,
            connect=unused,
            timeout_ms=unused,
            write_here=unused,
            spawn=unused,
        )
        markers = SimpleNamespace(
            partitions={PARTITION}, transactional_id="x", started_ms=STARTED_MS
        )
        order = SimpleNamespace(
            markers=markers, is_wanted=lambda: True, on_written=self.written.update
        )
        self.sender.send(cast("Any", order))

    def wait(self, seconds: float) -> None:
        """The first attempt notes since when a topic is missing."""
        for _ in range(2):
            timers, self.timers = self.timers, []
            for callback in timers:
                callback()
            self.now += seconds
        timers, self.timers = self.timers, []
        for callback in timers:
            callback()


@pytest.mark.parametrize("first", [EMPTY, THERE])
def test_a_marker_waits_for_a_topic_that_is_missing_however_long(first: MetadataImage) -> None:
    bench = Bench(first)
    bench.image = EMPTY
    bench.wait(10 * GONE_SECONDS)
    assert not bench.written
    assert bench.timers


@pytest.mark.parametrize("first", [EMPTY, THERE])
def test_a_deleted_topic_gets_no_marker(first: MetadataImage) -> None:
    bench = Bench(first)
    bench.image = DELETED
    bench.wait(GONE_SECONDS / 3)
    assert not bench.written  # a new topic of the name may not be in the image yet
    bench.wait(GONE_SECONDS)
    assert bench.written == {PARTITION}
    assert not bench.timers


@pytest.mark.parametrize("first", [EMPTY, THERE])
def test_the_deletion_of_a_former_topic_of_the_name_does_not_count(first: MetadataImage) -> None:
    """Also where the image never had the topic: the deletion came before the transaction."""
    bench = Bench(first)
    long_ago = DeletedTopic("clicks", STARTED_MS - CLOCKS_APART_MS - 1)
    bench.image = EMPTY.with_topics((), deleted={TopicId(UUID(int=9)): long_ago})
    bench.wait(2 * GONE_SECONDS)
    assert not bench.written
    assert bench.timers


def test_a_topic_counts_as_deleted_although_the_clocks_differ_a_little() -> None:
    bench = Bench(EMPTY)
    deleted_ms = STARTED_MS - CLOCKS_APART_MS // 2
    bench.image = EMPTY.with_topics((), deleted={CLICKS: DeletedTopic("clicks", deleted_ms)})
    bench.wait(2 * GONE_SECONDS)
    assert bench.written == {PARTITION}


def test_a_topic_whose_nodes_make_no_sense_was_not_deleted() -> None:
    bench = Bench(EMPTY)
    bench.image = replace(DELETED, unreadable=frozenset({"clicks"}))
    bench.wait(2 * GONE_SECONDS)
    assert not bench.written
