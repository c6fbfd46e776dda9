"""Somebody removes the folder of a log (LOG-14)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moldau.model import NO_BROKER, TopicPartition
from moldau.records.record_batch import build_batch

from .cluster_stage import DATA, Cluster, Machine, play

KEY = TopicPartition("clicks", 0)
FOLDER = DATA / "clicks-0"
AWAY = Path("/away")


async def produce(cluster: Cluster, machine: Machine, topic: str = "clicks") -> int:
    """Three records; returns the error code."""
    batch = build_batch([(cluster.clock.now_ms(), None, b"value", ())] * 3)
    answer = await cluster.ask(
        machine,
        0,
        9,
        transactional_id=None,
        acks=-1,
        timeout=5000,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch)}]}],
    )
    code: int = answer.responses[0].partition_responses[0].error_code.value
    return code


def end_of(machine: Machine, topic: str = "clicks") -> int | None:
    log = machine.services.log_store.logs.get(TopicPartition(topic, 0))
    return None if log is None else log.log_end_offset


async def elect_uncleanly(cluster: Cluster, machine: Machine) -> Any:
    row = {"topic": "clicks", "partitions": [0]}
    answer = await cluster.ask(
        machine, 43, 2, election_type=1, topic_partitions=[row], timeout=1000
    )
    return answer.replica_election_results[0].partition_result[0].error_code.value


async def wait_long(cluster: Cluster) -> None:
    """Whoever would elect somebody has done it, and the checkpoints are written."""
    for _ in range(200):
        await cluster.clock.advance(0.5)


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_only_copy_is_not_replaced_by_an_empty_log(
    is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await cluster.create(one, "clicks", [1])
        await cluster.create(one, "ticks", [1])
        assert await produce(cluster, one) == await produce(cluster, one, "ticks") == 0
        epoch = one.led("clicks")[2]
        for number in range(3):  # the first start does not make it a new one
            await (one.kill() if is_killed else one.stop())
            if not number:
                one.files.rename(FOLDER, AWAY)
            await one.start()
            await wait_long(cluster)
            assert one.led("clicks")[:2] == (NO_BROKER, ())
            assert end_of(one) is None
            assert await produce(cluster, one) != 0
            assert await produce(cluster, one, "ticks") == 0
        assert "`moldau elect unclean clicks-0`" in caplog.text
        await one.stop()
        one.files.rename(AWAY, FOLDER)
        await one.start()
        await cluster.until(lambda: one.led("clicks")[:2] == (1, (1,)))
        assert end_of(one) == 3
        assert one.led("clicks")[2] > epoch
        assert await produce(cluster, one) == 0

    play(story)


def test_somebody_says_that_a_partition_goes_on_without_its_records() -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await cluster.create(one, "clicks", [1])
        assert await produce(cluster, one) == 0
        epoch = one.led("clicks")[2]
        await one.stop()
        one.files.remove_folder(FOLDER)
        await one.start()
        assert await elect_uncleanly(cluster, one) == 0
        await cluster.until(lambda: end_of(one) == 0)
        assert one.led("clicks")[:2] == (1, (1,))
        assert one.led("clicks")[2] > epoch
        assert await produce(cluster, one) == 0
        await one.stop()
        await one.start()
        await cluster.until(lambda: end_of(one) == 3)
        assert one.led("clicks")[0] == 1

    play(story)


def test_what_others_have_is_copied_again() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        assert await produce(cluster, two) == 0
        await two.stop()
        two.files.remove_folder(FOLDER)
        await two.start()
        await cluster.until(lambda: set(one.state("clicks").isr) == {1, 2})
        assert end_of(two) == 3

    play(story)


def test_nobody_leads_for_the_last_one_in_sync_before_somebody_says_so() -> None:
    """And then it is the one that has something."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        assert await produce(cluster, two) == 0
        await one.stop()
        await cluster.until(lambda: two.led("clicks")[:2] == (2, (2,)))
        assert await produce(cluster, two) == 0
        await two.stop()
        two.files.remove_folder(FOLDER)
        await two.start()
        await one.start()
        await wait_long(cluster)
        assert one.led("clicks")[:2] == (NO_BROKER, ())
        assert end_of(two) is None
        assert await elect_uncleanly(cluster, two) == 0  # the controller
        await cluster.until(lambda: set(one.state("clicks").isr) == {1, 2})
        assert end_of(one) == end_of(two) == 3

    play(story)


def test_a_topic_that_is_made_again_has_no_past() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2])
        assert await produce(cluster, two) == 0
        await two.stop()
        two.files.remove_folder(FOLDER)
        row = {"name": "clicks", "topic_id": None}
        await cluster.ask(one, 20, 6, topics=[row], timeout=1000)
        await two.start()
        await cluster.until(lambda: "clicks" not in one.image.topics)
        assert (await cluster.create(one, "clicks", [2])).value == 0
        await cluster.until(lambda: end_of(two) == 0)
        await two.stop()
        await two.start()
        await cluster.until(lambda: two.led("clicks")[:2] == (2, (2,)))

    play(story)


def test_an_empty_log_that_is_gone_is_not_missed() -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await cluster.create(one, "clicks", [1])
        await one.stop()
        one.files.remove_folder(FOLDER)
        await one.start()
        await cluster.until(lambda: one.led("clicks")[:2] == (1, (1,)))
        assert await produce(cluster, one) == 0

    play(story)


def test_a_new_store_misses_nothing() -> None:
    """Topics were made of the logs in the folder, some of which were never here."""

    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await cluster.create(one, "clicks", [1], [1])
        assert await produce(cluster, one) == 0
        await one.stop()
        one.files.remove_folder(FOLDER)
        for path in ("/brokers", "/config", "/cluster", "/admin"):
            await cluster.store.session().delete_tree(path)
        await one.start(adopt_topics_enable="true")
        await cluster.until(lambda: one.led("clicks")[:2] == (1, (1,)))
        assert end_of(one) == 0

    play(story)
