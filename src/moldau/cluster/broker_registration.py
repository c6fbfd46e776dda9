"""Tells the cluster that this broker is alive: the ephemeral `/brokers/ids/N`. A shell.

`/brokers/registered/N` stays when the session ends: the broker is expected back until somebody
unregisters it, as a fenced broker of Kafka's own quorum.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from moldau.clock import Clock
from moldau.cluster import layout
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.metadata_image import BrokerState
from moldau.coordination.port import BadVersionError, Coordination, NodeExistsError, NoNodeError
from moldau.errors import BrokerIdNotRegisteredError, InvalidRequestError, StartupError
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
        asked_ms = self._clock.now_ms()
        data = layout.encode_broker(broker, asked_ms)
        try:
            await self._coordination.create(path, data, ephemeral=True)
        except NodeExistsError:
            if not await self._is_own(path):
                raise _registered_already(broker.id) from None
            await self._coordination.set(path, data)  # somebody may have written over it
        node = await self._coordination.get(path)
        if node is None:
            raise NoNodeError(f"{path} went as soon as it was made")
        # The answer took its time: 0 is as good as any other difference that agrees with it.
        ahead_ms = node.modified_ms - self._clock.now_ms()
        self._publisher.store_ahead_ms = max(ahead_ms, min(0, node.modified_ms - asked_ms))
        await self._note_registration(broker.id, data)
        registered = replace(broker, epoch=node.created_id)
        self._publisher.apply_broker(registered)
        return registered

    async def _note_registration(self, broker_id: BrokerId, data: bytes) -> None:
        """Written each time, after the broker is alive: see `unregister`."""
        path = layout.registered_broker_path(broker_id)
        try:
            await self._coordination.set(path, data)
        except NoNodeError:
            await self._coordination.create(path, data)

    async def _is_own(self, path: str) -> bool:
        """An answer that was lost: the registration is there, by this session."""
        node = await self._coordination.get(path)
        return node is not None and node.ephemeral_owner == self._coordination.session_id

    async def end_former_session(self, broker_id: BrokerId, session_id: int) -> None:
        """Delete what a session of this broker left behind whose process is surely gone."""
        for path in (layout.broker_path(broker_id), layout.CONTROLLER):
            node = await self._coordination.get(path)
            if node is not None and node.ephemeral_owner == session_id:
                with contextlib.suppress(NoNodeError):  # the session has just ended
                    await self._coordination.delete(path, node.version)

    async def wait_until_free(self, broker_id: BrokerId, timeout_seconds: float) -> None:
        """Return when no other session has registered this id, or raise `StartupError`."""
        path = layout.broker_path(broker_id)
        changed = asyncio.Event()
        watch = self._coordination.watch_data(path, changed.set)
        timer = self._clock.call_later(timeout_seconds, changed.set)
        deadline = self._clock.monotonic() + timeout_seconds
        try:
            while await self._coordination.get(path) is not None and not await self._is_own(path):
                if self._clock.monotonic() >= deadline:
                    raise _registered_already(broker_id)
                changed.clear()
                await changed.wait()
        finally:
            watch.cancel()
            timer.cancel()


async def unregister_broker(coordination: Coordination, broker_id: BrokerId) -> None:
    """Do not expect a broker back that is away.

    The note is deleted in the version that was read before the broker was not alive: a broker that
    registers at this moment writes a later one.
    """
    path = layout.registered_broker_path(broker_id)
    note = await coordination.get(path)
    if await coordination.get(layout.broker_path(broker_id)) is not None:
        raise InvalidRequestError(f"broker {broker_id} is alive: stop it, then unregister it")
    if note is None:
        raise BrokerIdNotRegisteredError(f"broker {broker_id} is not registered")
    try:
        await coordination.delete(path, note.version)
    except (BadVersionError, NoNodeError) as error:
        raise InvalidRequestError(
            f"broker {broker_id} was registered or unregistered at this moment: try again"
        ) from error


def _registered_already(broker_id: BrokerId) -> StartupError:
    return StartupError(
        f"a broker with the id {broker_id} is registered already: give this one another "
        "broker.id, or wait until the session of the other one has ended"
    )


async def generate_broker_id(coordination: Coordination, reserved_max: int) -> BrokerId:
    """A broker id that nobody had (`broker.id=-1`), above `reserved.broker.max.id`."""
    return BrokerId(reserved_max + await coordination.set(layout.BROKER_SEQUENCE, b""))
