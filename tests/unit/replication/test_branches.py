"""Replicas of a branched topic: what they begin with, and who is known to them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from moldau.cluster.rules.metadata_image import (
    BranchOrigin,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.model import LeaderEpoch, TopicId
from moldau.records.record_batch import build_batch
from moldau.replication.partition import Partition
from moldau.storage.log import AppendResult
from replication.test_partitions import Stage, play

EPOCH = 4  # of the origin


def with_branch(
    image: MetadataImage,
    name: str = "trial",
    *,
    leader: int = 1,
    epoch: int = EPOCH + 1,
    origin: str = "clicks",
) -> MetadataImage:
    """An image that has a branch besides, of one partition."""
    source = image.topics[origin]
    state = PartitionState(
        leader=leader,
        leader_epoch=LeaderEpoch(epoch),
        isr=(leader,),
        replicas=(1, 2),
        version=image.version,
    )
    branch = TopicState(
        name=name,
        topic_id=TopicId(UUID(int=len(image.topics) + 50)),
        partitions=(state,),
        origin=BranchOrigin(
            topic=origin,
            topic_id=source.topic_id,
            partitions=1,
            newest_epoch=LeaderEpoch(source.partitions[0].leader_epoch),
        ),
    )
    return replace(image, topics={**image.topics, name: branch}, version=image.version + 1)


def write(partition: Partition, sequence: int) -> AppendResult:
    batch = build_batch(
        [(1, b"key", b"value", ())], producer_id=7, producer_epoch=0, base_sequence=sequence
    )
    result = partition.append_as_leader(memoryview(batch), 1)
    assert result is not None
    return result


async def lead_origin(stage: Stage, records: int = 3) -> MetadataImage:
    image = stage.image(1, EPOCH, replicas=(1,))
    await stage.apply(image)
    for sequence in range(records):
        write(stage.clicks, sequence)
    return image


async def come_later(stage: Stage, image: MetadataImage) -> None:
    """The branch is not here at first."""
    topic = image.topics["trial"]
    away = replace(topic, partitions=(replace(topic.partitions[0], leader=2, replicas=(2,)),))
    before = replace(image, topics=image.topics | {"trial": away})
    await stage.partitions.apply(before, ["trial"])
    assert stage.partitions.find("trial", 0) is None
    await stage.partitions.apply(replace(image, version=9), ["trial"])


def end_of(stage: Stage, topic: str) -> int:
    partition = stage.partitions.find(topic, 0)
    assert partition is not None
    return partition.log.log_end_offset


def test_a_follower_takes_of_its_origin_what_is_there_when_the_branch_is_made():
    async def story(stage: Stage) -> None:
        image = with_branch(await lead_origin(stage), leader=2)
        await stage.partitions.apply(image, ["trial"])
        assert end_of(stage, "trial") == 3

    play(story)


def test_a_follower_that_comes_later_copies_its_leader():
    """The origin may have lost by then what the branch has."""

    async def story(stage: Stage) -> None:
        image = await lead_origin(stage)
        stage.clicks.log.advance_start(2)
        await come_later(stage, with_branch(image, leader=2))
        trial = stage.partitions.find("trial", 0)
        assert trial is not None
        assert (trial.log.log_start_offset, trial.log.log_end_offset) == (0, 0)

    play(story)


def test_a_follower_of_a_compacted_topic_copies_its_leader():
    """Compaction may know of records behind the branch's end."""

    async def story(stage: Stage) -> None:
        image = with_branch(await lead_origin(stage), leader=2)
        stage.clicks.update_options(stage.clicks.log.options.replace(cleanup_policy=("compact",)))
        await stage.partitions.apply(image, ["trial"])
        assert end_of(stage, "trial") == 0

    play(story)


def test_a_leader_takes_its_origin_whenever_it_comes():
    async def story(stage: Stage) -> None:
        image = await lead_origin(stage)
        await come_later(stage, with_branch(image))
        assert end_of(stage, "trial") == 3

    play(story)


def test_a_branch_of_a_branch_is_made_behind_it():
    async def story(stage: Stage) -> None:
        image = with_branch(await lead_origin(stage))
        image = with_branch(image, "again", origin="trial", epoch=EPOCH + 2)
        await stage.partitions.apply(image, ["again", "trial"])
        assert end_of(stage, "trial") == end_of(stage, "again") == 3

    play(story)


def test_a_branch_waits_for_an_origin_that_is_not_open_yet():
    async def story(stage: Stage) -> None:
        image = with_branch(await lead_origin(stage))
        image = with_branch(image, "again", origin="trial", epoch=EPOCH + 2)
        await stage.partitions.apply(image, ["again"])
        assert stage.partitions.find("again", 0) is None
        assert not stage.partitions.offline_count
        await stage.partitions.apply(image, ["again", "trial"])
        assert end_of(stage, "again") == 3

    play(story)


def test_a_leader_does_not_take_producers_for_those_of_its_origin():
    """It copied batches of the origin when it followed, and knew who had written them."""

    async def story(stage: Stage) -> None:
        await stage.partitions.apply_first_image(stage.image(2, EPOCH))
        image = with_branch(stage.image(2, EPOCH), leader=2)
        await stage.partitions.apply(image, ["trial"])
        trial = stage.partitions.find("trial", 0)
        assert trial is not None
        for offset in range(4):
            trial.append_as_follower(copied(offset, sequence=offset, epoch=EPOCH))
        trial.append_as_follower(copied(4, sequence=0, epoch=EPOCH + 1))
        await stage.partitions.apply(with_branch(stage.image(2, EPOCH), epoch=EPOCH + 2), ["trial"])
        assert trial.is_leader
        repeated = write(trial, 0)
        assert (repeated.duplicate, repeated.first_offset) == (True, 4)
        new = write(trial, 1)
        assert (new.duplicate, new.first_offset) == (False, 5)

    play(story)


def copied(offset: int, sequence: int, epoch: int) -> memoryview:
    return memoryview(
        build_batch(
            [(1, b"key", b"value", ())],
            base_offset=offset,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            leader_epoch=epoch,
        )
    )
