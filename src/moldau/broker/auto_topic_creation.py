"""Topics that brokers create: those that clients name for the first time, and internal ones.

As Kafka's `AutoTopicCreationManager`. A broker that is the controller creates them itself; another
one sends CreateTopics to the controller, as any client does. A shell.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from moldau.broker.inter_broker import send_request
from moldau.clock import Clock, finish_within
from moldau.cluster.cluster_admin import ClusterAdmin
from moldau.cluster.controller_election import ControllerElection
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.metadata_image import TopicState
from moldau.cluster.rules.topic_creation import USE_DEFAULT, TopicSpec
from moldau.coordination.port import CoordinationError
from moldau.errors import (
    ClientError,
    ErrorCode,
    InvalidConfigError,
    KafkaError,
    NotControllerError,
    RequestTimedOutError,
    TopicExistsError,
)
from moldau.model import BRANCH_OF
from moldau.net.peer import Peer
from moldau.wire.apis import CREATE_TOPICS

if TYPE_CHECKING:
    from kio.schema.create_topics.v7 import CreateTopicsResponse

    from moldau.coordinators.groups.rules.streams_topology import CreatableTopic

CREATE_TOPICS_VERSION: Final = 7
TIMEOUT_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.1

WAIT_SECONDS: Final = 2.0
"""So long an answer waits at most."""
RETRY_SECONDS: Final = 5.0
"""A topic that could not be made is not tried again before, however many members report."""
_log = logging.getLogger("moldau.coordinators")


class AutoTopicCreation:
    """Safe to call from many tasks of one loop at once. `controller` leads to whoever it is."""

    def __init__(
        self,
        *,
        admin: ClusterAdmin,
        controllership: ControllerElection,
        publisher: MetadataPublisher,
        controller: Peer,
        clock: Clock,
        client_id: str,
    ) -> None:
        self._admin = admin
        self._controllership = controllership
        self._publisher = publisher
        self._controller = controller
        self._clock = clock
        self._client_id = client_id

    async def create_topic(self, spec: TopicSpec) -> TopicState:
        """The topic as it was made, and as the image here shows it."""
        deadline = self._clock.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                if self._controllership.find_term() is not None:
                    return await self._admin.create_topic(spec)
                await self._ask_controller(spec)
                return await self._wait_until_seen(spec.name, deadline)
            except (NotControllerError, ClientError) as error:
                # It has moved, or is not there: somebody else will be soon.
                if self._clock.monotonic() >= deadline:
                    raise RequestTimedOutError(f"the controller does not answer: {error}") from None
            await self._clock.sleep(PAUSE_SECONDS)

    async def _ask_controller(self, spec: TopicSpec) -> None:
        values = {
            "topics": [_values_of(spec)],
            "timeout": int(TIMEOUT_SECONDS * 1000),
            "validate_only": False,
        }
        response: CreateTopicsResponse = await send_request(
            self._controller,
            CREATE_TOPICS,
            CREATE_TOPICS_VERSION,
            values,
            client_id=self._client_id,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        for row in response.topics:
            if row.error_code is not ErrorCode.none:
                raise _error_for(row.error_code, row.error_message)

    async def _wait_until_seen(self, name: str, deadline: float) -> TopicState:
        """The controller knows the topic; this broker may hear of it a little later."""
        while True:
            topic = self._publisher.image.topics.get(name)
            if topic is not None:
                return topic
            if self._clock.monotonic() >= deadline:
                raise RequestTimedOutError(f"topic {name!r} was made, but is not seen here yet")
            try:
                await self._publisher.refresh_topics((name,))
            except CoordinationError as error:
                raise RequestTimedOutError(f"topic {name!r} cannot be read: {error}") from error
            if name not in self._publisher.image.topics:
                await self._clock.sleep(PAUSE_SECONDS)


def _values_of(spec: TopicSpec) -> Mapping[str, object]:
    return {
        "name": spec.name,
        "num_partitions": spec.partition_count,
        "replication_factor": spec.replication_factor,
        "assignments": [],
        "configs": [{"name": name, "value": value} for name, value in spec.configs.items()],
    }


def _error_for(code: ErrorCode, message: str | None) -> KafkaError:
    for found in KafkaError.__subclasses__():
        if found.code is code:
            return found(message or code.name)
    return KafkaError(message or code.name)


class MakesTopics(Protocol):
    """`AutoTopicCreation`, as far as it is needed here."""

    async def create_topic(self, spec: TopicSpec) -> object: ...


class InternalTopics:
    """Creates the internal topics of Kafka Streams applications: repartition topics and changelogs.

    Their coordinator asks for them (KIP-1071). The heartbeat that asks waits, but not for long: the
    next heartbeats find the topics. A topic that could not be created is named in the answer, and
    in those of all members that report soon after it; then it is tried again. Owned by the event
    loop.
    """

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
        self, topics: Iterable[CreatableTopic], on_made: Callable[[CreatableTopic], None]
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
        topics: Sequence[CreatableTopic],
        faults: dict[str, str],
        on_made: Callable[[CreatableTopic], None],
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


def _spec_of(topic: CreatableTopic) -> TopicSpec:
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
