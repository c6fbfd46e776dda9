"""Where brokers reach each other."""

from __future__ import annotations

from moldau.broker.inter_broker import find_address
from moldau.cluster.rules.metadata_image import BrokerState, Endpoint
from moldau.config.broker_options import BrokerOptions
from moldau.model import BrokerId
from moldau.net.peer import PeerAddress


def test_a_listener_is_found_however_its_name_is_written() -> None:
    options = BrokerOptions.resolve(
        {
            "listeners": "inside://127.0.0.1:1,OUTSIDE://127.0.0.1:2",
            "listener.security.protocol.map": "inside:PLAINTEXT,outside:PLAINTEXT",
            "inter.broker.listener.name": "inside",
        }
    )
    endpoints = tuple(
        Endpoint(listener_name=one.name, host=one.host, port=one.port)
        for one in options.open_listeners
    )
    broker = BrokerState(id=BrokerId(2), endpoints=endpoints)
    assert find_address(broker, options) == PeerAddress("127.0.0.1", 1)
