"""What the handlers of group requests share: from the coordinator's answer to the client's.

An answer may be there at once or later, and the coordinator may turn out to be another broker
before or while it is awaited; all of that ends in one shape.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from moldau.coordinators.runtime.shard import Eventually
from moldau.errors import ErrorCode, KafkaError

A = TypeVar("A")
V = TypeVar("V")


def respond(
    ask: Callable[[], Eventually[A]],
    shape: Callable[[A], V],
    refuse: Callable[[ErrorCode], V],
) -> Eventually[V]:
    """Shape the answer, or what has to be said when there is none."""
    try:
        answer = ask()
    except KafkaError as error:
        return refuse(error.code)
    if isinstance(answer, Awaitable):
        return _respond_later(answer, shape, refuse)
    return shape(answer)


async def _respond_later(
    answer: Awaitable[A], shape: Callable[[A], V], refuse: Callable[[ErrorCode], V]
) -> V:
    try:
        return shape(await answer)
    except KafkaError as error:
        return refuse(error.code)
