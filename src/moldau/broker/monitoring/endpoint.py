"""What is served on `metrics.listener`: /metrics, /healthz, /readyz, /history, /shares.

It listens before the broker loads its logs, so that who watches it sees that it starts; until the
parts are there, /metrics tells of the process alone. A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moldau import __version__
from moldau.broker.api import Services
from moldau.broker.monitoring.collector import (
    Sources,
    collect_broker,
    collect_process,
    read_process,
)
from moldau.clock import Clock
from moldau.config.declarations.network import split_address
from moldau.coordinators.shares.rules.in_flight import take_census
from moldau.errors import StartupError
from moldau.metrics import catalogue
from moldau.metrics.exposition import OPENMETRICS, TEXT, Exposition, wants_openmetrics
from moldau.metrics.figures import BrokerFigures
from moldau.metrics.history import EventKind, History, encode_events
from moldau.net.http_server import HttpAnswer, HttpRequest, HttpServer
from moldau.workers import Workers

_PLAIN: Final = "text/plain; charset=utf-8"
_INDEX: Final = (
    "/metrics   for Prometheus\n"
    "/healthz   200 while the process is alive\n"
    "/readyz    200 while it serves what it leads, else 503 and why\n"
    "/history   what happened lately and why; ?kind=…&subject=…\n"
    "/shares    what members of share groups hold of what it leads; ?group=…\n"
)
_PARTITIONS_PER_TURN = 1000

_NAMED = 5
"""Partitions that a reason names; of the rest, the number."""
_RUNS_PER_TURN: Final = 1000
"""Runs of records that are alike, walked through before others have the loop; a partition may have
thousands."""
MOST_ROWS: Final = 10_000


class MetricsEndpoint:
    """See the module. `listen` once, `connect` when the broker is put together."""

    def __init__(
        self, figures: BrokerFigures, history: History, *, clock: Clock, workers: Workers
    ) -> None:
        self._figures = figures
        self._history = history
        self._clock = clock
        self._workers = workers
        self._server = HttpServer(self._answer)
        self._sources: Sources | None = None
        self._gathering = asyncio.Lock()  # one at a time: who scrapes twice waits
        self._scrape_seconds = 0.0
        self.is_serving = False
        self.is_stopping = False
        self.looked_at = clock.monotonic()  # when the loop was last seen turning
        self._paths: Mapping[str, Callable[[HttpRequest], Awaitable[HttpAnswer]]] = {
            "/": self._index,
            "/metrics": self._metrics,
            "/healthz": self._health,
            "/readyz": self._ready,
            "/history": self._tell_history,
            "/shares": self._tell_shares,
        }

    @property
    def url(self) -> str:
        host = f"[{self._server.host}]" if ":" in self._server.host else self._server.host
        return f"http://{host}:{self._server.port}"

    async def listen(self, address: str) -> None:
        host, port = split_address(address)
        try:
            await self._server.listen(host, port)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            hint = "is another broker running there?" if in_use else "is it this machine's?"
            why = os.strerror(errno.EADDRINUSE) if in_use else error.strerror or error
            raise StartupError(
                f"cannot serve metrics on {address}: {why}; {hint} Choose "
                "another address with --metrics or metrics.listener"
            ) from error

    async def close(self) -> None:
        await self._server.close()

    def connect(self, sources: Sources) -> None:
        """The parts of the broker are there, though they do not run yet."""
        self._sources = sources

    # Answers

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        found = self._paths.get(request.path)
        if found is None:
            return HttpAnswer(f"there is no {request.path}\n\n{_INDEX}".encode(), _PLAIN, 404)
        return await found(request)

    async def _index(self, request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(_INDEX.encode(), _PLAIN)

    async def _metrics(self, request: HttpRequest) -> HttpAnswer:
        is_open = wants_openmetrics(request.headers.get("accept", ""))
        async with self._gathering:
            out = await self._gather()
        pieces: list[bytes] = []
        for piece in out.pieces(openmetrics=is_open):
            pieces.append(piece.encode())
            await asyncio.sleep(0)
        return HttpAnswer(b"".join(pieces), OPENMETRICS if is_open else TEXT)

    async def _gather(self) -> Exposition:
        began = self._clock.monotonic()
        out = Exposition()
        sources = self._sources
        broker_id = "" if sources is None else str(sources.services.broker_id)
        cluster_id = "" if sources is None else sources.services.image.cluster_id
        out.add(catalogue.BUILD, 1, __version__, broker_id, cluster_id)
        if sources is not None:
            await collect_broker(sources, self._figures, out)
        out.add_histogram(catalogue.LOOP_DELAY, self._figures.loop_delays)
        collect_process(await self._workers.run(read_process), out)
        out.add(catalogue.SCRAPE_SECONDS, self._scrape_seconds)
        out.add(catalogue.CLOCK, self._clock.now_ms() / 1000)
        self._scrape_seconds = self._clock.monotonic() - began
        return out

    async def _health(self, request: HttpRequest) -> HttpAnswer:
        silent_seconds = round(self._clock.monotonic() - self.looked_at, 3)
        return _to_json({"status": "alive", "seconds_since_loop_was_seen": silent_seconds})

    async def _ready(self, request: HttpRequest) -> HttpAnswer:
        reasons = find_unready(await self._readiness())
        if reasons:
            return _to_json({"status": "not ready", "reasons": reasons}, 503)
        failed = self._failed_directories()
        return _to_json({"status": "ready", "failed_directories": failed})

    async def _readiness(self) -> Readiness:
        sources = self._sources
        if sources is None or not self.is_serving:
            return Readiness(is_serving=False, is_stopping=self.is_stopping)
        services = sources.services
        return Readiness(
            is_serving=True,
            is_stopping=self.is_stopping,
            is_registered=services.broker_id in services.image.brokers,
            holds_lease=self._clock.monotonic() < sources.lease_end(),
            unopened=await _find_unopened(sources),
        )

    def _failed_directories(self) -> list[str]:
        sources = self._sources
        directories = () if sources is None else sources.services.log_store.directories
        return [str(one.folder) for one in directories if one.failure is not None]

    async def _tell_history(self, request: HttpRequest) -> HttpAnswer:
        kinds = {kind.value: kind for kind in EventKind}
        wanted = request.query.get("kind")
        if wanted is not None and wanted not in kinds:
            known = ", ".join(kinds)
            return HttpAnswer(f"kind is one of {known}\n".encode(), _PLAIN, 400)
        kind = None if wanted is None else kinds[wanted]
        events = self._history.find(kind, request.query.get("subject"))
        text = await self._workers.run(lambda: encode_events(events))
        return HttpAnswer(text.encode())

    async def _tell_shares(self, request: HttpRequest) -> HttpAnswer:
        if self._sources is None or not self.is_serving:
            return HttpAnswer(b"[]\n")
        rows = await describe_shares(self._sources.services, request.query.get("group"))
        text = await self._workers.run(lambda: json.dumps(rows))
        return HttpAnswer(f"{text}\n".encode())


async def _find_unopened(sources: Sources) -> Sequence[str]:
    """Partitions that the metadata says this broker leads, and that it does not lead yet."""
    services = sources.services
    unopened = []
    count = 0
    for name, topic in services.image.topics.items():
        for number, state in enumerate(topic.partitions):
            count += 1
            if count % _PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
            if state.leader == services.broker_id:
                here = services.partitions.find(name, number)
                if here is None or not here.is_leader:
                    unopened.append(f"{name}-{number}")
    return unopened


def _to_json(value: Mapping[str, object], status: int = 200) -> HttpAnswer:
    return HttpAnswer(f"{json.dumps(value)}\n".encode(), status=status)


# Alive is a process whose loop turns: a supervisor that restarts brokers asks for it. Ready is a
# broker that clients can be sent to: it serves, is registered and leads its assigned partitions.


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """What a broker knows of itself."""

    is_serving: bool
    is_stopping: bool = False
    is_registered: bool = False
    holds_lease: bool = False
    unopened: Sequence[str] = ()  # partitions that the metadata says it leads, and it does not yet
    failed_directories: Sequence[str] = ()


def find_unready(known: Readiness) -> list[str]:
    """Why it is not ready; nothing when it is. A failed disk alone does not make it unready: what
    is on the others is served."""
    if known.is_stopping:
        return ["the broker is stopping"]
    if not known.is_serving:
        return ["the broker is starting: it loads its logs or waits for the coordination store"]
    reasons = []
    if not known.is_registered:
        reasons.append("the broker is not registered in its cluster")
    if not known.holds_lease:
        reasons.append("the coordination store has not been heard of for too long")
    if known.unopened:
        reasons.append(f"partitions are still being opened: {_name(known.unopened)}")
    return reasons


def _name(partitions: Iterable[str]) -> str:
    all_of_them = sorted(partitions)
    rest = len(all_of_them) - _NAMED
    return ", ".join(all_of_them[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


async def describe_shares(services: Services, group_id: str | None) -> list[dict[str, object]]:
    """A row for each partition of a group, or of all; those that are loaded."""
    rows: list[dict[str, object]] = []
    left = _RUNS_PER_TURN
    for share in tuple(services.shares.partitions):
        left -= 1
        if left <= 0:
            left = _RUNS_PER_TURN
            await asyncio.sleep(0)
        in_flight = share.in_flight
        if in_flight is None or (group_id is not None and share.key.group_id != group_id):
            continue
        if len(rows) == MOST_ROWS:
            break
        runs = tuple(in_flight.runs)
        left -= len(runs)
        census = take_census(runs, services.clock.monotonic())
        rows.append(
            {
                "group": share.key.group_id,
                "topic": share.partition.topic_partition.topic,
                "partition": share.partition.topic_partition.partition,
                "start_offset": in_flight.start_offset,
                "end_offset": in_flight.end_offset,
                **census._asdict(),
            }
        )
    return rows
