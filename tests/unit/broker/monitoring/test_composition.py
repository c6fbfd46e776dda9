"""What a broker's monitoring is put together from."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from moldau.broker.monitoring.composition import Monitoring
from moldau.broker.ports import Ports
from moldau.config.broker_options import BrokerOptions
from moldau.errors import BrokerUnreachableError
from moldau.model import BrokerId, TopicPartition
from moldau.simulation.manual_clock import ManualClock


class Unreachable:
    async def ask(self, frame: object, *, timeout_seconds: float) -> memoryview:
        raise BrokerUnreachableError("it is not there")

    async def close(self) -> None:
        pass


def test_ends_of_partitions_are_asked_over_the_connections_between_brokers() -> None:
    """They may be encrypted and need a login; those that monitoring made by itself had neither."""
    asked: list[BrokerId] = []

    def connect(broker_id: BrokerId) -> Unreachable:
        asked.append(broker_id)
        return Unreachable()

    ports = SimpleNamespace(clock=ManualClock())
    monitoring = Monitoring(cast(Ports, ports), lambda: BrokerOptions.resolve({}))
    monitoring._endpoint = cast(Any, SimpleNamespace(connect=lambda sources: None))
    services = SimpleNamespace(
        broker_id=BrokerId(1),
        publisher=SimpleNamespace(subscribe=lambda subscriber: None),
        groups=SimpleNamespace(each_group=tuple),
        partitions=None,
    )
    peers = SimpleNamespace(connect=connect)
    monitoring.connect(cast(Any, services), cast(Any, None), cast(Any, peers), dict)
    assert monitoring._lags is not None
    ends = asyncio.run(
        cast(Any, monitoring._lags._ask_ends({BrokerId(2): [TopicPartition("clicks", 0)]}))
    )
    assert ends == {}
    assert asked == [2]
