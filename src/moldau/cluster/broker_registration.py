"""Tells the cluster that this broker is alive: the ephemeral `/brokers/ids/N`. A shell."""

from __future__ import annotations

from dataclasses import replace

from moldau.clock import Clock
from moldau.cluster import layout
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.metadata_image import BrokerState
from moldau.coordination.port import Coordination, NodeExistsError, NoNodeError
from moldau.errors import StartupError
from moldau.model import BrokerId


class BrokerRegistration:
    """Lasts as long as the session; closing the session takes the broker out of the cluster."""

    def __init__(
        self, coordination: Coordination, clock: Clock, publisher: MetadataPublisher
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._publisher = publisher

    async def register(self, broker: BrokerState) -> BrokerState:
        """Returns the broker with the epoch that the registration gave it."""
        path = layout.broker_path(broker.id)
        data = layout.encode_broker(broker, self._clock.now_ms())
        try:
            await self._coordination.create(path, data, ephemeral=True)
        except NodeExistsError:
            raise StartupError(
                f"a broker with the id {broker.id} is registered already: give this one another "
                "broker.id, or wait until the session of the other one has ended"
            ) from None
        node = await self._coordination.get(path)
        if node is None:
            raise NoNodeError(f"{path} went as soon as it was made")
        registered = replace(broker, epoch=node.created_id)
        self._publisher.apply_broker(registered)
        return registered


async def generate_broker_id(coordination: Coordination, reserved_max: int) -> BrokerId:
    """A broker id that nobody had (`broker.id=-1`), above `reserved.broker.max.id`."""
    return BrokerId(reserved_max + await coordination.set(layout.BROKER_SEQUENCE, b""))
