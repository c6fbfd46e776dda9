"""A leader whose bytes are damaged steps down, if another replica can take over."""

import asyncio
from collections.abc import Sequence

from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import BrokerState, MetadataImage, TopicState
from moldau.records.batch_header import stamp
from moldau.records.record_batch import build_batch
from moldau.replication.damage_watch import DamageWatch, find_damaged_batch, read_batches
from moldau.workers import InlineWorkers
from replication.replica_bench import CLICKS, TOPIC_ID, Bench, run_story


def batches(*offsets: int) -> bytearray:
    data = bytearray()
    for offset in offsets:
        batch = build_batch([(1, None, b"value", ())])
        stamp(batch, offset, 0)
        data += batch
    return data


def test_sound_batches_are_passed():
    assert find_damaged_batch(bytes(batches(5, 6, 7)), 5) is None


def test_the_first_damaged_batch_is_found():
    data = batches(5, 6, 7)
    data[2 * len(data) // 3 - 1] ^= 1
    assert find_damaged_batch(bytes(data), 5) == 6


def test_a_length_that_cannot_be_is_damage():
    data = batches(5, 6)
    data[len(data) // 2 + 8] = 0x7F
    assert find_damaged_batch(bytes(data), 5) == 6


class Writes:
    def __init__(self) -> None:
        self.plans: list[PlannedState] = []

    async def write(self, plan: Sequence[PlannedState]) -> bool:
        self.plans += plan
        return True


async def suspect(bench: Bench, alive: tuple[int, ...], isr: tuple[int, ...]) -> Writes:
    """A follower of broker 1 keeps asking for what is at offset 0."""
    leader, _ = await bench.open(1, 2)
    state = bench.elect(1, 0, isr=isr)
    leader.produce(b"a", acks=1)
    leader.produce(b"b", acks=1)
    segment = leader.partition.log.segments[-1]
    leader.store._files.open(segment.path, create=False).write_at(segment.size_bytes - 1, b"\x55")
    topic = TopicState(name=CLICKS.topic, topic_id=TOPIC_ID, partitions=(state,))
    image = MetadataImage(
        cluster_id="c",
        brokers={broker: BrokerState(id=broker, endpoints=()) for broker in alive},
        topics={CLICKS.topic: topic},
    )
    writes, tasks = Writes(), []
    watch = DamageWatch(
        broker_id=1,
        image=lambda: image,
        writes=writes,
        workers=InlineWorkers(),
        spawn=lambda name, work: tasks.append(asyncio.create_task(work)) or tasks[-1],
    )
    watch.on_suspicion(leader.partition, 0)
    await asyncio.wait(tasks)
    return writes


def test_a_damaged_leader_hands_over_and_leaves_the_in_sync_set():
    async def story(bench: Bench) -> None:
        writes = await suspect(bench, alive=(1, 2), isr=(1, 2))
        (planned,) = writes.plans
        assert planned.state.leader == 2
        assert planned.state.leader_epoch == 1
        assert planned.state.isr == (2,)
        assert bench.replicas[1].partition.state.damaged_from == 1

    run_story(story)


def test_a_damaged_length_is_found_however_long_the_segment_is():
    async def story(bench: Bench) -> None:
        (leader,) = await bench.open(1)
        bench.elect(1, 0)
        for value in (b"a", b"b", b"c"):
            leader.produce(value)
        path = leader.partition.log.segments[-1].path
        leader.files.open(path, create=False).write_at(9, b"\x55")
        log = leader.partition.log
        read = read_batches(log, 0, 10, log.log_end_offset)
        assert find_damaged_batch(read.slice.read(), 0) == 0

    run_story(story)


def test_a_damaged_leader_alone_stays():
    async def story(bench: Bench) -> None:
        writes = await suspect(bench, alive=(1, 2), isr=(1,))
        assert writes.plans == []
        assert bench.replicas[1].partition.is_leader

    run_story(story)
