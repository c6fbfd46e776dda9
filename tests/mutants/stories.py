"""Stories of the simulated cluster in which rare faults meet, for rules that are about them.

Each passes while the rules are kept (`test_stories.py`), and fails for a seed or another of its
times when the rule is broken (`catalogue`).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from moldau.model import TopicPartition
from moldau.simulation.clients import Committer
from moldau.simulation.cluster import SimulatedCluster
from moldau.simulation.fault_plan import FaultKind, PlannedFault
from moldau.simulation.faults import lose_all_power, vanish
from moldau.simulation.machine import DATA_FOLDER, read_log
from moldau.simulation.operations import Operator, reassign
from moldau.simulation.transactions import SINKS

_OFFSETS: Final = TopicPartition("__consumer_offsets", 0)


def fault(
    cluster: SimulatedCluster, kind: FaultKind, broker: int, other: int, seconds: float
) -> None:
    now = cluster.world.loop.time()
    planned = PlannedFault(
        at_seconds=now, kind=kind, broker=broker, other=other, seconds=seconds, amount=0.0
    )
    cluster.plan.append(planned)
    cluster.faults.strike(planned)


def leader_and_follower(cluster: SimulatedCluster, random: Random) -> tuple[int, int]:
    state = cluster.observer.states[cluster.partitions[-1]]
    followers = [broker for broker in state.in_sync if broker != state.leader]
    return state.leader, random.choice(followers)


async def a_follower_is_to_leave_and_nobody_can_write_it(cluster: SimulatedCluster) -> None:
    """The leader loses a follower, and then the coordination service."""
    await cluster.begin()
    await cluster.sleep(1.5)
    random = Random(cluster.seed)
    leader, follower = leader_and_follower(cluster, random)
    fault(cluster, FaultKind.CUT, leader, follower, 4.0)
    await cluster.sleep(random.uniform(0.6, 1.6))
    fault(cluster, FaultKind.CUT_COORDINATION, leader, follower, 2.5)
    await cluster.sleep(4)
    await cluster.heal()
    await cluster.finish()


async def a_follower_loses_power_while_its_fetch_is_under_way(cluster: SimulatedCluster) -> None:
    """It is back before the fetch arrives, which tells of records that it has lost.

    Its session ends with it: a machine that was started again waits for that.
    """
    await cluster.begin()
    await cluster.sleep(1.5)
    random = Random(cluster.seed)
    leader, follower = leader_and_follower(cluster, random)
    way = cluster.machines[follower].host, cluster.machines[leader].host
    for _ in range(2):
        cluster.world.network.set_delay(*way, 0.7, one_way=True)
        await cluster.sleep(random.uniform(0.1, 0.3))
        cluster.workload.rest_producers()
        await cluster.sleep(0.35)
        fault(cluster, FaultKind.POWER_LOSS, follower, leader, 0.02)
        cluster.world.service.expire_sessions_of(cluster.machines[follower].host)
        await cluster.sleep(2)
        cluster.workload.rest_producers(is_resting=False)
        cluster.world.network.set_delay(*way, 0.002, one_way=True)
        await cluster.sleep(4)
    await cluster.heal()
    await cluster.finish()


async def a_leader_is_replaced_while_a_batch_waits(cluster: SimulatedCluster) -> None:
    """Nobody copies the batch; the next leader has other records at its offsets, and the former
    one, which follows it now, or leads again soon, hears that they are committed while its client
    still waits."""
    await cluster.begin()
    await cluster.sleep(1.5)
    random = Random(cluster.seed)
    for _ in range(4):
        await _replace_leader_twice(cluster, random)
        await cluster.sleep(3)
    await cluster.heal()
    await cluster.finish()


async def _replace_leader_twice(cluster: SimulatedCluster, random: Random) -> None:
    leader, follower = leader_and_follower(cluster, random)
    for other in cluster.broker_ids:
        if other != leader:
            fault(cluster, FaultKind.CUT, leader, other, 0.4)
    await cluster.sleep(random.uniform(0.2, 0.35))
    fault(cluster, FaultKind.EXPIRE, leader, follower, 0.1)
    partition, states = cluster.partitions[-1], cluster.observer.states
    await until(cluster, 1.0, lambda: states[partition].leader not in (-1, leader))
    await until(cluster, 1.0, lambda: leader in states[partition].in_sync)
    if states[partition].leader >= 0:
        fault(cluster, FaultKind.EXPIRE, states[partition].leader, leader, 0.1)


async def two_elections_before_anybody_writes(cluster: SimulatedCluster) -> None:
    """The first leader's last records are on the third replica, the second leader's at the same
    offsets on the second alone. The third leads and writes nothing (it is alone in sync, and
    acks=all needs two), and the second comes back to follow it."""
    await cluster.begin()
    await cluster.sleep(1.5)
    random = Random(cluster.seed)
    partition = cluster.partitions[-1]
    first, second, third = cluster.observer.replicas[partition]
    fault(cluster, FaultKind.CUT, first, second, 2.0)
    await cluster.sleep(random.uniform(0.4, 0.7))
    cluster.workload.rest_producers()
    await cluster.sleep(0.1)
    fault(cluster, FaultKind.CUT, second, third, 4.0)
    fault(cluster, FaultKind.CRASH, first, second, 8.0)
    former_end = end_of_log(cluster, second, partition)
    await until(cluster, 3.0, lambda: cluster.observer.states[partition].leader == second)
    cluster.workload.rest_producers(is_resting=False)
    await until(cluster, 1.3, lambda: end_of_log(cluster, second, partition) > former_end)
    cluster.workload.rest_producers()
    fault(cluster, FaultKind.CRASH, second, third, 1.7)
    await cluster.sleep(4)
    cluster.workload.rest_producers(is_resting=False)
    await cluster.sleep(1)
    await cluster.heal()
    await cluster.finish()


async def all_machines_lose_power(cluster: SimulatedCluster) -> None:
    """They come back one after the other, and the best log of all leads."""
    await cluster.begin()
    random = Random(cluster.seed)
    await cluster.sleep(random.uniform(1.0, 4.0))
    await lose_all_power(cluster, random)
    await cluster.sleep(0.5)
    await cluster.finish()


async def one_is_killed_and_the_last_one_loses_power(cluster: SimulatedCluster) -> None:
    """First one leaves while enough are in sync, then one that is eligible from then on."""
    await cluster.begin()
    await cluster.sleep(1.5)
    partition = cluster.partitions[-1]
    random = Random(cluster.seed)
    for _ in range(2):
        state = cluster.observer.states[partition]
        fault(cluster, FaultKind.CRASH, random.choice(state.in_sync), state.leader, 6.0)
        await cluster.sleep(2.5)
    (last,) = cluster.observer.states[partition].in_sync
    fault(cluster, FaultKind.POWER_LOSS, last, last % 3 + 1, 2.0)
    await cluster.sleep(4)
    await cluster.heal()
    await cluster.finish()


def end_of_log(cluster: SimulatedCluster, broker_id: int, partition: TopicPartition) -> int:
    batches = read_log(cluster.machines[broker_id].files, DATA_FOLDER, partition)
    return batches[-1].end_offset if batches else 0


async def until(
    cluster: SimulatedCluster, most_seconds: float, condition: Callable[[], bool]
) -> None:
    """Wait for a condition, but not for longer than this."""
    end = cluster.world.loop.time() + most_seconds
    while not condition() and cluster.world.loop.time() < end:
        await cluster.sleep(0.01)


async def everybody_in_sync_is_away(cluster: SimulatedCluster) -> None:
    """One replica has fallen behind and is out of the in-sync set; it alone lives for a while."""
    await cluster.begin()
    await cluster.sleep(1.5)
    random = Random(cluster.seed)
    _, behind = leader_and_follower(cluster, random)
    others = [broker for broker in cluster.broker_ids if broker != behind]
    for other in others:
        fault(cluster, FaultKind.CUT, behind, other, 4.0)
    partition, states = cluster.partitions[-1], cluster.observer.states
    await until(cluster, 3.0, lambda: behind not in states[partition].in_sync)
    await cluster.sleep(random.uniform(0.3, 0.8))
    for other in others:
        fault(cluster, FaultKind.CRASH, other, behind, random.uniform(3.0, 4.0))
    await cluster.sleep(5)
    await cluster.heal()
    await cluster.finish()


async def a_follower_is_slow_to_catch_up(cluster: SimulatedCluster) -> None:
    """It is told how far the log is committed before it has come so far."""
    await cluster.begin()
    await cluster.sleep(1.5)
    random = Random(cluster.seed)
    leader, follower = leader_and_follower(cluster, random)
    fault(cluster, FaultKind.CRASH, follower, leader, 1.0)
    await cluster.sleep(3)
    await cluster.heal()
    await cluster.finish()


async def a_leader_knows_less_than_was_promised(cluster: SimulatedCluster) -> None:
    """The last records are committed and acknowledged, and the leader is gone before the next one
    has heard of it. A third replica, which has everything but these records, comes back."""
    await cluster.begin()
    await cluster.sleep(1.5)
    random = Random(cluster.seed)
    partition, states = cluster.partitions[-1], cluster.observer.states
    leader, behind = leader_and_follower(cluster, random)
    (other,) = {*cluster.broker_ids} - {leader, behind}
    cluster.workload.rest_producers()
    await cluster.sleep(0.7)
    fault(cluster, FaultKind.CUT, behind, leader, 6.0)
    hosts = {broker: machine.host for broker, machine in cluster.machines.items()}
    cluster.world.network.set_delay(hosts[leader], hosts[other], 0.1, one_way=True)
    cluster.workload.rest_producers(is_resting=False)
    await until(cluster, 3.0, lambda: behind not in states[partition].in_sync)
    former_end = cluster.history.promised_end(partition)
    await until(cluster, 1.0, lambda: cluster.history.promised_end(partition) > former_end)
    fault(cluster, FaultKind.CUT, leader, other, 4.0)
    fault(cluster, FaultKind.CRASH, leader, other, 4.0)
    cluster.workload.rest_producers()
    cluster.world.network.set_delay(hosts[other], hosts[behind], 0.5, one_way=True)
    await until(cluster, 3.0, lambda: states[partition].leader == other)
    await cluster.sleep(2)
    cluster.workload.rest_producers(is_resting=False)
    cluster.world.network.set_delay(hosts[other], hosts[behind], 0.002, one_way=True)
    cluster.world.network.set_delay(hosts[leader], hosts[other], 0.002, one_way=True)
    await cluster.sleep(2)
    await cluster.heal()
    await cluster.finish()


async def a_replica_leaves_and_comes_back_before_its_last_fetch_arrives(
    cluster: SimulatedCluster,
) -> None:
    """Brokers are far from each other, and near to the coordination service: a replica hears that
    it has left, and that it is back, while a fetch from before is still on its way."""
    hosts = [machine.host for machine in cluster.machines.values()]
    for number, one in enumerate(hosts):
        for other in hosts[:number]:
            cluster.world.network.set_delay(one, other, 0.06, jitter_seconds=0.004)
    await cluster.begin()
    await cluster.sleep(1.0)
    random = Random(cluster.seed)
    operator = Operator("operator", cluster, random)
    partition = cluster.partitions[-1]
    for _ in range(10):
        _, follower = leader_and_follower(cluster, random)
        present = cluster.observer.replicas[partition]
        await reassign(operator, partition, [each for each in present if each != follower])
        await cluster.sleep(random.uniform(0.0, 0.03))
        await reassign(operator, partition, present)
        await cluster.sleep(0.7)
    await cluster.heal()
    await cluster.finish()


async def one_replica_is_left(cluster: SimulatedCluster) -> None:
    """The others go one after the other, first by their sessions, then by falling behind."""
    await cluster.begin()
    await cluster.sleep(1.5)
    random = Random(cluster.seed)
    leader, first = leader_and_follower(cluster, random)
    (second,) = {*cluster.broker_ids} - {leader, first}
    fault(cluster, FaultKind.CRASH, first, leader, 5.0)
    await cluster.sleep(random.uniform(0.2, 1.0))
    fault(cluster, FaultKind.CUT, second, leader, 4.0)
    await cluster.sleep(6)
    await cluster.heal()
    await cluster.finish()


async def a_coordinator_is_replaced_before_others_have_a_commit(cluster: SimulatedCluster) -> None:
    """It is cut off from its followers while commits come and somebody asks for the position all
    the time, and then its session ends."""
    await cluster.begin()
    await cluster.sleep(2)
    random = Random(cluster.seed)
    looker = cluster.workload.make_committer("looker", "g0")
    looking = cluster.world.story.spawn(_look_all_the_time(cluster, looker))
    for _ in range(2):
        coordinator = cluster.observer.states[_OFFSETS].leader
        for other in cluster.broker_ids:
            if other != coordinator:
                fault(cluster, FaultKind.CUT, coordinator, other, 0.9)
        await cluster.sleep(random.uniform(0.6, 0.8))
        fault(cluster, FaultKind.EXPIRE, coordinator, coordinator, 0.1)
        await cluster.sleep(3)
    await cluster.heal()
    looker.is_stopping = True
    await looking
    await cluster.finish()


async def _look_all_the_time(cluster: SimulatedCluster, looker: Committer) -> None:
    while not looker.is_stopping:
        await looker.check_last_offset()
        await cluster.sleep(0.02)


async def a_topic_vanishes_under_open_transactions(cluster: SimulatedCluster) -> None:
    """Its nodes are back when markers have waited for longer than for a deleted topic."""
    await cluster.begin()
    await cluster.sleep(2.0)
    operator = Operator("absence", cluster, Random(cluster.seed))
    sink = SINKS[0]

    def is_open() -> bool:
        leaders = {each.topic_partition: each for _, each in cluster.workload.leaders()}
        found = leaders.get(sink)
        return found is not None and found.last_stable_offset < found.log.log_end_offset

    for _ in range(2):
        await until(cluster, 5.0, is_open)
        await vanish(operator, sink.topic, seconds=(12.0, 14.0))
        await cluster.sleep(2.0)
    await cluster.heal()
    await cluster.finish()
