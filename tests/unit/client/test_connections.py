"""One connection to one broker."""

from __future__ import annotations

import asyncio
import struct

import pytest

from client.scripted_broker import (
    API_VERSIONS,
    HANG_UP,
    METADATA,
    NO_ANSWER,
    PORT,
    PRODUCE,
    SILENCE,
    ScriptedBroker,
    Stage,
    metadata,
)
from moldau.client.connections import BrokerConnection, ConnectionSettings, open_connection
from moldau.client.rules.cluster_metadata import Address
from moldau.errors import BrokerUnreachableError, ConnectionLostError, NoAnswerError
from moldau.net.port import Connection
from moldau.wire.apis import METADATA as METADATA_API
from moldau.wire.apis import PRODUCE as PRODUCE_API
from moldau.wire.apis import VersionRange
from moldau.wire.messages import encode_body
from moldau.wire.versions import request_class

ADDRESS = Address("b1", PORT)
ASK = {"topics": [], "allow_auto_topic_creation": False}
DROPPABLE = frozenset({"allow_auto_topic_creation", "include_topic_authorized_operations"})


async def connect(stage: Stage) -> BrokerConnection:
    return await open_connection(
        stage.network.host("client"),
        stage.clock,
        ADDRESS,
        ConnectionSettings(request_seconds=10.0, connect_seconds=5.0),
    )


async def ask(connection: BrokerConnection, topic: str | None = None) -> object:
    values = {
        "topics": [{"name": topic, "topic_id": None}] if topic else [],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    answer = await connection.call(METADATA_API, values, DROPPABLE | {"topic_id"})
    return [row.name for row in answer.topics]  # type: ignore[attr-defined]


def test_the_brokers_versions_are_learned_on_connecting() -> None:
    stage = Stage()

    async def story() -> None:
        connection = await connect(stage)
        assert connection.versions[METADATA] == VersionRange(0, 13)
        assert connection.choose_version(METADATA_API) == 13
        await connection.close()

    stage.play(story)


def test_a_broker_that_refuses_the_newer_question_is_asked_the_old_way() -> None:
    stage = Stage()
    stage.brokers[0].versions[API_VERSIONS] = (0, 2)

    async def story() -> None:
        connection = await connect(stage)
        assert connection.versions[METADATA] == VersionRange(0, 13)
        assert [version for _, version, _ in stage.brokers[0].requests] == [3, 0]
        await connection.close()

    stage.play(story)


def test_many_requests_are_under_way_at_once_and_each_gets_its_own_answer() -> None:
    stage = Stage()
    names = [f"topic-{number}" for number in range(20)]
    stage.brokers[0].scripts[METADATA] = metadata({name: [1] for name in names})

    async def story() -> None:
        connection = await connect(stage)
        answers = await asyncio.gather(*[ask(connection, name) for name in names])
        assert answers == [[name] for name in names]
        await connection.close()

    stage.play(story)


def test_a_waiter_that_goes_away_does_not_disturb_the_next_one() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = metadata({"first": [1], "second": [1]})

    async def story() -> None:
        connection = await connect(stage)
        first = asyncio.ensure_future(ask(connection, "first"))
        await asyncio.sleep(0)
        first.cancel()
        assert await ask(connection, "second") == ["second"]
        await connection.close()

    stage.play(story)


def test_silence_ends_the_connection_when_patience_is_over() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = lambda request: SILENCE

    async def story() -> None:
        connection = await connect(stage)
        with pytest.raises(NoAnswerError, match="did not answer Metadata within 10 seconds"):
            await ask(connection)
        assert stage.clock.monotonic() == 10.0
        assert not connection.is_open
        await connection.close()

    stage.play(story)


def test_time_that_the_broker_was_asked_to_wait_is_waited_on_top() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = lambda request: SILENCE

    async def story() -> None:
        connection = await connect(stage)
        with pytest.raises(NoAnswerError):
            await connection.call(METADATA_API, ASK, DROPPABLE, version=4, extra_seconds=5.0)
        assert stage.clock.monotonic() == 15.0
        await connection.close()

    stage.play(story)


def test_an_answer_in_time_leaves_no_timer_behind() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = metadata({})

    async def story() -> None:
        before = stage.clock.pending_timers
        connection = await connect(stage)
        await ask(connection)
        assert stage.clock.pending_timers == before
        await connection.close()

    stage.play(story)


def test_everyone_who_waits_hears_that_the_connection_was_lost() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = lambda request: HANG_UP

    async def story() -> None:
        connection = await connect(stage)
        outcomes = await asyncio.gather(
            *[ask(connection) for _ in range(3)], return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [ConnectionLostError] * 3
        with pytest.raises(ConnectionLostError):
            await ask(connection)
        await connection.close()

    stage.play(story)


def test_closing_tells_who_still_waits() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = lambda request: SILENCE

    async def story() -> None:
        connection = await connect(stage)
        waiting = asyncio.ensure_future(ask(connection))
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(ConnectionLostError, match="closed"):
            await waiting

    stage.play(story)


class Liar(ScriptedBroker):
    """Answers requests with bytes of its own."""

    def __init__(self, name: str, body: bytes) -> None:
        super().__init__(name)
        self.body = body
        self.is_lying = False

    def answer(self, connection: Connection, frame: memoryview) -> None:
        if self.is_lying:
            connection.send((struct.pack(">i", len(self.body)) + self.body,))
        else:
            super().answer(connection, frame)


class Secured(ScriptedBroker):
    """Has nothing to say to whoever does not speak TLS."""

    def answer(self, connection: Connection, frame: memoryview) -> None:
        connection.close("that is no handshake")


def test_an_answer_to_something_else_ends_the_connection() -> None:
    stage = Stage()
    liar = Liar("b1", struct.pack(">i", 77) + bytes(40))
    stage.brokers[0] = liar

    async def story() -> None:
        connection = await connect(stage)
        liar.is_lying = True
        with pytest.raises(ConnectionLostError, match="request 77"):
            await ask(connection)
        assert not connection.is_open
        await connection.close()

    stage.play(story)


@pytest.mark.parametrize("body", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0"])
def test_what_does_not_answer_like_a_broker_is_named(body: bytes) -> None:
    stage = Stage()
    liar = Liar("b1", body)
    liar.is_lying = True
    stage.brokers[0] = liar

    async def story() -> None:
        with pytest.raises(BrokerUnreachableError, match="b1:9092"):
            await connect(stage)

    stage.play(story)


def test_who_is_hung_up_on_is_asked_whether_the_listener_is_secured() -> None:
    stage = Stage()
    stage.brokers[0] = Secured("b1")

    async def story() -> None:
        with pytest.raises(BrokerUnreachableError, match="TLS or SASL"):
            await connect(stage)

    stage.play(story)


def test_nobody_there_is_said_with_the_address() -> None:
    stage = Stage(broker_count=0)

    async def story() -> None:
        with pytest.raises(BrokerUnreachableError, match="no broker answers at b1:9092"):
            await connect(stage)

    stage.play(story)


def test_connecting_gives_up_in_time() -> None:
    stage = Stage()
    stage.network.cut("client", "b1")

    async def story() -> None:
        with pytest.raises(BrokerUnreachableError, match="timed out"):
            await connect(stage)
        assert stage.clock.monotonic() == 5.0

    stage.play(story)


def test_a_request_without_an_answer_does_not_wait_for_one() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = metadata({"after": [1]})

    async def story() -> None:
        connection = await connect(stage)
        produce = b"\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
        stage.brokers[0].scripts[PRODUCE] = lambda request: NO_ANSWER
        await connection.send_without_answer(PRODUCE_API, 3, (produce,))
        assert await ask(connection, "after") == ["after"]
        await connection.close()

    stage.play(story)


# What is told while somebody waits


def test_a_broker_that_is_quiet_is_told_of_and_again_when_it_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = lambda request: SILENCE

    async def story() -> None:
        connection = await connect(stage)
        timers = stage.clock.pending_timers
        asked = [asyncio.ensure_future(ask(connection)) for _ in range(3)]
        await stage.clock.sleep(1.4)
        assert caplog.messages == []
        await stage.clock.sleep(0.2)
        assert caplog.messages == ["b1:9092 has not answered for 2 seconds; waiting"]
        await stage.clock.sleep(8.5)
        assert all(isinstance(one.exception(), NoAnswerError) for one in asked)
        assert stage.clock.pending_timers == timers
        stage.brokers[0].scripts[METADATA] = metadata({})
        await (await open_again(connection)).close()
        assert caplog.messages[1:] == ["b1:9092 answers again, after 10 seconds"]

    async def open_again(former: BrokerConnection) -> BrokerConnection:
        settings = former._settings
        return await open_connection(stage.network.host("client"), stage.clock, ADDRESS, settings)

    stage.play(story)


def test_a_broker_that_cannot_be_connected_to_is_told_of_before_it_is_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.network.cut("client", "b1")

    async def story() -> None:
        connecting = asyncio.ensure_future(connect(stage))
        await stage.clock.sleep(2.0)
        assert caplog.messages == ["b1:9092 has not answered for 2 seconds; waiting"]
        with pytest.raises(BrokerUnreachableError):
            await connecting

    stage.play(story)


def test_an_answer_that_was_asked_to_be_late_is_not_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = lambda request: SILENCE

    async def story() -> None:
        connection = await connect(stage)
        body = encode_body(request_class(METADATA, 1)(topics=()))
        waiting = asyncio.ensure_future(
            connection.exchange(METADATA_API, 1, (body,), extra_seconds=5.0)
        )
        await stage.clock.sleep(6.0)
        assert caplog.messages == []
        await stage.clock.sleep(1.0)
        assert caplog.messages == ["b1:9092 has not answered for 6 seconds; waiting"]
        await connection.close()
        with pytest.raises(ConnectionLostError):
            await waiting

    stage.play(story)
