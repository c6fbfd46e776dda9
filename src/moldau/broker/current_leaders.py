"""Tells a client that asked the wrong broker who leads, and where that one is (KIP-951).

One of these for each answer that has errors; without it a client would have to ask for metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from moldau.broker.request_context import RequestContext
from moldau.errors import ErrorCode
from moldau.wire.endpoints import NodeEndpoint

_TELLING = frozenset((ErrorCode.not_leader_or_follower.value, ErrorCode.fenced_leader_epoch.value))


class CurrentLeaders:
    """The leaders that one answer names."""

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
