"""`moldau start --brokers N`: a supervisor and its brokers, and what its store says of them.

The store is asked as a broker asks it, over the supervisor's socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from moldau.clock import SystemClock
from moldau.coordination.port import CoordinationError
from moldau.coordination.served.server import SOCKET_NAME
from moldau.coordination.served.session import SocketConnector, StoreSession
from moldau.processes import read_command_line
from moldau.testing.free_ports import take_port
from support.broker_process import NOTHING, BrokerProcess
from support.cluster_processes import SETTINGS, ClusterBooks
from support.waiting import PATIENCE_SECONDS, eventually

T = TypeVar("T")


def is_alive(pid: int) -> bool:
    return any(read_command_line(pid))


class SupervisedBrokers(ClusterBooks):
    """The supervisor, and the brokers 1 to N by their pids."""

    def __init__(
        self,
        folder: Path,
        count: int,
        settings: Mapping[str, str],
        arguments: Sequence[str] = (),
        inside: Sequence[str] = (),
    ) -> None:
        self.broker_ids = range(1, count + 1)
        self.supervisor = BrokerProcess(
            folder,
            settings=settings,
            arguments=("--brokers", str(count), *arguments),
            port=take_port(*range(1, count)),
            inside=inside,
        )
        self._first_port = self.supervisor.port

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self._first_port + n - 1}" for n in self.broker_ids)

    def data_folder(self, number: int) -> Path:
        first = self.supervisor.data_folder
        return first if number == 1 else first / "brokers" / str(number)

    # Their lives

    def start(self) -> None:
        self.launch()
        self.supervisor.wait_until_listening()

    def launch(self) -> None:
        self.supervisor.port = self._first_port
        self.supervisor.launch()

    def find_pid(self, number: int) -> int | None:
        """None while the broker does not run."""
        try:
            pid = int((self.data_folder(number) / "broker.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if is_alive(pid) else None

    def pid_of(self, number: int) -> int:
        return eventually(lambda: self.find_pid(number), f"broker {number} runs")

    def signal_broker(self, number: int, signal_number: signal.Signals) -> int:
        pid = self.pid_of(number)
        os.kill(pid, signal_number)
        return pid

    def kill(self, number: int) -> None:
        """It is started again by its supervisor."""
        pid = self.signal_broker(number, signal.SIGKILL)
        eventually(lambda: not is_alive(pid), "it is dead")

    def kill_supervisor(self) -> list[int]:
        """The pids of the brokers that it leaves."""
        pids = [pid for pid in map(self.find_pid, self.broker_ids) if pid is not None]
        self.supervisor.kill()
        return pids

    def wait_until_registered(self, *numbers: int) -> None:
        wanted = set(numbers or self.broker_ids)
        eventually(lambda: wanted <= self.registered(), f"brokers {wanted} are in the cluster")

    def end(self) -> None:
        for pid in self.kill_supervisor():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        for number in self.broker_ids:
            pid = self.find_pid(number)
            if pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # The store

    def _find(self, path: str) -> dict[str, Any] | None:
        async def read(session: StoreSession) -> dict[str, Any] | None:
            node = await session.get(path)
            return None if node is None else dict(json.loads(node.data))

        return self._ask(read)

    def _children(self, path: str) -> list[str]:
        async def read(session: StoreSession) -> list[str]:
            return list(await session.children(path))

        return self._ask(read) or []

    def sessions(self) -> dict[int, int]:
        """Of the brokers that are registered."""

        async def read(session: StoreSession) -> dict[int, int]:
            nodes = await session.get_many([f"/brokers/ids/{n}" for n in self.broker_ids])
            both = zip(self.broker_ids, nodes, strict=True)
            return {number: node.ephemeral_owner for number, node in both if node is not None}

        return self._ask(read) or {}

    def _ask(self, question: Callable[[StoreSession], Awaitable[T]]) -> T | None:
        """None when there is no store at the moment."""
        path = str(self.supervisor.data_folder / SOCKET_NAME)

        async def ask() -> T:
            session = StoreSession(SocketConnector(path, lambda: None), SystemClock(), 30.0)
            await session.open(PATIENCE_SECONDS)
            try:
                return await question(session)
            finally:
                await session.close()

        try:
            return asyncio.run(ask())
        except CoordinationError:
            return None


@contextlib.contextmanager
def supervised_brokers(
    folder: Path,
    count: int = 3,
    settings: Mapping[str, str] = NOTHING,
    inside: Sequence[str] = (),
) -> Iterator[SupervisedBrokers]:
    """Not started yet; gone, and healthy, at the end."""
    replicas = str(min(3, count))
    fitting = {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "min.insync.replicas": "2" if count > 2 else "1",
    }
    brokers = SupervisedBrokers(folder, count, {**SETTINGS, **fitting, **settings}, inside=inside)
    try:
        yield brokers
    finally:
        brokers.end()
    brokers.supervisor.assert_healthy()
