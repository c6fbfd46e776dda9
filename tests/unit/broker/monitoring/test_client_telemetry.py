"""Clients that push: their ids, their intervals, their last word, and what is kept of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest

from moldau.broker.monitoring.client_telemetry import (
    MOST_CLIENTS,
    MOST_SERIES,
    MOST_SHOWN,
    NO_ID,
    ClientTelemetry,
    TelemetryClient,
)
from moldau.errors import ErrorCode
from moldau.metrics.client_metrics import ClientSubscription
from moldau.records.compression import Codec, compress
from moldau.testing import ManualClock
from moldau.workers import InlineWorkers

CLIENT = TelemetryClient(client_id="c", connection_id="h:1-p:2-3", address="p")
INTERVAL_MS = 10_000
MAX_BYTES = 100_000


def one_gauge(name: bytes = b"org.apache.kafka.a", count: int = 1) -> bytes:
    def message(number: int, data: bytes) -> bytes:
        assert len(data) < 128
        return bytes([number << 3 | 2, len(data)]) + data

    point = b"\x31" + (7).to_bytes(8, "little")
    metric = message(1, name) + message(5, message(1, point))
    return message(1, message(2, message(2, metric))) * count


class Stage:
    def __init__(self, *, is_served: bool = True) -> None:
        self.clock = ManualClock()
        everything = ClientSubscription(name="s", metrics=("*",), interval_ms=INTERVAL_MS)
        self.configs = SimpleNamespace(subscriptions=(everything,))
        self.ids = (UUID(int=number) for number in range(1, 10_000))
        self.telemetry = ClientTelemetry(
            self.configs,
            clock=self.clock,
            make_uuid=lambda: next(self.ids),
            workers=InlineWorkers(),
            max_bytes=lambda: MAX_BYTES,
            is_served=is_served,
        )

    def subscribe(self, instance_id: UUID = NO_ID) -> tuple[UUID, int, ErrorCode]:
        found, requested, error = self.telemetry.subscribe(CLIENT, instance_id)
        return found, requested.subscription_id, error

    def push(
        self,
        instance: UUID,
        subscription: int,
        data: bytes = one_gauge(),
        codec: int = 0,
        *,
        over: bool = False,
    ) -> ErrorCode:
        pushing = self.telemetry.push(instance, subscription, codec, data, is_terminating=over)
        return asyncio.run(pushing)

    def advance(self, seconds: float) -> None:
        asyncio.run(self.clock.advance(seconds))

    def text(self) -> str:
        return "".join(self.telemetry.collecting()().pieces(openmetrics=False))


def test_metrics_are_collected_while_there_is_a_subscription_and_a_metrics_listener() -> None:
    stage = Stage()
    assert stage.telemetry.is_collecting
    stage.configs.subscriptions = ()
    assert not stage.telemetry.is_collecting
    assert not Stage(is_served=False).telemetry.is_collecting


def test_what_a_client_pushes_is_shown_until_it_goes() -> None:
    stage = Stage()
    stage.telemetry.note_software(CLIENT.connection_id, "librdkafka", "2.5")
    instance, subscription, error = stage.subscribe()
    assert error is ErrorCode.none
    assert stage.push(instance, subscription) is ErrorCode.none
    labels = f'client_id="c",client_instance_id="{instance}",client_software="librdkafka 2.5"'
    assert f"moldau_client_a{{{labels}}} 7.0\n" in stage.text()
    assert stage.push(instance, subscription, over=True) is ErrorCode.none
    assert "moldau_client_a{" not in stage.text()
    assert stage.push(instance, subscription) is ErrorCode.invalid_request


def test_a_client_that_falls_silent_is_forgotten() -> None:
    stage = Stage()
    instance, subscription, _ = stage.subscribe()
    stage.push(instance, subscription)
    stage.advance(59)
    assert "moldau_client_a{" in stage.text()
    stage.advance(2)
    assert "moldau_client_a{" not in stage.text()
    assert stage.push(instance, subscription) is ErrorCode.unknown_subscription_id


def test_who_comes_too_early_is_sent_away() -> None:
    stage = Stage()
    instance, subscription, _ = stage.subscribe()
    assert stage.subscribe(instance)[2] is ErrorCode.throttling_quota_exceeded
    assert stage.push(instance, subscription) is ErrorCode.none
    assert stage.push(instance, subscription) is ErrorCode.throttling_quota_exceeded
    stage.advance(10)
    assert stage.push(instance, subscription) is ErrorCode.none
    assert stage.subscribe(instance)[2] is ErrorCode.none


def test_another_subscription_is_asked_for_at_once() -> None:
    stage = Stage()
    instance, subscription, _ = stage.subscribe()
    stage.configs.subscriptions = ()
    assert stage.push(instance, subscription + 1) is ErrorCode.unknown_subscription_id
    found, changed, error = stage.subscribe(instance)
    assert (found, error) == (instance, ErrorCode.none)
    assert changed != subscription


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_unpacked(codec: Codec) -> None:
    stage = Stage()
    instance, subscription, _ = stage.subscribe()
    data = compress(codec, one_gauge())
    assert stage.push(instance, subscription, data, codec) is ErrorCode.none
    assert "moldau_client_a{" in stage.text()


@pytest.mark.parametrize(
    ("data", "codec", "error"),
    [
        (b"x" * (MAX_BYTES + 1), 0, ErrorCode.telemetry_too_large),
        (compress(Codec.ZSTD, b"\0" * (MAX_BYTES + 1)), 4, None),
        (b"\xff\xff", 0, ErrorCode.invalid_record),
        (one_gauge(), 9, ErrorCode.unsupported_compression_type),
        (b"no zstd", 4, None),
    ],
)
def test_what_is_wrong_with_a_push_is_said(
    data: bytes, codec: int, error: ErrorCode | None
) -> None:
    stage = Stage()
    instance, subscription, _ = stage.subscribe()
    answered = stage.push(instance, subscription, data, codec)
    assert answered is not ErrorCode.none
    assert error is None or answered is error


def test_series_and_clients_are_bounded() -> None:
    stage = Stage()
    instance, subscription, _ = stage.subscribe()
    stage.push(instance, subscription, one_gauge(count=MOST_SERIES + 5))
    assert "moldau_client_series_dropped_total 5\n" in stage.text()
    for _ in range(MOST_CLIENTS):
        last, last_subscription, error = stage.subscribe()
        assert error is ErrorCode.none
    assert stage.push(last, last_subscription) is ErrorCode.unknown_subscription_id


def test_all_that_clients_push_together_is_bounded() -> None:
    stage = Stage()
    clients = MOST_SHOWN // MOST_SERIES + 2
    for _ in range(clients):
        instance, subscription, _ = stage.subscribe()
        stage.push(instance, subscription, one_gauge(count=MOST_SERIES))
    unseen = clients * MOST_SERIES - MOST_SHOWN
    assert f"moldau_client_series_unseen {unseen}\n" in stage.text()
