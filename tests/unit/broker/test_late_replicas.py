"""A change that was decided is answered although the replicas here are not what it says yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from broker.cluster_stage import Cluster, play
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordination.port import Operation
from moldau.errors import ErrorCode
from moldau.replication.metadata_apply_queue import MetadataApplyQueue
from moldau.simulation.manual_clock import wait_until_idle

from .test_broker_in_memory import World

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 19, 20, 37


async def never_noted(_: MetadataApplyQueue, __: MetadataImage) -> None:
    """As while thousands of folders are made, or the disk takes its time."""


def test_whoever_makes_a_topic_does_not_wait_for_slow_disks_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        world = World()
        broker = await world.start()
        monkeypatch.setattr(MetadataApplyQueue, "note_applied", never_noted)
        asked = asyncio.create_task(world.create("t"))
        await wait_until_idle()
        assert not asked.done()
        await world.clock.advance(10)  # what the most impatient clients wait
        assert asked.done()
        await asked
        assert "t" in broker.services.image.topics
        await broker.stop()

    asyncio.run(story())


def create_call(*names: str, timeout: int) -> dict[str, Any]:
    rows = [
        {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for name in names
    ]
    return {"topics": rows, "timeout": timeout, "validate_only": False}


def test_replicas_that_are_opened_are_waited_for_until_the_requests_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: Cluster) -> None:
        (broker,) = await cluster.start(1)
        monkeypatch.setattr(MetadataApplyQueue, "note_applied", never_noted)
        began = cluster.clock.monotonic()
        answer = await cluster.ask(broker, CREATE_TOPICS, 7, **create_call("t", timeout=2000))
        assert answer.topics[0].error_code is ErrorCode.none  # it is led
        assert cluster.clock.monotonic() - began < 3

    play(story)


def test_what_is_not_decided_at_the_timeout_is_told_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: Cluster) -> None:
        (broker,) = await cluster.start(1)
        assert broker.session is not None
        answers, original = asyncio.Event(), broker.session.transact

        async def transact(operations: Sequence[Operation]) -> Sequence[str]:
            await answers.wait()
            return await original(operations)

        async def ask(key: int, version: int, **values: Any) -> Any:
            """While the store does not answer."""
            answers.clear()
            monkeypatch.setattr(broker.session, "transact", transact)
            began = cluster.clock.monotonic()
            answer = await cluster.ask(broker, key, version, timeout=1000, **values)
            assert cluster.clock.monotonic() - began < 2
            monkeypatch.undo()
            answers.set()
            await wait_until_idle()
            return answer

        call = create_call("t", "u", timeout=1000)
        del call["timeout"]
        answer = await ask(CREATE_TOPICS, 7, **call)
        assert [row.error_code for row in answer.topics] == [ErrorCode.request_timed_out] * 2
        assert broker.image.topics.keys() == {"t", "u"}
        row = {"name": "t", "count": 2, "assignments": None}
        answer = await ask(CREATE_PARTITIONS, 3, topics=[row], validate_only=False)
        assert answer.results[0].error_code is ErrorCode.request_timed_out
        assert len(broker.image.topics["t"].partitions) == 2
        answer = await ask(DELETE_TOPICS, 4, topic_names=("t", "u"))
        assert [row.error_code for row in answer.responses] == [ErrorCode.request_timed_out] * 2
        assert not broker.image.topics

    play(story)
