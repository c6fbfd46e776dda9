"""Calls of functions of the program's, made where the program is. A shell of one loop.

The machine wants the program to hear of something (`rules.hand_over.Call`); the program may be in
another thread, and busy. So calls wait until it comes in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from moldau.client.rules.consumer_instructions import PartitionSet
from moldau.client.rules.consumer_machine import ConsumerMachine, Turns
from moldau.client.rules.hand_over import Call, RebalanceEvent
from moldau.errors import ConfigurationError

INSIDE_A_CALL: Final = (
    "a function for rebalances can neither ask for records nor close the consumer"
)

RebalanceListener: TypeAlias = Callable[[PartitionSet], object]
"""A function of the program's; what it gives back is awaited by an AsyncConsumer if it can be."""


class UserCall:
    """One call; `finish` is called on the loop when it was made."""

    def __init__(self, call: Call, listener: RebalanceListener) -> None:
        self.call = call
        self.listener = listener
        self.partitions = call.partitions
        self.maker: asyncio.Task[object] | None = None  # has it made, once it is begun
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


RunCall: TypeAlias = Callable[[UserCall], Awaitable[None]]
"""Makes a call where the program is, or has it made there."""


class UserCalls:
    """Makes the calls of one consumer."""

    def __init__(
        self,
        machine: ConsumerMachine,
        turns: Turns,
        listeners: Mapping[RebalanceEvent, RebalanceListener],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._machine = machine
        self._turns = turns
        self._listeners = listeners
        self._on_failure = on_failure
        self._current: UserCall | None = None

    async def make(self, run_call: RunCall) -> None:
        """The program is here: have all calls made. Nothing else is done for it meanwhile."""
        while (call := self._machine.next_call()) is not None:
            current = self._current
            if current is None or current.call is not call:
                current = self._current = UserCall(call, self._listeners[call.event])
                current.done.add_done_callback(self._on_done)
            try:
                if not call.is_begun:
                    self._machine.begin_call(call)
                    current.maker = asyncio.current_task()
                    await run_call(current)
                await asyncio.wait((current.done,))
            except asyncio.CancelledError:
                self._machine.begin_call(call, is_begun=False)  # for whoever comes in next
                raise

    def require_outside(self) -> None:
        """Raises when it is one of the program's functions that asks: it would wait for itself."""
        current = self._current
        if current is not None and current.maker is asyncio.current_task():
            raise ConfigurationError(INSIDE_A_CALL)

    def _on_done(self, done: asyncio.Future[None]) -> None:
        current, self._current = self._current, None
        if current is None or done.cancelled():
            return
        error = done.exception()
        if isinstance(error, Exception):
            self._on_failure(error)
        with self._turns as machine:
            machine.called(current.call)
