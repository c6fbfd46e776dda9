"""Tasks with an owner: nothing runs in the background whose failure nobody sees.

A `TaskGroup` of asyncio ends all its tasks when one fails, which is wrong for a broker: a failed
answer to one client must not end the others. Here each failure is reported to the owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class TaskSupervisor:
    """Owns tasks. `on_failure(name, exception)` hears of each one that ends with an exception."""

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[None], None] = {}  # running ones only, in order

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._on_finished)
        return task

    def _on_finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        exception = task.exception()
        if exception is not None:
            self._on_failure(task.get_name(), exception)

    async def close(self) -> None:
        """Cancel every task and wait until all have ended."""
        if not self._tasks:
            return
        await asyncio.sleep(0)  # one that has never begun could not clean up after itself
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def finish_first(work: Awaitable[T]) -> T:
    """Await work that has to come to its end: who cancels the caller meanwhile waits for it.

    The cancellation takes effect then, whatever came of the work.
    """
    inner = asyncio.ensure_future(work)
    cancellation: asyncio.CancelledError | None = None
    while not inner.done():
        try:
            await asyncio.wait([inner])
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        if not inner.cancelled():
            inner.exception()  # seen: nobody is left to raise it to
        raise cancellation
    return inner.result()


def was_discarded(error: BaseException | None) -> bool:
    """Whether work has not failed, but was thrown away with its event loop.

    Python raises GeneratorExit in a coroutine that it finds as garbage; what is done about that on
    the way up may fail in turn.
    """
    while error is not None and not isinstance(error, GeneratorExit):
        error = error.__context__
    return error is not None
