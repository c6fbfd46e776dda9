"""Arguments of a type that they cannot have: told with what to give instead. A rule.

Type checkers say the same earlier, but not every program has one. What a client is made of is
checked at once, what it is asked to do before anybody is asked, and records only once one of them
has failed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from operator import index
from typing import SupportsFloat, TypeVar

from moldau.model import TopicPartition

T = TypeVar("T")

_A_PARTITION = "moldau.TopicPartition('clicks', 0)"


def wrong_type(what: str, wanted: str, given: object) -> TypeError:
    return TypeError(f"{what}: give {wanted}, not {given!r:.80} ({type(given).__name__})")


def require_kind(given: object, kind: type[T], what: str, wanted: str) -> T:
    """The argument as it is, if it is of this type."""
    if not isinstance(given, kind):
        raise wrong_type(what, wanted, given)
    return given


def require_whole(given: int, what: str, wanted: str) -> int:
    """A whole number as an int: one of numpy's, from a data frame, is as good."""
    try:
        return index(given)
    except TypeError:
        raise wrong_type(what, wanted, given) from None


def require_topic(given: object) -> str:
    return require_kind(given, str, "topic", "its name, like 'clicks'")


def require_list(given: Iterable[T], kind: type[T], wanted: str) -> list[T]:
    """Several of a kind. A text is a collection, too, of letters: `delete_topics("logs")` would
    mean four topics."""
    several = list(given) if isinstance(given, Iterable) else None
    if isinstance(given, str | bytes) or several is None:
        raise TypeError(f"give a list of {wanted}, not {given!r:.80} ({type(given).__name__})")
    for one in several:
        if not isinstance(one, kind):
            raise TypeError(f"give a list of {wanted}; {one!r:.80} is {type(one).__name__}")
    return several


def require_names(given: Collection[str]) -> list[str]:
    return require_list(given, str, "names, like ['clicks']")


def require_partition(given: object) -> TopicPartition:
    """A pair of topic and number is as good."""
    match given:
        case (str() as topic, partition) if hasattr(partition, "__index__"):
            return TopicPartition(topic, index(partition))
        case _:
            raise wrong_type("partition", _A_PARTITION, given)


def require_partitions(given: Iterable[object]) -> list[TopicPartition]:
    if isinstance(given, str | TopicPartition) or not isinstance(given, Iterable):
        raise TypeError(f"give a list of partitions, like [{_A_PARTITION}], not {given!r:.80}")
    return [require_partition(one) for one in given]


def require_by_partition(given: Mapping[TopicPartition, T]) -> dict[TopicPartition, T]:
    if not isinstance(given, Mapping):
        raise TypeError(f"give a mapping, like {{{_A_PARTITION}: …}}, not {given!r:.80}")
    return {require_partition(partition): value for partition, value in given.items()}


def require_seconds(given: object) -> float:
    if isinstance(given, int | float):
        return given
    if isinstance(given, SupportsFloat):
        return float(given)
    raise wrong_type("timeout_seconds", "a number of seconds", given)


def require_function(given: object, name: str, *, example: str, method: str = "") -> None:
    """One that is called later; `method` is what an object may have instead."""
    if given is None or callable(given) or (method and hasattr(given, method)):
        return
    raise wrong_type(name, f"a function, like {example}", given)
