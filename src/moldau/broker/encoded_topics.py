"""What Metadata says about topics, as bytes that are kept while it is true.

A client refreshes its metadata every few minutes, and all of them do when a leader changes; the
answer is the same for each. What it says about a topic depends on the topic's state, on which
brokers are alive and on the wording of the answer, and on nothing else of the asker. Images share
the states that did not change, so a change costs the encoding of the topics it is about. A shell:
it belongs to the loop and gives it to others between slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from moldau.broker.api import ServedApi
from moldau.broker.slices import Slices, answered_class, encode_array, encode_element
from moldau.broker.topic_metadata import bare_topic_values, partition_values
from moldau.cluster.rules.metadata_image import MetadataImage, TopicState
from moldau.model import OPERATIONS, AclResourceType, BrokerId, operation_bits

WORDINGS_KEPT: Final = 4
"""The last ones that were asked for: clients of one fleet speak two or three. About 50 bytes for
each partition and wording."""

_ALL_OPERATIONS: Final = operation_bits(OPERATIONS[AclResourceType.TOPIC])

PARTITIONS_AT_ONCE: Final = 200
"""Are encoded before others have the loop: two milliseconds."""


class Wording(NamedTuple):
    """How a client wants to be answered."""

    api: ServedApi
    version: int
    tells_operations: bool = False  # what the client may do with the topic


class _Encoded(NamedTuple):
    state: TopicState  # that the bytes say; of another image it may be another one
    body: bytes


class EncodedTopics:
    """The topics of the current image in the wordings that were asked for last."""

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
