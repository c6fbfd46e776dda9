"""An event loop in a thread of its own, on which blocking code runs asynchronous work.

The thread is a daemon: a program that forgets to close it can still end. But it would lose what it
sent last, without a word. So clients that are watched are closed when the process ends, which may
take some seconds; and they are told when it forks.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakSet

from moldau.errors import InvariantViolation

_EXIT_SECONDS = 10.0

T = TypeVar("T")


class LoopThread:
    """Runs from construction until `close`. Safe to use from any thread but its own."""

    def __init__(self, name: str = "moldau-client") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return not self._loop.is_closed()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread, where waiting for the loop would never end."""
        return threading.current_thread() is self._thread

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the work; its future may be waited for, or cancelled, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Have a function called on the loop."""
        self._loop.call_soon_threadsafe(callback)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work and wait for its result. An interrupted wait cancels the work."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what is running and end the thread; a second call does nothing."""
        if self._loop.is_closed():
            return
        self.submit(self._cancel_everything()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_everything(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Watched(Protocol):
    """A client with a thread, as far as the process is concerned."""

    def on_fork(self) -> None: ...

    def close(self, timeout_seconds: float | None = None) -> None: ...


_watched: WeakSet[Watched] = WeakSet()


def watch(client: Watched) -> None:
    _watched.add(client)


def _on_fork() -> None:
    for client in tuple(_watched):
        client.on_fork()


def _on_exit() -> None:
    for client in tuple(_watched):
        client.close(_EXIT_SECONDS)


atexit.register(_on_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_fork)


def run_now(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never suspends: whatever it waits for blocks the thread instead."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise InvariantViolation("something was awaited where a thread has to wait")
