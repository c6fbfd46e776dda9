"""Several brokers on one machine, each a process, and the coordination store that they share.

The supervisor opens the embedded store and serves it to its brokers over a Unix socket; it starts
them, starts one again that has ended, and stops them one after the other, so that each hands over
what it leads. That a broker's process has ended is known here at once: its session ends with it,
and nobody waits for a time-out. A broker that finds nobody at the socket ends by itself, so a
supervisor that was killed leaves none behind.

What the supervisor reports may be lost: its standard error can be a closed pipe or a file on a full
disk. Brokers are started again all the same. A task of the supervisor that fails, or ends before
all shall stop, ends the supervisor and its brokers with an error, so that the service manager sees
it.

A shell; one task runs `run`. Ids, folders, ports and delays are decided in `broker_places`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from moldau.broker.broker_places import (
    PID_FILE,
    BrokerPlace,
    find_replicas,
    refuse_left_out,
    restart_delay,
)
from moldau.clock import Clock
from moldau.cluster.znodes import CLUSTER_ID
from moldau.coordination.embedded import FILE_NAME, EmbeddedStore
from moldau.coordination.served.server import StoreServer, listen_again, listening_beside
from moldau.errors import InvariantViolation, StartupError
from moldau.processes import stop_signals
from moldau.storage.files import Files
from moldau.storage.rules.file_names import LOCK_FILE, find_partition_folder
from moldau.tasks import TaskSupervisor
from moldau.workers import Workers

_LISTENING: Final = b"listening on "
_QUICK_SECONDS: Final = 10.0
"""A broker that served for less is not simply started again: the next attempt waits longer."""

_STOP_SECONDS: Final = 60.0
"""A broker that has not handed over and closed its logs by then is killed."""

_FORMER_SECONDS: Final = 30.0
"""So long are brokers waited for whom a supervisor that was killed has left in the folders."""

_LOOK_SECONDS: Final = 0.1
_SESSION_ID_BITS: Final = 48
"""Ids of sessions begin somewhere else each time: one of a former supervisor is nobody's now."""

CommandOf = Callable[[BrokerPlace, Path], Sequence[str]]
"""The command line of a broker, given the socket of the store."""


class SupervisedBroker:
    """One place, and the process that fills it at the moment."""

    def __init__(self, place: BrokerPlace, command: Sequence[str], clock: Clock) -> None:
        self.place = place
        self.address = ""  # where it listens, once it does
        self.quick_ends = 0  # in a row
        self._command = command
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None

    @property
    def name(self) -> str:
        return f"broker {self.place.broker_id}"

    @property
    def process_id(self) -> int:
        return 0 if self._process is None else self._process.pid

    async def launch(self) -> None:
        """In a session of its own: Ctrl-C is for the supervisor, which stops them in order."""
        self._process = None
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        with contextlib.suppress(OSError):  # a full disk: the broker is looked after all the same
            self._pid_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._pid_file.write_text(f"{self._process.pid}\n")

    async def wait_until_ended(self) -> None:
        if self._process is not None:
            await self._process.wait()

    async def serve(self, on_ready: Callable[[], None]) -> int:
        """Until it ends; its status, negative for a signal. What it says is on standard error."""
        process = self._process
        if process is None or process.stdout is None:
            return 0
        line = await process.stdout.readline()
        ready_at = math.inf
        if line.startswith(_LISTENING):
            self.address = line.removeprefix(_LISTENING).decode().strip()
            ready_at = self._clock.monotonic()
            on_ready()
        status = await process.wait()
        is_quick = self._clock.monotonic() - ready_at < _QUICK_SECONDS
        self.quick_ends = self.quick_ends + 1 if is_quick else 0
        with contextlib.suppress(OSError):
            self._pid_file.unlink(missing_ok=True)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    @property
    def _pid_file(self) -> Path:
        return Path(self.place.folders[0]) / PID_FILE


class Supervisor:
    """See the module."""

    def __init__(
        self,
        places: Sequence[BrokerPlace],
        command_of: CommandOf,
        *,
        clock: Clock,
        files: Files,
        workers: Workers,
        say: Callable[[str], None],
    ) -> None:
        self._places = places
        self._command_of = command_of
        self._clock = clock
        self._files = files
        self._workers = workers
        self._write_line = say
        self._stopping = asyncio.Event()
        self._failure: BaseException | None = None  # of the start, or of a keeper
        self._tasks = TaskSupervisor(self._on_task_failed)  # the keepers
        self._started = asyncio.Event()  # all of them served once, or one could not
        self._waiting_for: set[SupervisedBroker] = set()  # those that have not served yet

    @property
    def _folder(self) -> Path:
        return Path(self._places[0].folders[0])

    async def run(self, on_ready: Callable[[Sequence[SupervisedBroker]], None]) -> None:
        """Until SIGTERM or Ctrl-C. Raises `StartupError` when a broker cannot be started, and the
        error of a keeper that failed."""
        for number in stop_signals():
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        async with contextlib.AsyncExitStack() as stack:
            store = await self._open_store(stack)
            await self._wait_until_free()
            if self._stopping.is_set():
                return
            listener, path = stack.enter_context(listening_beside(self._folder))
            server = StoreServer(store, self._clock, listener)
            stack.push_async_callback(server.close)
            server.start()
            brokers = [
                SupervisedBroker(place, self._command_of(place, path), self._clock)
                for place in self._places
            ]
            self._waiting_for = set(brokers)
            keepers = {
                broker: self._tasks.spawn(broker.name, self._keep(broker, server, path))
                for broker in brokers
            }
            for keeper in keepers.values():
                keeper.add_done_callback(self._on_keeper_ended)
            try:
                await self._wait_until_started()
                if not self._stopping.is_set():
                    on_ready(brokers)
                    await self._stopping.wait()
            finally:
                await self._stop_all(keepers)
        if self._failure is not None:
            raise self._failure

    def _on_task_failed(self, name: str, error: BaseException) -> None:
        """A broker without a keeper would not be started again: end all, and say why."""
        self._failure = self._failure or error
        self._started.set()
        self._stopping.set()

    def _on_keeper_ended(self, keeper: asyncio.Task[None]) -> None:
        """One that was cancelled has not failed, but its broker is without a keeper as well."""
        if not self._stopping.is_set() and self._failure is None:
            name = keeper.get_name()
            error = InvariantViolation(f"the task that starts {name} again has ended")
            self._on_task_failed(name, error)

    def _say(self, text: str) -> None:
        """Report something, if standard error can be written."""
        with contextlib.suppress(OSError):
            self._write_line(text)

    async def _open_store(self, stack: contextlib.AsyncExitStack) -> EmbeddedStore:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = await EmbeddedStore.open(
            self._folder / FILE_NAME,
            clock=self._clock,
            workers=self._workers,
            first_session_id=secrets.randbits(_SESSION_ID_BITS) + 1,
        )
        stack.push_async_callback(store.close)
        left_out = refuse_left_out(
            find_replicas(store), [place.broker_id for place in self._places]
        )
        if left_out is not None:
            raise StartupError(left_out)
        if store.find(CLUSTER_ID) is None:
            self._refuse_unknown_logs()
        return store

    def _refuse_unknown_logs(self) -> None:
        """A folder that came from elsewhere: which broker would have the logs of the others?"""
        for place in self._places:
            for folder in map(Path, place.folders):
                names = self._files.list_folder(folder) if self._files.exists(folder) else ()
                if any(map(find_partition_folder, names)):
                    raise StartupError(
                        f"{folder} has logs and no {FILE_NAME} that knows of them: serve it once "
                        "with one broker (`moldau start`), which takes its topics over; then "
                        "start with --brokers. If the store was lost, restore it from a backup. "
                        "Nothing was touched"
                    )

    async def _wait_until_free(self) -> None:
        """Brokers of a supervisor that was killed are ending, and have their folders until then."""
        deadline = self._clock.monotonic() + _FORMER_SECONDS
        is_said = False
        while not self._stopping.is_set() and (taken := self._find_taken()) is not None:
            if self._clock.monotonic() >= deadline:
                raise StartupError(
                    f"another broker uses the data folder {taken}; stop it, or use another folder"
                )
            if not is_said:
                self._say(f"waiting for the broker that still uses {taken}")
                is_said = True
            await self._clock.sleep(_LOOK_SECONDS)

    def _find_taken(self) -> Path | None:
        for folder in [Path(folder) for place in self._places for folder in place.folders]:
            if self._files.exists(folder / LOCK_FILE):
                lock = self._files.lock(folder / LOCK_FILE)
                if lock is None:
                    return folder
                lock.release()
        return None

    async def _wait_until_started(self) -> None:
        told = asyncio.ensure_future(self._stopping.wait())
        started = asyncio.ensure_future(self._started.wait())
        try:
            await asyncio.wait((told, started), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            started.cancel()
        if self._failure is not None:
            raise self._failure

    # One broker

    async def _keep(self, broker: SupervisedBroker, server: StoreServer, path: Path) -> None:
        """Start it, and again when it has ended, until all shall stop."""
        while not self._stopping.is_set():
            self._keep_reachable(server, path)
            end = await self._live(broker, server)
            if self._stopping.is_set() or self._failure is not None:
                return
            if self._waiting_for:
                self._failure = StartupError(f"{broker.name} {end} as all were started")
                self._started.set()
                return
            delay = restart_delay(broker.quick_ends)
            when = f"in {delay:g} s" if delay else "now"
            self._say(f"{broker.name} {end}; it is started again {when}")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), delay)

    def _keep_reachable(self, server: StoreServer, path: Path) -> None:
        """A broker that is started looks for the store at `path`."""
        try:
            listener = listen_again(self._folder, path)
        except (OSError, StartupError) as error:
            self._say(f"{path} was removed and cannot be made again: {error}")
            return
        if listener is not None:
            self._say(f"{path} was removed: the coordination store listens there again")
            server.listen_on(listener)

    async def _live(self, broker: SupervisedBroker, server: StoreServer) -> str:
        """Start it and wait for its end; says how that came."""
        try:
            await broker.launch()
        except OSError as error:
            broker.quick_ends += 1
            return f"cannot be started ({error})"
        if self._stopping.is_set():
            broker.send_signal(signal.SIGTERM)
        status = await broker.serve(lambda: self._on_ready(broker))
        server.end_sessions_of(broker.process_id)
        return _describe(status)

    def _on_ready(self, broker: SupervisedBroker) -> None:
        if broker in self._waiting_for:
            self._waiting_for.discard(broker)
            if not self._waiting_for:
                self._started.set()
        else:
            self._say(f"{broker.name} serves again at {broker.address}")

    async def _stop_all(self, keepers: Mapping[SupervisedBroker, asyncio.Task[None]]) -> None:
        """One after the other, since each hands its partitions to the others."""
        self._stopping.set()
        is_failed = self._failure is not None
        for number in stop_signals():  # whoever says it again is in a hurry
            asyncio.get_running_loop().add_signal_handler(number, _hurry, tuple(keepers))
        if is_failed:
            _hurry(tuple(keepers))
        for broker, keeper in keepers.items():
            broker.send_signal(signal.SIGTERM)
            ended = asyncio.ensure_future(_wait_until_ended(broker, keeper))
            done, _ = await asyncio.wait((ended,), timeout=_STOP_SECONDS)
            if not done:
                self._say(f"{broker.name} did not end in {_STOP_SECONDS:.0f} s and is killed")
                broker.send_signal(signal.SIGKILL)
                await asyncio.wait((ended,))


async def _wait_until_ended(broker: SupervisedBroker, keeper: asyncio.Task[None]) -> None:
    """A keeper that failed has not waited for its process."""
    await asyncio.wait((keeper,))
    await broker.wait_until_ended()


def _hurry(brokers: Sequence[SupervisedBroker]) -> None:
    for broker in brokers:
        broker.send_signal(signal.SIGTERM)


def _describe(status: int) -> str:
    if status >= 0:
        return f"has ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"
