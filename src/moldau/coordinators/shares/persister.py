"""Asks share coordinators for the states of share partitions, wherever they are (KIP-932).

For the leaders of partitions it is their `ShareStateStore`, for the coordinators of share groups
their `ShareStateKeeper`. A coordinator on this broker is asked without a socket. To another broker
goes one request of each kind at a time, and what comes meanwhile goes with the next one. Where a
coordinator moves, loads or does not answer, it is asked again, and again for as long as
`request.timeout.ms` at most; nothing of what is asked does harm when it is done twice.

A shell, owned by the event loop. Which refusals pass, and what the others mean, are rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from moldau.clock import Clock
from moldau.coordinators.shares.coordinator import ShareCoordinator
from moldau.coordinators.shares.rules.records import (
    NO_COUNT,
    DeliveryState,
    SharePartitionKey,
    ShareStateWrite,
    StateBatch,
    StoredShareState,
    coordinator_key,
)
from moldau.coordinators.shares.rules.share_states import (
    DeleteState,
    InitializeState,
    ReadState,
    StateAnswer,
    StateEvent,
    SummarizeState,
    WriteState,
)
from moldau.errors import (
    ClientError,
    CoordinatorNotAvailableError,
    ErrorCode,
    FencedLeaderEpochError,
    FencedStateEpochError,
    GroupNotFoundError,
    KafkaError,
    UnknownTopicError,
)
from moldau.model import BrokerId
from moldau.net.peer import Peer
from moldau.wire.apis import (
    DELETE_SHARE_GROUP_STATE,
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    WRITE_SHARE_GROUP_STATE,
    Api,
)

_log = logging.getLogger("moldau.coordinators")

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 1.0
_ROWS_AT_ONCE: Final = 1_000
_NO_LEADER_EPOCH: Final = -1

_PASSING: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.network_exception,
        ErrorCode.request_timed_out,
        ErrorCode.unknown_server_error,
    }
)
"""Refusals that end by themselves: the coordinator moves, loads, or was not reached."""


class _Waiting(NamedTuple):
    event: StateEvent
    answer: asyncio.Future[StateAnswer]


class _RequestQueue:
    """The way of one kind of question to one broker; one request at a time."""

    def __init__(self) -> None:
        self.waiting: list[_Waiting] = []
        self.is_busy = False


class SharePersister:
    """`read` and `write` for leaders, `initialize`, `delete` and `summarize` for coordinators of
    groups; `close` once. `connect` makes the way to a broker."""

    def __init__(
        self,
        coordinator: ShareCoordinator,
        *,
        broker_id: BrokerId,
        clock: Clock,
        connect: Callable[[BrokerId], Peer],
        spawn: Callable[[str, Coroutine[Any, Any, None]], object],
        timeout_ms: Callable[[], int],
    ) -> None:
        self._coordinator = coordinator
        self._broker_id = broker_id
        self._clock = clock
        self._connect = connect
        self._spawn = spawn
        self._timeout_ms = timeout_ms
        self._peers: dict[BrokerId, Peer] = {}
        self._queues: dict[tuple[BrokerId, int], _RequestQueue] = {}

    # For leaders of partitions

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> StoredShareState:
        answer = await self.send_event(ReadState(key, leader_epoch))
        _raise(answer, key, UnknownTopicError)
        return StoredShareState(answer.state_epoch, answer.start_offset, answer.batches)

    async def write(self, key: SharePartitionKey, change: ShareStateWrite) -> None:
        answer = await self.send_event(WriteState(key, change))
        _raise(answer, key, FencedStateEpochError)

    # For coordinators of groups

    async def initialize(
        self, group_id: str, state_epoch: int, states: Iterable[tuple[UUID, int, int]]
    ) -> frozenset[tuple[UUID, int]]:
        """Each state is that of a topic's id and a partition, and begins at an offset."""
        return await self._send_all(
            InitializeState(SharePartitionKey(group_id, topic_id, partition), state_epoch, start)
            for topic_id, partition, start in states
        )

    async def delete(
        self, group_id: str, partitions: Mapping[UUID, frozenset[int]]
    ) -> frozenset[tuple[UUID, int]]:
        return await self._send_all(
            DeleteState(SharePartitionKey(group_id, topic_id, partition))
            for topic_id, some in partitions.items()
            for partition in sorted(some)
        )

    async def _send_all(self, events: Iterable[StateEvent]) -> frozenset[tuple[UUID, int]]:
        """Where it was done."""
        asked = list(events)
        answers = await asyncio.gather(*map(self.send_event, asked))
        done: set[tuple[UUID, int]] = set()
        for event, answer in zip(asked, answers, strict=True):
            if answer.error is ErrorCode.none:
                done.add((event.key.topic_id, event.key.partition))
            else:
                _log.info("%s: %s, %s", event.key, answer.error.name, answer.message)
        return frozenset(done)

    async def summarize(self, keys: Sequence[SharePartitionKey]) -> list[StateAnswer]:
        """How far share partitions have come, in the order of the keys."""
        return await asyncio.gather(
            *(self.send_event(SummarizeState(key, _NO_LEADER_EPOCH)) for key in keys)
        )

    # Asking

    async def send_event(self, event: StateEvent) -> StateAnswer:
        """What the share coordinator of the key says; raises nothing."""
        end = self._clock.monotonic() + self._timeout_ms() / 1000
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            answer = await self._send_once(event)
            if answer.error not in _PASSING or self._clock.monotonic() + pause_seconds >= end:
                return answer
            await self._clock.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)

    async def _send_once(self, event: StateEvent) -> StateAnswer:
        try:
            await self._coordinator.topic.ensure()
        except KafkaError as error:
            return StateAnswer(ErrorCode.coordinator_not_available, str(error))
        state = self._coordinator.topic.find_state(coordinator_key(event.key))
        if state is None or state.leader < 0:
            return StateAnswer(ErrorCode.coordinator_not_available, "nobody coordinates it now")
        if state.leader == self._broker_id:
            return await self._coordinator.submit(event)
        return await self._send_to_broker(state.leader, event)

    async def _send_to_broker(self, broker: BrokerId, event: StateEvent) -> StateAnswer:
        api = api_of(event)
        queue = self._queues.setdefault((broker, api.key), _RequestQueue())
        answer: asyncio.Future[StateAnswer] = asyncio.get_running_loop().create_future()
        queue.waiting.append(_Waiting(event, answer))
        if not queue.is_busy:
            queue.is_busy = True
            self._spawn(f"{api.name} to broker {broker}", self._drain(broker, api, queue))
        return await answer

    async def _drain(self, broker: BrokerId, api: Api, queue: _RequestQueue) -> None:
        """Until nothing waits in the queue."""
        try:
            while queue.waiting:
                taken = _take(queue.waiting)
                try:
                    answers = await self._send(broker, api, [one.event for one in taken])
                except (ClientError, KafkaError) as error:
                    answers = [StateAnswer(ErrorCode.network_exception, str(error))] * len(taken)
                except BaseException:
                    queue.waiting = [*taken, *queue.waiting]
                    raise
                for one, answer in zip(taken, answers, strict=True):
                    _resolve(one, answer)
        finally:
            queue.is_busy = False
            left, queue.waiting = queue.waiting, []
            for one in left:  # whatever ended this: nobody waits for nothing
                _resolve(one, StateAnswer(ErrorCode.network_exception, "it was not asked"))

    async def _send(
        self, broker: BrokerId, api: Api, events: Sequence[StateEvent]
    ) -> list[StateAnswer]:
        from moldau.wire.messages import encode_request, parse_response
        from moldau.wire.shape import fit
        from moldau.wire.versions import request_class

        version = api.served.last
        request = fit(request_class(api.key, version), request_values(events))
        frame = encode_request(request, 0, f"broker-{self._broker_id}")
        peer = self._peers.get(broker)
        if peer is None:
            peer = self._peers[broker] = self._connect(broker)
        answer = await peer.ask((frame,), timeout_seconds=self._timeout_ms() / 1000)
        _, response = parse_response(api.key, version, answer)
        return answers_of(events, response)

    async def close(self) -> None:
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            await peer.close()


def _take(waiting: list[_Waiting]) -> list[_Waiting]:
    """Of one group, as a request is, and each share partition once: what is asked of it later has
    to be answered later."""
    group_id = waiting[0].event.key.group_id
    taken: dict[SharePartitionKey, _Waiting] = {}
    rest: list[_Waiting] = []
    for one in waiting:
        key = one.event.key
        if key.group_id == group_id and key not in taken and len(taken) < _ROWS_AT_ONCE:
            taken[key] = one
        else:
            rest.append(one)
    waiting[:] = rest
    return list(taken.values())


def _resolve(waiting: _Waiting, answer: StateAnswer) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(answer)


def _raise(answer: StateAnswer, key: SharePartitionKey, uninitialized: type[KafkaError]) -> None:
    """What the port says of each refusal; `uninitialized` is for a state that is not there."""
    message = f"{coordinator_key(key)}: {answer.message or answer.error.name}"
    match answer.error:
        case ErrorCode.none:
            return
        case ErrorCode.invalid_request:
            raise uninitialized(message)
        case ErrorCode.fenced_state_epoch:
            raise FencedStateEpochError(message)
        case ErrorCode.fenced_leader_epoch:
            raise FencedLeaderEpochError(message)
        case ErrorCode.unknown_topic_or_partition:
            raise UnknownTopicError(message)
        case ErrorCode.group_id_not_found:
            raise GroupNotFoundError(message)
        case _:
            raise CoordinatorNotAvailableError(message)


# All five APIs have one shape: a group, its topics by id, and a row for each partition. A rule.


_ZERO_UUID: Final = UUID(int=0)

Row = Any
"""Of a request or a response; kio has a class of its own for each API and version."""


class _Words(NamedTuple):
    """How one API says it."""

    api: Api
    ask: Callable[[Any], Mapping[str, object]]
    """The fields of a row of the request, beside its partition."""
    hear: Callable[[SharePartitionKey, Row], StateEvent]
    tell: Callable[[StateAnswer], Mapping[str, object]]
    """The fields of a row of the response, beside partition and error."""


_WORDS: Final[dict[type[Any], _Words]] = {
    InitializeState: _Words(
        INITIALIZE_SHARE_GROUP_STATE,
        ask=lambda event: {"state_epoch": event.state_epoch, "start_offset": event.start_offset},
        hear=lambda key, row: InitializeState(key, row.state_epoch, row.start_offset),
        tell=lambda answer: {},
    ),
    ReadState: _Words(
        READ_SHARE_GROUP_STATE,
        ask=lambda event: {"leader_epoch": event.leader_epoch},
        hear=lambda key, row: ReadState(key, row.leader_epoch),
        tell=lambda answer: {
            "state_epoch": answer.state_epoch,
            "start_offset": answer.start_offset,
            "state_batches": _batch_rows(answer.batches),
        },
    ),
    WriteState: _Words(
        WRITE_SHARE_GROUP_STATE,
        ask=lambda event: {
            "state_epoch": event.change.state_epoch,
            "leader_epoch": event.change.leader_epoch,
            "start_offset": event.change.start_offset,
            "delivery_complete_count": event.change.delivery_complete_count,
            "state_batches": _batch_rows(event.change.state_batches),
        },
        hear=lambda key, row: WriteState(
            key,
            ShareStateWrite(
                row.state_epoch,
                row.leader_epoch,
                row.start_offset,
                getattr(row, "delivery_complete_count", NO_COUNT),
                _batches_of(row.state_batches),
            ),
        ),
        tell=lambda answer: {},
    ),
    DeleteState: _Words(
        DELETE_SHARE_GROUP_STATE,
        ask=lambda event: {},
        hear=lambda key, row: DeleteState(key),
        tell=lambda answer: {},
    ),
    SummarizeState: _Words(
        READ_SHARE_GROUP_STATE_SUMMARY,
        ask=lambda event: {"leader_epoch": event.leader_epoch},
        hear=lambda key, row: SummarizeState(key, row.leader_epoch),
        tell=lambda answer: {
            "state_epoch": answer.state_epoch,
            "leader_epoch": answer.leader_epoch,
            "start_offset": answer.start_offset,
            "delivery_complete_count": answer.delivery_complete_count,
        },
    ),
}


def _batch_rows(batches: Iterable[StateBatch]) -> list[Mapping[str, object]]:
    return [batch._asdict() for batch in batches]


def _batches_of(rows: Iterable[Row]) -> tuple[StateBatch, ...]:
    """Raises `ValueError` for a state that there is not."""
    return tuple(
        StateBatch(
            row.first_offset,
            row.last_offset,
            DeliveryState(row.delivery_state),
            row.delivery_count,
        )
        for row in rows
    )


def api_of(event: StateEvent) -> Api:
    return _WORDS[type(event)].api


# Asking


def request_values(events: Sequence[StateEvent]) -> dict[str, object]:
    """One request, of events of one kind and one group."""
    ask = _WORDS[type(events[0])].ask
    topics: dict[UUID, list[Mapping[str, object]]] = {}
    for event in events:
        row = {"partition": event.key.partition, **ask(event)}
        topics.setdefault(event.key.topic_id, []).append(row)
    return {
        "group_id": events[0].key.group_id,
        "topics": [{"topic_id": one, "partitions": rows} for one, rows in topics.items()],
    }


def answers_of(events: Sequence[StateEvent], response: Row) -> list[StateAnswer]:
    """In the order of the events; one that the response says nothing of has failed."""
    rows = {
        (result.topic_id, row.partition): row
        for result in response.results
        for row in result.partitions
    }
    return [_answer_of(rows.get((one.key.topic_id, one.key.partition))) for one in events]


def _answer_of(row: Row | None) -> StateAnswer:
    if row is None:
        return StateAnswer(ErrorCode.unknown_server_error, "the answer does not speak of it")
    missing = StateAnswer()
    return StateAnswer(
        error=row.error_code,
        message=row.error_message,
        state_epoch=getattr(row, "state_epoch", missing.state_epoch),
        leader_epoch=getattr(row, "leader_epoch", missing.leader_epoch),
        start_offset=getattr(row, "start_offset", missing.start_offset),
        delivery_complete_count=getattr(row, "delivery_complete_count", NO_COUNT),
        batches=_batches_of(getattr(row, "state_batches", ())),
    )


# Answering


def events_of(
    kind: type[StateEvent], request: Row
) -> list[tuple[SharePartitionKey, StateEvent | StateAnswer]]:
    """In the order of the request; what makes no sense has its answer."""
    found = []
    for topic in request.topics:
        for row in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id or _ZERO_UUID, row.partition)
            found.append((key, _event_of(kind, key, row)))
    return found


def _event_of(kind: type[StateEvent], key: SharePartitionKey, row: Row) -> StateEvent | StateAnswer:
    try:
        return _WORDS[kind].hear(key, row)
    except ValueError as error:
        return StateAnswer(ErrorCode.invalid_request, str(error))


def response_values(
    kind: type[StateEvent], keys: Iterable[SharePartitionKey], answers: Iterable[StateAnswer]
) -> dict[str, object]:
    tell = _WORDS[kind].tell
    results: dict[UUID, list[Mapping[str, object]]] = {}
    for key, answer in zip(keys, answers, strict=True):
        row = {
            "partition": key.partition,
            "error_code": answer.error,
            "error_message": answer.message,
            **tell(answer),
        }
        results.setdefault(key.topic_id, []).append(row)
    return {
        "results": [{"topic_id": one, "partitions": rows} for one, rows in results.items()],
    }
