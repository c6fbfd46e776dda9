"""Produce: what the handler itself decides. The partition behind it is one of a few answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from moldau.broker.api import DeferredResponse, RequestContext
from moldau.broker.handlers import produce
from moldau.broker.purgatory import Purgatory
from moldau.errors import ErrorCode, NotLeaderError
from moldau.model import GROUP_OFFSETS_TOPIC, TopicPartition
from moldau.records.compression import Codec
from moldau.records.record_batch import build_batch
from moldau.replication.rules.replica import Acknowledgement
from moldau.simulation.manual_clock import wait_until_idle
from moldau.storage.log import AppendResult
from moldau.testing import ManualClock
from moldau.wire.apis import PRODUCE
from moldau.wire.headers import RequestHeader, read_response_header
from moldau.wire.produce_frame import ProduceAnswer, encode_produce_request, parse_produce_response

VERSION = 12
PARTITION = TopicPartition("clicks", 0)
BATCH = build_batch([(5, b"key", b"value", ())])
RESULT = AppendResult(41, 41, -1, 3, False)


class FakePartition:
    """Appends at offset 41, and acknowledges as it is told."""

    def __init__(self) -> None:
        self.topic_partition = PARTITION
        self.topic_id = UUID(int=7)
        self.leader_epoch = 2
        self.log = SimpleNamespace(flush_is_due=False)
        self.acknowledgement = Acknowledgement.PENDING
        self.state = SimpleNamespace(
            high_watermark=41, acknowledgement=lambda epoch, end: self.acknowledgement
        )
        self.appended: list[tuple[bytes, int]] = []

    def append_as_leader(self, batch: memoryview, acks: int) -> AppendResult:
        self.appended.append((bytes(batch), acks))
        return RESULT


class Stage:
    """A handler with one partition behind it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.partition = FakePartition()
        self.room = Purgatory(self.clock)
        self.closed: list[str] = []
        self.leads = True

    def send(
        self,
        batch: bytes | bytearray = BATCH,
        *,
        acks: int = 1,
        topic: str = "clicks",
        version=VERSION,
    ) -> object:
        topics = [(topic, [(0, batch)])]
        frame = b"".join(map(bytes, encode_produce_request(version, acks, 1_000, topics)))
        services = SimpleNamespace(
            authorizer=None,
            clock=self.clock,
            purgatory=self.room,
            partitions=SimpleNamespace(require_leader=self._require_leader),
            image=SimpleNamespace(topics={}, topics_by_id={}, brokers={}),
        )
        connection = SimpleNamespace(close=self.closed.append, listener_name="PLAINTEXT")
        context = RequestContext(
            RequestHeader(PRODUCE.key, version, 9, "test"), connection, services
        )
        return produce.handle_frame(memoryview(frame), 0, context)

    def ask(self, *args: object, version: int = VERSION, **options: object) -> ProduceAnswer:
        """A request that is answered at once."""
        return read(self.send(*args, version=version, **options), version)

    def _require_leader(self, name: str, index: int) -> FakePartition:
        if not self.leads:
            raise NotLeaderError(f"{name}-{index} is led elsewhere")
        return self.partition


def read(chunks: object, version: int = VERSION) -> ProduceAnswer:
    assert isinstance(chunks, list)
    frame = memoryview(b"".join(map(bytes, chunks)))[4:]
    correlation_id, position = read_response_header(frame, PRODUCE.key, version)
    assert correlation_id == 9
    (answer,) = parse_produce_response(version, frame, position).answers
    return answer


@pytest.mark.parametrize("version", range(PRODUCE.spoken.first, PRODUCE.spoken.last + 1))
def test_a_batch_that_was_appended_is_confirmed_with_its_place(version: int) -> None:
    stage = Stage()
    answer = stage.ask(version=version)
    assert answer[:4] == ("clicks", 0, 0, 41)
    assert stage.partition.appended == [(bytes(BATCH), 1)]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"acks": 2}, ErrorCode.invalid_required_acks),
        ({"topic": GROUP_OFFSETS_TOPIC}, ErrorCode.invalid_topic_exception),
        (
            {"batch": build_batch([(5, None, b"v", ())], producer_id=1, transactional=True)},
            ErrorCode.transactional_id_authorization_failed,
        ),
        (
            {"batch": build_batch([(5, None, b"v", ())], codec=Codec.ZSTD), "version": 6},
            ErrorCode.unsupported_compression_type,
        ),
    ],
    ids=["acks", "internal topic", "transaction", "zstd before version 7"],
)
def test_what_the_request_itself_forbids_reaches_no_log(
    options: dict[str, object], code: ErrorCode
) -> None:
    stage = Stage()
    assert stage.ask(**options).error_code == code.value
    assert stage.partition.appended == []


def test_an_error_of_the_partition_is_the_answer() -> None:
    stage = Stage()
    stage.leads = False
    answer = stage.ask()
    assert answer.error_code == ErrorCode.not_leader_or_follower.value
    assert "led elsewhere" in (answer.error_message or "")


def test_who_wants_no_answer_gets_none_and_loses_the_connection_for_an_error() -> None:
    stage = Stage()
    assert stage.send(acks=0) is None
    assert stage.closed == []
    stage.leads = False
    assert stage.send(acks=0) is None
    assert "clicks-0" in stage.closed[0]


def test_acks_all_is_answered_at_once_where_the_batch_is_committed_already() -> None:
    stage = Stage()
    stage.partition.state.high_watermark = 42
    assert stage.ask(acks=-1).base_offset == 41


@pytest.mark.parametrize(
    ("acknowledgement", "code"),
    [
        (Acknowledgement.COMMITTED, ErrorCode.none),
        (Acknowledgement.TOO_FEW, ErrorCode.not_enough_replicas_after_append),
        (Acknowledgement.LEADER_CHANGED, ErrorCode.not_leader_or_follower),
        (Acknowledgement.PENDING, ErrorCode.request_timed_out),
    ],
)
def test_acks_all_waits_for_the_fate_of_the_batch_until_the_time_is_over(
    acknowledgement: Acknowledgement, code: ErrorCode
) -> None:
    async def story() -> None:
        stage = Stage()
        answer = stage.send(acks=-1)
        assert isinstance(answer, DeferredResponse)
        task = asyncio.ensure_future(answer.work)
        await wait_until_idle()
        assert not task.done()
        stage.partition.acknowledgement = acknowledgement
        await stage.clock.advance(1)
        assert read(await task).error_code == code.value

    asyncio.run(story())
