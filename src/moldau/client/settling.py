"""Asks about many things until each has an answer that will not pass by itself. A shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar

from moldau.client.broker_errors import is_retriable
from moldau.client.cluster_client import ClusterClient
from moldau.errors import KafkaError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


async def ask_until_settled(
    client: ClusterClient,
    keys: Collection[K],
    ask: Callable[[Sequence[K]], Awaitable[Mapping[K, T | KafkaError]]],
    *,
    refresh: Collection[str],
) -> Mapping[K, T | KafkaError]:
    """Answers by key. Only what failed for the moment is asked again, after fresh metadata.

    When patience ends, the last answers stand, unless some things were never answered.
    """
    answers: dict[K, T | KafkaError] = {}
    if not keys:
        return answers

    async def ask_about_those_left() -> None:
        left = [key for key in keys if key not in answers or _find_passing(answers[key])]
        answers.update(await ask(left))
        for answer in answers.values():
            passing = _find_passing(answer)
            if passing is not None:
                raise passing

    try:
        await client.retry(ask_about_those_left, refresh=refresh)
    except KafkaError:
        if not answers.keys() >= set(keys):
            raise
    return answers


def _find_passing(answer: object) -> KafkaError | None:
    """The answer, if it is a failure that may pass."""
    return answer if isinstance(answer, KafkaError) and is_retriable(answer) else None
