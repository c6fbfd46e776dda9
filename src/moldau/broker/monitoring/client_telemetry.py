"""Clients' own metrics (KIP-714): who is asked for what, and what they pushed last.

What a client pushes is kept until its next push, its last word (`terminating`), or three intervals
of silence; then it is forgotten. Everything is bounded: clients, series of each, bytes of a push.
A shell without a task, owned by the event loop; the rules are in `metrics`, and are imported when
the first client asks or pushes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final, NamedTuple
from uuid import UUID

from moldau.clock import Clock
from moldau.cluster.config_writer import ClientMetricsConfigs
from moldau.errors import ErrorCode, KafkaError
from moldau.metrics import catalogue
from moldau.metrics.client_metrics import (
    ClientSeries,
    MalformedPushError,
    RequestedMetrics,
    group_series,
    name_series,
    read_push,
    request_metrics,
)
from moldau.metrics.exposition import Exposition
from moldau.records.compression import Codec, decompress
from moldau.workers import Workers

MOST_CLIENTS: Final = 500
MOST_SERIES: Final = 300
MOST_SHOWN: Final = 20_000
"""Series of all clients in one scrape: some five megabytes."""
"""Of one client; a Java producer has some sixty, and one more for each broker and topic."""

MOST_CONNECTIONS: Final = 10_000
_SILENT_INTERVALS: Final = 3
_LEAST_SILENT_SECONDS: Final = 60.0
NO_ID: Final = UUID(int=0)


class TelemetryClient(NamedTuple):
    """Who asks, as far as its connection and its request tell."""

    client_id: str
    connection_id: str
    address: str


class _Instance:
    """One client that was told what to push."""

    __slots__ = ("asked_at", "is_over", "labels", "pushed_at", "requested", "series", "was_refused")

    def __init__(self, requested: RequestedMetrics, labels: Mapping[str, str], now: float) -> None:
        self.requested = requested
        self.labels = labels
        self.asked_at = now
        self.pushed_at: float | None = None
        self.was_refused = False  # its last push was for another subscription: it may ask at once
        self.is_over = False  # it has said its last word
        self.series: list[ClientSeries] = []

    def is_silent(self, now: float) -> bool:
        heard_at = max(self.asked_at, self.pushed_at or 0.0)
        seconds = _SILENT_INTERVALS * self.requested.interval_ms / 1000
        return now - heard_at > max(seconds, _LEAST_SILENT_SECONDS)


class ClientTelemetry:
    """See the module."""

    def __init__(
        self,
        configs: ClientMetricsConfigs,
        *,
        clock: Clock,
        make_uuid: Callable[[], UUID],
        workers: Workers,
        max_bytes: Callable[[], int],
        is_served: bool,
    ) -> None:
        self.configs = configs
        self._clock = clock
        self._workers = workers
        self._make_uuid = make_uuid
        self.max_bytes = max_bytes
        self._is_served = is_served  # `metrics.listener` is set: pushed metrics can be read there
        self._software: dict[str, tuple[str, str]] = {}  # by connection, the latest ones
        self._instances: dict[UUID, _Instance] = {}
        self._pushes = 0
        self._dropped = 0

    @property
    def is_collecting(self) -> bool:
        """Whether a subscription exists and its metrics can be read; else the APIs are hidden."""
        return self._is_served and bool(self.configs.subscriptions)

    def note_software(self, connection_id: str, name: str, version: str) -> None:
        """What a client says of itself when it connects (KIP-511)."""
        self._software[connection_id] = name, version
        if len(self._software) > MOST_CONNECTIONS:
            del self._software[next(iter(self._software))]

    # Requests

    def subscribe(
        self, client: TelemetryClient, instance_id: UUID
    ) -> tuple[UUID, RequestedMetrics, ErrorCode]:
        """What a client shall push, and as whom; a new one gets an id."""
        now = self._clock.monotonic()
        self._forget_silent(now)
        if instance_id == NO_ID:
            instance_id = self._make_uuid()
        facts = self._facts_of(client, instance_id)
        requested = request_metrics(self.configs.subscriptions, facts, instance_id)
        known = self._instances.get(instance_id)
        if known is not None and _is_early(known.asked_at, known, now) and not known.was_refused:
            return instance_id, known.requested, ErrorCode.throttling_quota_exceeded
        if known is None and len(self._instances) >= MOST_CLIENTS:
            nothing = request_metrics((), facts, instance_id)
            return instance_id, nothing, ErrorCode.none
        labels = {
            "client_id": client.client_id,
            "client_instance_id": str(instance_id),
            "client_software": f"{facts['client_software_name']} "
            f"{facts['client_software_version']}".strip(),
        }
        instance = self._instances[instance_id] = _Instance(requested, labels, now)
        if known is not None:
            instance.series, instance.pushed_at = known.series, known.pushed_at
        return instance_id, requested, ErrorCode.none

    async def push(
        self,
        instance_id: UUID,
        subscription_id: int,
        codec_number: int,
        data: bytes,
        *,
        is_terminating: bool,
    ) -> ErrorCode:
        """Take what a client pushed. It is read by a worker: a megabyte takes its time."""
        now = self._clock.monotonic()
        instance = self._instances.get(instance_id)
        if instance_id == NO_ID or (instance is not None and instance.is_over):
            return ErrorCode.invalid_request
        if instance is None or instance.requested.subscription_id != subscription_id:
            if instance is not None:
                instance.was_refused = True
            return ErrorCode.unknown_subscription_id
        pushed_at = instance.pushed_at
        is_first = pushed_at is None or pushed_at < instance.asked_at  # since it asked
        if not (is_first or is_terminating) and _is_early(pushed_at or 0.0, instance, now):
            return ErrorCode.throttling_quota_exceeded
        if len(data) > self.max_bytes():
            return ErrorCode.telemetry_too_large
        instance.pushed_at = now  # also of one that is refused: it comes again no sooner
        labels, max_bytes = instance.labels, self.max_bytes()
        try:
            series, dropped = await self._workers.run(
                lambda: _read(codec_number, data, labels, max_bytes)
            )
        except KafkaError as error:
            return error.code
        except MalformedPushError:
            return ErrorCode.invalid_record
        self._dropped += dropped
        instance.is_over = is_terminating
        instance.series = [] if is_terminating else series
        self._pushes += 1
        return ErrorCode.none

    def _facts_of(self, client: TelemetryClient, instance_id: UUID) -> Mapping[str, str]:
        name, version = self._software.get(client.connection_id, ("", ""))
        return {
            "client_instance_id": str(instance_id),
            "client_id": client.client_id,
            "client_software_name": name,
            "client_software_version": version,
            "client_source_address": client.address,
            "client_source_port": _port_of(client.connection_id),
        }

    def _forget_silent(self, now: float) -> None:
        for instance_id, instance in tuple(self._instances.items()):
            if instance.is_silent(now):
                del self._instances[instance_id]

    # Figures

    def collecting(self) -> Callable[[], Exposition]:
        """What is known now; it is for a worker to write it out."""
        self._forget_silent(self._clock.monotonic())
        pushes, dropped = self._pushes, self._dropped
        # Lists of series are replaced, and never changed.
        pushing = [one.series for one in self._instances.values() if one.series]
        return partial(_write_out, pushing, pushes, dropped)


def _read(
    codec_number: int, data: bytes, labels: Mapping[str, str], max_bytes: int
) -> tuple[list[ClientSeries], int]:
    """The series of a push, and how many of it are too many."""
    codec = Codec.require(codec_number)
    points = read_push(bytes(decompress(codec, data, max_bytes)) if data else b"")
    series = [name_series(point, labels) for point in islice(points, MOST_SERIES)]
    return series, sum(1 for _ in points)


def _write_out(pushing: Sequence[Sequence[ClientSeries]], pushes: int, dropped: int) -> Exposition:
    out = Exposition()
    shown = list(islice(chain.from_iterable(pushing), MOST_SHOWN))
    unseen = sum(map(len, pushing)) - len(shown)
    out.add(catalogue.CLIENTS, len(pushing))
    out.add(catalogue.CLIENT_PUSHES, pushes)
    out.add(catalogue.CLIENT_SERIES_DROPPED, dropped)
    out.add(catalogue.CLIENT_SERIES_UNSEEN, unseen)
    for metric, samples in group_series(shown):
        for labels, value in samples:
            out.add(metric, value, *labels)
    return out


def _port_of(connection_id: str) -> str:
    """The id of a connection ends with the client's address and a number."""
    return connection_id.rpartition("-")[0].rpartition(":")[2]


def _is_early(last_at: float, instance: _Instance, now: float) -> bool:
    return now - last_at < instance.requested.interval_ms / 1000
