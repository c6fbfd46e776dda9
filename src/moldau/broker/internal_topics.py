"""Makes the internal topics of Kafka Streams applications, which their coordinator asks for
(KIP-1071): repartition topics and changelogs.

A member that reports waits for them, but not for long: its next heartbeats find them. Whatever
could not be made is told in its answer, and in those of all that report soon after it; then it is
tried again. A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from moldau.clock import Clock, finish_within
from moldau.cluster.rules.topic_creation import USE_DEFAULT, TopicSpec
from moldau.errors import InvalidConfigError, KafkaError, TopicExistsError
from moldau.model import BRANCH_OF

if TYPE_CHECKING:
    from moldau.groups.rules.streams_topics import InternalTopic

WAIT_SECONDS: Final = 2.0
"""So long an answer waits at most."""

RETRY_SECONDS: Final = 5.0
"""A topic that could not be made is not tried again before, however many members report."""

_log = logging.getLogger("moldau.coordinators")


class MakesTopics(Protocol):
    """`TopicMaker`, as far as it is needed here."""

    async def create_topic(self, spec: TopicSpec) -> object: ...


class InternalTopics:
    """See the module."""

    def __init__(
        self,
        maker: MakesTopics,
        clock: Clock,
        spawn: Callable[[str, Coroutine[Any, Any, None]], object],
    ) -> None:
        self._maker = maker
        self._clock = clock
        self._spawn = spawn
        self._under_way: dict[str, asyncio.Event] = {}  # set when a try has ended
        self._failed: dict[str, tuple[float, str]] = {}  # when, and why; the oldest first

    async def make(
        self, topics: Iterable[InternalTopic], on_made: Callable[[InternalTopic], None]
    ) -> dict[str, str]:
        """Why topics could not be made, by their names; of those that are still being made,
        nothing. `on_made` hears of those that this call has made."""
        self._forget_old_failures()
        faults: dict[str, str] = {}
        new = []
        for one in topics:
            if one.name in self._failed:
                faults[one.name] = self._failed[one.name][1]
            elif one.name not in self._under_way:
                new.append(one)
        if not new:
            return faults
        ended = asyncio.Event()
        self._under_way.update((one.name, ended) for one in new)
        self._spawn("internal topics of streams groups", self._make(new, faults, on_made))
        with suppress(TimeoutError):
            await finish_within(ended.wait(), self._clock, WAIT_SECONDS)
        return dict(faults)

    def _forget_old_failures(self) -> None:
        limit = self._clock.monotonic() - RETRY_SECONDS
        old = itertools.takewhile(lambda name: self._failed[name][0] <= limit, self._failed)
        for name in tuple(old):
            del self._failed[name]

    async def _make(
        self,
        topics: Sequence[InternalTopic],
        faults: dict[str, str],
        on_made: Callable[[InternalTopic], None],
    ) -> None:
        failed: dict[str, str] = {}
        try:
            for one in topics:
                try:
                    await self._maker.create_topic(_spec_of(one))
                except TopicExistsError:
                    continue  # another broker was faster
                except KafkaError as error:
                    if not failed:  # one tells enough: there may be thousands
                        _log.warning("cannot make the internal topic %s: %s", one.name, error)
                    failed[one.name] = faults[one.name] = str(error)
                else:
                    on_made(one)
        finally:
            now = self._clock.monotonic()
            for name, fault in failed.items():
                self._failed[name] = now, fault
            for one in topics:
                self._under_way.pop(one.name).set()


def _spec_of(topic: InternalTopic) -> TopicSpec:
    """A broker asks the controller in its own name, which may read every topic: it does not ask for
    a branch of one."""
    configs = dict(topic.configs)
    if BRANCH_OF in configs:
        raise InvalidConfigError(f"an internal topic is no branch of another ({BRANCH_OF})")
    return TopicSpec(
        name=topic.name,
        partition_count=topic.partition_count,
        replication_factor=max(topic.replication_factor, 0) or USE_DEFAULT,
        configs=configs,
    )
