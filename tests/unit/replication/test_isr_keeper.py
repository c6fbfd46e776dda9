"""In-sync sets change by compare-and-set, one proposal at a time, and nobody restarted comes in."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace

from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState, TopicState
from moldau.coordination.port import SessionExpiredError, StoreLostError
from moldau.replication.isr_keeper import IsrKeeper
from replication.replica_bench import CLICKS, TOPIC_ID, Bench, run_story
from replication.test_partition import fetch


class Store:
    """The states that were written, and how the next write ends."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.plans: list[PlannedState] = []
        self.is_overtaken = False
        self.failure: Exception | None = None
        self.epochs: dict[int, int] | None = None

    async def find_overtaken(self, plan: Sequence[PlannedState]) -> list[PlannedState]:
        self.plans += plan
        if self.failure is not None:
            raise self.failure
        if self.is_overtaken:
            return list(plan)
        for planned in plan:
            written = replace(planned.state, version=planned.former.version + 1)
            self.bench.replicas[1].partition.apply_state(written)
        return []

    async def read_broker_epochs(self, brokers: Collection[int]) -> dict[int, int]:
        if isinstance(self.failure, StoreLostError):
            raise self.failure
        known = self.bench.broker_epochs if self.epochs is None else self.epochs
        return {broker: known[broker] for broker in brokers if broker in known}


class Kept:
    """A keeper at work. `state` is what was read last."""

    def __init__(self, bench: Bench, state: PartitionState) -> None:
        self.bench = bench
        self.state = state
        self.store = Store(bench)
        partition = bench.replicas[1].partition
        self.keeper = IsrKeeper(
            partitions=[partition],
            image=self._image,
            writes=self.store,
            read_broker_epochs=self.store.read_broker_epochs,
            clock=bench.clock,
            options=lambda: bench.options,
        )
        bench.replicas[1].observer.on_catch_up = self.keeper.on_catch_up
        self._task = asyncio.create_task(self.keeper.run())

    def _image(self) -> MetadataImage:
        topic = TopicState(name=CLICKS.topic, topic_id=TOPIC_ID, partitions=(self.state,))
        return MetadataImage(cluster_id="c", topics={CLICKS.topic: topic})

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))


def run_kept(story, isr: tuple[int, ...]) -> None:
    async def run(bench: Bench) -> None:
        await bench.open(1, 2)
        kept = Kept(bench, bench.elect(1, 0, isr=isr))
        try:
            await bench.clock.advance(1)
            await story(bench, kept)
        finally:
            await kept.close()

    run_story(run)


def test_a_follower_that_catches_up_is_taken_in_at_once():
    async def story(bench: Bench, kept: Kept) -> None:
        fetch(bench, 1, 2, 0)
        await bench.clock.advance(0.01)
        assert [planned.state.isr for planned in kept.store.plans] == [(1, 2)]
        assert bench.replicas[1].partition.state.in_sync == (1, 2)

    run_kept(story, isr=(1,))


def test_a_follower_that_falls_behind_is_let_go():
    async def story(bench: Bench, kept: Kept) -> None:
        bench.replicas[1].produce(b"a", acks=1)
        await bench.clock.advance(25)
        assert kept.store.plans == []
        await bench.clock.advance(25)
        assert [planned.state.isr for planned in kept.store.plans] == [(1,)]
        assert bench.replicas[1].partition.high_watermark == 1

    run_kept(story, isr=(1, 2))


def test_a_broker_that_the_store_knows_under_another_epoch_is_not_taken_in():
    async def story(bench: Bench, kept: Kept) -> None:
        kept.store.epochs = {2: bench.broker_epochs[2] + 1}
        fetch(bench, 1, 2, 0)
        await bench.clock.advance(0.01)
        assert kept.store.plans == []
        assert bench.replicas[1].partition.state.in_sync == (1,)

    run_kept(story, isr=(1,))


def test_a_proposal_that_was_overtaken_is_made_again_over_what_is_there_then():
    async def story(bench: Bench, kept: Kept) -> None:
        kept.store.is_overtaken = True
        fetch(bench, 1, 2, 0)
        await bench.clock.advance(0.01)
        assert len(kept.store.plans) == 1
        kept.store.is_overtaken = False
        await bench.clock.advance(16)
        assert bench.replicas[1].partition.state.in_sync == (1, 2)

    run_kept(story, isr=(1,))


def test_a_proposal_that_was_written_and_written_over_at_once_is_not_withdrawn():
    async def story(bench: Bench, kept: Kept) -> None:
        kept.store.is_overtaken = True
        # The answer to our write was lost; another one followed it, and neither is applied yet.
        kept.state = replace(kept.state, isr=(1, 2), version=kept.state.version + 2)
        fetch(bench, 1, 2, 0)
        await bench.clock.advance(0.01)
        assert len(kept.store.plans) == 1
        leader = bench.replicas[1]
        leader.produce(b"a")
        assert leader.partition.high_watermark == 0  # broker 2 may be elected, and lacks it
        leader.partition.apply_state(kept.state)
        fetch(bench, 1, 2, 1)
        assert leader.partition.high_watermark == 1

    run_kept(story, isr=(1,))


def test_while_nobody_knows_what_became_of_a_proposal_both_sets_count():
    async def story(bench: Bench, kept: Kept) -> None:
        kept.store.failure = SessionExpiredError("over")
        fetch(bench, 1, 2, 0)
        await bench.clock.advance(0.01)
        assert len(kept.store.plans) == 1
        bench.replicas[1].produce(b"a")
        assert bench.replicas[1].partition.high_watermark == 0

    run_kept(story, isr=(1,))


def test_a_store_that_does_not_answer_leaves_the_set_as_it_is():
    async def story(bench: Bench, kept: Kept) -> None:
        kept.store.failure = StoreLostError("lost")
        fetch(bench, 1, 2, 0)
        await bench.clock.advance(0.01)
        bench.replicas[1].produce(b"a")
        assert bench.replicas[1].partition.high_watermark == 1
        kept.store.failure = None
        fetch(bench, 1, 2, 1)
        await bench.clock.advance(1)
        assert bench.replicas[1].partition.state.in_sync == (1, 2)

    run_kept(story, isr=(1,))
