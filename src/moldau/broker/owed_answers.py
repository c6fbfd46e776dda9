"""Answers that leave a connection in the order of its requests, whichever of them is known first.

A Produce with acks=all has had its effect when its batches are appended; what is left is to wait
for the replicas. Its connection owes the answer from then on, and the next Produce is appended
meanwhile: a round of fetches of the followers commits what all of them brought, instead of one
batch. Appends keep their order, since a batch is appended before the next request is looked at, and
so do answers, which is all that a client can see. Sequence numbers of producers are checked against
the log, as ever: what follows a batch that was refused is refused, too.

No I/O. Owned by the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from moldau.net.port import Chunk


class LaterAnswer(NamedTuple):
    """What a handler returns that has done all but wait: the frame is not needed any more."""

    work: Awaitable[Sequence[Chunk] | None]


class OwedAnswer:
    """A place in the order of answers."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: Sequence[Chunk] | None = None  # None as long as it is not known


class OwedAnswers:
    """What one connection owes, oldest request first. Invariant: the first is not known yet."""

    __slots__ = ("_owed",)

    def __init__(self) -> None:
        self._owed: deque[OwedAnswer] = deque()

    def __len__(self) -> int:
        return len(self._owed)

    def owe(self) -> OwedAnswer:
        """Take the last place."""
        place = OwedAnswer()
        self._owed.append(place)
        return place

    def answer(self, place: OwedAnswer, chunks: Sequence[Chunk]) -> list[Sequence[Chunk]]:
        """The answer of a place is known; returns those that can leave now, in order."""
        place.chunks = chunks
        leaving: list[Sequence[Chunk]] = []
        owed = self._owed
        while owed and (known := owed[0].chunks) is not None:
            owed.popleft()
            leaving.append(known)
        return leaving
