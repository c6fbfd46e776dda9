"""Brokers whose logs have lost sealed segments since their clean stop (LOG-13)."""

from __future__ import annotations

import asyncio

import pytest

from moldau.cluster.znodes import partition_state_path
from moldau.model import TopicPartition
from moldau.records.record_batch import build_batch

from .cluster_stage import DATA, Cluster, Machine, play

KEY = TopicPartition("clicks", 0)
FOLDER = DATA / "clicks-0"
SECOND = FOLDER / "00000000000000000003.log"
ROLL_SECONDS = 2.0


async def fill(cluster: Cluster, leader: Machine) -> None:
    """Four segments of three records."""
    for _ in range(4):
        batch = build_batch([(cluster.clock.now_ms(), None, b"value", ())] * 3)
        answer = await cluster.ask(
            leader,
            0,
            9,
            transactional_id=None,
            acks=-1,
            timeout=5000,
            topic_data=[
                {"name": "clicks", "partition_data": [{"index": 0, "records": bytes(batch)}]}
            ],
        )
        assert answer.responses[0].partition_responses[0].error_code.value == 0
        await cluster.clock.advance(ROLL_SECONDS)


def starts_of(machine: Machine) -> list[int]:
    """Where the segments begin that hold something."""
    segments = machine.services.log_store.logs[KEY].segments
    return [segment.base_offset for segment in segments if segment.size_bytes]


def strays_of(machine: Machine) -> list[str]:
    return [name for name in machine.files.list_folder(DATA) if name.endswith("-stray")]


def test_a_replica_with_a_hole_inside_is_copied_anew_where_others_have_everything() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await fill(cluster, one)
        await cluster.until(lambda: starts_of(two) == [0, 3, 6, 9])
        await two.stop()
        two.files.remove(SECOND)
        await two.start()
        await cluster.until(lambda: set(one.state("clicks").isr) == {1, 2})
        log = two.services.log_store.logs[KEY]
        assert (log.log_start_offset, log.log_end_offset) == (0, 12)
        assert sum(segment.size_bytes for segment in log.segments) == sum(
            segment.size_bytes for segment in one.services.log_store.logs[KEY].segments
        )
        (stray,) = strays_of(two)
        kept = two.files.list_folder(DATA / stray)
        assert "00000000000000000009.log" in kept
        await two.stop()
        await two.start()  # what is kept is not taken back
        assert strays_of(two) == [stray]

    play(story, log_roll_ms="1000")


def test_the_only_copy_is_served_with_its_hole(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2])
        await fill(cluster, two)
        epoch = one.led("clicks")[2]
        await two.stop()
        two.files.remove(SECOND)
        await two.start()
        await cluster.until(lambda: one.led("clicks")[0] == 2)
        assert one.led("clicks")[2] > epoch
        assert starts_of(two) == [0, 6, 9]
        assert strays_of(two) == []
        assert f"{FOLDER} has lost segments, and is served without them" in caplog.text

    play(story, log_roll_ms="1000")


def test_the_last_one_in_sync_keeps_what_it_has() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        await one.stop()
        await fill(cluster, two)
        await two.stop()
        two.files.remove(SECOND)
        await two.start()
        assert starts_of(two) == [0, 6, 9]
        assert strays_of(two) == []
        await one.start()
        await cluster.until(lambda: set(one.state("clicks").isr) == {1, 2})
        assert one.services.log_store.logs[KEY].log_end_offset == 12

    play(story, log_roll_ms="1000")


def test_of_two_that_come_with_a_hole_each_one_keeps_what_it_has() -> None:
    """Both were in sync, and each finds the other in the set."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await fill(cluster, one)
        await cluster.until(lambda: starts_of(two) == [0, 3, 6, 9])
        batch_bytes = one.services.log_store.logs[KEY].size_bytes // 4
        store = cluster.store.session()
        path = partition_state_path("clicks", 0)
        node = await store.get(path)
        assert node is not None
        for machine in (two, one):
            await machine.stop()
            machine.files.remove(SECOND)
        await store.set(path, node.data)  # as when both had gone in the same moment
        starts = (machine.come_up() for machine in (one, two))
        await cluster.during(asyncio.gather(*starts))
        await cluster.until(lambda: set(one.state("clicks").isr) == {1, 2})
        assert one.led("clicks")[0] in (1, 2)
        logs = [machine.services.log_store.logs[KEY] for machine in (one, two)]
        assert [log.log_end_offset for log in logs] == [12, 12]
        assert logs[0].size_bytes == logs[1].size_bytes == batch_bytes * 3
        assert len(strays_of(one) + strays_of(two)) == 1

    play(story, log_roll_ms="1000")
