"""Positions of groups on three brokers: a coordinator shows only what later ones have, too."""

import errno
from typing import Any

import pytest

from broker.cluster_stage import Cluster, Machine, play
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.errors import ErrorCode
from moldau.model import GROUP_OFFSETS_TOPIC

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
CONFIG = {
    "offsets_topic_num_partitions": "1",
    "offsets_topic_replication_factor": "3",
    "min_insync_replicas": "2",
}


async def commit(cluster: Cluster, machine: Machine, offset: int) -> ErrorCode:
    row = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    answer = await cluster.ask(
        machine,
        OFFSET_COMMIT,
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": "t", "partitions": [row]}],
    )
    return answer.topics[0].partitions[0].error_code


async def find_position(cluster: Cluster, machine: Machine) -> tuple[ErrorCode, int | None]:
    answer = await cluster.ask(
        machine,
        OFFSET_FETCH,
        7,
        group_id="g",
        topics=[{"name": "t", "partition_indexes": (0,)}],
        require_stable=False,
    )
    if answer.error_code is not ErrorCode.none:
        return answer.error_code, None
    return answer.error_code, answer.topics[0].partitions[0].committed_offset


async def coordinated(cluster: Cluster) -> list[Machine]:
    """Three brokers; the first of the list coordinates the group, the second would be next."""
    machines = await cluster.start(1, 2, 3)
    await cluster.create(machines[0], "t", [1, 2, 3])
    await cluster.ask(machines[0], FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("g",))
    await cluster.until(lambda: all(GROUP_OFFSETS_TOPIC in each.image.topics for each in machines))
    replicas = machines[0].state(GROUP_OFFSETS_TOPIC).replicas
    return sorted(machines, key=lambda each: replicas.index(each.id))


DELETE_TOPICS = 20


CLOCKS_DIFFER = pytest.mark.parametrize(
    "skews_ms", [{}, {2: -60_000}, {2: 60_000}, {1: -60_000, 3: -60_000}, {1: 60_000, 3: 60_000}]
)
"""By broker; of the controller (1), the coordinator (2) and the next coordinator (3)."""


async def recreate_unnoticed(cluster: Cluster, skews_ms: dict[int, int]) -> tuple[Machine, Machine]:
    """Topic t is deleted and recreated, and the coordinator of the group does not learn of it.
    The coordinator, and the broker that did it."""
    cluster.skews_ms = skews_ms
    controller, *others = await cluster.start(1, 2, 3)
    assert controller.image.controller_id == controller.id
    assert await cluster.create(controller, GROUP_OFFSETS_TOPIC, [2, 3, 1]) is ErrorCode.none
    assert await cluster.create(controller, "t", [1, 2, 3]) is ErrorCode.none
    coordinator = others[0]
    await cluster.until(lambda: shard(coordinator).state.is_settled)
    assert await commit(cluster, coordinator, 100) is ErrorCode.none
    await cluster.clock.advance(1)
    publisher_of(coordinator).hold()
    topics = [{"name": "t", "topic_id": None}]
    await cluster.ask(controller, DELETE_TOPICS, 6, topics=topics, timeout=1000)
    await cluster.clock.advance(1)
    assert await cluster.create(controller, "t", [1, 2, 3]) is ErrorCode.none
    await cluster.clock.advance(1)
    assert is_behind(coordinator, controller)
    return coordinator, controller


def is_behind(machine: Machine, other: Machine) -> bool:
    return machine.image.topics["t"].topic_id != other.image.topics["t"].topic_id


def publisher_of(machine: Machine) -> MetadataPublisher:
    assert machine.broker is not None
    assert machine.broker._lifecycle is not None
    return machine.broker._lifecycle._publisher


@CLOCKS_DIFFER
def test_a_commit_in_a_recreated_topic_outlives_the_news_of_the_deletion(
    skews_ms: dict[int, int],
) -> None:
    async def story(cluster: Cluster) -> None:
        coordinator, controller = await recreate_unnoticed(cluster, skews_ms)
        assert await commit(cluster, coordinator, 7) is ErrorCode.none
        await cluster.during(publisher_of(coordinator).read_in_new_session())
        assert not is_behind(coordinator, controller)
        await cluster.clock.advance(1)
        assert await find_position(cluster, coordinator) == (ErrorCode.none, 7)
        assert await commit(cluster, coordinator, 8) is ErrorCode.none
        assert await find_position(cluster, coordinator) == (ErrorCode.none, 8)

    play(story, **CONFIG)


@CLOCKS_DIFFER
def test_positions_of_the_deleted_topic_go_when_the_coordinator_learns_of_the_deletion(
    skews_ms: dict[int, int],
) -> None:
    async def story(cluster: Cluster) -> None:
        coordinator, controller = await recreate_unnoticed(cluster, skews_ms)
        end_offset = shard(coordinator).log.log_end_offset
        await cluster.during(publisher_of(coordinator).read_in_new_session())
        assert not is_behind(coordinator, controller)
        assert await find_position(cluster, coordinator) == (ErrorCode.none, -1)
        await cluster.until(lambda: shard(coordinator).log.log_end_offset == end_offset + 1)

    play(story, **CONFIG)


def test_positions_are_not_shown_from_the_mark_on_and_deleted_with_the_topic() -> None:
    async def story(cluster: Cluster) -> None:
        first, _, third = await coordinated(cluster)
        assert await commit(cluster, first, 100) is ErrorCode.none
        end_offset = shard(first).log.log_end_offset
        await cluster.clock.advance(1)
        await third.kill()
        third.reboot("second")
        await cluster.until(lambda: third.id not in first.image.brokers)
        controller = cluster.machines[first.image.controller_id]
        topics = [{"name": "t", "topic_id": None}]
        await cluster.ask(controller, DELETE_TOPICS, 6, topics=topics, timeout=1000)
        await cluster.until(lambda: "t" in first.image.deleting)
        assert await find_position(cluster, first) == (ErrorCode.none, -1)
        assert shard(first).log.log_end_offset == end_offset
        await third.start()
        await cluster.until(lambda: shard(first).log.log_end_offset == end_offset + 1)
        assert not first.image.deleting

    play(story, **CONFIG)


async def fail_over(cluster: Cluster, coordinator: Machine) -> Machine:
    """The coordinator is killed. Returns the broker that takes over."""
    await coordinator.kill()
    assert coordinator.session is not None
    coordinator.session.expire()
    second = cluster.machines[3]
    await cluster.until(lambda: shard(second).is_leader and shard(second).state.is_settled)
    await cluster.clock.advance(0.1)
    return second


@CLOCKS_DIFFER
def test_a_commit_in_a_recreated_topic_outlives_a_coordinator_that_never_learns_of_it(
    skews_ms: dict[int, int],
) -> None:
    async def story(cluster: Cluster) -> None:
        coordinator, _ = await recreate_unnoticed(cluster, skews_ms)
        assert await commit(cluster, coordinator, 7) is ErrorCode.none
        second = await fail_over(cluster, coordinator)
        assert await find_position(cluster, second) == (ErrorCode.none, 7)

    play(story, **CONFIG)


@CLOCKS_DIFFER
def test_a_coordinator_that_takes_over_deletes_the_positions_of_the_deleted_topic(
    skews_ms: dict[int, int],
) -> None:
    async def story(cluster: Cluster) -> None:
        coordinator, _ = await recreate_unnoticed(cluster, skews_ms)
        end_offset = shard(coordinator).log.log_end_offset
        second = await fail_over(cluster, coordinator)
        assert await find_position(cluster, second) == (ErrorCode.none, -1)
        await cluster.until(lambda: shard(second).log.log_end_offset == end_offset + 1)

    play(story, **CONFIG)


def shard(machine: Machine) -> Any:
    found = machine.services.partitions.find(GROUP_OFFSETS_TOPIC, 0)
    assert found is not None
    return found


def test_a_position_outlives_its_coordinator() -> None:
    async def story(cluster: Cluster) -> None:
        first, *others = await coordinated(cluster)
        assert await commit(cluster, first, 7) is ErrorCode.none
        await first.kill()
        assert first.session is not None
        first.session.expire()
        await cluster.until(lambda: others[0].state(GROUP_OFFSETS_TOPIC).leader != first.id)
        leader = others[0].state(GROUP_OFFSETS_TOPIC).leader
        second = next(each for each in others if each.id == leader)
        await cluster.until(lambda: shard(second).state.is_settled)
        await cluster.clock.advance(0.1)
        assert await find_position(cluster, second) == (ErrorCode.none, 7)

    play(story, **CONFIG)


def test_a_new_coordinator_shows_nothing_before_all_it_has_is_committed() -> None:
    async def story(cluster: Cluster) -> None:
        first, second, third = await coordinated(cluster)
        assert await commit(cluster, first, 7) is ErrorCode.none
        for other in (first, second):
            cluster.network.cut(f"b{third.id}", f"b{other.id}")
        assert await commit(cluster, first, 8) is ErrorCode.coordinator_not_available
        await first.kill()
        assert first.session is not None
        first.session.expire()
        await cluster.until(lambda: shard(second).is_leader)
        assert not shard(second).state.is_settled
        code, _ = await find_position(cluster, second)
        assert code is ErrorCode.coordinator_load_in_progress
        cluster.network.heal(f"b{third.id}", f"b{second.id}")
        await cluster.until(lambda: shard(second).state.is_settled)
        await cluster.clock.advance(0.1)
        assert await find_position(cluster, second) == (ErrorCode.none, 8)

    play(story, **CONFIG)


def test_a_coordinator_whose_lease_is_over_says_nothing() -> None:
    async def story(cluster: Cluster) -> None:
        first, *_ = await coordinated(cluster)
        assert await commit(cluster, first, 7) is ErrorCode.none
        shard(first)._lease_end = cluster.clock.monotonic
        assert (await find_position(cluster, first))[0] is ErrorCode.not_coordinator
        assert await commit(cluster, first, 8) is ErrorCode.not_coordinator

    play(story, **CONFIG)


def test_a_position_that_not_every_replica_has_is_not_confirmed() -> None:
    async def story(cluster: Cluster) -> None:
        first, second, third = await coordinated(cluster)
        for other in (second, third):
            cluster.network.cut(f"b{other.id}", f"b{first.id}")
        assert await commit(cluster, first, 7) is ErrorCode.coordinator_not_available

    play(story, **CONFIG)


def test_a_coordinator_that_loads_a_flipped_bit_resigns_and_the_position_stays_as_committed() -> (
    None
):
    async def story(cluster: Cluster) -> None:
        first, second, third = await coordinated(cluster)
        assert await commit(cluster, first, 100) is ErrorCode.none
        await cluster.until(lambda: shard(second).high_watermark == shard(first).high_watermark)
        log = shard(second).log
        file = second.files.open(log.segments[-1].path, create=False)
        position = file.read_at(0, log.size_bytes).rindex((100).to_bytes(8, "big")) + 7
        file.write_at(position, bytes([36]))
        await first.kill()
        assert first.session is not None
        first.session.expire()
        await cluster.until(lambda: third.state(GROUP_OFFSETS_TOPIC).leader == third.id)
        assert second.id not in third.state(GROUP_OFFSETS_TOPIC).isr[:1]
        await cluster.until(lambda: shard(third).state.is_settled)
        await cluster.clock.advance(0.1)
        assert await find_position(cluster, third) == (ErrorCode.none, 100)

    play(story, **CONFIG)


def test_a_coordinator_that_had_no_file_handle_while_it_was_loading_serves_when_it_has() -> None:
    async def story(cluster: Cluster) -> None:
        first, second, _ = await coordinated(cluster)
        assert await commit(cluster, first, 100) is ErrorCode.none
        await cluster.until(lambda: shard(second).high_watermark == shard(first).high_watermark)
        path = f"*{GROUP_OFFSETS_TOPIC}-0/*.log"
        fault = second.files.fail_next("read", errno.EMFILE, path_matching=path, count=None)
        await first.kill()
        assert first.session is not None
        first.session.expire()
        await cluster.until(lambda: second.state(GROUP_OFFSETS_TOPIC).leader == second.id)
        await cluster.until(lambda: shard(second).state.is_settled)
        await cluster.clock.advance(1.5)
        loading = ErrorCode.coordinator_load_in_progress
        assert await find_position(cluster, second) == (loading, None)
        fault.cancel()
        await cluster.clock.advance(60)
        assert second.id == second.state(GROUP_OFFSETS_TOPIC).leader
        assert await find_position(cluster, second) == (ErrorCode.none, 100)

    play(story, **CONFIG)
