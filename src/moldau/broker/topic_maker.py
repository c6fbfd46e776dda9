"""Makes topics on any broker: here when it is the controller, else by asking the controller.

For topics that a broker needs by itself: those that clients name for the first time, and
`__consumer_offsets`. The controller is asked as any client asks it, by CreateTopics. A shell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

from moldau.clock import Clock
from moldau.cluster.cluster_admin import ClusterAdmin
from moldau.cluster.controllership import Controllership
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.metadata_image import TopicState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.coordination.port import CoordinationError
from moldau.errors import (
    ClientError,
    ErrorCode,
    KafkaError,
    NotControllerError,
    RequestTimedOutError,
)
from moldau.net.peer import Peer
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

if TYPE_CHECKING:
    from kio.schema.create_topics.v7 import CreateTopicsResponse

CREATE_TOPICS: Final = 19
VERSION: Final = 7
TIMEOUT_SECONDS: Final = 5.0
PAUSE_SECONDS: Final = 0.1


class TopicMaker:
    """Safe to call from many tasks of one loop at once. `controller` leads to whoever it is."""

    def __init__(
        self,
        *,
        admin: ClusterAdmin,
        controllership: Controllership,
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
        request = fit(request_class(CREATE_TOPICS, VERSION), values)
        frame = encode_request(request, 0, self._client_id)
        answer = await self._controller.ask((frame,), timeout_seconds=TIMEOUT_SECONDS)
        _, response = parse_response(CREATE_TOPICS, VERSION, answer)
        for row in cast("CreateTopicsResponse", response).topics:
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
