"""The first request of an API waits until a worker has loaded its handler; nobody else does."""

from __future__ import annotations

import asyncio

from moldau.broker.server import BrokerServer
from moldau.simulation.manual_clock import wait_until_idle
from moldau.wire.messages import parse_response

from .test_send_and_go import PatientWorld, produce_frame, request, tell

LIST_GROUPS, PRODUCE = 16, 0
VERSION = 4
LIST = request(LIST_GROUPS, VERSION, states_filter=())


def test_others_are_served_while_a_handler_is_loaded() -> None:
    async def story(world: PatientWorld, broker: BrokerServer) -> None:
        world.workers.may_work.clear()
        first = await world.network.host("client").connect("broker", 9092, timeout=5)
        await first.send([LIST, LIST])
        waiting = asyncio.ensure_future(first.receive())
        await wait_until_idle()
        assert not waiting.done()

        other = await world.network.host("client").connect("broker", 9092, timeout=5)
        await other.send([produce_frame(2, acks=1)])
        _, produced = parse_response(PRODUCE, 8, memoryview(await other.receive()))
        assert produced.responses[0].partition_responses[0].error_code == 0
        assert not waiting.done()

        world.workers.may_work.set()
        for frame in (await waiting, await first.receive()):
            _, answer = parse_response(LIST_GROUPS, VERSION, memoryview(frame))
            assert answer.error_code == 0

    tell(story)


def test_a_client_that_goes_while_its_handler_is_loaded_costs_nobody_anything() -> None:
    async def story(world: PatientWorld, broker: BrokerServer) -> None:
        world.workers.may_work.clear()
        channels = [
            await world.network.host("client").connect("broker", 9092, timeout=5) for _ in range(3)
        ]
        for channel in channels:
            await channel.send([LIST])
        await wait_until_idle()
        for channel in channels[:2]:
            await channel.close()
        await wait_until_idle()
        world.workers.may_work.set()
        _, answer = parse_response(LIST_GROUPS, VERSION, memoryview(await channels[2].receive()))
        assert answer.error_code == 0

    tell(story)


def test_a_broker_can_be_stopped_while_a_handler_is_loaded() -> None:
    async def story() -> None:
        world = PatientWorld()
        broker = await world.start()
        world.workers.may_work.clear()
        channel = await world.network.host("client").connect("broker", 9092, timeout=5)
        await channel.send([LIST])
        await wait_until_idle()
        stopping = asyncio.ensure_future(broker.stop())
        await wait_until_idle()
        world.workers.may_work.set()
        await stopping

    asyncio.run(story())
