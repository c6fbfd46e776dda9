"""One broker of a `RunningCluster`: the production code on real sockets, with a disk in memory.

It can be killed: its tasks, timers, sockets and open files end at once, what it wrote stays, and
its session ends when its time-out has passed. Owned by the cluster's loop.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from moldau.broker.ports import Ports
from moldau.broker.server import BrokerServer
from moldau.coordination.embedded import EmbeddedSession, EmbeddedStore
from moldau.coordination.port import Coordination
from moldau.net.port import Connection
from moldau.net.sockets import SocketNetwork
from moldau.testing.free_ports import take_port
from moldau.testing.held_ports import HeldClock, HeldCoordination, HeldNetwork, Links
from moldau.testing.memory_files import MemoryFiles
from moldau.testing.moving_clock import MovingClock
from moldau.workers import ThreadWorkers

T = TypeVar("T")

_DATA_FOLDER: Final = "/data"
_WORKER_THREADS: Final = 2

_life: contextvars.ContextVar[_Life | None] = contextvars.ContextVar("moldau_life", default=None)


def make_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T] | Generator[Any, None, T],
    /,
    **options: Any,
) -> asyncio.Task[T]:
    """The task factory of the cluster's loop: each task belongs to the broker that made it."""
    task = asyncio.Task(work, loop=loop, **options)
    life = _life.get()
    if life is not None:
        life.tasks.add(task)
        task.add_done_callback(life.tasks.discard)
    return task


class _Session:
    """An embedded session, for as long as a broker wants it."""

    def __init__(self, store: EmbeddedStore, broker_id: int, links: Links) -> None:
        self.inner: EmbeddedSession = store.session()
        self.held = HeldCoordination(self.inner, broker_id, links)

    async def __aenter__(self) -> Coordination:
        return self.held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.held.close()


class _Life:
    """What there is of a broker from its start to its end."""

    def __init__(
        self,
        clock: HeldClock,
        network: HeldNetwork,
        session: _Session,
        workers: ThreadWorkers,
    ) -> None:
        self.clock = clock
        self.network = network
        self.session = session
        self.workers = workers
        self.tasks: set[asyncio.Task[Any]] = set()
        self.broker: BrokerServer | None = None


class ClusterMember:
    """A broker that comes and goes, under one id, on one port, with one disk."""

    def __init__(
        self,
        broker_id: int,
        static: Mapping[str, str],
        *,
        store: EmbeddedStore,
        clock: MovingClock,
        links: Links,
        brokers_by_port: dict[int, int],
        intercept: Callable[[int, Connection, memoryview], bool],
        session_seconds: float,
    ) -> None:
        self.broker_id = broker_id
        self.files = MemoryFiles(clock)
        self._static = static
        self._store = store
        self._clock = clock
        self._links = links
        self._brokers_by_port = brokers_by_port
        self._intercept = intercept
        self._session_seconds = session_seconds
        self._port = take_port()
        self._life: _Life | None = None
        self._former: list[_Life] = []  # kept: a killed one must not be tidied up

    @property
    def is_running(self) -> bool:
        return self._life is not None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def start(self) -> None:
        life = self._make_life()
        context = contextvars.copy_context()
        context.run(_life.set, life)
        self._life = life
        try:
            broker = life.broker = BrokerServer(self._options(), self._ports(life))
            await asyncio.get_running_loop().create_task(broker.start(), context=context)
        except BaseException:
            await self._end(life)
            raise

    def _make_life(self) -> _Life:
        clock = HeldClock(self._clock, self.broker_id, self._links)
        network = HeldNetwork(
            SocketNetwork(self._clock),
            self.broker_id,
            self._links,
            self._brokers_by_port,
            lambda connection, frame: self._intercept(self.broker_id, connection, frame),
        )
        session = _Session(self._store, self.broker_id, self._links)
        return _Life(clock, network, session, ThreadWorkers(_WORKER_THREADS))

    def _options(self) -> dict[str, str]:
        return {
            **self._static,
            "broker.id": str(self.broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": _DATA_FOLDER,
        }

    def _ports(self, life: _Life) -> Ports:
        def open_coordination(_: Path) -> _Session:
            return life.session

        return Ports(
            clock=life.clock,
            files=self.files,
            network=life.network,
            workers=life.workers,
            open_coordination=open_coordination,
        )

    async def stop(self) -> None:
        """A controlled shutdown."""
        life = self._life
        if life is not None and life.broker is not None:
            await life.broker.stop()
            await self._end(life)

    async def _end(self, life: _Life) -> None:
        self._life = None
        await asyncio.get_running_loop().run_in_executor(None, life.workers.close)

    async def kill(self) -> None:
        """Not one more step; the session ends when it has been silent for long enough."""
        life = self._life
        if life is None:
            return
        self._former.append(life)
        life.clock.kill()
        life.session.held.kill()
        life.network.kill()
        self._links.forget(self.broker_id)
        self.files.crash_process()
        # Not before their first step: work that never began complains when it is thrown away.
        for task in tuple(life.tasks):
            asyncio.get_running_loop().call_soon(task.cancel)
        self._clock.call_later(self._session_seconds, life.session.inner.expire)
        await self._end(life)

    def pause(self) -> None:
        life = self._life
        if life is not None:
            self._links.pause(self.broker_id)
            self._clock.call_later(self._session_seconds, lambda: self._maybe_expire(life))

    def _maybe_expire(self, life: _Life) -> None:
        if self._life is life and self._links.is_paused(self.broker_id):
            life.session.inner.expire()

    def resume(self) -> None:
        self._links.resume(self.broker_id)
