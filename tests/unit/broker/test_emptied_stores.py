"""Somebody removes the whole tree of the store, or a broker's registration, under living sessions.

No session ends by it, so nobody tells the brokers: they notice that they are registered no more.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from moldau.cluster import znodes
from moldau.coordination.embedded import EmbeddedSession
from moldau.errors import StartupError
from moldau.model import BrokerId

from .cluster_stage import Cluster, Machine, play
from .test_vanished_topics import Tree, ends, is_served, produce, read_tree, write_tree

ROOTS = (
    "/brokers",
    "/config",
    "/controller_epoch",
    "/cluster",
    "/admin",
    "/latest_producer_id_block",
)


async def empty(session: EmbeddedSession) -> Tree:
    """Remove everything; returns what a backup has of it."""
    backup = {}
    for root in ROOTS:
        backup |= await read_tree(session, root)
    for name in await session.children("/"):
        await session.delete_tree(f"/{name}")
    return {path: data for path, data in backup.items() if "/ids/" not in path}


def registered(machine: Machine) -> set[int]:
    return set(machine.image.brokers)


def test_a_store_that_is_emptied_under_living_sessions_is_not_acted_upon(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, _, _ = await cluster.start(1, 2, 3)
        await cluster.create(one, "clicks", [1, 2, 3])
        await produce(cluster, one, "clicks", b"a")
        session = cluster.store.session()
        backup = await empty(session)
        await cluster.clock.advance(60.0)
        assert await session.children("/") == []  # nobody begins anew by himself
        assert not any(is_served([machine], "clicks") for machine in machines)
        assert ends(machines, "clicks") == [1, 1, 1]
        assert "restore it from a backup" in caplog.text
        await write_tree(session, backup)
        await cluster.until(lambda: is_served(machines, "clicks"))
        await cluster.until(lambda: all(registered(machine) == {1, 2, 3} for machine in machines))
        assert await produce(cluster, leader_of(machines), "clicks", b"b") == 1
        await cluster.until(lambda: ends(machines, "clicks") == [2, 2, 2])

    play(story)


def leader_of(machines: Sequence[Machine]) -> Machine:
    by_id = {machine.id: machine for machine in machines}
    return by_id[machines[0].state("clicks").leader]


def test_a_broker_that_is_started_on_an_emptied_store_refuses_and_leaves_it_empty() -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await produce(cluster, one, "clicks", b"a")
        session = cluster.store.session()
        backup = await empty(session)
        await cluster.clock.advance(30.0)  # until everybody has seen it
        await two.stop()
        with pytest.raises(StartupError, match="restore it from a backup"):
            await two.start()
        assert await session.children("/") == []
        await write_tree(session, backup)
        await two.start()
        await cluster.until(lambda: is_served(machines, "clicks"))
        assert ends(machines, "clicks") == [1, 1]

    play(story, zookeeper_connect="unused:2181")


@pytest.mark.parametrize("broker_id", [1, 2])
def test_a_registration_that_was_removed_by_hand_is_made_again(broker_id: int) -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [broker_id, 3 - broker_id])
        epoch = one.image.brokers[two.services.broker_id].epoch
        session = cluster.store.session()
        await session.delete(znodes.broker_path(cluster.machines[broker_id].services.broker_id))
        await cluster.until(
            lambda: all(
                registered(machine) == {1, 2} and set(machine.state("clicks").isr) == {1, 2}
                for machine in machines
            )
        )
        await cluster.until(lambda: is_served(machines, "clicks"))
        assert (one.image.brokers[two.services.broker_id].epoch > epoch) is (broker_id == 2)

    play(story)


def test_a_registration_that_was_damaged_by_hand_is_mended() -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        session = cluster.store.session()
        await session.set(znodes.broker_path(two.services.broker_id), b"{ damaged")
        await session.create(znodes.broker_path(BrokerId(3)), b"{ damaged, too")  # and it is read
        await cluster.clock.advance(10.0)
        node = await session.get(znodes.broker_path(two.services.broker_id))
        assert node is not None
        assert znodes.decode_broker(two.services.broker_id, node.data, epoch=0).endpoints
        await cluster.until(lambda: registered(two) == {1, 2} and is_served(machines, "clicks"))

    play(story)
