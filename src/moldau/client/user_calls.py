"""Calls of functions of the program's, made where the program is.

A task of the consumer wants the program to hear of something; the program may be in another thread,
and busy. So calls wait in a line until the program comes in, and whoever asked for one waits until
it was made. A shell of one loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from moldau.errors import ConfigurationError
from moldau.model import TopicPartition

INSIDE_A_CALL: Final = (
    "a function for rebalances can neither ask for records nor close the consumer"
)

Partitions: TypeAlias = frozenset[TopicPartition]
Listener: TypeAlias = Callable[[Partitions], object]
"""A function of the program's; what it gives back is awaited by an AsyncConsumer if it can be."""


class UserCall:
    """One call; `finish` is called on the loop when it was made."""

    def __init__(self, listener: Listener, partitions: Partitions) -> None:
        self.listener = listener
        self.partitions = partitions
        self.is_begun = False
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
    """The line in which calls wait."""

    def __init__(
        self, announce: Callable[[], None], on_failure: Callable[[Exception], None]
    ) -> None:
        self._waiting: list[UserCall] = []
        self._announce = announce
        self._on_failure = on_failure

    def __len__(self) -> int:
        return len(self._waiting)

    async def call(self, listener: Listener | None, partitions: Partitions) -> None:
        """Over when the call was made; what it raised goes to the program."""
        if listener is None or not partitions:
            return
        call = UserCall(listener, partitions)
        self._waiting.append(call)
        self._announce()
        try:
            await call.done
        except Exception as error:  # noqa: BLE001 it is the program's, which gets it back
            self._on_failure(error)
        finally:
            self._drop(call)

    async def make(self, run_call: RunCall) -> None:
        """The program is here: have all calls made. Nothing else is done for it meanwhile."""
        while self._waiting:
            call = self._waiting[0]
            try:
                if not call.is_begun:
                    call.is_begun, call.maker = True, asyncio.current_task()
                    await run_call(call)
                await asyncio.wait((call.done,))
            except asyncio.CancelledError:
                call.is_begun = False  # for whoever comes in next
                raise
            self._drop(call)
            await asyncio.sleep(0)  # whoever waited for the call may have another one

    def withdraw(self, listener: Listener | None, partitions: Partitions) -> bool:
        """Nobody needs to hear it any more; whether that came in time."""
        for call in self._waiting:
            is_meant = call.listener is listener and call.partitions == partitions
            if is_meant and not call.is_begun:
                self._drop(call)
                call.finish(None)
                return True
        return False

    def require_outside(self) -> None:
        """Raises when it is one of the program's functions that asks: it would wait for itself."""
        if self._waiting:
            here = asyncio.current_task()
            if any(call.is_begun and call.maker is here for call in self._waiting):
                raise ConfigurationError(INSIDE_A_CALL)

    def _drop(self, call: UserCall) -> None:
        if call in self._waiting:
            self._waiting.remove(call)
