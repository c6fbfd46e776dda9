"""Connections to the brokers of a cluster."""

from __future__ import annotations

import asyncio

import pytest

from client.scripted_broker import Stage, settle
from moldau.client.connections import ConnectionPool, ConnectionSettings
from moldau.client.rules.cluster_metadata import Address, parse_bootstrap
from moldau.errors import BrokerUnreachableError, ClusterUnreachableError


def make_pool(stage: Stage, bootstrap: str = "b1:9092") -> ConnectionPool:
    return ConnectionPool(
        parse_bootstrap(bootstrap),
        stage.network.host("client"),
        stage.clock,
        ConnectionSettings(),
    )


def test_tasks_that_need_the_same_broker_share_one_connection() -> None:
    stage = Stage()

    async def story() -> None:
        pool = make_pool(stage)
        connections = await asyncio.gather(*[pool.to_any() for _ in range(5)])
        assert len(set(map(id, connections))) == 1
        assert len(stage.brokers[0].connections) == 1
        await pool.close()

    stage.play(story)


def test_the_next_address_is_tried_when_the_first_does_not_answer() -> None:
    stage = Stage(broker_count=1)

    async def story() -> None:
        pool = make_pool(stage, "gone:9092,b1:9092")
        assert (await pool.to_any()).address == Address("b1", 9092)
        await pool.close()

    stage.play(story)


def test_all_addresses_are_named_when_none_answers() -> None:
    stage = Stage(broker_count=0)

    async def story() -> None:
        with pytest.raises(ClusterUnreachableError, match="gone:9092, away:9093"):
            await make_pool(stage, "gone:9092,away:9093").to_any()
        with pytest.raises(ClusterUnreachableError, match=r"^no broker answers at gone:9092 "):
            await make_pool(stage, "gone:9092").to_any()

    stage.play(story)


def test_a_lost_connection_is_opened_again() -> None:
    stage = Stage()

    async def story() -> None:
        pool = make_pool(stage)
        first = await pool.to_any()
        stage.network.drop_connections("b1")
        await settle()
        assert not first.is_open
        second = await pool.to_any()
        assert second is not first
        assert second.is_open
        await pool.close()

    stage.play(story)


def test_brokers_that_were_learned_are_reached_by_their_number() -> None:
    stage = Stage(broker_count=2)

    async def story() -> None:
        pool = make_pool(stage)
        pool.learn_brokers({1: Address("b1", 9092), 2: Address("b2", 9092)})
        assert (await pool.to_broker(2)).address == Address("b2", 9092)
        with pytest.raises(BrokerUnreachableError, match="broker 7"):
            await pool.to_broker(7)
        await pool.close()

    stage.play(story)


def test_brokers_that_were_learned_are_asked_when_bootstrap_is_gone() -> None:
    stage = Stage(broker_count=2)

    async def story() -> None:
        pool = make_pool(stage)
        await pool.to_any()
        pool.learn_brokers({1: Address("b1", 9092), 2: Address("b2", 9092)})
        stage.network.crash("b1")
        await settle()
        assert (await pool.to_any()).address == Address("b2", 9092)
        await pool.close()

    stage.play(story)
