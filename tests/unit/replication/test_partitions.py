"""The replicas of a broker follow the metadata, and nothing else while there is no session."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest

from moldau.cluster.rules.metadata_image import (
    BrokerState,
    DeletedTopic,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.config.broker_options import BrokerOptions
from moldau.errors import NotLeaderError, StorageError, UnknownTopicError
from moldau.model import TopicPartition
from moldau.records.record_batch import build_batch
from moldau.replication.partition import FollowedRead, Partition
from moldau.replication.partitions import Partitions
from moldau.replication.replica_logs import MADE_AT_ONCE
from moldau.simulation.manual_clock import wait_until_idle
from moldau.storage.log_store import LogStore
from moldau.testing import ManualClock, MemoryFiles
from moldau.workers import InlineWorkers, Workers
from replication.replica_bench import Observer

T = TypeVar("T")

FIRST, SECOND = UUID(int=1), UUID(int=2)
CLICKS = TopicPartition("clicks", 0)


class Fetchers:
    """Notes who is followed. Stands in for `ReplicaFetchers`."""

    def __init__(self) -> None:
        self.followed: dict[TopicPartition, int] = {}

    def follow(self, partition: Partition) -> None:
        self.followed[partition.topic_partition] = partition.leader_id

    def forget(self, topic_partition: TopicPartition) -> None:
        self.followed.pop(topic_partition, None)

    def forget_all(self) -> None:
        self.followed.clear()


class Stage:
    """Broker 1 and what it hears."""

    def __init__(self, workers: Workers | None = None) -> None:
        self.clock = ManualClock()
        self.failed: list[Path] = []
        workers = workers or InlineWorkers()
        options = BrokerOptions.resolve({})
        self.store = LogStore(
            [Path("/data"), Path("/more")],
            files=MemoryFiles(self.clock),
            clock=self.clock,
            workers=workers,
            options=lambda: options,
            failures=self,
        )
        self.partitions = Partitions(
            self.store,
            broker_id=1,
            options=lambda: options,
            clock=self.clock,
            workers=InlineWorkers(),
            observer=Observer(),
        )
        self.fetchers = Fetchers()
        self.partitions.connect(self.fetchers)
        self._version = 0

    def directory_failed(self, folder: Path, error: OSError) -> None:
        self.failed.append(folder)

    def image(
        self,
        leader: int,
        epoch: int,
        *,
        replicas: tuple[int, ...] = (1, 2),
        topic_id: UUID = FIRST,
        epochs: tuple[int, int] = (11, 12),
    ) -> MetadataImage:
        self._version += 1
        state = PartitionState(
            leader=leader,
            leader_epoch=epoch,
            isr=replicas,
            replicas=replicas,
            version=self._version,
        )
        topic = TopicState(name="clicks", topic_id=topic_id, partitions=(state,))
        brokers = {
            number: BrokerState(id=number, endpoints=(), epoch=broker_epoch)
            for number, broker_epoch in enumerate(epochs, start=1)
        }
        return MetadataImage(
            cluster_id="c",
            brokers=brokers,
            topics={"clicks": topic},
            topics_by_id={topic_id: topic},
            version=self._version,
        )

    async def apply(self, image: MetadataImage) -> None:
        await self.partitions.apply(image, ["clicks"])

    @property
    def clicks(self) -> Partition:
        found = self.partitions.find("clicks", 0)
        assert found is not None
        return found


class LateWorkers(InlineWorkers):
    """Somebody else has a turn before the work is done."""

    async def run(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(0)
        return await super().run(work)


class CountingWorkers(LateWorkers):
    """Knows how much work was under way at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0
        self.most = 0

    async def run(self, work: Callable[[], T]) -> T:
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            return await super().run(work)
        finally:
            self._now -= 1


def play(story: Callable[[Stage], object], workers: Workers | None = None) -> None:
    async def run() -> None:
        stage = Stage(workers)
        await stage.store.open()
        try:
            await story(stage)
        finally:
            await stage.store.close()

    asyncio.run(run())


def test_a_replica_leads_or_follows_as_the_metadata_says():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(2, 0))
        assert stage.fetchers.followed == {CLICKS: 2}
        with pytest.raises(NotLeaderError):
            stage.partitions.require_leader("clicks", 0)
        assert stage.partitions.require_replica("clicks", 0) is stage.clicks
        await stage.apply(stage.image(1, 1))
        assert stage.fetchers.followed == {}
        assert stage.partitions.require_leader("clicks", 0) is stage.clicks

    play(story)


def test_a_replica_that_went_elsewhere_is_deleted():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(2, 0))
        await stage.apply(stage.image(2, 1, replicas=(2,)))
        assert stage.partitions.find("clicks", 0) is None
        assert CLICKS not in stage.store.logs
        assert stage.fetchers.followed == {}
        with pytest.raises(NotLeaderError):
            stage.partitions.require_replica("clicks", 0)
        with pytest.raises(UnknownTopicError):
            stage.partitions.require_replica("clicks", 9)

    play(story)


def test_nobody_leads_before_a_truncation_is_written_down():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(2, 0))
        async with stage.clicks.truncating:
            applying = asyncio.create_task(stage.apply(stage.image(1, 1)))
            await wait_until_idle()
            assert not stage.clicks.is_leader
        await applying
        assert stage.clicks.is_leader

    play(story)


def _with_two(image: MetadataImage, *states: PartitionState, **topic: object) -> MetadataImage:
    two = replace(image.topics["clicks"], partitions=states, **topic)
    return replace(image, topics={"clicks": two}, topics_by_id={two.topic_id: two})


def test_a_change_of_one_partition_does_not_touch_the_others_of_its_topic():
    async def story(stage: Stage) -> None:
        first = stage.image(2, 0)
        state = first.topics["clicks"].partitions[0]
        await stage.apply(_with_two(first, state, state))
        other = stage.partitions.find("clicks", 1)
        assert other is not None
        second = stage.image(1, 1)
        async with stage.clicks.truncating:  # whoever touches it would have to wait
            changed = second.topics["clicks"].partitions[0]
            await asyncio.wait_for(stage.apply(_with_two(second, state, changed)), 60)
            assert other.is_leader
        assert not stage.clicks.is_leader
        assert stage.fetchers.followed == {CLICKS: 2}

    play(story)


def test_other_settings_reach_partitions_whose_states_are_as_they_were():
    async def story(stage: Stage) -> None:
        first = stage.image(1, 0)
        state = first.topics["clicks"].partitions[0]
        await stage.apply(_with_two(first, state, state, configs={"retention.ms": "1000"}))
        kept = {one.log.options for one in stage.partitions}
        again = _with_two(stage.image(1, 0), state, state, configs={"retention.ms": "1000"})
        await stage.apply(again)
        assert {one.log.options for one in stage.partitions} == kept  # the very same
        later = _with_two(stage.image(1, 0), state, state, configs={"retention.ms": "2000"})
        await stage.apply(later)
        assert [one.log.options.retention_ms for one in stage.partitions] == [2000, 2000]

    play(story)


def test_an_image_that_is_being_applied_when_the_session_ends_makes_no_leader():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(2, 0))
        async with stage.clicks.truncating:
            applying = asyncio.create_task(stage.apply(stage.image(1, 1)))
            await wait_until_idle()
            stage.partitions.suspend()
        await applying
        assert not stage.clicks.is_leader
        assert stage.fetchers.followed == {}

    play(story)


def test_a_session_that_ends_while_a_truncation_is_written_down_makes_no_leader(monkeypatch):
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(2, 0))

        async def complete(log: object) -> None:
            stage.partitions.suspend()

        monkeypatch.setattr(stage.store.checkpoints, "complete_truncation", complete)
        await stage.apply(stage.image(1, 1))
        assert not stage.clicks.is_leader

    play(story)


def test_an_image_of_a_former_session_makes_no_leader_in_the_next_one():
    async def story(stage: Stage) -> None:
        former = stage.image(1, 0)
        await stage.apply(former)
        async with stage.clicks.truncating:
            applying = asyncio.create_task(stage.apply(former))
            await wait_until_idle()
            stage.partitions.suspend()
            stage.partitions.resume(stage.image(2, 1))  # waits for its turn
        await applying
        assert not stage.clicks.is_leader

    play(story)


def test_a_topic_that_cannot_be_applied_holds_up_no_other():
    async def story(stage: Stage) -> None:
        image = stage.image(1, 0)
        bad = replace(image.topics["clicks"], name="bad", configs={"retention.ms": "never"})
        stage.partitions.on_image(replace(image, topics={"bad": bad}), ["bad"])
        stage.partitions.on_image(image, ["clicks"])
        running = asyncio.create_task(stage.partitions.run())
        await wait_until_idle()
        assert stage.clicks.is_leader
        running.cancel()
        await asyncio.wait((running,))

    play(story)


def test_a_topic_that_cannot_be_applied_is_tried_again(monkeypatch):
    async def story(stage: Stage) -> None:
        original, calls = Partitions._apply_topic, []

        async def fail_once(partitions, name, *rest):
            calls.append(name)
            if len(calls) == 1:
                raise ZeroDivisionError("broken on purpose")
            await original(partitions, name, *rest)

        monkeypatch.setattr(Partitions, "_apply_topic", fail_once)
        stage.partitions.on_image(stage.image(1, 0), ["clicks"])
        running = asyncio.create_task(stage.partitions.run())
        await wait_until_idle()
        assert stage.partitions.find("clicks", 0) is None
        await stage.clock.advance(60)
        assert stage.clicks.is_leader
        running.cancel()
        await asyncio.wait((running,))

    play(story)


def test_images_from_before_the_beginning_are_not_applied_after_it():
    async def story(stage: Stage) -> None:
        stage.partitions.on_image(stage.image(1, 0, topic_id=FIRST), ["clicks"])
        await stage.partitions.apply_first_image(stage.image(1, 0, topic_id=SECOND))
        begun = stage.clicks
        running = asyncio.create_task(stage.partitions.run())
        await wait_until_idle()
        assert stage.clicks is begun
        assert stage.clicks.topic_id == SECOND
        running.cancel()
        await asyncio.wait((running,))

    play(story)


def test_nothing_is_led_when_the_session_ends_and_what_is_still_in_force_is_taken_up_again():
    async def story(stage: Stage) -> None:
        image = stage.image(1, 1)
        await stage.apply(image)
        assert stage.clicks.is_leader
        stage.partitions.suspend()
        assert not stage.clicks.is_leader
        stage.partitions.resume(image)
        running = asyncio.create_task(stage.partitions.run())
        await wait_until_idle()
        assert stage.clicks.is_leader
        running.cancel()
        await asyncio.wait((running,))

    play(story)


def test_images_that_wait_when_the_session_ends_are_not_applied():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(2, 0))
        stage.partitions.on_image(stage.image(1, 1), ["clicks"])
        stage.partitions.suspend()
        stage.partitions.on_image(stage.image(1, 2), ["clicks"])
        running = asyncio.create_task(stage.partitions.run())
        await wait_until_idle()
        assert not stage.clicks.is_leader
        stage.partitions.resume(stage.image(1, 3))
        await wait_until_idle()
        assert stage.clicks.is_leader
        assert stage.clicks.leader_epoch == 3
        running.cancel()
        await asyncio.wait((running,))

    play(story)


def test_the_log_of_a_broker_that_was_restarted_is_unknown():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(1, 0))
        fetch = FollowedRead(2, 12, 0, 0, -1, 0)
        stage.clicks.read_for_follower(fetch, 1 << 20, min_one=True)
        assert stage.clicks.state.broker_epoch_at_fetch(2) == 12
        await stage.apply(stage.image(1, 0, epochs=(11, 20)))
        assert stage.clicks.state.broker_epoch_at_fetch(2) == -1

    play(story)


def test_what_a_former_life_led_is_led_again_under_a_new_epoch_only():
    async def story(stage: Stage) -> None:
        former = stage.image(1, 4)
        stage.partitions.refuse_former_epochs(former)
        await stage.partitions.apply_first_image(former)
        assert not stage.clicks.is_leader
        assert stage.fetchers.followed == {}
        await stage.apply(stage.image(1, 5))
        assert stage.clicks.is_leader

    play(story)


def test_a_topic_that_is_made_again_has_no_past():
    async def story(stage: Stage) -> None:
        former = stage.image(1, 4)
        stage.partitions.refuse_former_epochs(former)
        await stage.partitions.apply_first_image(former)
        await stage.apply(stage.image(1, 0, topic_id=SECOND))
        assert stage.clicks.is_leader
        assert stage.clicks.high_watermark == 0

    play(story)


def test_a_log_that_may_be_on_a_dead_disk_is_not_begun_anew_elsewhere(
    caplog: pytest.LogCaptureFixture,
):
    """Nor is it said for each of the thousands that may be on it: the disk was, when it failed."""

    async def story(stage: Stage) -> None:
        told: list[bool] = []
        stage.partitions.on_offline = lambda: told.append(stage.partitions.is_offline(CLICKS))
        stage.store.directories[0].fail(OSError(errno.EIO, "dead"))
        await stage.partitions.apply_first_image(stage.image(1, 4))
        assert told == [True]
        await stage.apply(stage.image(1, 5))
        assert CLICKS not in stage.store.logs  # an empty log would lead, and others follow it
        with pytest.raises(StorageError):
            stage.partitions.require_leader("clicks", 0)
        await stage.apply(MetadataImage(cluster_id="c", version=3))
        await stage.apply(stage.image(1, 0, topic_id=SECOND))
        assert stage.clicks.is_leader
        assert told == [True]

    play(story)
    assert not [record for record in caplog.records if "cannot open" in record.msg]


def another(stage: Stage) -> Partitions:
    """The broker is started again, with the same logs."""
    return Partitions(
        stage.store,
        broker_id=1,
        options=lambda: BrokerOptions.resolve({}),
        clock=stage.clock,
        workers=InlineWorkers(),
        observer=Observer(),
    )


def test_a_log_without_a_part_here_is_put_aside():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(2, 0))
        other = another(stage)
        await other.apply_first_image(stage.image(2, 0, replicas=(2, 3)))
        assert CLICKS not in stage.store.logs
        assert stage.store.stray_logs.has(CLICKS, FIRST)

    play(story)


def test_a_log_that_two_want_to_take_back_is_taken_back_once():
    """The task that applies images, and the one that judges what came back."""

    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(2, 0))
        other = another(stage)
        await other.apply_first_image(stage.image(2, 0, replicas=(2, 3)))
        topic = stage.image(2, 1).topics["clicks"]
        await asyncio.gather(other.restore_log(topic, 0), other.restore_log(topic, 0))
        assert CLICKS in stage.store.logs
        assert stage.failed == []

    play(story, LateWorkers())


def test_a_log_that_was_taken_back_for_nothing_is_put_aside_again():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(2, 0))
        other = another(stage)
        await other.apply_first_image(stage.image(2, 0, replicas=(2, 3)))
        here, elsewhere = stage.image(2, 1), stage.image(2, 2, replicas=(2, 3))
        await other.apply(elsewhere, ["clicks"])
        await other.restore_log(here.topics["clicks"], 0)  # begun when it was to be here
        other.on_judged(here.topics["clicks"], elsewhere)
        await other.apply(elsewhere, ["clicks"])
        assert CLICKS not in stage.store.logs
        assert stage.store.stray_logs.has(CLICKS, FIRST)

    play(story)


def test_a_topic_that_vanishes_takes_no_log_along_and_finds_it_when_it_is_back():
    async def story(stage: Stage) -> None:
        judged: list[str] = []
        stage.partitions.on_return = judged.append
        await stage.partitions.apply_first_image(stage.image(1, 3))
        log = stage.clicks.log
        await stage.apply(MetadataImage(cluster_id="c", version=50))
        assert stage.partitions.find("clicks", 0) is None
        assert stage.store.logs[CLICKS] is log
        back = stage.image(1, 3)
        await stage.apply(back)
        assert judged == ["clicks"]  # what the log is worth has to be written down first (REP-6)
        assert stage.partitions.find("clicks", 0) is None
        assert stage.partitions.strays.was_served(CLICKS)
        stage.partitions.on_judged(back.topics["clicks"], back)
        await stage.apply(back)
        assert stage.clicks.log is log

    play(story)


def test_a_topic_that_was_deleted_takes_its_log_along():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(1, 0))
        await stage.apply(
            MetadataImage(cluster_id="c", version=50, deleted={FIRST: DeletedTopic("t", 0)})
        )
        assert CLICKS not in stage.store.logs

    play(story)


def test_the_log_of_another_topic_of_the_name_gives_way_and_comes_back():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(1, 0))
        stage.clicks.append_as_leader(memoryview(build_batch([(0, None, b"a", ())])), 1)
        await stage.apply(stage.image(1, 0, topic_id=SECOND))
        assert stage.clicks.topic_id == SECOND
        assert stage.clicks.log.log_end_offset == 0
        folders = stage.store.directories[0].files.list_folder(Path("/data"))
        assert [name for name in folders if name.endswith("-stray")]
        first = replace(stage.image(1, 8), deleted={SECOND: DeletedTopic("t", 0)})
        stage.partitions.strays.on_judged(first.topics["clicks"])
        await stage.apply(first)
        assert stage.clicks.topic_id == FIRST
        assert stage.clicks.log.log_end_offset == 1
        folders = stage.store.directories[0].files.list_folder(Path("/data"))
        assert not [name for name in folders if name.endswith("-stray")]

    play(story)


def test_a_log_without_a_topic_is_deleted_at_the_beginning_if_the_topic_was():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(1, 0))
        other = another(stage)
        await other.apply_first_image(
            MetadataImage(cluster_id="c", deleted={FIRST: DeletedTopic("t", 0)})
        )
        assert CLICKS not in stage.store.logs

    play(story)


def test_a_vanished_topic_with_its_log_on_a_dead_disk_is_not_begun_anew():
    async def story(stage: Stage) -> None:
        stage.store.directories[0].fail(OSError(errno.EIO, "dead"))
        await stage.partitions.apply_first_image(stage.image(1, 4))
        await stage.apply(MetadataImage(cluster_id="c", version=50))
        await stage.apply(stage.image(1, 4))
        assert CLICKS not in stage.store.logs

    play(story)


def test_a_topic_that_has_gone_is_not_served_from_the_moment_in_which_clients_hear_of_it():
    """Clients that ask by name would be given its records as those of the topic that came after
    it, and lose what they write."""

    async def story(stage: Stage) -> None:
        first = stage.image(1, 0)
        stage.partitions.on_image(first, ["clicks"])
        await stage.apply(first)
        later = stage.image(1, 0)
        stage.partitions.on_image(later, ["clicks"])
        second = stage.image(1, 0, topic_id=SECOND)
        stage.partitions.on_image(second, ["clicks"])
        for require in (stage.partitions.require_leader, stage.partitions.require_replica):
            with pytest.raises(NotLeaderError):
                require("clicks", 0)
        await stage.apply(later)  # which was waiting, and has the state of the former topic
        with pytest.raises(NotLeaderError):
            stage.partitions.require_leader("clicks", 0)
        await stage.apply(second)
        assert stage.partitions.require_leader("clicks", 0).topic_id == SECOND

    play(story)


def test_a_topic_that_has_gone_is_not_copied_any_more():
    async def story(stage: Stage) -> None:
        await stage.apply(stage.image(2, 0))
        assert stage.fetchers.followed == {CLICKS: 2}
        gone = MetadataImage(cluster_id="c", version=2)
        stage.partitions.on_image(gone, ["clicks"])
        assert stage.fetchers.followed == {}
        with pytest.raises(NotLeaderError):
            stage.partitions.require_replica("clicks", 0)
        await stage.apply(gone)
        with pytest.raises(UnknownTopicError):
            stage.partitions.require_replica("clicks", 0)

    play(story)


def image_of(stage: Stage, **partition_counts: int) -> MetadataImage:
    """Broker 1 leads all partitions of these topics."""
    image = stage.image(leader=1, epoch=0)
    (state,) = image.topics["clicks"].partitions
    topics = {
        name: TopicState(name=name, topic_id=UUID(int=number), partitions=(state,) * count)
        for number, (name, count) in enumerate(partition_counts.items(), start=10)
    }
    return replace(image, topics=topics, topics_by_id={t.topic_id: t for t in topics.values()})


def test_the_logs_of_an_image_are_made_together():
    workers = CountingWorkers()

    async def story(stage: Stage) -> None:
        image = image_of(stage, many=20, one=1, other=1)
        await stage.partitions.apply(image, image.topics)
        opened = [partition.topic_partition for partition in stage.partitions]
        assert opened == [("many", n) for n in range(20)] + [("one", 0), ("other", 0)]
        assert all(partition.is_leader for partition in stage.partitions)
        assert workers.most == MADE_AT_ONCE
        assert [directory.log_count for directory in stage.store.directories] == [11, 11]

    play(story, workers)


def test_a_log_that_cannot_be_made_costs_its_own_partition_only():
    async def story(stage: Stage) -> None:
        stage.partitions._logs.may_be_new = True  # the broker has begun
        files = stage.store.directories[0].files
        assert isinstance(files, MemoryFiles)
        files.fail_next("open", errno.EMFILE, path_matching="*/many-2/partition.metadata")
        image = image_of(stage, many=12)
        await stage.partitions.apply(image, image.topics)
        offline = TopicPartition("many", 2)
        assert [n for n in range(12) if stage.partitions.find("many", n) is None] == [2]
        assert stage.partitions.is_offline(offline)
        await stage.partitions.apply(replace(image, version=image.version + 1), image.topics)
        assert stage.partitions.find("many", 2) is not None
        assert not stage.partitions.is_offline(offline)

    play(story, LateWorkers())


def test_a_disk_that_fails_while_logs_are_made():
    async def story(stage: Stage) -> None:
        stage.partitions._logs.may_be_new = True
        files = stage.store.directories[0].files
        assert isinstance(files, MemoryFiles)
        files.fail_next("sync", path_matching="/data/many-2/partition.metadata")
        image = image_of(stage, many=12)
        await stage.partitions.apply(image, image.topics)
        assert stage.failed == [Path("/data")]
        opened = {partition.topic_partition for partition in stage.partitions}
        for number in range(12):
            key = TopicPartition("many", number)
            assert stage.partitions.is_offline(key) is (key not in opened)
        assert {partition.log.directory.folder for partition in stage.partitions} == {Path("/more")}

    play(story, LateWorkers())


class PausingWorkers(LateWorkers):
    """Does something once, before a piece of work."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], None] | None = None

    async def run(self, work: Callable[[], T]) -> T:
        before, self.before = self.before, None
        if before is not None:
            before()
        return await super().run(work)


@pytest.mark.parametrize("fate", ["deleted", "made again", "given to another broker", "missing"])
def test_logs_that_are_made_when_the_session_ends_go_if_they_do_not_belong_here_in_the_next(
    fate: str,
):
    workers = PausingWorkers()

    async def story(stage: Stage) -> None:
        image = image_of(stage, many=12)
        (topic,) = image.topics.values()
        deleted = {topic.topic_id: DeletedTopic("many", 0)}
        match fate:
            case "deleted":
                later = replace(image, topics={}, topics_by_id={}, deleted=deleted)
            case "made again":
                again = replace(topic, topic_id=SECOND, partitions=topic.partitions[:1])
                topics = {"many": again}
                later = replace(image, topics=topics, topics_by_id={SECOND: again}, deleted=deleted)
            case "given to another broker":
                moved = [replace(one, replicas=(2,), leader=2) for one in topic.partitions]
                later = replace(image, topics={"many": replace(topic, partitions=tuple(moved))})
            case _:
                later = replace(image, topics={}, topics_by_id={})
        later = replace(later, version=image.version + 1)

        def lose_session() -> None:
            stage.partitions.suspend()
            stage.partitions.resume(later)

        workers.before = lose_session
        await stage.partitions.apply(image, image.topics)
        assert len(stage.store.logs) == MADE_AT_ONCE
        await stage.partitions.apply(later, ["many"])
        left = {"made again": 1, "missing": MADE_AT_ONCE}  # nobody asked for its deletion
        assert len(stage.store.logs) == left.get(fate, 0)
        for key in stage.store.logs:
            state = later.find_partition(*key)
            assert (stage.partitions.find(*key) is None) is (state is None)

    play(story, workers)


def test_a_topic_of_many_partitions_leaves_the_loop_to_others():
    async def story() -> None:
        stage = Stage()
        await stage.store.open()
        for epoch in (0, 1):  # when its logs are made, and when they are there
            image = stage.image(1, epoch)
            topic = image.topics["clicks"]
            many = replace(topic, partitions=topic.partitions * 500)
            image = replace(image, topics={"clicks": many}, topics_by_id={FIRST: many})
            applied = asyncio.create_task(stage.apply(image))
            turns = 0
            while not applied.done():
                turns += 1
                await asyncio.sleep(0)
            await applied
            assert turns >= 5
            assert {one.leader_epoch for one in stage.partitions} == {epoch}
        assert len(stage.partitions) == 500
        await stage.store.close()

    asyncio.run(story())
