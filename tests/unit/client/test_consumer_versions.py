"""Groups in every version of their requests, and at brokers that are not ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer as ConfluentProducer

from client.consumer_stage import ConsumerStage, read, values
from moldau.client.blocking import Consumer, Producer
from moldau.model import TopicPartition
from moldau.wire import apis
from moldau.wire.apis import Api, VersionRange

PATIENCE_SECONDS = 30.0

REQUESTS = {
    "consumer.coordinator.JOIN_GROUP": apis.JOIN_GROUP,
    "consumer.coordinator.SYNC_GROUP": apis.SYNC_GROUP,
    "consumer.coordinator.HEARTBEAT": apis.HEARTBEAT,
    "consumer.coordinator.LEAVE_GROUP": apis.LEAVE_GROUP,
    "consumer.coordinator.OFFSET_COMMIT": apis.OFFSET_COMMIT,
    "consumer.coordinator.OFFSET_FETCH": apis.OFFSET_FETCH,
    "cluster.FIND_COORDINATOR": apis.FIND_COORDINATOR,
    "consumer.fetcher.OFFSET_FOR_LEADER_EPOCH": apis.OFFSET_FOR_LEADER_EPOCH,
}


@pytest.mark.parametrize(
    ("where", "version"),
    [
        pytest.param(where, version, id=f"{api.name}-{version}")
        for where, api in REQUESTS.items()
        for version in range(api.spoken.first, api.spoken.last + 1)
    ],
)
def test_a_group_works_in_every_version(
    monkeypatch: pytest.MonkeyPatch, where: str, version: int
) -> None:
    api = REQUESTS[where]
    only = api._replace(spoken=VersionRange(version, version))
    monkeypatch.setattr(f"moldau.client.{where}", only)
    stage = ConsumerStage()

    async def story() -> None:
        await stage.create_topic("t")
        await stage.produce("t", range(4))
        for expected in ([0, 1], [2, 3]):
            async with stage.consumer(topics="t", group="g") as consumer:
                assert values(await read(consumer, 2)) == expected
                await stage.clock.sleep(7.0)  # some heartbeats
                await stage.stop_broker()  # and with it the leader epoch changes
                await stage.start_broker()
                await consumer.poll(10.0, max_records=1)
                consumer.seek(TopicPartition("t", 0), expected[-1] + 1)
        assert await stage.committed("g") == {TopicPartition("t", 0): 4}

    stage.play(story)


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    """librdkafka's own brokers, two of them."""
    owner = ConfluentProducer({"bootstrap.servers": "", "test.mock.num.brokers": 2, "log_level": 0})
    brokers = owner.list_topics(timeout=60).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)


def test_a_group_at_librdkafkas_mock_brokers(
    mock_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They announce newer versions, and hang up on them; these are what librdkafka itself sends.
    newest = {"JOIN_GROUP": 5, "SYNC_GROUP": 3, "HEARTBEAT": 3, "LEAVE_GROUP": 1}
    for name, last in newest.items():
        api: Api = getattr(apis, name)
        known = api._replace(spoken=VersionRange(api.spoken.first, last))
        monkeypatch.setattr(f"moldau.client.consumer.coordinator.{name}", known)
    with Producer(mock_cluster) as producer:
        sent = [b"%d" % number for number in range(100)]
        producer.send_many("mocked", sent).result(PATIENCE_SECONDS)
    seen: list[bytes | None] = []
    with Consumer(
        mock_cluster, group="g", topics="mocked", auto_offset_reset="earliest"
    ) as consumer:
        while len(seen) < 100:
            seen += [record.value for record in consumer.poll(PATIENCE_SECONDS)]
        assigned = consumer.assignment
        consumer.commit()
        committed = consumer.committed()
    assert sorted(seen, key=lambda value: int(value or b"")) == sent
    assert sum(offset.offset for offset in committed.values() if offset is not None) == 100
    assert len(assigned) == 4
