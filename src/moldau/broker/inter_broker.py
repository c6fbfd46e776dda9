"""Requests from this broker to other brokers, and where the other brokers are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moldau.broker.ports import Ports
from moldau.cluster.rules.metadata_image import BrokerState, Endpoint, MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.model import BrokerId
from moldau.net.peer import Peer, PeerAddress
from moldau.wire.apis import Api
from moldau.wire.messages import encode_request, parse_response
from moldau.wire.shape import fit
from moldau.wire.versions import request_class


class BrokerConnections:
    """Makes connections to other brokers, by the listener that brokers use between them."""

    def __init__(
        self, ports: Ports, image: Callable[[], MetadataImage], options: Callable[[], BrokerOptions]
    ) -> None:
        self._ports = ports
        self._image = image
        self._options = options

    def connect(self, broker_id: BrokerId) -> Peer:
        """A connection of its own, to be closed by the caller; it carries one request at a time."""
        return self._make(f"broker {broker_id}", lambda: broker_id)

    def connect_to_controller(self) -> Peer:
        """A connection that follows the controller when another broker becomes it."""
        return self._make("the controller", lambda: self._image().controller_id)

    def _make(self, name: str, find_id: Callable[[], BrokerId]) -> Peer:
        def find() -> PeerAddress | None:
            return find_address(self._image().brokers.get(find_id()), self._options())

        return Peer(self._ports.network, self._ports.clock, find, name=name)


async def send_request(
    peer: Peer,
    api: Api,
    version: int,
    values: Mapping[str, object],
    *,
    client_id: str,
    timeout_seconds: float,
) -> Any:
    """The response, as kio's class. Raises the `ClientError`s of `Peer.ask`."""
    request = fit(request_class(api.key, version), values)
    frame = encode_request(request, 0, client_id)
    answer = await peer.ask((frame,), timeout_seconds=timeout_seconds)
    _, response = parse_response(api.key, version, answer)
    return response


def find_address(broker: BrokerState | None, options: BrokerOptions) -> PeerAddress | None:
    """Where other brokers reach a broker; None when it is not there."""
    endpoint = None if broker is None else _inter_broker_endpoint(broker, options)
    return None if endpoint is None else PeerAddress(endpoint.host, endpoint.port)


def is_for_brokers(listener: str, broker: BrokerState | None, options: BrokerOptions) -> bool:
    """Whether other brokers reach this broker by the listener of this name."""
    endpoint = None if broker is None else _inter_broker_endpoint(broker, options)
    return endpoint is not None and endpoint.listener_name == listener


def _inter_broker_endpoint(broker: BrokerState, options: BrokerOptions) -> Endpoint | None:
    name = options.inter_broker_listener_name
    if name:
        return broker.find_endpoint(name.upper())
    protocol = options.security_inter_broker_protocol
    for endpoint in broker.endpoints:
        if endpoint.security_protocol == protocol:
            return endpoint
    return None
