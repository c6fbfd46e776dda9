"""What happened lately, and why: a short memory of a broker, for `moldau explain` and people.

Rebalances with their causes, changes of in-sync sets, elections, deletions, compaction. Bounded by
the number of events of each kind. Owned by the event loop.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Final

MOST_EVENTS: Final = 500
"""Of each kind: some 100 KB in all."""

_FIELDS: Final = ("kind", "at_ms", "subject", "message", "facts")


class EventKind(Enum):
    """What the history tells of."""

    REBALANCE = "rebalance"  # the subject is a group
    ISR = "isr"  # here and below, a partition: topic-number
    ELECTION = "election"
    DELETION = "deletion"  # of records: by retention, DeleteRecords
    COMPACTION = "compaction"
    BROKER = "broker"  # came or went; the controller changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One thing that happened. `facts` are for machines; the message says the same to people."""

    kind: EventKind
    at_ms: int
    subject: str
    message: str
    facts: Mapping[str, object] = field(default_factory=dict)


class History:
    """The last events of each kind. `now_ms` tells the time."""

    def __init__(self, now_ms: Callable[[], int], most_events: int = MOST_EVENTS) -> None:
        self._now_ms = now_ms
        self._events = {kind: deque[Event](maxlen=most_events) for kind in EventKind}
        self.noted = 0  # so far: whoever keeps the history sees by it whether there is news

    def note(self, kind: EventKind, subject: str, message: str, **facts: object) -> None:
        self._events[kind].append(
            Event(kind=kind, at_ms=self._now_ms(), subject=subject, message=message, facts=facts)
        )
        self.noted += 1

    def find(self, kind: EventKind | None = None, subject: str | None = None) -> list[Event]:
        """Those of a kind and about a subject, or all; oldest first."""
        kinds = EventKind if kind is None else (kind,)
        found = [
            event
            for each in kinds
            for event in self._events[each]
            if subject is None or event.subject == subject
        ]
        return sorted(found, key=lambda event: event.at_ms)

    def restore(self, events: Iterable[Event]) -> None:
        """Begin with what a former life of the broker remembered."""
        for event in events:
            self._events[event.kind].append(event)


def encode_events(events: Iterable[Event]) -> str:
    """As JSON, one object for each event."""
    return json.dumps([asdict(event) | {"kind": event.kind.value} for event in events], indent=1)


def decode_events(text: str) -> list[Event]:
    """Raises ValueError for what is no list of events; what is strange in it is left out."""
    rows = json.loads(text)
    if not isinstance(rows, list):
        raise ValueError("a history is a list of events")
    return [event for row in rows if (event := _decode(row)) is not None]


def _decode(row: object) -> Event | None:
    if not isinstance(row, dict):
        return None
    kind, at_ms, subject, message, facts = (row.get(name) for name in _FIELDS)
    known = {each.value: each for each in EventKind}
    is_sound = (
        isinstance(kind, str)
        and kind in known
        and isinstance(at_ms, int)
        and isinstance(subject, str)
        and isinstance(message, str)
    )
    if not is_sound:
        return None
    return Event(
        kind=known[str(kind)],
        at_ms=int(str(at_ms)),
        subject=str(subject),
        message=str(message),
        facts=facts if isinstance(facts, dict) else {},
    )
