from __future__ import annotations

import asyncio
import json

import pytest

from moldau.cluster import znodes
from moldau.cluster.broker_registration import ensure_znodes
from moldau.cluster.producer_id_blocks import BLOCK_SIZE, MAX_PRODUCER_ID, ProducerIdBlocks
from moldau.coordination.embedded import EmbeddedSession
from moldau.errors import MalformedNodeError, RequestTimedOutError
from moldau.model import BrokerId

from .stage import Stage, play


async def session_of(stage: Stage) -> EmbeddedSession:
    session = stage.store.session()
    await ensure_znodes(session)
    return session


def test_ids_count_up_from_zero_and_the_block_is_stored() -> None:
    async def story(stage: Stage) -> None:
        session = await session_of(stage)
        blocks = ProducerIdBlocks(session, BrokerId(1))
        assert [await blocks.next_producer_id() for _ in range(3)] == [0, 1, 2]
        node = await session.get("/latest_producer_id_block")
        assert node is not None
        assert json.loads(node.data) == {
            "version": 1,
            "broker": 1,
            "block_start": "0",
            "block_end": "999",
        }
        assert node.version == 1

    play(story)


def test_a_used_up_block_is_followed_by_the_next() -> None:
    async def story(stage: Stage) -> None:
        blocks = ProducerIdBlocks(await session_of(stage), BrokerId(1))
        ids = [await blocks.next_producer_id() for _ in range(BLOCK_SIZE + 2)]
        assert ids == list(range(BLOCK_SIZE + 2))

    play(story)


def test_brokers_never_hand_out_one_id_twice() -> None:
    async def story(stage: Stage) -> None:
        brokers = [
            ProducerIdBlocks(await session_of(stage), BrokerId(number)) for number in range(3)
        ]
        ids = await asyncio.gather(
            *(broker.next_producer_id() for broker in brokers for _ in range(BLOCK_SIZE + 5))
        )
        assert len(set(ids)) == len(ids)

    play(story)


def test_many_who_ask_at_once_take_one_block() -> None:
    async def story(stage: Stage) -> None:
        session = await session_of(stage)
        blocks = ProducerIdBlocks(session, BrokerId(1))
        ids = await asyncio.gather(*(blocks.next_producer_id() for _ in range(100)))
        assert sorted(ids) == list(range(100))
        node = await session.get(znodes.PRODUCER_ID_BLOCK)
        assert node is not None
        assert znodes.decode_producer_id_block(node.data).last == BLOCK_SIZE - 1

    play(story)


def test_a_restarted_broker_takes_a_new_block() -> None:
    async def story(stage: Stage) -> None:
        session = await session_of(stage)
        await ProducerIdBlocks(session, BrokerId(1)).next_producer_id()
        assert await ProducerIdBlocks(session, BrokerId(1)).next_producer_id() == BLOCK_SIZE

    play(story)


def test_a_store_without_the_node_is_served_too() -> None:
    async def story(stage: Stage) -> None:
        session = stage.store.session()
        assert await ProducerIdBlocks(session, BrokerId(1)).next_producer_id() == 0

    play(story)


def test_a_block_that_makes_no_sense_is_named() -> None:
    async def story(stage: Stage) -> None:
        session = await session_of(stage)
        await session.set(znodes.PRODUCER_ID_BLOCK, b"nonsense")
        with pytest.raises(MalformedNodeError, match="/latest_producer_id_block"):
            await ProducerIdBlocks(session, BrokerId(1)).next_producer_id()

    play(story)


@pytest.mark.parametrize("last", [MAX_PRODUCER_ID, MAX_PRODUCER_ID - 10, -5])
def test_ids_do_not_overflow(last: int) -> None:
    async def story(stage: Stage) -> None:
        session = await session_of(stage)
        block = znodes.ProducerIdBlock(broker_id=BrokerId(1), first=0, last=last)
        await session.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block))
        with pytest.raises(MalformedNodeError, match="no producer ids are left"):
            await ProducerIdBlocks(session, BrokerId(1)).next_producer_id()

    play(story)


def test_a_lost_session_is_an_error_that_clients_try_again() -> None:
    async def story(stage: Stage) -> None:
        session = await session_of(stage)
        session.expire()
        with pytest.raises(RequestTimedOutError):
            await ProducerIdBlocks(session, BrokerId(1)).next_producer_id()

    play(story)


def test_ids_that_the_logs_know_are_not_given_out_again() -> None:
    """The store is older than the logs, or new where they are not (META-3)."""

    async def story(stage: Stage) -> None:
        known = [7, 4321, MAX_PRODUCER_ID]  # the last one is some client's invention
        blocks = ProducerIdBlocks(await session_of(stage), BrokerId(1), lambda: known)
        assert await blocks.next_producer_id() == 4322

    play(story)
