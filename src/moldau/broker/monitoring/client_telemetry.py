"""Clients' own metrics (KIP-714): who is asked for what, and what they pushed last.

What a client pushes is kept until its next push, its last word (`terminating`), or three intervals
of silence; then it is forgotten. Everything is bounded: clients, series of each, bytes of a push.
A shell without a task, owned by the event loop; the rules are in `metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from moldau.clock import Clock
from moldau.cluster.client_metrics import ClientMetricsConfigs
from moldau.errors import ErrorCode, KafkaError
from moldau.metrics import catalogue
from moldau.metrics.client_series import ClientSeries, group_series, name_series
from moldau.metrics.client_subscriptions import RequestedMetrics, request_metrics
from moldau.metrics.exposition import Exposition
from moldau.metrics.otlp import MalformedPushError, read_push
from moldau.records.compression import Codec, decompress

MOST_CLIENTS: Final = 500
MOST_SERIES: Final = 300
"""Of one client; a Java producer has some sixty, and one more for each broker and topic."""

MOST_CONNECTIONS: Final = 10_000
_SILENT_INTERVALS: Final = 3
_LEAST_SILENT_SECONDS: Final = 60.0
NO_ID: Final = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryClient:
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
        max_bytes: Callable[[], int],
    ) -> None:
        self.configs = configs
        self._clock = clock
        self._make_uuid = make_uuid
        self.max_bytes = max_bytes
        self._software: dict[str, tuple[str, str]] = {}  # by connection, the latest ones
        self._instances: dict[UUID, _Instance] = {}
        self._pushes = 0
        self._dropped = 0

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

    def push(
        self,
        instance_id: UUID,
        subscription_id: int,
        codec_number: int,
        data: bytes,
        *,
        is_terminating: bool,
    ) -> ErrorCode:
        """Take what a client pushed."""
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
        try:
            series = self._read(instance, codec_number, data)
        except KafkaError as error:
            return error.code
        except MalformedPushError:
            return ErrorCode.invalid_record
        instance.pushed_at = now
        instance.is_over = is_terminating
        instance.series = [] if is_terminating else series
        self._pushes += 1
        return ErrorCode.none

    def _read(self, instance: _Instance, codec_number: int, data: bytes) -> list[ClientSeries]:
        codec = Codec.require(codec_number)
        plain = bytes(decompress(codec, data, self.max_bytes())) if data else b""
        series = [name_series(point, instance.labels) for point in read_push(plain)]
        self._dropped += max(0, len(series) - MOST_SERIES)
        return series[:MOST_SERIES]

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

    def collect(self, out: Exposition) -> None:
        self._forget_silent(self._clock.monotonic())
        pushing = [one for one in self._instances.values() if one.series]
        out.add(catalogue.CLIENTS, len(pushing))
        out.add(catalogue.CLIENT_PUSHES, self._pushes)
        out.add(catalogue.CLIENT_SERIES_DROPPED, self._dropped)
        for metric, samples in group_series(series for one in pushing for series in one.series):
            for labels, value in samples:
                out.add(metric, value, *labels)


def _port_of(connection_id: str) -> str:
    """The id of a connection ends with the client's address and a number."""
    return connection_id.rpartition("-")[0].rpartition(":")[2]


def _is_early(last_at: float, instance: _Instance, now: float) -> bool:
    return now - last_at < instance.requested.interval_ms / 1000
