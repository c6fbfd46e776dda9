"""Requests about the states of share partitions, between their words on the wire and events of the
share coordinator: in both directions, for those who ask and for those who answer.

All five APIs have one shape: a group, its topics by id, and a row for each partition. A rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from moldau.errors import ErrorCode
from moldau.shares.rules.delivery_state import (
    NO_COUNT,
    DeliveryState,
    SharePartitionKey,
    ShareStateWrite,
    StateBatch,
)
from moldau.shares.rules.state_events import (
    DeleteState,
    InitializeState,
    ReadState,
    StateAnswer,
    StateEvent,
    SummarizeState,
    WriteState,
)
from moldau.wire.apis import (
    DELETE_SHARE_GROUP_STATE,
    INITIALIZE_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE,
    READ_SHARE_GROUP_STATE_SUMMARY,
    WRITE_SHARE_GROUP_STATE,
    Api,
)

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
