"""Questions to transaction coordinators: on this broker, on others, several at once, unanswered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

from moldau.broker.transaction_verifier import Question, TransactionVerifier
from moldau.errors import ErrorCode, NoAnswerError
from moldau.model import TRANSACTION_STATE_TOPIC, BrokerId, TopicPartition
from moldau.simulation.manual_clock import ManualClock
from moldau.wire.apis import ADD_PARTITIONS_TO_TXN
from moldau.wire.headers import read_request_header
from moldau.wire.messages import encode_response, parse_request
from moldau.wire.shape import fit
from moldau.wire.versions import response_class

HERE, THERE = BrokerId(1), BrokerId(2)
KEY = ADD_PARTITIONS_TO_TXN.key
CLICKS = TopicPartition("clicks", 0)
VIEWS = TopicPartition("views", 3)


def answer_for(request: Any, codes: Callable[[str], ErrorCode]) -> dict[str, object]:
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.none,
        "results_by_transaction": [
            {
                "transactional_id": one.transactional_id,
                "topic_results": [
                    {
                        "name": topic.name,
                        "results_by_partition": [
                            {
                                "partition_index": number,
                                "partition_error_code": codes(one.transactional_id),
                            }
                            for number in topic.partitions
                        ],
                    }
                    for topic in one.topics
                ],
            }
            for one in request.transactions
        ],
    }


class OtherBroker:
    """A peer whose coordinator answers, once the gate is open."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.codes: Callable[[str], ErrorCode] = lambda name: ErrorCode.none
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_silent = False

    async def ask(self, frame: Sequence[bytes], *, timeout_seconds: float) -> memoryview:
        whole = memoryview(bytearray(b"".join(frame)))[4:]
        header, position = read_request_header(whole)
        request = parse_request(KEY, header.api_version, whole, position)
        self.requests.append(request)
        await self.gate.wait()
        if self.is_silent:
            raise NoAnswerError("no answer")
        message = fit(response_class(KEY, header.api_version), answer_for(request, self.codes))
        return memoryview(bytearray(encode_response(message, 0)))[4:]

    async def close(self) -> None:
        pass


class Stage:
    def __init__(self, leader: int) -> None:
        self.other = OtherBroker()
        self.local: list[Any] = []
        self.local_codes = [ErrorCode.none]
        self.tasks: list[asyncio.Task[None]] = []
        state = SimpleNamespace(leader=leader)
        topic = SimpleNamespace(partitions=[state], find_partition=lambda number: state)
        self.image = SimpleNamespace(topics={TRANSACTION_STATE_TOPIC: topic})
        self.clock = ManualClock()
        self.verifier = TransactionVerifier(
            HERE,
            image=lambda: self.image,
            clock=self.clock,
            connect=lambda broker: self.other,
            ask_local=self._ask_local,
            spawn=self._spawn,
            timeout_ms=lambda: 1000,
        )

    async def _ask_local(self, request: Any) -> dict[str, object]:
        self.local.append(request)
        code = self.local_codes.pop(0) if len(self.local_codes) > 1 else self.local_codes[0]
        return answer_for(request, lambda name: code)

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.ensure_future(work))


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 20))


def a_question(name: str = "t-1", *partitions: TopicPartition, adds: bool = False) -> Question:
    return Question(name, 7, 1, frozenset(partitions or (CLICKS,)), adds)


def test_the_coordinator_of_this_broker_is_asked_without_a_socket() -> None:
    async def story() -> None:
        stage = Stage(HERE)
        codes = await stage.verifier.ask(a_question("t-1", CLICKS, VIEWS))
        assert codes == {CLICKS: ErrorCode.none, VIEWS: ErrorCode.none}
        (asked,) = stage.local[0].transactions
        assert (asked.transactional_id, asked.producer_id, asked.verify_only) == ("t-1", 7, True)
        assert not stage.other.requests

    run(story)


def test_without_a_coordinator_the_producer_has_to_ask_again() -> None:
    async def story() -> None:
        stage = Stage(-1)
        unavailable = {CLICKS: ErrorCode.coordinator_not_available}
        assert await stage.verifier.ask(a_question()) == unavailable
        stage.image.topics.clear()
        assert await stage.verifier.ask(a_question()) == unavailable

    run(story)


def test_a_transaction_that_is_being_completed_is_asked_about_again() -> None:
    async def story() -> None:
        stage = Stage(HERE)
        stage.local_codes = [ErrorCode.concurrent_transactions] * 3 + [ErrorCode.none]
        asking = stage.clock.run_until_done(stage.verifier.ask(a_question(adds=True)))
        assert await asking == {CLICKS: ErrorCode.none}
        assert len(stage.local) == 4
        stage.local_codes = [ErrorCode.concurrent_transactions]
        asking = stage.clock.run_until_done(stage.verifier.ask(a_question(adds=True)))
        assert await asking == {CLICKS: ErrorCode.concurrent_transactions}

    run(story)


def test_questions_that_come_while_one_is_under_way_go_together() -> None:
    async def story() -> None:
        stage = Stage(THERE)
        stage.other.gate.clear()
        fenced = ErrorCode.producer_fenced
        stage.other.codes = lambda name: fenced if name == "t-3" else ErrorCode.none
        names = ["t-1", "t-2", "t-3", "t-2"]
        asking = [asyncio.ensure_future(stage.verifier.ask(a_question(name))) for name in names]
        await asyncio.sleep(0)
        stage.other.gate.set()
        codes = [(await one)[CLICKS] for one in asking]
        assert codes == [ErrorCode.none, ErrorCode.none, fenced, ErrorCode.none]
        sent = [
            [one.transactional_id for one in each.transactions] for each in stage.other.requests
        ]
        assert [name for each in sent for name in each] == names
        assert all(len(each) == len(set(each)) for each in sent)  # an id once in a request
        assert len(sent) < len(names)

    run(story)


def test_a_producer_of_version_2_is_asked_for_in_its_version() -> None:
    async def story() -> None:
        stage = Stage(THERE)
        await stage.verifier.ask(a_question(adds=True))
        await stage.verifier.ask(a_question(adds=False))
        asked = [
            (each.__version__, each.transactions[0].verify_only) for each in stage.other.requests
        ]
        assert asked == [(5, False), (4, True)]

    run(story)


def test_a_broker_that_does_not_answer_holds_up_nobody_for_ever() -> None:
    async def story() -> None:
        stage = Stage(THERE)
        stage.other.is_silent = True
        assert await stage.verifier.ask(a_question()) == {CLICKS: ErrorCode.network_exception}
        stage.other.is_silent = False
        assert await stage.verifier.ask(a_question()) == {CLICKS: ErrorCode.none}

    run(story)


def test_nobody_waits_for_a_question_that_ends_with_its_broker() -> None:
    """Neither the one that is under way nor the one behind it."""

    async def story() -> None:
        stage = Stage(THERE)
        stage.other.gate.clear()
        asked = [asyncio.ensure_future(stage.verifier.ask(a_question())) for _ in range(2)]
        while not stage.other.requests:
            await asyncio.sleep(0)
        stage.tasks[0].cancel()
        await asyncio.wait(asked, timeout=60)
        assert all(one.cancelled() for one in asked)

    run(story)
