"""How a broker joins a cluster: its znodes and id, and the registration of the broker. A shell."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

from moldau.clock import Clock
from moldau.cluster import znodes
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.metadata_image import BrokerState
from moldau.coordination.port import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Coordination,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
)
from moldau.errors import (
    BrokerIdNotRegisteredError,
    ForeignStoreError,
    InvalidRequestError,
    MalformedNodeError,
    StartupError,
)
from moldau.model import BrokerId, TopicId, format_uuid

# `/brokers/registered/N` stays when the session ends: the broker is expected back until somebody
# unregisters it, as a fenced broker of Kafka's own quorum.


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
        path = znodes.broker_path(broker.id)
        asked_ms = self._clock.now_ms()
        data = znodes.encode_broker(broker, asked_ms)
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
        path = znodes.registered_broker_path(broker_id)
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
        for path in (znodes.broker_path(broker_id), znodes.CONTROLLER):
            node = await self._coordination.get(path)
            if node is not None and node.ephemeral_owner == session_id:
                with contextlib.suppress(NoNodeError):  # the session has just ended
                    await self._coordination.delete(path, node.version)

    async def wait_until_free(self, broker_id: BrokerId, timeout_seconds: float) -> None:
        """Return when no other session has registered this id, or raise `StartupError`."""
        path = znodes.broker_path(broker_id)
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
    path = znodes.registered_broker_path(broker_id)
    note = await coordination.get(path)
    if await coordination.get(znodes.broker_path(broker_id)) is not None:
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
    return BrokerId(reserved_max + await coordination.set(znodes.BROKER_SEQUENCE, b""))


# Lays out an empty coordination store, and gives the cluster and its topics their ids. A shell.
#
# Every broker does this when it starts, before anything else; only the first one finds work.


def new_topic_id(make_uuid: Callable[[], UUID] | None = None) -> TopicId:
    """Random. Never one that begins with '-' in base64: command lines would take it for a flag."""
    while True:
        identifier = (make_uuid or uuid4)()
        if not format_uuid(identifier).startswith("-"):
            return TopicId(identifier)


async def ensure_znodes(
    coordination: Coordination,
    cluster_id: str | None = None,
    make_uuid: Callable[[], UUID] | None = None,
    more_paths: Sequence[str] = (),
    *,
    may_be_new: bool = True,
) -> str:
    """Make what is missing of the classic layout, in one transaction; returns the cluster's id.
    `more_paths` are for what not every broker has: access control lists.

    Unless the store `may_be_new`, it is only completed: one that has lost its cluster's id is
    `ForeignStoreError`, however shortly before somebody has seen it.
    A new cluster gets `cluster_id`, or a random one. A data folder keeps the id of its cluster.
    Serving it in another cluster would mix two sets of offsets, so an id that differs from the
    cluster's stops the start.
    """
    while True:
        first_id = cluster_id or format_uuid(new_topic_id(make_uuid))
        if not await _make_missing(coordination, first_id if may_be_new else None, more_paths):
            break  # else once more: another broker may have started at the same time
    node = await coordination.get(znodes.CLUSTER_ID)
    try:
        found = znodes.decode_cluster_id(b"" if node is None else node.data)
    except MalformedNodeError as error:
        raise StartupError(f"the cluster's id cannot be read; repair the node: {error}") from error
    if cluster_id not in (None, found):
        raise StartupError(
            f"the data folder belongs to cluster {cluster_id} (meta.properties), but this is "
            f"cluster {found}: start the broker with the coordination store of its cluster, or "
            "with an empty data folder"
        )
    return found


async def require_same_cluster(coordination: Coordination, cluster_id: str) -> None:
    """Raise `ForeignStoreError` unless the store is that of this cluster.

    For a new session: an address may lead to another store than before, or to one that was emptied.
    What it says of topics and leaders is then not about this broker's logs.
    """
    node = await coordination.get(znodes.CLUSTER_ID)
    if node is None:
        raise _lost_store()
    try:
        found = znodes.decode_cluster_id(node.data)
    except MalformedNodeError as error:
        raise ForeignStoreError(f"the cluster's id cannot be read; repair it: {error}") from error
    if found != cluster_id:
        raise ForeignStoreError(
            f"the coordination store belongs to cluster {found}, this broker to {cluster_id}: is "
            "zookeeper.connect right, and was the right backup restored? This broker serves "
            "nothing until the store is its own again, and touches nothing on its disks"
        )


def _lost_store() -> ForeignStoreError:
    return ForeignStoreError(
        "the coordination store is not that of this broker's cluster any more: it has no "
        f"{znodes.CLUSTER_ID}. If it lost its data, restore it from a backup; if the address "
        "leads elsewhere now, mend zookeeper.connect. This broker serves nothing until then, "
        "and touches nothing on its disks"
    )


async def _make_missing(
    coordination: Coordination, cluster_id: str | None, more_paths: Sequence[str]
) -> bool:
    """Returns False when nothing was missing. A store without an id gets this one, if any."""
    leaves = (*znodes.PERSISTENT_PATHS, *more_paths, znodes.CLUSTER_ID)
    paths = list(dict.fromkeys(path for leaf in leaves for path in _path_and_parents(leaf)))
    nodes = await coordination.get_many(paths)
    missing = [path for path, node in zip(paths, nodes, strict=True) if node is None]
    if not missing:
        return False
    contents = {}
    operations: list[Operation] = []
    if cluster_id is None:  # not even when everything goes in this moment
        operations.append(Check(path=znodes.CLUSTER_ID, version=ANY_VERSION))
    else:
        contents[znodes.CLUSTER_ID] = znodes.encode_cluster_id(cluster_id)
    operations += [Create(path=path, data=contents.get(path, b"")) for path in missing]
    try:
        await coordination.transact(operations)
    except NodeExistsError:
        pass  # another broker does the same
    except NoNodeError as error:
        raise _lost_store() from error
    return True


def _path_and_parents(path: str) -> Iterator[str]:
    """/a/b/c as /a, /a/b, /a/b/c."""
    names = path.split("/")
    return ("/".join(names[:length]) for length in range(2, len(names) + 1))
