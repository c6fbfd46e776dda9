"""Brokers come into their cluster, lose their session, come back damaged, and go."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.broker.ports import read_boot_id
from moldau.broker.unclean_shutdown import SESSION_FILE, SessionNote, write_session_note
from moldau.cluster.rules.metadata_image import BrokerState, MetadataImage
from moldau.cluster.znodes import encode_partition_state, partition_state_path
from moldau.coordination.port import Operation, SessionExpiredError
from moldau.errors import StartupError
from moldau.model import NO_BROKER
from moldau.simulation.manual_clock import wait_until_idle
from moldau.simulation.memory_files import MemoryFiles

from .cluster_stage import DATA, Cluster, Machine, play


def everywhere_led(machines: list[Machine], topic: str, leader: int, *isr: int) -> bool:
    return all(
        (machine.state(topic).leader, set(machine.state(topic).isr)) == (leader, set(isr))
        for machine in machines
        if machine.broker is not None
    )


# Stopping


def test_a_broker_that_stops_hands_its_partitions_over_first() -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await cluster.create(one, "clicks", [2, 3, 1])
        await cluster.create(one, "ticks", [1, 2, 3])
        changed: list[tuple[tuple[int, ...], frozenset[int]]] = []
        one.services.publisher.subscribe(
            lambda _, image, names: changed.append(
                (one.led("clicks")[:2], frozenset(image.brokers))  # type: ignore[arg-type]
            )
        )
        await two.stop()
        await wait_until_idle()
        assert three.led("clicks") == (3, (3, 1), 1)
        assert three.led("ticks") == (1, (1, 3), 0)
        assert ((3, (3, 1)), {1, 2, 3}) in changed  # while it was still registered

    play(story)


def test_a_broker_that_may_not_hand_over_just_goes() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        before = one.image.brokers[two.services.broker_id].epoch
        await two.stop()
        await cluster.until(lambda: one.led("clicks") == (1, (1,), 1))
        assert before > 0

    play(story, controlled_shutdown_enable="false")


def test_brokers_can_be_restarted_one_after_the_other() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await cluster.start(1, 2, 3)
        await cluster.create(machines[0], "clicks", [1, 2, 3])
        for machine in machines:
            await machine.stop()
            await machine.start()
            await cluster.until(
                lambda: all(set(each.state("clicks").isr) == {1, 2, 3} for each in machines)
            )
        assert machines[0].image.controller_id in (1, 2, 3)

    play(story)


# Sessions


def test_a_broker_whose_session_is_lost_comes_back_by_itself() -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three = machines = await cluster.start(1, 2, 3)
        await cluster.create(one, "clicks", [2, 1, 3])
        epoch = one.image.brokers[two.services.broker_id].epoch
        assert two.session is not None
        two.session.expire()
        await cluster.until(lambda: everywhere_led(machines, "clicks", 1, 1, 2, 3))
        assert one.image.brokers[two.services.broker_id].epoch > epoch
        note = json.loads(two.files.read(DATA / SESSION_FILE))
        assert (note["session_id"], note["boot_id"]) == (two.session.session_id, "first")
        assert three.image.controller_id == 1

    play(story)


def test_who_was_elected_before_the_broker_was_back_is_not_overlooked() -> None:
    async def story(cluster: Cluster) -> None:
        one, two, _ = await cluster.start(1, 2, 3)
        await cluster.create(one, "clicks", [2, 1, 3])
        assert two.broker is not None
        assert two.session is not None
        registration = two.broker._lifecycle._registration
        register = registration.register

        async def elect_and_register(broker: BrokerState) -> BrokerState:
            registration.register = register
            await cluster.clock.sleep(1.0)  # until all that the new session was told of is read
            elected = replace(one.state("clicks"), leader=3, leader_epoch=9, isr=(1, 3))
            data = encode_partition_state(elected)
            await cluster.store.session().set(partition_state_path("clicks", 0), data)
            return await register(broker)  # and nothing has told anybody of it yet

        def resume(image: MetadataImage) -> None:
            resumed.append(image)
            resume_all(image)

        resumed: list[MetadataImage] = []
        partitions = two.services.partitions
        resume_all, partitions.resume = partitions.resume, resume
        registration.register = elect_and_register
        two.session.expire()
        await cluster.until(lambda: bool(resumed))
        assert resumed[0].find_partition("clicks", 0).leader_epoch == 9

    play(story)


def test_a_controller_whose_session_is_lost_is_replaced_and_comes_back() -> None:
    async def story(cluster: Cluster) -> None:
        one, _, three = await cluster.start(1, 2, 3)
        assert one.session is not None
        one.session.expire()
        await cluster.until(
            lambda: set(three.image.brokers) == {1, 2, 3} and three.image.controller_id == 2
        )
        assert await cluster.create(three, "clicks", [1]) == 41  # NOT_CONTROLLER

    play(story)


def test_a_broker_alone_whose_session_is_lost_goes_on() -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await cluster.create(one, "clicks", [1])
        assert one.session is not None
        one.session.expire()
        await cluster.until(lambda: one.image.controller_id == 1 and len(one.image.brokers) == 1)
        await cluster.until(
            lambda: (
                (found := one.services.partitions.find("clicks", 0)) is not None and found.is_leader
            )
        )

    play(story)


def test_the_registration_of_a_killed_process_is_deleted_by_the_next_one() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        epoch = one.image.brokers[two.services.broker_id].epoch
        await two.kill()
        assert set(one.image.brokers) == {1, 2}
        before = cluster.clock.monotonic()
        await two.start()
        assert cluster.clock.monotonic() - before < 1.0
        await wait_until_idle()
        assert one.image.brokers[two.services.broker_id].epoch > epoch

    play(story)


def test_a_killed_controller_is_controller_no_more_when_it_is_back() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await one.kill()
        await one.start()
        await cluster.until(lambda: two.image.controller_id == one.image.controller_id >= 0)
        node = await one.session.get("/controller_epoch") if one.session else None
        assert node is not None
        assert node.data == b"2"

    play(story)


def test_a_broker_waits_for_the_end_of_a_session_that_it_cannot_prove_to_be_its_own() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        former = two.session
        await two.kill()
        two.files.remove(DATA / SESSION_FILE)
        assert former is not None
        cluster.clock.call_later(5.0, former.expire)
        before = cluster.clock.monotonic()
        await two.start()
        assert 5.0 <= cluster.clock.monotonic() - before < 10.0
        assert set(one.image.brokers) == {1, 2}

    play(story)


def test_two_brokers_of_one_id_are_one_too_many() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.start(1)
        twin = Machine(cluster, 1)
        with pytest.raises(StartupError, match="registered already"):
            await twin.start(listeners="PLAINTEXT://b1:9093")

    play(story)


def test_a_copy_of_the_folder_of_a_broker_at_work_takes_nothing_from_it() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        former, epoch = two.session, one.image.brokers[two.services.broker_id].epoch
        twin = Machine(cluster, 2)
        copy_folder(two.files, DATA, twin.files, COPY)
        with pytest.raises(StartupError, match="registered already"):
            await twin.start(listeners="PLAINTEXT://b2:9093", log_dirs=str(COPY))
        assert two.session is former
        assert one.image.brokers[two.services.broker_id].epoch == epoch
        assert one.led("clicks") == (2, (2, 1), 0)

    play(story)


COPY = Path("/copy")


def copy_folder(files: MemoryFiles, source: Path, others: MemoryFiles, target: Path) -> None:
    others.make_folder(target)
    for name in files.list_folder(source):
        try:
            data = files.read(source / name)
        except IsADirectoryError:
            copy_folder(files, source / name, others, target / name)
        else:
            others.replace(target / name, data)


def test_the_registration_that_was_there_before_the_machine_was_started_is_waited_for() -> None:
    """Its disk may be the copy of another one, whose broker goes on."""

    async def story(cluster: Cluster) -> None:
        _, two = await cluster.start(1, 2)
        former = two.session
        await two.kill()
        two.boot_id = "second"
        assert former is not None
        cluster.clock.call_later(5.0, former.expire)
        before = cluster.clock.monotonic()
        await two.start()
        assert cluster.clock.monotonic() - before >= 5.0

    play(story)


def test_a_broker_without_an_id_gets_one_that_nobody_had_and_keeps_it() -> None:
    async def story(cluster: Cluster) -> None:
        found = []
        machines = [Machine(cluster, number) for number in (1, 2)]
        for machine in (*machines, machines[0]):
            await machine.stop()
            await machine.start(broker_id="-1")
            cluster.machines[machine.id] = machine
            found.append(machine.services.broker_id)
        assert found == [1001, 1002, 1001]

    play(story, zookeeper_connect="unused:2181")


# Coming back


async def killed_alone_in_sync(cluster: Cluster, *earlier: str) -> tuple[Machine, Machine]:
    """Broker 1 was the last one in sync when it was killed; broker 2 is back before it."""
    one, two = await cluster.start(1, 2)
    for topic in earlier:
        await cluster.create(one, topic, [1, 2])
    await cluster.create(one, "clicks", [1, 2])
    await two.stop()
    await cluster.until(lambda: one.led("clicks") == (1, (1,), 0))
    former = one.session
    await one.kill()
    assert former is not None
    former.expire()
    await two.start()
    await cluster.until(lambda: two.led("clicks") == (NO_BROKER, (1,), 1))
    return one, two


def test_a_killed_process_leads_on_with_what_it_wrote() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await killed_alone_in_sync(cluster)
        await one.start()
        await cluster.until(lambda: two.led("clicks")[0] == 1)
        assert two.led("clicks")[2] == 2

    play(story)


def test_who_was_killed_leads_when_the_last_one_in_sync_loses_power() -> None:
    """ "3 killed, 4 loses power": everybody is told who may lead, by DescribeTopicPartitions."""

    async def described(cluster: Cluster, machine: Machine) -> tuple[object, ...]:
        answer = await cluster.ask(
            machine,
            75,
            0,
            topics=[{"name": "clicks"}],
            response_partition_limit=10,
            cursor=None,
        )
        (row,) = answer.topics[0].partitions
        return row.leader_id, row.isr_nodes, row.eligible_leader_replicas, row.last_known_elr

    async def kill(machine: Machine) -> None:
        former = machine.session
        await machine.kill()
        assert former is not None
        former.expire()
        await wait_until_idle()

    async def story(cluster: Cluster) -> None:
        one, three, four = await cluster.start(1, 3, 4)
        await cluster.create(one, "clicks", [3, 4])
        await kill(three)
        await cluster.until(lambda: one.led("clicks") == (4, (4,), 1))
        assert await described(cluster, one) == (4, (4,), (3,), ())
        await kill(four)
        four.boot_id = "second"
        await four.start()
        await cluster.until(lambda: one.led("clicks")[:2] == (NO_BROKER, ()))
        assert await described(cluster, one) == (-1, (), (3,), (4,))
        await three.start()
        await cluster.until(lambda: one.led("clicks")[:2] == (3, (3, 4)))
        assert await described(cluster, one) == (3, (3, 4), (), ())

    play(story, min_insync_replicas="2")


def test_who_goes_because_its_disk_failed_may_not_lead_later() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await cluster.until(lambda: one.led("clicks")[:2] == (1, (1, 2)))
        assert two.broker is not None
        (directory,) = two.services.log_store.directories
        two.broker._lifecycle.hand_over_offline_replicas = asyncio.Event().wait  # it goes before
        directory.fail(OSError(errno.EIO, "broken"))
        await wait_until_idle()
        assert two.broker.failure is not None
        await two.stop()
        await cluster.until(lambda: one.led("clicks")[1] == (1,))
        assert one.state("clicks").elr == ()

    play(story, min_insync_replicas="2")


def test_a_topic_with_one_replica_takes_acks_all_where_two_must_be_in_sync() -> None:
    async def story(cluster: Cluster) -> None:
        one, _ = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1])
        await cluster.until(lambda: one.led("clicks")[0] == 1)
        partition = one.broker.services.partitions.find("clicks", 0)
        assert partition.state.has_enough_in_sync

    play(story, min_insync_replicas="2")


def test_a_replica_that_may_have_a_hole_does_not_lead_even_as_the_last_one() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await killed_alone_in_sync(cluster)
        one.boot_id = "second"
        await one.start()
        await cluster.clock.advance(60.0)
        await wait_until_idle()
        assert two.led("clicks")[:2] == (NO_BROKER, ())
        row = {"topic": "clicks", "partitions": (0,)}
        answer = await cluster.ask(
            two, 43, 2, election_type=1, topic_partitions=[row], timeout=1000
        )
        assert answer.error_code.value == 0
        await cluster.until(lambda: set(two.state("clicks").isr) == {1, 2})

    play(story, unclean_recovery_strategy="none")


def test_after_a_power_loss_the_best_log_leads_without_a_person() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await killed_alone_in_sync(cluster)
        one.boot_id = "second"
        await one.start()
        await cluster.until(lambda: set(two.state("clicks").isr) == {1, 2})
        assert two.led("clicks")[0] == 1

    play(story)


def test_a_disk_that_was_away_when_the_machine_came_back_may_have_a_hole_as_well() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await killed_alone_in_sync(cluster, "earlier")
        assert one.files.exists(DATA / "clicks-0")
        # The machine was restarted, and the broker was once started without that disk.
        note = SessionNote(session_id=1, boot_id="second")
        write_session_note(one.files, Path("/other"), note)
        one.boot_id = "second"
        await one.start()
        await cluster.clock.advance(60.0)
        await wait_until_idle()
        assert two.led("clicks")[:2] == (NO_BROKER, ())

    play(story, log_dirs=f"/other,{DATA}", unclean_recovery_strategy="none")


def test_a_replica_whose_log_is_missing_does_not_lead_even_as_the_last_one() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await killed_alone_in_sync(cluster)
        one.files.remove_folder(DATA / "clicks-0")
        await one.start()
        await cluster.clock.advance(60.0)
        await wait_until_idle()
        assert two.led("clicks")[:2] == (NO_BROKER, ())

    play(story, unclean_recovery_strategy="none")


def test_a_replica_whose_log_is_missing_comes_back_into_the_in_sync_set() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        await two.kill()
        two.files.remove_folder(DATA / "clicks-0")
        await two.start()
        await cluster.until(lambda: one.led("clicks")[:2] == (1, (1, 2)))

    play(story)


def test_a_clean_stop_and_a_restart_of_the_machine_leave_no_hole() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await two.stop()
        await one.stop()
        one.boot_id = "second"
        await one.start()
        await cluster.until(lambda: one.led("clicks")[0] == 1)

    play(story)


def test_a_broker_alone_leads_under_a_new_epoch_after_every_start() -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await cluster.create(one, "clicks", [1])
        for epoch in (1, 2):
            await one.kill()
            one.reboot(f"boot {epoch}")
            await one.start()
            assert one.led("clicks") == (1, (1,), epoch)

    play(story)


def test_the_log_of_a_topic_deleted_meanwhile_goes_when_its_broker_is_back() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1, 2])
        await two.stop()
        names = ("clicks",)
        await cluster.ask(one, 20, 5, topic_names=names, timeout=1000)
        await wait_until_idle()
        assert set(one.image.deleting) == {"clicks"}
        assert any(name.startswith("clicks-0") for name in two.files.list_folder(DATA))
        await two.start()
        await wait_until_idle()
        assert not one.image.deleting
        left = [name for name in two.files.list_folder(DATA) if name.startswith("clicks")]
        assert all(name.endswith("-delete") for name in left)
        assert await cluster.create(one, "clicks", [1, 2]) == 0

    play(story)


# Disks


def test_the_partitions_of_a_failed_disk_are_handed_over() -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await cluster.create(one, "clicks", [2, 3])
        await cluster.create(one, "alone", [2])
        two.services.log_store.directories[0].fail(OSError(errno.EIO, "the disk is dead"))
        await cluster.until(lambda: three.led("clicks") == (3, (3,), 1))
        assert one.led("alone") == (2, (2,), 0)
        assert set(one.image.brokers) == {1, 2, 3}

    play(story)


def test_a_broker_without_a_disk_leads_no_new_partition_for_long() -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        two.services.log_store.directories[0].fail(OSError(errno.EIO, "the disk is dead"))
        await cluster.until(lambda: not two.services.partitions.high_watermarks())
        await cluster.create(one, "clicks", [2, 3])
        await cluster.until(lambda: three.led("clicks") == (3, (3,), 1))

    play(story)


def test_a_failed_disk_is_given_up_in_the_next_session_if_not_in_this_one() -> None:
    async def story(cluster: Cluster) -> None:
        one, two, three = await cluster.start(1, 2, 3)
        await cluster.create(one, "clicks", [2, 3])
        assert two.session is not None
        transact = two.session.transact

        async def lose(operations: Sequence[Operation]) -> Sequence[str]:
            two.session.transact = transact
            raise SessionExpiredError("over")

        two.session.transact = lose
        two.services.log_store.directories[0].fail(OSError(errno.EIO, "the disk is dead"))
        await cluster.until(lambda: three.led("clicks") == (3, (3,), 1))

    play(story)


# The boot id


def test_the_machine_has_a_boot_id_that_stays() -> None:
    assert read_boot_id() == read_boot_id() != ""
