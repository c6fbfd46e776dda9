"""A month in the simulated cluster: what expires, what stays, and what is kept throughout.

Days pass by all wall clocks at once, while clients work, are members of groups and have
transactions open, and a broker crashes. Brokers look several times a second for what has expired.
"""

from __future__ import annotations

from random import Random
from types import MappingProxyType
from typing import Any, Final

import pytest

from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.producer.producer import AsyncProducer
from moldau.cluster.credentials import DelegationTokens
from moldau.config.client_options import ACKS_ALL
from moldau.errors import ClientError, KafkaError
from moldau.model import Principal, TopicPartition
from moldau.records.record_batch import build_batch
from moldau.simulation.clients import Committer
from moldau.simulation.machine import SimulatedMachine
from moldau.testing import SimulatedCluster
from moldau.wire.apis import PRODUCE
from moldau.wire.produce_frame import encode_produce_request, parse_produce_response
from moldau.workers import InlineWorkers

DAY_MS: Final = 86_400_000
OPTIONS: Final = MappingProxyType(
    {
        "log.retention.ms": "-1",  # of all topics but `AGED`
        "log.retention.check.interval.ms": "300",
        "offsets.retention.minutes": str(7 * 24 * 60),
        "offsets.retention.check.interval.ms": "300",
        "transactional.id.expiration.ms": str(7 * DAY_MS),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
        "transaction.max.timeout.ms": str(24 * DAY_MS),
        "producer.id.expiration.ms": str(DAY_MS),
        "producer.id.expiration.check.interval.ms": "300",
    }
)
TOKEN_OPTIONS: Final = MappingProxyType(
    {
        "delegation.token.secret.key": "key",
        "delegation.token.expiry.time.ms": str(DAY_MS),
        "delegation.token.max.lifetime.ms": str(7 * DAY_MS),
        "delegation.token.expiry.check.interval.ms": "300",
        "log.retention.ms": "-1",
    }
)
ALICE: Final = Principal("User", "alice")
AGED: Final = TopicPartition("aged", 0)
HELD: Final = TopicPartition("held", 0)
NUMBERED: Final = TopicPartition("held", 1)
PRODUCER_ID: Final = 1 << 40
PATIENCE_SECONDS: Final = 30.0
ROUNDS_SECONDS: Final = 1.5  # enough rounds of everything that expires something


class Month:
    """Clients that leave something behind, and what the brokers know of it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.by_hand = cluster.workload.open_client("by hand")

    def open(self, kind: type[Any], name: str, **options: Any) -> Any:
        opened = self.cluster.workload.open_process(name)
        return kind(
            opened.bootstrap,
            network=opened.host,
            clock=opened.clock,
            random=Random(name),
            metadata_max_age_ms=3_000,
            **options,
        )

    def open_producer(self, name: str, **options: Any) -> AsyncProducer:
        producer: AsyncProducer = self.open(AsyncProducer, name, workers=InlineWorkers(), **options)
        return producer

    def open_consumer(self, group: str, **options: Any) -> AsyncConsumer:
        name = f"consumer of {group}"
        consumer: AsyncConsumer = self.open(
            AsyncConsumer, name, group=group, commit="manual", **options
        )
        return consumer

    async def pass_days(self, days: float) -> None:
        """A committer of a group without members commits after that: its offsets expire, too."""
        committers = [one for one in self.cluster.workload.clients if isinstance(one, Committer)]
        before = [one.progress for one in committers]
        self.cluster.pass_days(days)
        await self.cluster.sleep(ROUNDS_SECONDS)
        end = self.cluster.world.loop.time() + PATIENCE_SECONDS
        while any(one.progress == had for one, had in zip(committers, before, strict=True)):
            assert self.cluster.world.loop.time() < end
            await self.cluster.sleep(0.1)

    async def write_again(self) -> int:
        """Send the first batch of a producer, always the same; returns its offset."""
        rows = [(self.by_hand.clock.now_ms(), None, b"numbered", ())]
        batch = build_batch(rows, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0)
        topics = [(NUMBERED.topic, [(NUMBERED.partition, batch)])]
        body = encode_produce_request(11, ACKS_ALL, 1_500, topics, None)
        while True:
            try:
                await self.by_hand.metadata.refresh((NUMBERED.topic,))
                leader = await self.by_hand.connect_to_leader(NUMBERED)
                told = await leader.exchange(PRODUCE, 11, body)
                (row,) = parse_produce_response(11, told.frame, told.position).answers
                if row.error_code == 0:
                    return int(row.base_offset)
            except (KafkaError, ClientError):
                pass
            await self.cluster.sleep(0.1)

    def leader_of(self, wanted: TopicPartition) -> SimulatedMachine:
        return self.cluster.machines[self.cluster.observer.states[wanted].leader]

    def start_of(self, wanted: TopicPartition) -> int:
        leaders = self.cluster.workload.leaders()
        (found,) = (each for _, each in leaders if each.topic_partition == wanted)
        return found.log.log_start_offset

    async def transactional_ids(self) -> set[str]:
        brokers = [each.broker for each in self.cluster.machines.values() if each.broker]
        found = [await each.services.transactions.list_transactions() for each in brokers]
        return {one.transactional_id for rows in found for one in rows}

    async def committed(self, group: str) -> int | None:
        viewer = self.open_consumer(group)
        found = (await viewer.committed([HELD]))[HELD]
        await viewer.close()
        return None if found is None else found.offset


async def a_month(cluster: SimulatedCluster) -> None:
    await cluster.begin()
    month, workload = Month(cluster), cluster.workload
    await workload.make_topic("aged", AGED.topic, 1, {"retention.ms": str(10 * DAY_MS)})
    await workload.make_topic("held", HELD.topic, 2, {})
    writer = month.open_producer("writer")
    await writer.send(AGED.topic, b"aged", partition=0)
    await writer.close()
    async with month.open_producer("done", transactional_id="done") as done, done.transaction():
        await done.send(HELD.topic, b"done", partition=0)
    lasting = {"transaction_timeout_ms": 24 * DAY_MS}
    held = month.open_producer("held", transactional_id="held", **lasting)
    await held.begin_transaction()
    await held.send(HELD.topic, b"held", partition=0)
    await held.flush()
    left = month.open_consumer("left")
    await left.commit({HELD: 1})
    await left.close()
    member = month.open_consumer("stays", topics=[HELD.topic])
    while HELD not in member.assignment:
        await member.poll(0.2)
    await member.commit({HELD: 1})
    assert await month.write_again() == 0

    await month.pass_days(0.4)
    crashed = month.leader_of(NUMBERED)
    crashed.crash()
    cluster.pass_days(0.4)
    await cluster.sleep(ROUNDS_SECONDS)
    crashed.start()
    assert await month.write_again() == 0  # the producer was heard of within a day
    await cluster.heal()

    await month.pass_days(3)
    await month.pass_days(2.5)  # 6.3 days
    assert {"done", "held"} <= await month.transactional_ids()
    assert (await month.committed("left"), month.start_of(AGED)) == (1, 0)
    await month.pass_days(3)  # 9.3 days
    ids = await month.transactional_ids()
    assert "done" not in ids
    assert "held" in ids  # in the middle of a transaction
    assert (await month.committed("left"), month.start_of(AGED)) == (None, 0)
    for _ in range(4):
        await month.pass_days(3)  # 21.3 days
    assert "held" in await month.transactional_ids()
    assert month.start_of(AGED) == 1
    await held.commit_transaction()
    await held.close()
    await cluster.sleep(ROUNDS_SECONDS)  # its markers are written
    for _ in range(3):
        await month.pass_days(3)  # 30.3 days
    assert "held" not in await month.transactional_ids()
    assert await month.committed("stays") == 1
    assert await month.write_again() == 1  # another producer by now, for all that is known
    await member.close()
    await cluster.finish()


@pytest.mark.parametrize("seed", [2, 5])
def test_a_month_takes_what_has_expired_and_nothing_else(seed: int) -> None:
    """In other seeds (3, 4) days pass while a producer retries or while a group is empty: then its
    producer id or its offsets expire, and records come twice, as with Apache Kafka."""
    cluster = SimulatedCluster(
        seed=seed, options=OPTIONS, operations=(), transactions=True, shares=True
    )
    outcome = cluster.run(a_month)
    outcome.require_success()
    assert outcome.transactions > 0
    assert outcome.shared > 0


def tokens_of(cluster: SimulatedCluster) -> DelegationTokens:
    """Of any broker: all read them in the store."""
    brokers = (each.broker for each in cluster.machines.values())
    return next(one.services.tokens for one in brokers if one is not None)


async def days_of_two_tokens(cluster: SimulatedCluster) -> None:
    await cluster.begin()
    plain = await tokens_of(cluster).create(ALICE, ALICE, (), -1)
    renewed = await tokens_of(cluster).create(ALICE, ALICE, (), -1)
    secret = tokens_of(cluster).hmac_of(renewed)

    async def pass_days(days: float) -> set[str]:
        cluster.pass_days(days)
        await cluster.sleep(ROUNDS_SECONDS)
        return {one.token_id for one in await tokens_of(cluster).list_tokens()}

    assert await pass_days(0.8) == {plain.token_id, renewed.token_id}
    await tokens_of(cluster).renew(secret, ALICE, 30 * DAY_MS)
    controller = next(iter(cluster.machines.values())).broker
    assert controller is not None
    crashed = cluster.machines[controller.services.image.controller_id]
    crashed.crash()
    cluster.pass_days(1)
    assert await tokens_of(cluster).find(plain.token_id) is None, "nobody has removed it yet"
    crashed.start()
    await cluster.heal()
    assert await pass_days(0.2) == {renewed.token_id}, "the next controller has removed it"
    assert await pass_days(4) == {renewed.token_id}  # 6 days
    assert await tokens_of(cluster).find(renewed.token_id) is not None
    assert await pass_days(2) == set(), "it can be renewed for a week in all"
    await cluster.finish()


@pytest.mark.parametrize("seed", [2, 3])
def test_delegation_tokens_are_good_until_they_expire_whoever_is_the_controller(seed: int) -> None:
    cluster = SimulatedCluster(seed=seed, options=TOKEN_OPTIONS, operations=())
    cluster.run(days_of_two_tokens).require_success()
