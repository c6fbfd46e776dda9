"""A real cluster inside a test's process: `with moldau.testing.cluster() as cluster: ...`.

Brokers with real sockets on free ports of the loopback interface, for any Kafka client; disks and
the coordination store are in memory, so nothing is left behind. All run in one thread.

    cluster.kill(1)                        # what it wrote stays; it leads until its session ends
    cluster.restart(1)
    cluster.pause(2); cluster.resume(2)
    cluster.cut(1, 2); cluster.heal()      # between brokers; clients reach both
    cluster.clock.advance(60)
    cluster.inject("produce", "not_leader_or_follower", times=3)
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from moldau.broker.ports import Ports
from moldau.broker.server import BrokerServer
from moldau.coordination.embedded import MEMORY, EmbeddedStore
from moldau.net.port import Connection
from moldau.net.sockets import SocketNetwork
from moldau.simulation.fault_plan import Fault
from moldau.simulation.manual_clock import MovingClock
from moldau.simulation.memory_files import MemoryFiles
from moldau.testing.free_ports import take_port
from moldau.testing.held_ports import HeldClock, HeldNetwork, HeldSession, Links
from moldau.testing.injected_errors import InjectedError, InjectedErrors
from moldau.testing.running_broker import TopicTools, refuse_unknown, wait_until
from moldau.workers import InlineWorkers, ThreadWorkers

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode


T = TypeVar("T")

_NOTHING: Mapping[str, str] = MappingProxyType({})
_TIMEOUT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.02
_SESSION_OPTION: Final = "zookeeper.session.timeout.ms"

OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        _SESSION_OPTION: "1000",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "3",
        "group.initial.rebalance.delay.ms": "0",
        "replica.lag.time.max.ms": "2000",
        "replica.socket.timeout.ms": "2000",
    }
)
"""What a cluster for tests has unless it is told otherwise: time-outs are short."""


class RunningCluster(TopicTools):
    """Brokers that answer. Hand `bootstrap` to any Kafka client. For one test thread at a time."""

    def __init__(self, core: _Core) -> None:
        self._core = core

    @property
    def bootstrap(self) -> str:
        """`host:port` of each broker, for `bootstrap.servers` and the like."""
        return ",".join(member.address for member in self._core.members.values())

    @property
    def clock(self) -> MovingClock:
        """The brokers' time: `clock.advance(seconds)`."""
        return self._core.clock

    @property
    def broker_ids(self) -> list[int]:
        return list(self._core.members)

    # Faults

    def kill(self, broker_id: int) -> None:
        """End a broker as `kill -9` does."""
        self._core.run(self._core.require_member(broker_id).kill())

    def stop(self, broker_id: int) -> None:
        """Stop a broker in good order: it hands over what it leads."""
        self._core.run(self._core.require_member(broker_id).stop())

    def restart(self, broker_id: int) -> None:
        """Start a broker that was killed or stopped; one that runs is stopped before."""
        self._core.run(self._core.restart(broker_id))

    def pause(self, broker_id: int) -> None:
        """Let a broker do nothing, as SIGSTOP does; its session ends if that lasts too long."""
        self._core.call(self._core.require_member(broker_id).pause)

    def resume(self, broker_id: int) -> None:
        self._core.call(self._core.require_member(broker_id).resume)

    def cut(self, one: int, other: int) -> None:
        """Let nothing through between two brokers."""
        self._core.require_member(one)
        self._core.require_member(other)
        self._core.call(lambda: self._core.links.cut(one, other))

    def heal(self) -> None:
        """Undo every `cut`."""
        self._core.call(self._core.links.heal)

    def inject(
        self,
        api: str,
        error: InjectedError,
        *,
        times: int | None = 1,
        broker_id: int | None = None,
        skip: int = 0,
    ) -> Fault[ErrorCode | None]:
        """Let the next `times` requests of an API (None: all) be answered with an error.

        `error` is one of `moldau.errors`, or Kafka's name or number of it; `ConnectionResetError`
        ends the connection instead. The API is named as its handler: `produce`, `list_offsets`.
        """
        if broker_id is not None:
            self._core.require_member(broker_id)
        return self._core.injected.add(api, error, times=times, broker_id=broker_id, skip=skip)

    # Looking

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads, by the cluster's own books; None when there is none."""
        state = self._core.find_state(topic, partition)
        return None if state is None or state.leader < 0 else state.leader

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        state = self._core.find_state(topic, partition)
        return [] if state is None else state.in_sync

    def wait_until_whole(self) -> None:
        """Return when every broker is there and every partition is in sync on all its replicas."""
        self._core.run(self._core.wait_until_whole())

    def wait_until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        """Return when the condition holds; raises `TimeoutError` after a minute."""
        wait_until(condition, what, _TIMEOUT_SECONDS)


@contextlib.contextmanager
def cluster(brokers: int = 3, config: Mapping[str, str] = _NOTHING) -> Iterator[RunningCluster]:
    """Start a cluster, stop it at the end of the block.

    `config` is for all brokers; a name that is no option is refused.
    """
    refuse_unknown(config)
    core = _Core(brokers, config)
    try:
        core.run(core.open())
        yield RunningCluster(core)
    finally:
        core.close()


class _State(NamedTuple):
    leader: int
    in_sync: list[int]


class _Core:
    """The loop, its thread, and what lives there."""

    def __init__(self, brokers: int, config: Mapping[str, str]) -> None:
        replicas = str(min(3, brokers))
        self._static = {
            **OPTIONS,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "min.insync.replicas": "2" if brokers > 1 else "1",
            **config,
        }
        self._brokers = brokers
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(make_task)
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="moldau-cluster", daemon=True
        )
        self._store: EmbeddedStore | None = None
        self.clock = MovingClock(self._loop)
        self.links = Links()
        self.members: dict[int, ClusterMember] = {}
        self.injected = InjectedErrors()
        self._thread.start()

    # The thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_SECONDS)

    def call(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        self.run(act())

    def close(self) -> None:
        try:
            self.run(self._close())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_TIMEOUT_SECONDS)
            self._loop.close()

    async def _close(self) -> None:
        self.links.heal()
        try:
            for broker_id, member in self.members.items():
                self.links.resume(broker_id)
                await member.kill()  # quicker than a controlled shutdown; nothing is left behind
        finally:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._store is not None:
                await self._store.close()
        await self._loop.shutdown_default_executor()

    # The brokers

    async def open(self) -> None:
        store = await EmbeddedStore.open(MEMORY, clock=self.clock, workers=InlineWorkers())
        self._store = store
        ports: dict[int, int] = {}
        for broker_id in range(1, self._brokers + 1):
            self.members[broker_id] = ClusterMember(
                broker_id,
                self._static,
                store=store,
                clock=self.clock,
                links=self.links,
                brokers_by_port=ports,
                intercept=self.injected.intercept,
                session_seconds=int(self._static[_SESSION_OPTION]) / 1000,
            )
        await asyncio.gather(*(member.start() for member in self.members.values()))
        await self.wait_until_whole()

    def require_member(self, broker_id: int) -> ClusterMember:
        """The broker of this number."""
        member = self.members.get(broker_id)
        if member is None:
            numbers = ", ".join(map(str, self.members))
            raise ValueError(f"there is no broker {broker_id!r}; there are {numbers}")
        return member

    async def restart(self, broker_id: int) -> None:
        member = self.require_member(broker_id)
        self.links.resume(broker_id)
        await member.stop()
        await member.start()

    # Looking

    def find_state(self, topic: str, partition: int) -> _State | None:
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        entry = None if self._store is None else self._store.find(path)
        if entry is None:
            return None
        fields = json.loads(entry.node.data)
        return _State(fields["leader"], sorted(fields["isr"]))

    async def wait_until_whole(self) -> None:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while not self._is_whole():  # noqa: ASYNC110 many things make it so
                await asyncio.sleep(_POLL_SECONDS)

    def _is_whole(self) -> bool:
        store = self._store
        if store is None:
            return False
        running = [str(each) for each, member in self.members.items() if member.is_running]
        if store.children("/brokers/ids") != sorted(running):
            return False
        if store.find("/controller") is None:
            return False
        return all(map(self._is_topic_whole, store.children("/brokers/topics")))

    def _is_topic_whole(self, topic: str) -> bool:
        entry = self._store.find(f"/brokers/topics/{topic}") if self._store else None
        assignment = {} if entry is None else json.loads(entry.node.data)["partitions"]
        for partition, replicas in assignment.items():
            state = self.find_state(topic, int(partition))
            alive = [each for each in replicas if self.members[each].is_running]
            if state is None or state.leader < 0 or state.in_sync != sorted(alive):
                return False
        return True


# One broker of a `RunningCluster`: the production code on real sockets, with a disk in memory.
#
# It can be killed: its tasks, timers, sockets and open files end at once, what it wrote stays, and
# its session ends when its time-out has passed. Owned by the cluster's loop.


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


class _Life:
    """What there is of a broker from its start to its end."""

    def __init__(
        self,
        clock: HeldClock,
        network: HeldNetwork,
        session: HeldSession,
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
        session = HeldSession(self._store, self.broker_id, self._links)
        return _Life(clock, network, session, ThreadWorkers(_WORKER_THREADS))

    def _options(self) -> dict[str, str]:
        return {
            **self._static,
            "broker.id": str(self.broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "log.dirs": _DATA_FOLDER,
        }

    def _ports(self, life: _Life) -> Ports:
        def open_coordination(_: Path) -> HeldSession:
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
        life.session.kill()
        life.network.kill()
        self._links.forget_broker(self.broker_id)
        self.files.crash_process()
        # Not before their first step: work that never began complains when it is thrown away.
        for task in tuple(life.tasks):
            asyncio.get_running_loop().call_soon(task.cancel)
        self._clock.call_later(self._session_seconds, life.session.expire)
        await self._end(life)

    def pause(self) -> None:
        life = self._life
        if life is not None:
            self._links.pause(self.broker_id)
            self._clock.call_later(self._session_seconds, lambda: self._maybe_expire(life))

    def _maybe_expire(self, life: _Life) -> None:
        if self._life is life and self._links.is_paused(self.broker_id):
            life.session.expire()

    def resume(self) -> None:
        self._links.resume(self.broker_id)
