"""Background tasks of the broker, and what happens when one of them fails unexpectedly.

A failure is never just logged: a broker that looks alive and no longer copies, elects or removes
anything is worse than one that has ended.

- A task that can start again is *kept*: it is restarted after a pause, which grows. When it fails
  `MOST_FAILURES` times within `WINDOW_SECONDS`, the broker ends.
- A task that another part waits for, or that may have stopped half-way, is *required*: when it
  fails, the broker ends, and the next start finds everything on disk and in the coordination store.

| task | treated | because |
|---|---|---|
| metadata: reading, applying | required | a change that was missed does not come again |
| broker lifecycle | required | a broker without a session neither leads nor follows |
| in-sync sets | required | a proposal that nobody ends holds the high watermark back |
| handing over of offline replicas | required | their leader cannot serve them |
| flush of a group's log | required | commits behind it would never be answered |
| creation of internal topics | its waiters are told | each request tries again |
| loading of groups | kept | it starts with an empty shard |
| controller | kept | it resigns, and the next controller plans from the whole image |
| copying from a broker | kept | it continues from the end of each log |
| maintenance, expiry of offsets | kept | they look at everything anew each time |
| watching of the loop, of groups, of the store | tried again | nothing depends on it |
| applying of one topic | tried again | the others are served meanwhile |
| markers of transactions | tried again | nothing else would end the transaction |
| a request, a check of damage, forgetting of deleted topics | logged | nothing waits for it |

Owned by the event loop; `pause_before_restart` is a rule.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from moldau.clock import Clock
from moldau.tasks import TaskSupervisor, was_discarded

_log = logging.getLogger("moldau.broker")

FIRST_PAUSE_SECONDS: Final = 0.5
MOST_FAILURES: Final = 6
WINDOW_SECONDS: Final = 600.0


def pause_before_restart(failed_at: Sequence[float], now: float) -> float | None:
    """How long to wait before a task is restarted, given when it failed; None to give up."""
    recent = sum(1 for at in failed_at if now - at < WINDOW_SECONDS)
    if recent >= MOST_FAILURES:
        return None
    return FIRST_PAUSE_SECONDS * 2.0 ** max(recent - 1, 0)


class BackgroundTasks:
    """The long-lived tasks of one broker. `give_up(name, error)` ends it."""

    def __init__(
        self,
        supervisor: TaskSupervisor,
        clock: Clock,
        give_up: Callable[[str, BaseException], None],
    ) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._give_up = give_up

    def keep(self, name: str, begin: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Start the task, and again when it fails."""
        return self._supervisor.spawn(name, self._keep(name, begin))

    def require(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start the task; the broker ends when it fails."""
        task = self._supervisor.spawn(name, self._require(name, work))
        task.add_done_callback(lambda _: work.close())  # it may be cancelled before it begins
        return task

    async def _keep(self, name: str, begin: Callable[[], Coroutine[Any, Any, None]]) -> None:
        failed_at: list[float] = []
        while True:
            try:
                return await begin()
            except Exception as error:  # whatever it is: see above
                if was_discarded(error):
                    raise
                now = self._clock.monotonic()
                failed_at = [at for at in failed_at if now - at < WINDOW_SECONDS] + [now]
                pause = pause_before_restart(failed_at, now)
                if pause is None:
                    self._fail(name, error)
                    return None
                _log.error(
                    "%s failed and begins again in %.1f s: %s", name, pause, error, exc_info=error
                )
            await self._clock.sleep(pause)

    async def _require(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            if was_discarded(error):
                raise
            self._fail(name, error)

    def _fail(self, name: str, error: Exception) -> None:
        _log.critical("%s failed, the broker ends: %s", name, error, exc_info=error)
        self._give_up(name, error)
