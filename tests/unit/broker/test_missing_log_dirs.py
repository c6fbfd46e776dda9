"""When a broker misses one of its log directories: what it does without, and when it does not start
(DEL-3)."""

from __future__ import annotations

import asyncio
import errno
import json
import re
from pathlib import Path

import pytest

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.cluster.znodes import broker_log_dirs_path
from moldau.errors import StartupError
from moldau.model import NO_BROKER, BrokerId, TopicPartition
from moldau.records.record_batch import build_batch
from moldau.simulation.manual_clock import wait_until_idle
from moldau.simulation.memory_files import MemoryFiles

from .cluster_stage import DATA, Cluster, Machine, play

MORE = Path("/more")


async def produce(cluster: Cluster, machine: Machine, topic: str, count: int = 3) -> None:
    """Records that are acknowledged by everybody in sync."""
    batch = build_batch([(cluster.clock.now_ms(), None, b"value", ())] * count)
    rows = [{"index": 0, "records": bytes(batch)}]
    answer = await cluster.ask(
        machine,
        0,
        9,
        transactional_id=None,
        acks=-1,
        timeout=5000,
        topic_data=[{"name": topic, "partition_data": rows}],
    )
    assert answer.responses[0].partition_responses[0].error_code.value == 0


def end_of(machine: Machine, topic: str) -> int:
    return machine.services.log_store.logs[TopicPartition(topic, 0)].log_end_offset


async def kill_at_once(*machines: Machine) -> None:
    """The processes are gone, and so are their sessions; nobody of them has seen the others go."""
    sessions = [machine.session for machine in machines]
    for machine in machines:
        await machine.kill()
    for session in sessions:
        assert session is not None
        session.expire()
    await wait_until_idle()


def unmount(cluster: Cluster, machine: Machine) -> MemoryFiles:
    """The folders are empty from now on; returns what was in them."""
    disk, machine.files = machine.files, MemoryFiles(cluster.clock)
    return disk


async def refused(machine: Machine, match: str, **config: str) -> str:
    """Returns the id that the message asks for."""
    with pytest.raises(StartupError, match=match) as caught:
        await machine.start(**config)
    found = re.search(r"--set log\.dirs\.lost=(\S+):", str(caught.value))
    assert found is not None
    return found[1]


def sets_at_return(witness: Machine, broker: Machine, topic: str) -> list[tuple[int, ...]]:
    """Filled with the in-sync set that another broker sees when this one registers."""
    seen: list[tuple[int, ...]] = []

    def look(former: MetadataImage, image: MetadataImage, _: frozenset[str]) -> None:
        if BrokerId(broker.id) in image.brokers.keys() - former.brokers.keys():
            seen.append(witness.state(topic).isr)

    witness.services.publisher.subscribe(look)
    return seen


async def noted(cluster: Cluster, broker_id: int) -> dict[str, str]:
    node = await cluster.store.session().get(broker_log_dirs_path(BrokerId(broker_id)))
    assert node is not None
    found: dict[str, str] = json.loads(node.data)["directories"]
    return found


def test_an_empty_folder_is_not_served_in_the_place_of_the_only_replica() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2])
        await produce(cluster, two, "clicks")
        await two.stop()
        disk = unmount(cluster, two)
        for _ in range(2):  # the first time does not make it a known one
            await refused(two, r"/data \(id \S+\) is missing, .* copy of clicks-0\. .* mount it")
        two.files = disk
        await two.start()
        await cluster.until(lambda: one.led("clicks")[0] == 2)
        assert end_of(two, "clicks") == 3

    play(story)


def test_a_disk_that_is_lost_for_good_is_given_up_by_its_id_only() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2])
        await produce(cluster, two, "clicks")
        epoch = one.led("clicks")[2]
        await two.stop()
        unmount(cluster, two)
        for option in ("log_dirs_lost", "unclean_leader_election_enable"):
            await refused(two, "clicks-0", **{option: "true"})
        directory_id = await refused(two, "clicks-0")
        await two.start(log_dirs_lost=directory_id)
        await cluster.until(lambda: one.led("clicks")[0] == 2)
        assert end_of(two, "clicks") == 0
        assert one.led("clicks")[2] > epoch
        assert directory_id not in await noted(cluster, 2)
        await two.stop()
        unmount(cluster, two)  # once more: that is another one
        assert await refused(two, "clicks-0", log_dirs_lost=directory_id) != directory_id

    play(story)


def test_what_others_have_is_copied_again_into_an_empty_folder() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        await produce(cluster, two, "clicks")
        await two.stop()
        unmount(cluster, two)
        seen = sets_at_return(one, two, "clicks")
        await two.start()
        assert seen == [(1,)]
        await cluster.until(lambda: set(one.state("clicks").isr) == {1, 2})
        assert end_of(two, "clicks") == 3

    play(story)


def test_a_disk_that_is_back_after_others_took_its_place_is_not_in_sync() -> None:
    """The machine was not restarted, so its own notes say that nothing can be missing."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        await kill_at_once(two)
        disk = unmount(cluster, two)
        await two.start()
        await cluster.until(lambda: set(one.state("clicks").isr) == {1, 2})
        await produce(cluster, one, "clicks")
        await kill_at_once(one, two)
        two.files = disk
        await two.start()
        await cluster.until(lambda: two.led("clicks")[:2] == (NO_BROKER, (1,)))
        await one.start()
        await cluster.until(lambda: set(one.state("clicks").isr) == {1, 2})
        assert end_of(two, "clicks") == 3

    play(story)


def test_a_disk_that_is_back_does_not_lead_without_what_was_written_meanwhile() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        await kill_at_once(two)
        disk = unmount(cluster, two)
        await two.start()
        await cluster.until(lambda: set(one.state("clicks").isr) == {1, 2})
        await one.stop()
        await cluster.until(lambda: two.led("clicks")[:2] == (2, (2,)))
        await produce(cluster, two, "clicks")
        await kill_at_once(two)
        newer, two.files = two.files, disk
        await refused(two, "only complete copy of clicks-0")
        two.files = newer
        await two.start()
        await cluster.until(lambda: two.led("clicks")[0] == 2)
        assert end_of(two, "clicks") == 3

    play(story)


def test_of_two_brokers_without_their_disks_the_last_one_does_not_start() -> None:
    """Both were in sync when they were killed, and each finds the other in the set."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2, 1])
        await produce(cluster, two, "clicks")
        await kill_at_once(one, two)
        for machine in (one, two):
            unmount(cluster, machine)
        starts = (machine.come_up() for machine in (one, two))
        outcomes = await cluster.during(asyncio.gather(*starts, return_exceptions=True))
        failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        assert len(failures) == 1
        assert isinstance(failures[0], StartupError)
        assert "only complete copy of clicks-0" in str(failures[0])

    play(story)


def test_a_folder_that_log_dirs_does_not_name_any_more_is_missing() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "here", [2])
        await cluster.create(one, "there", [2])
        logs = two.services.log_store.logs
        folder = logs[TopicPartition("there", 0)].directory.folder
        (other,) = {DATA, MORE} - {folder}
        await two.stop()
        await refused(
            two, rf"{folder} \(id \S+\) .* copy of there-0\. .* name it", log_dirs=str(other)
        )
        await two.start()
        await cluster.until(lambda: one.led("there")[0] == 2)

    play(story, log_dirs=f"{DATA},{MORE}")


def test_a_folder_is_taken_away_and_another_one_added_where_nothing_is_missed() -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        assert sorted((await noted(cluster, 1)).values()) == [str(DATA), str(MORE)]
        await one.stop()
        await one.start(log_dirs=str(DATA))
        assert list((await noted(cluster, 1)).values()) == [str(DATA)]
        await cluster.create(one, "clicks", [1])
        await one.stop()
        await one.start(log_dirs=f"{DATA},/third")
        assert sorted((await noted(cluster, 1)).values()) == [str(DATA), "/third"]
        assert one.led("clicks")[0] == 1

    play(story, log_dirs=f"{DATA},{MORE}")


@pytest.mark.parametrize("replicas", [[2], [2, 1]])
def test_a_folder_is_the_same_when_its_meta_properties_were_moved_away(replicas: list[int]) -> None:
    """As the broker itself advises where the file is damaged, and as is done with Kafka."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", replicas)
        await produce(cluster, two, "clicks")
        former = await noted(cluster, 2)
        await two.stop()
        in_sync = one.state("clicks").isr
        two.files.remove(DATA / "meta.properties")
        seen = sets_at_return(one, two, "clicks")
        await two.start()
        await cluster.until(lambda: 2 in one.state("clicks").isr)
        assert seen == [in_sync]
        assert end_of(two, "clicks") == 3
        assert list((await noted(cluster, 2)).values()) == list(former.values())
        await two.stop()
        unmount(cluster, two)  # it is known by its new id
        if replicas == [2]:
            await refused(two, "clicks-0")

    play(story)


def test_an_empty_folder_is_none_whose_meta_properties_were_moved_away() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "here", [2])
        await cluster.create(one, "there", [2])
        folder = two.services.log_store.logs[TopicPartition("there", 0)].directory.folder
        (other,) = {DATA, MORE} - {folder}
        await two.stop()
        two.files.remove(other / "meta.properties")
        two.files.rename(folder, Path("/unmounted"))  # its disk, and all that is there
        await refused(two, rf"directory {folder} \(id \S+\) is missing, .* copy of there-0\.")
        two.files.remove_folder(folder)
        two.files.rename(Path("/unmounted"), folder)
        await two.start()
        await cluster.until(lambda: one.led("here")[0] == one.led("there")[0] == 2)

    play(story, log_dirs=f"{DATA},{MORE}")


def test_a_log_that_may_be_on_an_offline_disk_is_not_missed() -> None:
    """A further disk may be added meanwhile; and the offline one is remembered."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2])
        await cluster.create(one, "ticks", [2])
        await two.stop()
        two.files.fail_next("lock", errno.EIO, path_matching=f"{MORE}/*")
        await two.start(log_dirs=f"{DATA},{MORE},/third")
        assert sorted((await noted(cluster, 2)).values()) == [str(DATA), str(MORE), "/third"]
        await two.stop()
        await refused(two, f"{MORE} ", log_dirs=f"{DATA},/third")

    play(story, log_dirs=f"{DATA},{MORE}")


def test_a_broker_whose_directories_nobody_has_noted_misses_logs_in_a_new_folder() -> None:
    """It was last started by a version that did not."""

    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [2])
        await two.stop()
        await cluster.store.session().delete(broker_log_dirs_path(BrokerId(2)))
        disk = unmount(cluster, two)
        assert await refused(two, r"directory /data is missing, .* clicks-0") == "unknown"
        assert await refused(two, "clicks-0") == "unknown"
        two.files = disk
        await two.start()
        await cluster.until(lambda: one.led("clicks")[0] == 2)
        assert list((await noted(cluster, 2)).values()) == [str(DATA)]

    play(story)


def test_a_new_store_misses_nothing() -> None:
    """Topics were made of the logs in one folder; what was in others was never known."""

    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        await cluster.create(one, "ticks", [1])
        await cluster.create(one, "clicks", [1], [1])  # its second partition is beside ticks
        await one.stop()
        for path in ("/brokers", "/config", "/cluster", "/admin"):
            await cluster.store.session().delete_tree(path)
        await one.start(log_dirs=f"{DATA},/third", adopt_topics_enable="true")
        assert one.led("clicks")[0] == 1
        assert sorted((await noted(cluster, 1)).values()) == [str(DATA), "/third"]

    play(story, log_dirs=f"{DATA},{MORE}")
