"""Fetch: what the handler itself decides. Long polls are in `test_fetch_waits`."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest

from moldau.broker.api import RequestContext
from moldau.broker.fetch import FetchSessions
from moldau.broker.handlers import fetch
from moldau.broker.purgatory import Purgatory
from moldau.errors import ErrorCode, NotLeaderError, OffsetOutOfRangeError
from moldau.metrics.figures import TopicTraffic
from moldau.model import CONSUMER
from moldau.replication.partition import PartitionRead
from moldau.testing import ManualClock
from moldau.wire.apis import FETCH
from moldau.wire.fetch_exchange import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchAnswer,
    encode_fetch_request,
    parse_fetch_answer,
)
from moldau.wire.fetch_frame import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.headers import RequestHeader, read_response_header

BY_NAME = 12
BY_ID = 13
TOPIC_ID = UUID(int=7)


class FakePartition:
    """Has nothing but an end, or an error."""

    is_leader = True
    topic_id = TOPIC_ID
    traffic = TopicTraffic("clicks")

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.offsets: list[int] = []  # that were read

    def check_epoch(self, current_leader_epoch: int) -> None:
        pass

    def read(self, offset: int, max_bytes: int, **options: object) -> PartitionRead:
        self.offsets.append(offset)
        if self.error is not None:
            raise self.error
        return PartitionRead(None, 12, 11, 3, None, None)


class Stage:
    """A handler with the partition clicks-0 behind it."""

    def __init__(self) -> None:
        self.partition = FakePartition()
        self.clock = ManualClock()
        self.sessions = FetchSessions(lambda: 10, lambda: 4711)

    def ask(
        self,
        version: int,
        *,
        session_id: int = NO_SESSION,
        epoch: int = FINAL_EPOCH,
        topic_id: UUID = TOPIC_ID,
        offsets: tuple[int, ...] = (5,),
    ) -> FetchAnswer:
        partitions = [FetchPartition(0, -1, offset, -1, -1, 1 << 20) for offset in offsets]
        request = FetchRequest(
            replica_id=CONSUMER,
            replica_epoch=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=0,
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic("clicks", topic_id, partitions)],
            forgotten_topics=[],
            rack_id="",
            cluster_id=None,
        )
        topic = SimpleNamespace(name="clicks", topic_id=TOPIC_ID, id=TOPIC_ID)
        services = SimpleNamespace(
            authorizer=None,
            clock=self.clock,
            fetch_sessions=self.sessions,
            image=SimpleNamespace(topics={}, topics_by_id={TOPIC_ID: topic}, brokers={}),
            options=SimpleNamespace(fetch_max_bytes=1 << 20, replica_selector_class=None),
            partitions=SimpleNamespace(
                require_replica=lambda topic, index: self.partition,
                require_leader=lambda topic, index: self.partition,
            ),
            purgatory=Purgatory(self.clock),
        )
        header = RequestHeader(FETCH.key, version, 9, "test")
        connection = SimpleNamespace(listener_name="PLAINTEXT")
        body = memoryview(encode_fetch_request(version, request))
        chunks = fetch.handle_frame(body, 0, RequestContext(header, connection, services))
        assert isinstance(chunks, list)
        frame = memoryview(b"".join(map(bytes, chunks)))[4:]
        correlation_id, position = read_response_header(frame, FETCH.key, version)
        assert correlation_id == 9
        return parse_fetch_answer(version, frame, position)


def code_of(answer: FetchAnswer) -> ErrorCode:
    ((row,),) = [topic.partitions for topic in answer.topics]
    return ErrorCode(row.error_code)


@pytest.mark.parametrize("version", range(FETCH.served.first, FETCH.served.last + 1))
def test_a_partition_without_new_records_tells_where_it_ends(version: int) -> None:
    answer = Stage().ask(version)
    ((row,),) = [topic.partitions for topic in answer.topics]
    assert (row.error_code, row.high_watermark) == (0, 12)
    assert bytes(row.records or b"") == b""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OffsetOutOfRangeError("5"), ErrorCode.offset_out_of_range),
        (NotLeaderError("clicks-0"), ErrorCode.not_leader_or_follower),
    ],
)
def test_an_error_of_the_partition_is_an_answer_about_the_partition(
    error: Exception, code: ErrorCode
) -> None:
    stage = Stage()
    stage.partition.error = error
    assert code_of(stage.ask(BY_NAME)) is code


def test_a_topic_id_that_nobody_has_is_an_answer_about_the_partition() -> None:
    assert code_of(Stage().ask(BY_ID, topic_id=UUID(int=8))) is ErrorCode.unknown_topic_id


@pytest.mark.parametrize("epoch", [FINAL_EPOCH, INITIAL_EPOCH])
def test_of_a_partition_that_is_named_twice_the_last_word_counts(epoch: int) -> None:
    stage = Stage()
    answer = stage.ask(BY_NAME, epoch=epoch, offsets=(5, 6))
    assert len(answer.topics[0].partitions) == 1
    assert stage.partition.offsets == [6]


def test_a_request_that_does_not_wait_is_given_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FetchSessions, "open_for_one")
    assert Stage().ask(BY_NAME).session_id == NO_SESSION


def test_a_request_for_a_session_that_cannot_be_had_is_a_plain_read() -> None:
    stage = Stage()
    stage.sessions = FetchSessions(lambda: 0, lambda: 4711)
    answer = stage.ask(BY_NAME, epoch=INITIAL_EPOCH)
    assert (answer.session_id, code_of(answer)) == (NO_SESSION, ErrorCode.none)


def test_a_session_is_made_on_request_and_asked_for_in_vain_when_it_is_forgotten() -> None:
    stage = Stage()
    made = stage.ask(BY_NAME, epoch=INITIAL_EPOCH)
    assert made.session_id == 4711
    assert stage.ask(BY_NAME, session_id=4711, epoch=1).error_code == 0
    wrong = stage.ask(BY_NAME, session_id=4711, epoch=9)
    assert ErrorCode(wrong.error_code) is ErrorCode.invalid_fetch_session_epoch
    strange = stage.ask(BY_NAME, session_id=1, epoch=1)
    assert ErrorCode(strange.error_code) is ErrorCode.fetch_session_id_not_found


@pytest.mark.parametrize(("made", "used"), [(BY_NAME, BY_ID), (BY_ID, BY_NAME)])
def test_a_session_names_topics_in_one_way(made: int, used: int) -> None:
    """Else an answer would have to name a topic by what was never said of it."""
    stage = Stage()
    stage.ask(made, epoch=INITIAL_EPOCH)
    answer = stage.ask(used, session_id=4711, epoch=1)
    assert ErrorCode(answer.error_code) is ErrorCode.fetch_session_topic_id_error
    assert len(stage.sessions) == 0
