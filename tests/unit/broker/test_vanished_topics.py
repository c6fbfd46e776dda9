"""The store loses a topic, a node, or its memory; the logs stay, and come back (DEL-1, DEL-2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from moldau.cluster import znodes
from moldau.coordination.embedded import EmbeddedSession
from moldau.coordination.port import Create, Node
from moldau.model import NO_BROKER
from moldau.records.record_batch import build_batch
from moldau.simulation.manual_clock import wait_until_idle

from .cluster_stage import DATA, Cluster, Machine, play

Tree = Mapping[str, bytes]


async def produce(cluster: Cluster, machine: Machine, topic: str, *values: bytes) -> int:
    """The offset of the first record; acks=all."""
    batch = build_batch([(0, None, value, ()) for value in values])
    partition = {"index": 0, "records": bytes(batch)}
    data = [{"name": topic, "partition_data": [partition]}]
    answer = await cluster.ask(
        machine, 0, 8, transactional_id=None, acks=-1, timeout=5000, topic_data=data
    )
    row = answer.responses[0].partition_responses[0]
    assert row.error_code.value == 0, row.error_code
    return int(row.base_offset)


def ends(machines: Sequence[Machine], topic: str) -> list[int]:
    """Where the logs end, also of those that are not served."""
    keys = [(key, log) for m in machines for key, log in m.services.log_store.logs.items()]
    return [log.log_end_offset for key, log in keys if key.topic == topic]


async def read_tree(session: EmbeddedSession, path: str) -> dict[str, bytes]:
    """A node and all below it, parents first."""
    node = await session.get(path)
    if node is None:
        return {}
    found = {path: node.data}
    for name in await session.children(path):
        found |= await read_tree(session, f"{path}/{name}")
    return found


async def write_tree(session: EmbeddedSession, tree: Tree) -> None:
    """In one go, as a restore does."""
    await session.transact([Create(path=path, data=data) for path, data in tree.items()])


def is_served(machines: Sequence[Machine], topic: str) -> bool:
    found = [machine.services.partitions.find(topic, 0) for machine in machines]
    return all(one is not None and (one.is_leader or one.is_following) for one in found)


def led(machine: Machine, topic: str) -> bool:
    found = machine.services.partitions.find(topic, 0)
    return found is not None and found.is_leader


async def leave_out(cluster: Cluster, machines: Sequence[Machine], topic: str) -> Tree:
    """Remove a topic's nodes by hand; returns what was in them."""
    session = cluster.store.session()
    tree = await read_tree(session, znodes.topic_path(topic))
    await session.delete_tree(znodes.topic_path(topic))
    await cluster.until(lambda: all(topic not in machine.image.topics for machine in machines))
    await wait_until_idle()
    return tree


def test_a_topic_whose_nodes_were_removed_by_hand_keeps_its_logs_and_comes_back() -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, two, three = await cluster.start(1, 2, 3)
        await cluster.create(one, "clicks", [1, 2, 3])
        assert await produce(cluster, one, "clicks", b"a", b"b") == 0
        tree = await leave_out(cluster, machines, "clicks")
        await cluster.clock.advance(60.0)
        assert ends(machines, "clicks") == [2, 2, 2]
        assert not is_served([two], "clicks")
        await write_tree(cluster.store.session(), tree)
        await cluster.until(lambda: led(one, "clicks") and is_served([two, three], "clicks"))
        assert await produce(cluster, one, "clicks", b"c") == 2
        await cluster.until(lambda: ends(machines, "clicks") == [3, 3, 3])

    play(story)


def test_a_topic_that_vanished_is_there_again_after_a_restart_of_everybody() -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await produce(cluster, one, "clicks", b"a", b"b")
        tree = await leave_out(cluster, machines, "clicks")
        for machine in machines:
            await machine.stop()
        for machine in machines:
            await machine.start()
        assert ends(machines, "clicks") == [2, 2]
        await write_tree(cluster.store.session(), tree)
        await cluster.until(lambda: led(one, "clicks") and is_served([two], "clicks"))
        assert await produce(cluster, one, "clicks", b"c") == 2

    play(story)


def test_a_topic_that_is_deleted_goes_also_from_a_broker_that_looks_later() -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await produce(cluster, one, "clicks", b"a")
        names = [{"name": "clicks", "topic_id": None}]
        two.services.publisher.hold()  # it hears of nothing until its next session
        await cluster.ask(one, 20, 6, topics=names, timeout=1000)
        await wait_until_idle()
        assert ends([one], "clicks") == []
        assert ends([two], "clicks") == [1]
        assert await cluster.create(one, "clicks", [2, 1]) == 0  # and the name is taken again
        assert two.session is not None
        two.session.expire()
        await cluster.until(lambda: is_served(machines, "clicks"))
        assert ends(machines, "clicks") == [0, 0]
        assert not [name for name in two.files.list_folder(DATA) if name.endswith("-stray")]

    play(story)


def test_another_topic_of_the_name_gets_an_empty_log_and_the_old_one_is_kept() -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await produce(cluster, one, "clicks", b"a", b"b")
        former = await leave_out(cluster, machines, "clicks")
        await cluster.create(one, "clicks", [1, 2])
        await produce(cluster, one, "clicks", b"new")
        assert ends(machines, "clicks") == [1, 1]
        await leave_out(cluster, machines, "clicks")
        await write_tree(cluster.store.session(), former)
        await cluster.until(lambda: led(one, "clicks") and is_served([two], "clicks"))
        assert ends(machines, "clicks") == [2, 2]
        assert await produce(cluster, one, "clicks", b"c") == 2

    play(story)


def test_a_state_that_cannot_be_read_at_a_restart_makes_no_empty_log_in_sync() -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, _ = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await produce(cluster, one, "clicks", b"a", b"b")
        path = znodes.partition_state_path("clicks", 0)
        session = cluster.store.session()
        node = await session.get(path)
        assert node is not None
        for machine in machines:
            await machine.kill()
        await session.set(path, b"{ damaged")
        for machine in machines:
            await machine.start()
        assert "clicks" not in one.image.topics
        assert ends(machines, "clicks") == [2, 2]
        await session.set(path, node.data)
        await tell(session, "clicks")
        await cluster.until(lambda: is_served(machines, "clicks"))
        assert ends(machines, "clicks") == [2, 2]

    play(story)


def test_a_log_that_is_missing_when_a_damaged_state_is_repaired_is_not_in_sync() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        await produce(cluster, two, "clicks", b"a", b"b")
        path = znodes.partition_state_path("clicks", 0)
        session = cluster.store.session()
        node = await session.get(path)
        assert node is not None
        await two.kill()
        two.files.remove_folder(DATA / "clicks-0")
        await session.set(path, b"{ damaged")
        await two.start()
        await session.set(path, node.data)
        await tell(session, "clicks")
        # Broker 2 leads by the repaired node, and its log is empty: it must not.
        await cluster.until(lambda: led(one, "clicks") and is_served([two], "clicks"))
        await cluster.until(lambda: ends([one, two], "clicks") == [2, 2])

    play(story)


def test_a_hole_in_the_log_of_a_topic_that_was_away_is_confessed_when_it_is_back() -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        await produce(cluster, two, "clicks", b"a")
        tree = await leave_out(cluster, machines, "clicks")
        await two.kill()
        two.reboot("second")  # its machine lost power
        await two.start()
        await write_tree(cluster.store.session(), tree)
        await cluster.until(lambda: led(one, "clicks"))
        assert one.state("clicks").leader_epoch > 0

    play(story)


def test_a_hole_in_the_log_of_a_topic_that_was_away_outlives_a_clean_stop() -> None:
    """The broker could tell nobody, and its next life finds all closed in good order."""

    async def story(cluster: Cluster) -> None:
        machines = one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        await produce(cluster, two, "clicks", b"a")
        tree = await leave_out(cluster, machines, "clicks")
        await two.kill()
        two.reboot("second")  # its machine lost power
        for _ in range(2):
            await two.start()
            await two.stop()
        await one.stop()
        await write_tree(cluster.store.session(), tree)
        await two.start()
        await cluster.until(lambda: two.led("clicks")[:2] == (NO_BROKER, (1,)))
        await one.start()
        await cluster.until(lambda: led(one, "clicks") and set(one.state("clicks").isr) == {1, 2})
        assert not two.files.exists(DATA / "clicks-0" / "possible-loss")

    play(story)


async def tell(session: EmbeddedSession, topic: str) -> None:
    """Have everybody read a topic again, as who repairs a node by hand would restart a broker."""
    data = znodes.encode_isr_change([(topic, znodes.WHOLE_TOPIC)])
    await session.create(znodes.ISR_CHANGE_PREFIX, data, sequential=True)


# The store is another one, or older than the brokers


async def expire_all(machines: Sequence[Machine]) -> None:
    for machine in machines:
        assert machine.session is not None
        machine.session.expire()
    await wait_until_idle()


def test_a_store_of_another_cluster_is_not_acted_upon() -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await produce(cluster, one, "clicks", b"a")
        session = cluster.store.session()
        node = await session.get(znodes.CLUSTER_ID)
        assert node is not None
        await session.set(znodes.CLUSTER_ID, znodes.encode_cluster_id("another"))
        await expire_all(machines)
        await cluster.clock.advance(60.0)
        assert await session.children(znodes.BROKER_IDS) == []
        assert await session.get(znodes.CONTROLLER) is None
        assert not is_served([one, two], "clicks")
        assert ends(machines, "clicks") == [1, 1]
        await session.set(znodes.CLUSTER_ID, node.data)
        await cluster.until(lambda: is_served(machines, "clicks"))
        assert ends(machines, "clicks") == [1, 1]

    play(story)


def test_an_empty_store_is_not_acted_upon() -> None:
    async def story(cluster: Cluster) -> None:
        machines = one, _ = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await produce(cluster, one, "clicks", b"a")
        session = cluster.store.session()
        backup = {}
        for root in ("/brokers", "/config", "/controller_epoch", "/cluster"):
            backup |= await read_tree(session, root)
        backup = {path: data for path, data in backup.items() if "/ids/" not in path}
        for name in await session.children("/"):
            await session.delete_tree(f"/{name}")
        await expire_all(machines)
        await cluster.clock.advance(60.0)
        assert await session.get(znodes.TOPICS) is None
        assert ends(machines, "clicks") == [1, 1]
        await write_tree(session, backup)
        await cluster.until(lambda: is_served(machines, "clicks"))
        assert ends(machines, "clicks") == [1, 1]

    play(story)


def test_nobody_leads_by_a_state_that_is_older_than_the_logs() -> None:
    """Broker 2 was in sync in the backup, and has been away since: leading, it would truncate."""

    async def story(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await cluster.create(one, "clicks", [2, 1, 3])
        await produce(cluster, two, "clicks", b"a")
        session = cluster.store.session()
        path = znodes.partition_state_path("clicks", 0)
        backup = await session.get(path)
        await two.stop()
        await cluster.until(lambda: led(one, "clicks"))
        await produce(cluster, one, "clicks", b"b", b"c")  # acknowledged by brokers 1 and 3
        await cluster.until(lambda: ends([one, three], "clicks") == [3, 3])
        await restore(session, path, backup)
        await expire_all([one, three])
        await cluster.until(lambda: three.state("clicks").leader_epoch > 1)
        await two.start()
        await cluster.clock.advance(10.0)
        await wait_until_idle()
        assert not led(two, "clicks")
        assert ends([one, three], "clicks") == [3, 3]

    play(story)


async def restore(session: EmbeddedSession, path: str, node: Node | None) -> None:
    """As a restore from a backup would: data and version go back."""
    assert node is not None
    await session.delete(path)
    await session.create(path, node.data)


@pytest.mark.parametrize(("strategy", "found"), [("none", [1, 2]), ("balanced", [2, 2])])
def test_a_state_that_was_lost_makes_nobody_in_sync_who_was_not(
    strategy: str, found: list[int]
) -> None:
    """The node of a state is removed by hand: to the controller the partition is new.

    It is led by the best log, once all are there, where that is what is wanted (ELR-4).
    """

    async def story(cluster: Cluster) -> None:
        machines = one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        await produce(cluster, two, "clicks", b"a")
        await two.stop()
        await cluster.until(lambda: led(one, "clicks"))
        await produce(cluster, one, "clicks", b"b")
        await one.stop()
        await cluster.store.session().delete(znodes.partition_state_path("clicks", 0))
        for machine in reversed(machines):
            await machine.start()
        await cluster.clock.advance(30.0)
        await wait_until_idle()
        assert sorted(ends(machines, "clicks")) == found
        assert led(one, "clicks") == (strategy == "balanced")
        assert not led(two, "clicks")

    play(story, unclean_recovery_strategy=strategy)


def test_a_partition_with_one_replica_is_led_on_under_an_epoch_later_than_its_log() -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await cluster.create(one, "clicks", [1])
        await produce(cluster, one, "clicks", b"a")
        session = cluster.store.session()
        path = znodes.partition_state_path("clicks", 0)
        backup = await session.get(path)
        await one.stop()
        await one.start()
        assert await produce(cluster, one, "clicks", b"b") == 1
        assert one.state("clicks").leader_epoch == 1
        await one.stop()
        await restore(session, path, backup)
        await one.start()
        assert one.led("clicks")[0] == 1
        assert one.state("clicks").leader_epoch == 2
        assert await produce(cluster, one, "clicks", b"c") == 2

    play(story)


def test_notifications_whose_numbers_went_back_are_heard() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        for number in range(5):
            await cluster.create(one, f"t{number}", [1, 2])
        session = cluster.store.session()
        tree = await read_tree(session, znodes.ISR_CHANGES)
        await session.delete_tree(znodes.ISR_CHANGES)
        await session.create(znodes.ISR_CHANGES)  # its counter begins anew
        await expire_all([one, two])
        await cluster.until(lambda: is_served([one, two], "t0"))
        assert tree
        path = znodes.partition_state_path("t0", 0)
        node = await session.get(path)
        assert node is not None
        fields = {**json.loads(node.data), "leader": NO_BROKER, "leader_epoch": 9}
        await session.set(path, json.dumps(fields).encode())
        await tell(session, "t0")
        await cluster.until(lambda: two.state("t0").leader_epoch >= 9)

    play(story)
