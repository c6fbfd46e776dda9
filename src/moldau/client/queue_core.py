"""What both faces of a queue have inside: the machine, and the shell that works for it.

`AsyncQueue` runs it on its user's loop, `Queue` on a loop in a thread of its own. Whatever happens,
happens to the machine (`rules.queue_machine`) in a turn, under a lock that the takers' threads
share: taking a record that is there, and saying what became of one, bother the loop only when it
has nothing under way that would carry the word.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TypeAlias, assert_never

from moldau.client.cluster_client import ClusterClient
from moldau.client.connection_pool import ConnectionPool
from moldau.client.consumer_heartbeats import make_member_id
from moldau.client.option_settings import client_settings
from moldau.client.queue_requests import QueueRequests
from moldau.client.rules.acquired_records import AcquiredRecord
from moldau.client.rules.addresses import parse_bootstrap
from moldau.client.rules.consumer_instructions import Refresh, WriteLog
from moldau.client.rules.queue_instructions import (
    ArmQueueTimer,
    FinishAcknowledgement,
    QueueInstruction,
    QueueTimer,
    SendShareAcknowledge,
    SendShareFetch,
    SendShareHeartbeat,
    SendShareLeave,
)
from moldau.client.rules.queue_machine import QueueMachine, QueueSettings
from moldau.clock import Clock, SystemClock, Timer, finish_within
from moldau.errors import ClientError, ClosedClientError
from moldau.model import AcknowledgeType
from moldau.net.port import Network
from moldau.net.sockets import SocketNetwork
from moldau.tasks import TaskSupervisor

_log = logging.getLogger("moldau.queue")

Done: TypeAlias = Callable[[Exception | None], None]
"""Called on the loop: with what went wrong, or None."""

OnUnacknowledged: TypeAlias = Callable[[AcquiredRecord, Exception], None]


class QueueCore:
    """One queue without its face."""

    def __init__(
        self,
        bootstrap: str,
        settings: QueueSettings,
        *,
        on_unacknowledged: OnUnacknowledged,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        options = settings.options
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self._on_unacknowledged = on_unacknowledged
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None  # once somebody has come
        self._is_woken = False
        self._is_over = False
        self._takers: deque[asyncio.Future[None]] = deque()
        self._left: asyncio.Future[None] | None = None
        self._acknowledging: dict[AcquiredRecord, Done] = {}
        self._renewing: dict[AcquiredRecord, list[Done]] = {}
        self._armed: set[_ArmedTimer] = set()
        self._tasks = TaskSupervisor(self._on_task_failure)
        network = network or SocketNetwork(self.clock)
        client = client_settings(options, timeout_ms=options.default_api_timeout_ms)
        self._client = ClusterClient(
            bootstrap, client, network=network, clock=self.clock, random=random
        )
        self._pool = ConnectionPool(
            parse_bootstrap(bootstrap), network, self.clock, client.connection
        )
        self._machine = QueueMachine(
            settings,
            backoff=client.backoff,
            chance=self._client.random.random,
            now=self.clock.monotonic(),
        )
        self._turns = _QueueTurns(self)
        self._requests = QueueRequests(
            self._client,
            self._pool,
            network,
            self._tasks,
            self._turns,
            group_id=settings.group_id,
            member_id=make_member_id(self._client.random),
            options=options,
            on_left=self._finish_leaving,
        )

    @property
    def is_closed(self) -> bool:
        return self._machine.is_closed

    # Turns

    def begin_turn(self) -> QueueMachine:
        self._lock.acquire()
        self._machine.begin_turn(self.clock.monotonic(), self._client.metadata.current)
        return self._machine

    def end_turn(self) -> None:
        """Do what the machine wants done."""
        try:
            instructions, has_news = self._machine.end_turn()
        finally:
            self._lock.release()
        for instruction in instructions:
            self._perform(instruction)
        if has_news:
            self._wake_takers()

    def _perform(self, instruction: QueueInstruction) -> None:
        match instruction:
            case SendShareFetch():
                self._requests.fetch(instruction)
            case SendShareAcknowledge():
                self._requests.acknowledge(instruction)
            case SendShareHeartbeat():
                self._requests.heartbeat(instruction)
            case SendShareLeave():
                self._requests.leave(instruction)
            case Refresh():
                self._requests.refresh(instruction)
            case FinishAcknowledgement():
                self._finish(instruction)
            case WriteLog(is_warning, message):
                _log.log(logging.WARNING if is_warning else logging.INFO, "%s", message)
            case ArmQueueTimer(timer, seconds):
                self._armed.add(_ArmedTimer(self, timer, seconds))
            case _ as never:
                assert_never(never)

    def fire(self, armed: _ArmedTimer) -> None:
        """A timer of the machine's is over."""
        self._armed.discard(armed)
        with self._turns as machine:
            machine.timer_fired(armed.timer)

    def _wake(self) -> None:
        """From any thread: have the loop take a turn."""
        loop = self._loop
        if loop is None or self._is_woken:
            return
        self._is_woken = True
        try:
            loop.call_soon_threadsafe(self._take_turn)
        except RuntimeError:  # the loop is closed, and everything with it
            self._is_over = True

    def _take_turn(self) -> None:
        self._is_woken = False
        if not self._is_over:
            with self._turns:
                pass

    # Taking

    def take_nowait(self, limit: int) -> list[AcquiredRecord]:
        """Records that are there already. From any thread."""
        with self._lock:
            taken = self._machine.take(limit, self.clock.monotonic())
            must_wake = bool(taken) and self._machine.is_idle_with_work
        if must_wake:
            self._wake()
        return taken

    async def take(self, limit: int, timeout_seconds: float | None) -> list[AcquiredRecord]:
        """Records, waited for if there are none; nothing when none come in time."""
        self._loop = asyncio.get_running_loop()
        seconds = math.inf if timeout_seconds is None else timeout_seconds
        deadline = self.clock.monotonic() + seconds
        while True:
            self._require_open()
            taken = self.take_nowait(limit)
            left = deadline - self.clock.monotonic()
            if taken or left <= 0:
                return taken
            with self._turns as machine:
                machine.raise_failures()
                machine.start()
                machine.wait_for_records(self.clock.monotonic())
            try:
                await self._wait_for_turn(left)
            finally:
                with self._lock:
                    self._machine.wait_no_longer()
                    is_more = self._machine.has_ready
                if is_more:
                    self._wake_takers(1)  # whoever was woken may have been cancelled

    async def _wait_for_turn(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer: Timer | None = None
        if seconds != math.inf:
            timer = self.clock.call_later(seconds, lambda: _ring(waiter))
        self._takers.append(waiter)
        with self._lock:
            is_ready = self._machine.has_ready  # since this taker looked
        if is_ready:
            _ring(waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._takers:
                self._takers.remove(waiter)

    def _wake_takers(self, count: int | None = None) -> None:
        left = len(self._takers) if count is None else count
        while self._takers and left:
            waiter = self._takers.popleft()
            if not waiter.done():
                waiter.set_result(None)
                left -= 1

    # What became of records

    def finish(self, record: AcquiredRecord, kind: AcknowledgeType, done: Done | None) -> None:
        """Tell the broker. From any thread; `done` is called when it knows, or cannot know."""
        with self._lock:
            if done is not None:
                record.is_watched = True
                self._acknowledging[record] = done
            try:
                self._machine.finish(record, kind)
            except BaseException:
                self._acknowledging.pop(record, None)
                raise
            must_wake = self._machine.is_idle_with_work
        if must_wake:
            self._wake()

    def renew(self, record: AcquiredRecord, done: Done) -> None:
        """Have the lock begin anew. From any thread."""
        with self._lock:
            self._machine.renew(record)
            self._renewing.setdefault(record, []).append(done)
            must_wake = self._machine.is_idle_with_work
        if must_wake:
            self._wake()

    def _finish(self, instruction: FinishAcknowledgement) -> None:
        record, is_renewal, failure = instruction
        with self._lock:
            if is_renewal:
                calls = self._renewing.pop(record, [])
            else:
                done = self._acknowledging.pop(record, None)
                calls = [] if done is None else [done]
        for call in calls:
            call(failure)
        is_heard = bool(calls) or record.kind in (None, AcknowledgeType.RELEASE)
        if failure is not None and not is_heard:
            self._on_unacknowledged(record, failure)

    # Ends

    async def close(self, timeout_seconds: float) -> None:
        """Release what was not finished, tell everything, leave the group, end everything."""
        if self.is_closed:
            return
        self._loop = asyncio.get_running_loop()
        self._left = self._loop.create_future()
        with self._turns as machine:
            machine.leave()
        self._wake_takers()
        try:
            await finish_within(self._wait_until_left(), self.clock, timeout_seconds)
        except TimeoutError:
            _log.warning("leaving the share group took longer than %g seconds", timeout_seconds)
        finally:
            await self._end()

    async def _wait_until_left(self) -> None:
        if self._left is not None:
            await self._left

    def _finish_leaving(self) -> None:
        if self._left is not None and not self._left.done():
            self._left.set_result(None)

    async def _end(self) -> None:
        self._is_over = True
        for armed in self._armed:
            armed.cancel()
        await self._tasks.close()
        with self._lock:
            untold = self._machine.give_up()
        for instruction in untold:
            self._finish(instruction)
        with self._lock:
            calls = [*self._acknowledging.values()]
            calls += [one for some in self._renewing.values() for one in some]
            self._acknowledging.clear()
            self._renewing.clear()
        for call in calls:
            call(ClosedClientError("the queue is closed"))
        await self._requests.close()
        await self._pool.close()
        await self._client.close()

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClosedClientError("the queue is closed")

    def _on_task_failure(self, name: str, error: BaseException) -> None:
        _log.error("the task %r of the queue has failed", name, exc_info=error)
        failure = error if isinstance(error, Exception) else ClientError(str(error))
        with self._turns as machine:
            machine.raise_later(failure)

    def on_fork(self) -> None:
        """In a child process: the thread and the membership are the parent's alone."""
        self._lock = threading.Lock()
        self._machine.is_closed = True
        self._loop = None


class _QueueTurns:
    """`with turns as machine:` an event happens; afterwards the shell does what the machine wants.

    Nothing may be awaited inside.
    """

    __slots__ = ("_core",)

    def __init__(self, core: QueueCore) -> None:
        self._core = core

    def __enter__(self) -> QueueMachine:
        return self._core.begin_turn()

    def __exit__(self, *_: object) -> None:
        self._core.end_turn()


class _ArmedTimer:
    """A timer of the machine's that runs."""

    __slots__ = ("_running", "timer")

    def __init__(self, core: QueueCore, timer: QueueTimer, seconds: float) -> None:
        self.timer = timer
        self._running: Timer = core.clock.call_later(seconds, lambda: core.fire(self))

    def cancel(self) -> None:
        self._running.cancel()


def _ring(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
