"""Fetch and Produce with an authorizer: decided when a session is made or changes, and again when a
list does; also for readers that wait."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from broker.handlers.handler_bench import WITH_AUTHORIZER, HandlerBench, with_broker
from moldau.broker.api import RequestContext
from moldau.broker.handlers import fetch, produce
from moldau.errors import ErrorCode
from moldau.model import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from moldau.records.record_batch import build_batch
from moldau.simulation.manual_clock import wait_until_idle
from moldau.wire.apis import FETCH, PRODUCE
from moldau.wire.fetch_exchange import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchAnswer,
    encode_fetch_request,
    parse_fetch_answer,
)
from moldau.wire.fetch_frame import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.headers import RequestHeader, read_request_header, read_response_header
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

VERSION = 12
READ = AclBinding(
    ResourcePattern(AclResourceType.TOPIC, "clicks"),
    AclEntry("User:alice", AclPermission.ALLOW, AclOperation.READ),
)
DENIED = ErrorCode.topic_authorization_failed


class Reader:
    """Fetches clicks-0 from the beginning, as somebody."""

    def __init__(self, bench: HandlerBench, name: str) -> None:
        self._bench = bench.as_user(name)

    def begin(
        self,
        *,
        session_id: int = NO_SESSION,
        epoch: int = FINAL_EPOCH,
        max_wait_ms: int = 0,
        replica_id: int = -1,
        named: bool = True,
        offset: int = 0,
    ) -> Any:
        topics = [FetchTopic("clicks", None, [FetchPartition(0, -1, offset, -1, 0, 1 << 20)])]
        request = FetchRequest(
            replica_id=replica_id,
            replica_epoch=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=topics if named else [],
            forgotten_topics=[],
            rack_id="",
            cluster_id=None,
        )
        header = RequestHeader(FETCH.key, VERSION, 9, "test")
        context = RequestContext(header, self._bench.connection, self._bench.services)
        return fetch.handle_frame(memoryview(encode_fetch_request(VERSION, request)), 0, context)

    def ask(self, **values: Any) -> FetchAnswer:
        chunks = self.begin(**values)
        assert isinstance(chunks, list)
        return read_answer(chunks)


def read_answer(chunks: list[Any]) -> FetchAnswer:
    parts = [chunk if isinstance(chunk, bytes) else bytes(chunk.read()) for chunk in chunks]
    frame = memoryview(b"".join(parts))[4:]
    _, position = read_response_header(frame, FETCH.key, VERSION)
    return parse_fetch_answer(VERSION, frame, position)


def codes(answer: FetchAnswer) -> list[ErrorCode]:
    return [ErrorCode(row.error_code) for topic in answer.topics for row in topic.partitions]


def test_who_may_read_is_asked_when_a_session_is_made_and_when_a_list_changes() -> None:
    async def story(bench: HandlerBench) -> None:
        bench.append("clicks", b"one")
        alice = Reader(bench, "alice")
        assert codes(alice.ask()) == [DENIED]
        await bench.services.acls.add([READ])
        opened = alice.ask(epoch=INITIAL_EPOCH)
        assert codes(opened) == [ErrorCode.none]
        asked = count_decisions(bench)
        second = alice.ask(session_id=opened.session_id, epoch=1, named=False)
        assert codes(second) == [ErrorCode.none]
        assert asked == [], "a session remembers what was allowed"
        await bench.services.acls.remove([READ])
        third = alice.ask(session_id=opened.session_id, epoch=2, named=False)
        assert codes(third) == [DENIED]

    with_broker(story, **WITH_AUTHORIZER)


def count_decisions(bench: HandlerBench) -> list[object]:
    asked: list[object] = []
    authorizer = bench.services.authorizer
    assert authorizer is not None
    allows = authorizer.allows

    def counting(*values: Any) -> bool:
        asked.append(values)
        return allows(*values)

    authorizer.allows = counting  # type: ignore[method-assign]
    return asked


def test_a_session_does_not_lend_its_rights_to_somebody_else() -> None:
    async def story(bench: HandlerBench) -> None:
        bench.append("clicks", b"one")
        await bench.services.acls.add([READ])
        opened = Reader(bench, "alice").ask(epoch=INITIAL_EPOCH)
        stolen = Reader(bench, "mallory").ask(session_id=opened.session_id, epoch=1, named=False)
        assert codes(stolen) == [DENIED]

    with_broker(story, **WITH_AUTHORIZER)


def test_a_reader_that_waits_is_told_when_it_may_not_read_any_more() -> None:
    async def story(bench: HandlerBench) -> None:
        await bench.services.acls.add([READ])
        alice = Reader(bench, "alice")
        opened = alice.ask(epoch=INITIAL_EPOCH)
        for values in (
            {"session_id": opened.session_id, "epoch": 1, "named": False},
            {},  # without a session
        ):
            waiting = asyncio.ensure_future(alice.begin(max_wait_ms=60_000, **values))
            await wait_until_idle()
            assert not waiting.done()
            await bench.services.acls.remove([READ])
            await wait_until_idle()
            assert codes(read_answer(await waiting)) == [DENIED]
            await bench.services.acls.add([READ])

    with_broker(story, **WITH_AUTHORIZER)


def test_nobody_but_a_broker_is_a_follower() -> None:
    async def story(bench: HandlerBench) -> None:
        bench.append("clicks", b"one")
        await bench.services.acls.add([READ])
        answer = Reader(bench, "alice").ask(replica_id=2, epoch=INITIAL_EPOCH)
        assert codes(answer) == [DENIED]
        assert answer.session_id == NO_SESSION
        assert len(bench.services.fetch_sessions) == 0

    with_broker(story, **WITH_AUTHORIZER)


async def send(bench: HandlerBench, topic: str, transactional_id: str | None = None) -> ErrorCode:
    batch = build_batch([(1, None, b"v", ())])
    values = {
        "transactional_id": transactional_id,
        "acks": 1,
        "timeout": 1_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
    }
    request = fit(request_class(PRODUCE.key, 9), values)
    frame = memoryview(bytearray(encode_request(request, 9, "test")))[4:]
    header, position = read_request_header(frame)
    context = RequestContext(header, bench.connection, bench.services)
    chunks = produce.handle_frame(frame, position, context)
    if inspect.isawaitable(chunks):
        chunks = await bench.cluster.during(chunks)
    assert isinstance(chunks, list)
    _, answer = parse_response(PRODUCE.key, 9, memoryview(b"".join(map(bytes, chunks)))[4:])
    row: Any = answer
    code: ErrorCode = row.responses[0].partition_responses[0].error_code
    return code


def test_records_are_taken_from_who_may_write() -> None:
    async def story(bench: HandlerBench) -> None:
        alice = bench.as_user("alice")
        assert await send(alice, "clicks") is DENIED
        assert await send(alice, "nowhere") is DENIED
        write = AclEntry("User:alice", AclPermission.ALLOW, AclOperation.WRITE)
        await bench.services.acls.add([AclBinding(READ.pattern, write)])
        assert await send(alice, "clicks") is ErrorCode.none
        assert await send(alice, "nowhere") is DENIED
        denied = ErrorCode.transactional_id_authorization_failed
        assert await send(alice, "clicks", "t") is denied
        partition = bench.services.partitions.require_leader("clicks", 0)
        assert partition.log.log_end_offset == 1

    with_broker(story, **WITH_AUTHORIZER)
