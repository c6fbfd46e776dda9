"""Finding the right broker, and trying again."""

from __future__ import annotations

import pytest

from client.scripted_broker import METADATA, SILENCE, Request, Stage, metadata
from moldau.errors import (
    BatchTooLargeError,
    ClusterUnreachableError,
    LeaderNotAvailableError,
    NoAnswerError,
    UnknownTopicError,
)


class Failing:
    """Work that fails some times before it succeeds."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error = error
        self.left = times
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "done"


def test_work_is_tried_again_while_its_failure_may_pass() -> None:
    stage = Stage()
    work = Failing(LeaderNotAvailableError("soon"), 4)

    async def story() -> None:
        assert await stage.make_client().retry(work) == "done"

    stage.play(story)
    assert work.calls == 5
    assert stage.clock.monotonic() == pytest.approx(0.1 + 0.2 + 0.4 + 0.8)


def test_a_failure_that_stays_is_raised_at_once() -> None:
    stage = Stage()
    work = Failing(BatchTooLargeError("too large"), 1)

    async def story() -> None:
        with pytest.raises(BatchTooLargeError):
            await stage.make_client().retry(work)

    stage.play(story)
    assert work.calls == 1


def test_a_retry_ends_in_time() -> None:
    stage = Stage()
    work = Failing(LeaderNotAvailableError("never"), 10_000)

    async def story() -> None:
        with pytest.raises(LeaderNotAvailableError):
            await stage.make_client(timeout_seconds=5.0).retry(work)

    stage.play(story)
    assert 4.0 < stage.clock.monotonic() <= 5.0


def test_metadata_is_asked_for_anew_before_each_further_attempt() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = metadata({"clicks": [1]})
    work = Failing(LeaderNotAvailableError("soon"), 2)

    async def story() -> None:
        client = stage.make_client()
        await client.retry(work, refresh=("clicks",))
        await client.close()

    stage.play(story)
    assert len(stage.brokers[0].asked(METADATA)) == 2


def test_a_wrong_address_is_not_waited_for() -> None:
    stage = Stage(broker_count=0)

    async def story() -> None:
        with pytest.raises(ClusterUnreachableError):
            await stage.make_client().wait_until_topic_is_ready("clicks")

    stage.play(story)
    assert stage.clock.monotonic() == 0.0


def test_a_topic_that_the_broker_creates_on_asking_is_waited_for() -> None:
    stage = Stage()
    answers = iter([metadata({}), metadata({"new": [1, 1]})])

    def answer(request: Request) -> object:
        assert request.allow_auto_topic_creation
        return next(answers)(request)

    stage.brokers[0].scripts[METADATA] = answer  # type: ignore[assignment]

    async def story() -> None:
        client = stage.make_client()
        topic = await client.wait_until_topic_is_ready("new", may_create=True)
        assert len(topic.partitions) == 2
        await client.close()

    stage.play(story)


def test_a_topic_that_stays_unknown_is_given_up_soon() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = metadata({})

    async def story() -> None:
        client = stage.make_client()
        with pytest.raises(UnknownTopicError):
            await client.wait_until_topic_is_ready("nope")
        await client.close()

    stage.play(story)
    assert stage.clock.monotonic() < 1.0


def test_the_controller_is_asked_where_one_is_named() -> None:
    stage = Stage(broker_count=2)
    for broker in stage.brokers:
        broker.scripts[METADATA] = metadata({}, brokers=2, controller=2)

    async def story() -> None:
        client = stage.make_client()
        assert (await client.connect_to_controller()).address.host == "b2"
        for broker in stage.brokers:
            broker.scripts[METADATA] = metadata({}, brokers=2, controller=-1)
        await client.metadata.refresh(())
        assert (await client.connect_to_controller()).is_open
        await client.close()

    stage.play(story)


def test_a_broker_that_falls_silent_is_an_error_of_its_own() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = lambda request: SILENCE

    async def story() -> None:
        client = stage.make_client(timeout_seconds=12.0)
        with pytest.raises(NoAnswerError):
            await client.wait_until_topic_is_ready("clicks")
        assert stage.clock.monotonic() == 12.0
        await client.close()

    stage.play(story)


def test_a_request_lasts_no_longer_than_the_operation_that_it_is_part_of() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = lambda request: SILENCE

    async def story() -> None:
        client = stage.make_client(timeout_seconds=3.0)
        words = "no broker has answered within 3 seconds at b1:9092"
        with pytest.raises(ClusterUnreachableError, match=words):
            await client.wait_until_topic_is_ready("clicks")
        assert stage.clock.monotonic() == 3.0
        await client.close()

    stage.play(story)
