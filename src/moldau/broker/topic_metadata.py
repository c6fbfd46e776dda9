"""How topics, partitions and brokers look to a client, as values and as encoded bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypedDict
from uuid import UUID

from moldau.broker.api import (
    RequestContext,
    ServedApi,
    Slices,
    Values,
    answered_class,
    encode_array,
    encode_element,
)
from moldau.cluster.rules.metadata_image import (
    BrokerState,
    Endpoint,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.errors import ErrorCode
from moldau.model import INTERNAL_TOPICS, OPERATIONS, AclResourceType, BrokerId, operation_bits
from moldau.wire.endpoints import NodeEndpoint

WORDINGS_KEPT: Final = 4
"""The last ones that were asked for: clients of one fleet speak two or three. About 50 bytes for
each partition and wording."""
_ALL_OPERATIONS: Final = operation_bits(OPERATIONS[AclResourceType.TOPIC])
PARTITIONS_AT_ONCE: Final = 200
"""Are encoded before others have the loop: two milliseconds."""
_TELLING = frozenset((ErrorCode.not_leader_or_follower.value, ErrorCode.fenced_leader_epoch.value))


class PartitionValues(TypedDict):
    """One partition in the words of Metadata."""

    error_code: ErrorCode
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[BrokerId, ...]
    isr_nodes: tuple[BrokerId, ...]
    offline_replicas: list[BrokerId]


def partition_values(
    number: int, state: PartitionState, alive: Collection[BrokerId]
) -> PartitionValues:
    has_leader = state.leader in alive
    return {
        "error_code": ErrorCode.none if has_leader else ErrorCode.leader_not_available,
        "partition_index": number,
        "leader_id": state.leader if has_leader else -1,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": [broker for broker in state.replicas if broker not in alive],
    }


def bare_topic_values(
    name: str | None, topic_id: object, error: ErrorCode = ErrorCode.none
) -> Values:
    """A topic without partitions, or none at all."""
    return {
        "error_code": error,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
    }


def reachable_endpoints(
    brokers: Mapping[BrokerId, BrokerState], listener_name: str
) -> dict[BrokerId, Endpoint]:
    """Where a client of this listener reaches each broker; brokers without it are left out."""
    found = {}
    for broker in brokers.values():
        endpoint = broker.find_endpoint(listener_name)
        if endpoint is not None:
            found[broker.id] = endpoint
    return found


class Wording(NamedTuple):
    """How a client wants to be answered."""

    api: ServedApi
    version: int
    tells_operations: bool = False  # what the client may do with the topic


class _Encoded(NamedTuple):
    state: TopicState  # that the bytes say; of another image it may be another one
    body: bytes


class EncodedTopics:
    """What Metadata says about topics, as bytes that are kept while it is true.

    A client refreshes its metadata every few minutes, and all of them do when a leader changes; the
    answer is the same for each. It depends on the topic's state, on which brokers are alive and on
    the wording of the request. Images share the states that did not change, so a change costs the
    encoding of the topics it is about. Kept in the wordings that were asked for last.
    """

    def __init__(self) -> None:
        self._alive: frozenset[BrokerId] = frozenset()  # everything kept was encoded with these
        self._current: Mapping[str, TopicState] = {}  # everything kept is one of these
        self._wordings: dict[Wording, dict[str, _Encoded]] = {}  # the last asked at the end

    def find(
        self, topics: Iterable[TopicState], image: MetadataImage, wording: Wording
    ) -> list[bytes] | None:
        """What `encode` gives, where all of it is kept; else None."""
        kept = self._kept_for(image, wording)
        bodies = []
        for topic in topics:
            body = _find_body(kept, topic)
            if body is None:
                return None
            bodies.append(body)
        return bodies

    async def encode(
        self,
        topics: Iterable[TopicState],
        image: MetadataImage,
        wording: Wording,
        operations_of: Callable[[str], int] | None = None,
    ) -> list[bytes]:
        """The elements of the answer for these topics of the image, which is the current one.

        `operations_of` says what the asker may do with a topic, where that is not the same for
        all; then nothing is kept.
        """
        if operations_of is not None:
            encoder = _Encoder(image, wording)
            return [await encoder.encode(topic, operations_of(topic.name)) for topic in topics]
        kept = self._kept_for(image, wording)
        encoder = _Encoder(image, wording)
        bodies = []
        for topic in topics:
            body = _find_body(kept, topic)
            if body is None:
                body = await encoder.encode(topic)
                kept[topic.name] = _Encoded(topic, body)
            bodies.append(body)
        return bodies

    def _kept_for(self, image: MetadataImage, wording: Wording) -> dict[str, _Encoded]:
        """Forgets what is not true any more. The dictionaries are replaced, not changed: an answer
        that is still being encoded from the image before fills the former one."""
        if self._alive != image.brokers.keys():
            self._alive = frozenset(image.brokers)
            self._wordings = {}
        if self._current is not image.topics:
            self._current = image.topics
            self._wordings = {
                known: _still_true(kept, image) for known, kept in self._wordings.items()
            }
        kept = self._wordings[wording] = self._wordings.pop(wording, {})
        if len(self._wordings) > WORDINGS_KEPT:
            del self._wordings[next(iter(self._wordings))]
        return kept


def _find_body(kept: Mapping[str, _Encoded], topic: TopicState) -> bytes | None:
    encoded = kept.get(topic.name)
    if encoded is None or encoded.state is not topic:
        return None
    return encoded.body


def _still_true(kept: Mapping[str, _Encoded], image: MetadataImage) -> dict[str, _Encoded]:
    topics = image.topics
    return {name: encoded for name, encoded in kept.items() if topics.get(name) is encoded.state}


class _Encoder:
    """Encodes topics for one answer."""

    def __init__(self, image: MetadataImage, wording: Wording) -> None:
        api, version, tells_operations = wording
        self._tells_operations = tells_operations
        self._alive = image.brokers
        self._api = api
        self._topic_class = answered_class(api, version, "topics")
        self._partition_class = answered_class(api, version, "topics", "partitions")
        self._slices = Slices(PARTITIONS_AT_ONCE)

    async def encode(self, topic: TopicState, operations: int = _ALL_OPERATIONS) -> bytes:
        rows = (
            partition_values(number, state, self._alive)
            for number, state in enumerate(topic.partitions)
        )
        partitions = await encode_array(self._partition_class, rows, self._api, self._slices)
        values = {
            **bare_topic_values(topic.name, topic.topic_id),
            **({"topic_authorized_operations": operations} if self._tells_operations else {}),
            "partitions": partitions,
        }
        return encode_element(self._topic_class, values, self._api)


class CurrentLeaders:
    """The leaders that one answer names, and where they are (KIP-951).

    Made for each answer that has errors: a client that asked the wrong broker need not ask for
    metadata.
    """

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._endpoints: dict[int, NodeEndpoint] = {}

    @property
    def endpoints(self) -> Sequence[NodeEndpoint]:
        return tuple(self._endpoints.values())

    def find(self, topic: str | UUID, partition: int, error_code: int) -> tuple[int, int] | None:
        """Leader and epoch of a partition whose error asks for them; remembers the endpoint."""
        if error_code not in _TELLING:
            return None
        image = self._context.services.image
        by_id = image.topics_by_id
        state = image.topics.get(topic) if isinstance(topic, str) else by_id.get(topic)
        found = None if state is None else state.find_partition(partition)
        broker = None if found is None else image.brokers.get(found.leader)
        if found is None or broker is None:
            return None
        endpoint = broker.find_endpoint(self._context.connection.listener_name)
        if endpoint is not None:
            self._endpoints[broker.id] = NodeEndpoint(
                broker.id, endpoint.host, endpoint.port, broker.rack
            )
        return found.leader, found.leader_epoch
