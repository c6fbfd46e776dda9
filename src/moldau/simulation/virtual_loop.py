"""An event loop on virtual time, for many simulated processes at once.

Time jumps from timer to timer; nothing waits, and nothing of the machine is looked at: the same
program does the same steps in the same order every time. Each callback belongs to the process in
whose context it was made (`SimulatedProcess.context`), and a process can be held:

    loop = VirtualLoop()
    process = SimulatedProcess("broker-1", loop)
    process.spawn(serve())
    process.pause()        # its callbacks wait; time goes on
    process.resume()
    process.kill()         # its callbacks wait for ever: not one more step of it is taken
    loop.run(story())

A killed process is kept until the loop is closed, so that no destructor of it runs in the middle
of a story. Sockets, threads, signals and child processes are not served.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import itertools
import sys
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, Final, TypeVar

from moldau.clock import Timer
from moldau.simulation.manual_clock import sleep_on

T = TypeVar("T")
_Callback = Callable[..., object]
_Context = contextvars.Context | None

_MOST_STEPS_AT_ONE_TIME: Final = 100_000

_process: contextvars.ContextVar[SimulatedProcess | None] = contextvars.ContextVar(
    "moldau_simulated_process", default=None
)


class StuckError(Exception):
    """The simulated program cannot go on: it turns in circles, or waits for nothing."""


def current_process_name() -> str:
    """Whose step is being taken; empty for the story's own."""
    process = _process.get()
    return "" if process is None else process.name


class _Handle:
    """A callback that knows its process.

    What a program uses of `asyncio.TimerHandle`, at a fraction of its cost: a run makes tens of
    thousands of them.
    """

    __slots__ = ("_arguments", "_callback", "_context", "_loop", "is_cancelled", "process")

    def __init__(
        self, callback: _Callback, args: tuple[object, ...], loop: VirtualLoop, context: _Context
    ) -> None:
        if context is None:
            context = contextvars.copy_context()
        self.is_cancelled = False
        self.process = context.get(_process)
        self._callback = callback
        self._arguments = args
        self._loop = loop
        self._context = context

    def run(self) -> None:
        try:
            self._context.run(self._callback, *self._arguments)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 as asyncio does
            message = f"Exception in callback {self._callback!r}"
            self._loop.call_exception_handler({"message": message, "exception": error})

    def cancel(self) -> None:
        """It leaves the loop when its time comes; what it would have called is released now."""
        self.is_cancelled = True
        self._callback = _do_nothing
        self._arguments = ()


def _do_nothing() -> None:
    """In the place of a callback that was cancelled."""


class SimulatedProcess:
    """A part of the program that is held and killed as a whole."""

    def __init__(self, name: str, loop: VirtualLoop) -> None:
        self.name = name
        self.is_paused = False
        self.is_killed = False
        self._loop = loop
        self._held: deque[_Handle] = deque()  # came due while it was held
        self.context = contextvars.copy_context()
        self.context.run(_process.set, self)
        self.kept: list[object] = []  # objects that must outlive it
        loop.register(self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return asyncio.Task(work, loop=self._loop, context=self.context)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        if not self.is_killed:
            self.is_paused = False
            held, self._held = self._held, deque()
            self._loop.make_ready(held)

    def kill(self) -> None:
        self.is_killed = self.is_paused = True

    def hold(self, handle: _Handle) -> None:
        self._held.append(handle)

    def forget(self) -> None:
        self._held.clear()
        self.kept.clear()


@contextlib.contextmanager
def quiet_destructors() -> Iterator[None]:
    """What was under way in a process that was killed ends without a word."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "coroutine was never awaited"
            yield
    finally:
        sys.unraisablehook = hook


class VirtualLoop(asyncio.AbstractEventLoop):
    """Runs callbacks in the order in which they were made, timers in that of their times."""

    def __init__(self) -> None:
        self.steps = 0  # callbacks run so far: two runs that agree in it hardly differ
        self.now = 0.0
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []  # a heap
        self._armed = itertools.count()
        self._processes: list[SimulatedProcess] = []  # dead ones too
        self._is_closed = False
        self._is_running = False
        self.failures: list[str] = []  # what nobody caught
        self.wall_ms_ahead = 0  # of all clocks: so much has passed on top of the loop's time

    # Running

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        """Run until the story has ended; what else is under way stays where it is."""
        task = asyncio.Task(story, loop=self)
        with self._running():
            self._run_ready()
            while not task.done():
                self._go_on()
                self._run_ready()
        return task.result()

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        # Cyclic garbage must not be found at a time that depends on the machine: a destructor
        # may be a step of the program.
        collecting = gc.isenabled()
        gc.disable()
        asyncio._set_running_loop(self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=lambda _: None)
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)
            if collecting:
                gc.enable()

    def _run_ready(self) -> None:
        """All callbacks of the present."""
        ready = self._ready
        last_step = self.steps + _MOST_STEPS_AT_ONE_TIME
        while ready:
            handle = ready.popleft()
            if handle.is_cancelled:
                continue
            process = handle.process
            if process is not None and process.is_paused:
                process.hold(handle)
                continue
            self.steps += 1
            if self.steps > last_step:
                raise StuckError(
                    f"still busy after {_MOST_STEPS_AT_ONE_TIME} steps at {self.now:.3f} s"
                )
            handle.run()

    def _go_on(self) -> None:
        """To the time of the next timer."""
        if not self._timers:
            raise StuckError(f"everything waits, and no timer is armed, at {self.now:.3f} s")
        timers, ready = self._timers, self._ready
        self.now = now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])

    def make_ready(self, handles: deque[_Handle]) -> None:
        self._ready.extend(handles)

    def pass_by_wall_clock(self, milliseconds: int) -> None:
        """Let time pass for the wall clocks of all processes at once. Timers and what is measured
        with monotonic clocks do not notice: a month costs nothing."""
        self.wall_ms_ahead += milliseconds

    def register(self, process: SimulatedProcess) -> None:
        self._processes.append(process)

    def close(self) -> None:
        """Let go of everything that did not end. Destructors complain to nobody."""
        if self._is_closed:
            return
        self._is_closed = True
        with quiet_destructors():
            self._ready.clear()
            self._timers.clear()
            for process in self._processes:
                process.forget()
            self._processes.clear()
            gc.collect()

    # What asyncio asks for

    def time(self) -> float:
        return self.now

    def call_soon(  # type: ignore[override]  # asyncio only cancels what it is given
        self, callback: _Callback, *args: object, context: _Context = None
    ) -> _Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: _Callback, *args: object, context: _Context = None
    ) -> _Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: _Callback, *args: object, context: _Context = None
    ) -> _Handle:
        handle = _Handle(callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._armed), handle))
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: None, func: Callable[[], T]
    ) -> asyncio.Future[T]:
        """There are no threads: it is done at once."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func())
        except Exception as error:  # noqa: BLE001 it belongs to the one who waits
            done.set_exception(error)
        return done

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        return asyncio.Task(coro, loop=self, name=str(name) if name else None, context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closed:
            self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")


class ProcessClock:
    """The clock of one process: another origin, another rate, wrong by some time.

    Its timers fire in the process, whoever arms them. Implements `moldau.clock.Clock`.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        process: SimulatedProcess,
        *,
        start_ms: int,
        monotonic_start: float = 0.0,
        rate: float = 1.0,
    ) -> None:
        self._loop = loop
        self._process = process
        self._monotonic_start = monotonic_start
        self._rate = rate  # its seconds in one second
        self.start_ms = start_ms  # may be changed while it runs: wall clocks jump

    def now_ms(self) -> int:
        since_start_ms = int(self._loop.now * self._rate * 1000)
        return self.start_ms + self._loop.wall_ms_ahead + since_start_ms

    def monotonic(self) -> float:
        return self._monotonic_start + self._loop.now * self._rate

    async def sleep(self, seconds: float) -> None:
        await (sleep_on(self, seconds) if seconds > 0 else asyncio.sleep(0))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        context = self._process.context
        if seconds <= 0:
            return self._loop.call_soon(callback, context=context)
        loop = self._loop
        return loop.call_at(loop.now + seconds / self._rate, callback, context=context)
