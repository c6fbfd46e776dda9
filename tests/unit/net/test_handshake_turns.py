"""Handshakes leave the loop to others."""

from __future__ import annotations

import asyncio

from moldau.net.tls_connection import STEPS_PER_TURN, HandshakeTurns


class Client:
    """Needs some steps until it is done."""

    def __init__(self, turns: HandshakeTurns, done: list[Client], steps: int = 1) -> None:
        self._turns = turns
        self._done = done
        self._steps = steps

    def shake_hands(self) -> None:
        self._steps -= 1
        self._done.append(self)
        if self._steps:
            self._turns.add(self)


def test_a_turn_of_the_loop_takes_a_few_steps_in_the_order_of_coming() -> None:
    async def run() -> None:
        turns = HandshakeTurns(asyncio.get_running_loop())
        done: list[Client] = []
        clients = [Client(turns, done) for _ in range(3 * STEPS_PER_TURN + 1)]
        for client in clients:
            turns.add(client)
        counts = []
        for _ in range(5):
            await asyncio.sleep(0)  # one turn
            counts.append(len(done))
        assert counts == [4, 8, 12, 13, 13]
        assert done == clients

    asyncio.run(run())


def test_who_needs_many_steps_waits_behind_those_who_came_meanwhile() -> None:
    async def run() -> None:
        turns = HandshakeTurns(asyncio.get_running_loop())
        done: list[Client] = []
        first, second = Client(turns, done, steps=2), Client(turns, done)
        turns.add(first)
        turns.add(second)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert done == [first, second, first]

    asyncio.run(run())


def test_a_step_that_fails_holds_up_nobody_else() -> None:
    class Broken:
        def shake_hands(self) -> None:
            raise ValueError("a bug")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        failures: list[BaseException] = []
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        turns = HandshakeTurns(loop)
        done: list[Client] = []
        client = Client(turns, done)
        turns.add(Broken())
        turns.add(client)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert done == [client]
        assert len(failures) == 1

    asyncio.run(run())
