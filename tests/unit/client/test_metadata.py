"""What the client knows of the cluster."""

from __future__ import annotations

from uuid import UUID

import pytest

from client.scripted_broker import METADATA, Stage, metadata
from moldau.errors import LeaderNotAvailableError, UnknownTopicError
from moldau.model import TopicPartition

TOPIC_ID = UUID(int=77)


def test_topics_partitions_and_leaders_are_read() -> None:
    stage = Stage(broker_count=2)
    stage.brokers[0].scripts[METADATA] = metadata(
        {"clicks": [2, 1]}, brokers=2, topic_ids={"clicks": TOPIC_ID}
    )

    async def story() -> None:
        client = stage.make_client()
        found = await client.metadata.refresh()
        topic = found.require_topic("clicks")
        assert found.cluster_id == "test-cluster"
        assert topic.topic_id == TOPIC_ID
        assert [partition.leader_epoch for partition in topic.partitions] == [4, 4]
        assert found.require_leader(TopicPartition("clicks", 0)) == 2
        assert (await client.connect_to_leader(TopicPartition("clicks", 0))).address.host == "b2"
        await client.close()

    stage.play(story)


@pytest.mark.parametrize("version", [1, 4, 5, 7, 9, 10, 12])
def test_answers_of_older_brokers_are_read_as_well(version: int) -> None:
    stage = Stage()
    stage.brokers[0].versions[METADATA] = (0, version)
    stage.brokers[0].scripts[METADATA] = metadata({"clicks": [1]}, topic_ids={"clicks": TOPIC_ID})

    async def story() -> None:
        client = stage.make_client()
        topic = (await client.metadata.refresh(("clicks",))).require_topic("clicks")
        assert len(topic.partitions) == 1
        assert topic.topic_id == (TOPIC_ID if version >= 10 else None)
        await client.close()

    stage.play(story)


def test_asking_about_one_topic_keeps_what_is_known_of_others() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = metadata({"one": [1], "two": [1]})

    async def story() -> None:
        client = stage.make_client()
        await client.metadata.refresh(("one",))
        assert set((await client.metadata.refresh(("two",))).topics) == {"one", "two"}
        stage.brokers[0].scripts[METADATA] = metadata({"two": [1]})
        assert set((await client.metadata.refresh()).topics) == {"two"}
        await client.close()

    stage.play(story)


def test_what_is_not_there_is_said() -> None:
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = metadata({"clicks": [1, -1]})

    async def story() -> None:
        client = stage.make_client()
        found = await client.metadata.refresh(("clicks", "nope"))
        with pytest.raises(UnknownTopicError, match="no topic 'nope'"):
            found.require_topic("nope")
        with pytest.raises(UnknownTopicError, match="no topic 'never-asked'"):
            found.require_topic("never-asked")
        with pytest.raises(UnknownTopicError, match="no partition 2; it has 2"):
            found.require_partition(TopicPartition("clicks", 2))
        with pytest.raises(LeaderNotAvailableError, match="clicks-1"):
            found.require_leader(TopicPartition("clicks", 1))
        assert found.require_topic("clicks").partitions_with_leader() == (0,)
        await client.close()

    stage.play(story)
